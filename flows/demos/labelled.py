"""Labelled data set: a film composed of anime art, processed by the ordinary pipeline and captioned by its script.

    build_labelled(Path("labelled"))

The levels are calibrated to the film, since the published edges are for pictures seven times as wide.
"""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

from flows.demos.scripted import ScriptedFilm, build_scripted
from flows.demos.world.acting import SPRITES
from flows.demos.world.art import art_folder
from flows.demos.world.film import compose_film
from flows.demos.world.story import caption_of, story
from pipeline.core.config import ClipSettings, Config, MotionSettings, RunSettings, ShardSettings
from pipeline.core.progress import watched
from pipeline.core.store import Dataset

CONFIG = Config(
    clips=ClipSettings(frames=17, fps=Fraction(8), height=64, width=96),
    motion=MotionSettings(scale=1.0),  # clips this small are not halved for the optical flow
    shards=ShardSettings(block_seconds=4.0, val_share=0.2),  # blocks of about a scene spread `val` over the film
    run=RunSettings(threads=1),
)
"""Configuration with the clip size of `models.config.tiny_config`."""


def build_labelled(folder: Path) -> Dataset:
    """Compose the film and make a data set of it in `folder/dataset`; current parts are not made again.

    Raises:
        UserError: the art cannot be fetched.
        RecordError: a stage cannot use the film.
        StoreError: the folder holds a data set of another film.
    """
    film = folder / "film.mp4"
    folder.mkdir(parents=True, exist_ok=True)
    with watched(film.name, "compose"):
        truth = compose_film(film, story())
    films = [ScriptedFilm(film, truth, caption_of)]
    return build_scripted(folder / "dataset", films, CONFIG, write_cast(folder / "cast"))


def write_cast(folder: Path) -> Path:
    """Write a cast folder of the film's characters, each with its first drawing, and return it."""
    art = art_folder()
    for key, (first, *_) in SPRITES.items():
        name, _, other_clothes = key.partition(" ")
        if not other_clothes:
            (picture,) = art.glob(f"*/game/images/{first}.png")
            home = folder / name.capitalize()
            home.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, home / "front.png")
    return folder
