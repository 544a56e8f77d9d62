"""Uniform step: games of a player who clicks without a plan, by the packed model, named by the recogniser.

OUT/uniform/IDENTITY/game-1 ...    games whose characters, motions, places and times are drawn from the page's buttons
OUT/uniform.png                    first, middle and last frame of every turn, to name by eye
OUT/uniform.json                   share of the turns that show what was asked, by the packed recogniser: of all, of
                                   those whose motion the stories show with as many characters, and of the others
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from examples.miniature.figures import Figure, figure
from examples.miniature.package import sheet, turn_picture
from examples.miniature.recogniser_network import Named, Recogniser
from examples.miniature.story import WATCHED
from examples.world.puppet_motions import HUG
from flows.console.terminal import say
from flows.game.folder import GameFolder
from flows.game.play_file import is_unfinished, opened_game, play_on
from flows.game.records import GameSettings
from flows.web.understanding import Reader
from models.config import ModelConfig
from models.engine import Engine
from models.engine_options import EngineOptions
from models.shipped import packed_identity, shipped
from models.turns import TIMES
from pipeline.core.atomic import replacing, write_json
from pipeline.video.clip_files import read_clip

GAMES, TURNS = 6, 10
_COMPANION_SHARE = 0.5
_COLUMNS = 4


@dataclass(frozen=True)
class Clicks:
    """Choices of a turn."""

    who: tuple[str, ...]
    motion: str
    place: str
    """Place without its time of day."""
    time: str
    """Empty: as before."""

    @property
    def instruction(self) -> str:
        """Instruction as the page composes it."""
        return f"Character: {', '.join(self.who)}; Motion: {self.motion}; Background: {self.background}."

    @property
    def background(self) -> str:
        """Place with its time of day."""
        return f"{self.time} {self.place}".strip()

    @property
    def has_clips(self) -> bool:
        """True if the stories show the motion with as many characters."""
        return self.motion in WATCHED if len(self.who) > 1 else self.motion != HUG

    def as_asked(self, named: Named) -> dict[str, bool]:
        """Return which parts the recogniser names as they were asked."""
        return named.follows(self.who, self.place, self.motion)


def draw_clicks(config: ModelConfig, turns: int, seed: int) -> Iterator[Clicks]:
    """Yield the choices of a game: every button of a kind is as likely as the others, and half have two characters."""
    dice = random.Random(f"uniform {seed}")
    times = [time for time in TIMES if any(place.startswith(f"{time} ") for place in config.places)]
    places = [place for place in config.places if not place.startswith(tuple(f"{time} " for time in times))]
    for turn in range(turns):
        who = tuple(dice.sample(config.characters, 1 + (dice.random() < _COMPANION_SHARE)))
        time = dice.choice(times if turn == 0 else ["", *times])
        yield Clicks(who, dice.choice(config.motions), dice.choice(places), time)


def play_uniformly(out: Path) -> None:
    """Play the games that are not played, and write the contact sheet and the figures."""
    checkpoint = shipped()
    options, config = EngineOptions("cpu"), checkpoint.config
    reader, engine = Reader(config), None
    games = {seed: list(draw_clicks(config, TURNS, seed)) for seed in range(1, GAMES + 1)}
    shown = []
    for seed, clicks in games.items():
        lines = [reader.read(each.instruction, first=not turn).instruction for turn, each in enumerate(clicks)]
        settings = GameSettings.of(checkpoint, options, seed)
        with opened_game(out / "uniform" / packed_identity() / f"game-{seed}", settings, lines) as folder:
            if is_unfinished(folder, lines):
                engine = engine or Engine.load(checkpoint.folder, options)
                play_on(folder, engine, lines)
        shown.append((folder, clicks))
    _draw_sheet(out / "uniform.png", shown)
    say(f"the turns: {out / 'uniform.png'}")
    figures = _figures(shown, Recogniser.open())
    write_json(out / "uniform.json", figures)
    for name, found in figures.items():
        said = ", ".join(f"{field} {each['mean']:.0%}" for field, each in found.items())
        say(f"{name}, {found['as asked']['turns']} turns: {said}")


def _figures(
    shown: Sequence[tuple[GameFolder, Sequence[Clicks]]], recogniser: Recogniser
) -> dict[str, dict[str, Figure]]:
    found: dict[str, dict[str, list[tuple[Path, bool]]]] = {}
    for folder, clicks in shown:
        frames_BTHWC = np.stack([read_clip(folder.clip_path(turn.id))[..., ::-1] for turn in folder.turns])
        for each, named in zip(clicks, recogniser.name(torch.from_numpy(frames_BTHWC)), strict=True):
            for kind in ("all", "in the stories" if each.has_clips else "not in the stories"):
                for field, right in each.as_asked(named).items():
                    found.setdefault(kind, {}).setdefault(field, []).append((folder.path, right))
    return {kind: {field: figure(values) for field, values in fields.items()} for kind, fields in found.items()}


def _draw_sheet(path: Path, shown: Sequence[tuple[GameFolder, Sequence[Clicks]]]) -> None:
    """Draw all turns; the number of one that the stories do not show has a star."""
    pictures: list[Image.Image] = []
    for folder, clicks in shown:
        for each, turn in zip(clicks, folder.turns, strict=True):
            star = "" if each.has_clips else "*"
            caption = f"{len(pictures) + 1}{star} {', '.join(each.who)}: {each.motion}, {each.background}"
            pictures.append(turn_picture(caption, read_clip(folder.clip_path(turn.id))))
    with replacing(path) as temporary:
        sheet(pictures, _COLUMNS).save(temporary)
