"""Data step: the world's films, composed and built into datasets by the ordinary pipeline.

OUT/films/stories-1.mp4 ...    films of seven stories each, for OUT/dataset: one story in seven is of the split `val`
OUT/films/more-1.mp4 ...       more of these, for OUT/more, all to train
OUT/films/any-pairs-1.mp4 ...  more with any pairs, for OUT/any-pairs, all to train
OUT/films/unseen-1.mp4 ...     stories in which every scene has a held-out pair, for OUT/unseen, all of the split `val`
OUT/truth.jsonl                a line for every scene of every film: what it shows, and what instructions leave unsaid
OUT/cast                       a picture of every character

The model of the package and the recogniser learn from `TRAINED`, all pairs. A model for research leaves out
OUT/any-pairs, the only training data with held-out pairs, and OUT/unseen then asks for pairs that it never saw.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from examples.miniature.scripted import ScriptedFilm, build_scripted
from examples.miniature.story import BREAK_FRAMES, END_FRAMES, STORY_SECONDS, Pairs, Scriptwriter, StoryScene
from examples.world.characters import CAST
from examples.world.film import FPS, compose_film
from examples.world.places import DrawnPlace
from examples.world.puppets import Puppet
from examples.world.scene import Scene
from examples.world.scenery import GROUND, Scenery
from examples.world.truth import SOURCE, SceneTruth, truth_about
from flows.console.terminal import say
from pipeline.core.atomic import replacing
from pipeline.core.config import (
    ClipSettings,
    Config,
    CropSettings,
    LooksSettings,
    MotionSettings,
    RunSettings,
    SelectionSettings,
    ShardSettings,
)
from pipeline.core.ingredients import ResultNotes
from pipeline.core.progress import watched
from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import Dataset

_VERSION = 2
"""Version of the drawings, raised when the same script gives other pictures."""
STORIES = 7
MORE, ANY_PAIRS = "more", "any-pairs"
TRAINED = ("dataset", MORE, ANY_PAIRS)
"""Datasets that the model of the package learns from."""
_VAL_SHARES = {"dataset": 1 / STORIES, MORE: 0.0, ANY_PAIRS: 0.0}
"""Share of a dataset in the split `val`; 1 for other datasets."""
CONFIG = Config(
    crop=CropSettings(enabled=False),  # drawn pictures have no borders, but nights are dark
    clips=ClipSettings(frames=17, fps=Fraction(8), height=128, width=192),
    looks=LooksSettings(text=False),
    # the edges lie between the speeds of the motions; clips this small are not halved for the optical flow
    motion=MotionSettings(scale=1.0, edges=(1.0, 1.9, 3.1, 5.0)),
    # the same deed at the same place is meant, and the sun that all scenes of a film may share is no logo
    selection=SelectionSettings(near_duplicates=False, logo="flag"),
    shards=ShardSettings(block_seconds=STORY_SECONDS, val_share=1 / STORIES),
    run=RunSettings(threads=1, films_at_once=os.cpu_count() or 1),
)
_SIZE = Scenery("meadow", ()).size
_BLACK = DrawnPlace("black", np.zeros((*_SIZE[::-1], 3), np.uint8), _SIZE)


@dataclass(frozen=True)
class StoryFilm:
    """Film of stories."""

    name: str
    scenes: tuple[StoryScene, ...]


def films_of(
    name: str, count: int, pairs: Pairs = "seen", stories: int = STORIES, writer: Scriptwriter | None = None
) -> tuple[StoryFilm, ...]:
    """Return the scripts of films whose names begin with `name`, the seed of their stories.

    Args:
        writer: writer of other films, to use everything equally often together.
    """
    own = Scriptwriter(name, pairs, writer.used) if writer else Scriptwriter(name, pairs)
    return tuple(
        StoryFilm(f"{name}-{number}", tuple(scene for _ in range(stories) for scene in own.story()))
        for number in range(1, count + 1)
    )


def films_of_the_world() -> dict[str, tuple[StoryFilm, ...]]:
    """Return all scripts by dataset."""
    together = Scriptwriter("")
    return {
        "dataset": films_of("stories", 14, writer=together),
        "unseen": films_of("unseen", 2, "unseen"),
        MORE: films_of(MORE, 34, writer=together),
        ANY_PAIRS: films_of(ANY_PAIRS, 14, "any", writer=together),
    }


def build_datasets(out: Path, films: Mapping[str, Sequence[StoryFilm]]) -> None:
    """Compose the films and build their datasets; current parts are not made again.

    Args:
        films: scripts by dataset, a folder in `out`; all but those of `TRAINED` are of the split `val` alone.
    """
    rows = {film.name: list(rows_of(film)) for scripts in films.values() for film in scripts}
    with replacing(out / "truth.jsonl") as part:
        part.write_text("".join(f"{json.dumps(row)}\n" for each in rows.values() for row in each), encoding="utf-8")
    cast = write_cast(out / "cast")
    pool = ProcessPoolExecutor(mp_context=get_context("forkserver"))  # a film on each core, while others become clips
    try:
        composing = {name: _compose(out / "films", scripts, rows, pool) for name, scripts in films.items()}
        for name, scripts in films.items():
            shards = CONFIG.shards.model_copy(update={"val_share": _VAL_SHARES.get(name, 1.0)})
            config = CONFIG.model_copy(update={"shards": shards})
            dataset = build_scripted(out / name, [composed() for composed in composing[name]], config, cast)
            kept, right = agreement(dataset, scripts)
            say(f"{name}: {kept} clips; the level measured is the script's in {right / kept:.1%}")
    finally:
        pool.shutdown(cancel_futures=True)


def rows_of(film: StoryFilm) -> Iterator[dict[str, Any]]:
    """Yield the truth of every scene of a film."""
    drawn = drawn_scenes(film)
    truths = [truth for truth in truth_about(drawn, FPS).scenes if truth.background != _BLACK.name]
    for number, (scene, truth) in enumerate(zip(film.scenes, truths, strict=True)):
        after = scene.caption("", scene.cue.level)
        yield {
            "film": film.name,
            "story": scene.story,
            "scene": number,
            "start_seconds": float(truth.start_frame / FPS),
            "end_seconds": float(truth.end_frame / FPS),
            "characters": scene.characters,
            "actor": scene.cue.actor,
            "motion": scene.cue.motion,
            "level": scene.cue.level,
            "place": scene.place,
            "time_of_day": truth.time_of_day,
            "time_named": scene.time_named,
            "raincoats": sorted(scene.cue.coats.intersection(scene.characters)),
            "flag": scene.flag is not None,
            "shows_flag": scene.shows_flag,
            "state": [after.SC, after.ET, after.ST],
            "held_out": scene.held_out,
            "stays": scene.stays,
            "chance": {"flag_x": scene.flag, **asdict(scene.cue.staging), **asdict(scene.surroundings)},
        }


def agreement(dataset: Dataset, films: Sequence[StoryFilm]) -> tuple[int, int]:
    """Return the number of kept clips, and of kept clips with the script's motion level."""
    kept = right = 0
    for folder, film in zip(dataset.folders(), films, strict=True):
        drawn = drawn_scenes(film)
        truth, scenes = truth_about(drawn, FPS), scripts_of(film, drawn)
        clips = {clip.clip_id: clip for clip in folder.read("clips", Clip)}
        for verdict in folder.read("verdicts", Verdict):
            if verdict.keep:
                kept += 1
                scene = scenes[truth.scene_at(clips[verdict.clip_id].source_frames[0]).name]
                right += verdict.level == scene.cue.level
    return kept, right


def drawn_scenes(film: StoryFilm) -> list[Scene]:
    """Return the scenes of a film, and the black ones between."""
    drawn: list[Scene] = []
    for number, scene in enumerate(film.scenes):
        if scene.stays:
            drawn.append(Scene(f"{number} break", BREAK_FRAMES, _BLACK))
        drawn.append(scene.drawn(f"{number} {scene.cue.motion}"))
        if number + 1 == len(film.scenes) or film.scenes[number + 1].story != scene.story:
            drawn.append(Scene(f"{number} end", END_FRAMES, _BLACK))
    return drawn


def scripts_of(film: StoryFilm, drawn: Sequence[Scene]) -> dict[str, StoryScene]:
    """Return the scripts of drawn scenes by their names, without the black ones."""
    told = (scene for scene in drawn if scene.place != _BLACK)
    return {scene.name: script for scene, script in zip(told, film.scenes, strict=True)}


def _compose(
    folder: Path, films: Sequence[StoryFilm], rows: Mapping[str, Any], pool: Executor
) -> list[Callable[[], ScriptedFilm]]:
    """Begin to compose films unless the same are there. Return functions that wait for each.

    Args:
        rows: the truth of all scenes by film.
    """
    notes = ResultNotes(folder / "made.json")

    def begin(film: StoryFilm) -> Callable[[], ScriptedFilm]:
        path, made_from = folder / f"{film.name}.mp4", {"version": _VERSION, "scenes": rows[film.name]}
        future = pool.submit(_compose_film, path, film) if notes.why_stale(film.name, made_from) else None

        def note(done: Future[Path]) -> None:  # in the pool's one thread, one film after another
            if not done.cancelled() and not done.exception():
                notes.renew(film.name, made_from, lambda: [path])

        def composed() -> ScriptedFilm:
            with watched(path.name, "compose") as watch:
                if future:
                    future.result()
                watch.changed = future is not None
            drawn = drawn_scenes(film)
            return ScriptedFilm(path, truth_about(drawn, FPS), partial(_caption, scripts_of(film, drawn)))

        if future:
            future.add_done_callback(note)
        return composed

    return [begin(film) for film in films]


def _compose_film(path: Path, film: StoryFilm) -> Path:
    with replacing(path) as part:
        compose_film(part, drawn_scenes(film))
    return path


def _caption(scenes: Mapping[str, StoryScene], clip_id: str, truth: SceneTruth, level: int) -> Caption:
    if truth.name not in scenes:
        return Caption(clip_id=clip_id, source=SOURCE, fault="it shows nothing, between two scenes")
    return scenes[truth.name].caption(clip_id, level)


def write_cast(folder: Path, names: Iterable[str] = CAST) -> Path:
    """Write a cast folder with a picture of every character, or of some, and return it."""
    place = Scenery("meadow", tuple(CAST.items()))
    for name in names:
        home = folder / name
        home.mkdir(parents=True, exist_ok=True)
        picture_HWC = place.picture((Puppet(name, name, 160, GROUND),), place.whole)
        if not (home / "front.png").exists():
            cv2.imwrite(str(home / "front.png"), picture_HWC[:, 180:460])
    return folder
