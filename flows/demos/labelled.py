"""Labelled data set: a film composed of anime art, processed by the ordinary pipeline and captioned by its script.

    build_labelled(Path("demo-model"))

All stages but captions are those of `animegamer build`. Captions by the script are exact, while those of a model have
errors, so any error of a game model trained on these shards is its own. The levels are calibrated to the film, since
the published edges are for pictures seven times as wide.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

from flows.demos.world.acting import SPRITES
from flows.demos.world.art import art_folder
from flows.demos.world.film import compose_film
from flows.demos.world.story import SOURCE, caption_of, story
from flows.demos.world.truth import Truth
from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import ClipSettings, Config, MotionSettings, RunSettings, ShardSettings
from pipeline.core.progress import Progress, watched
from pipeline.core.records import Caption, Clip, Failure, Verdict
from pipeline.core.stage import Outcome, Stage, perform
from pipeline.core.store import Dataset, FilmFolder, StoreError
from pipeline.plan.build_plan import make_plan
from pipeline.plan.publish import Select, WriteShards
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.workspace import Workspace
from pipeline.stages.motion_levels import calibrate

CONFIG = Config(
    clips=ClipSettings(frames=17, fps=Fraction(8), height=64, width=96),
    motion=MotionSettings(scale=1.0),  # clips this small are not halved for the optical flow
    shards=ShardSettings(block_seconds=4.0, val_share=0.2),  # blocks of about a scene spread `val` over the film
    run=RunSettings(threads=1),
)
"""Configuration with the clip size of `models.config.tiny_config`."""


@dataclass(frozen=True)
class CaptionByScript(Stage):
    """Stage that captions the clips kept by `screened` from the script; replaces `WriteCaptions`."""

    truth: Truth
    name: ClassVar[str] = WriteCaptions.name
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = WriteCaptions.needs

    def ingredients(self) -> dict[str, Any]:
        """Return the script's version; the film's content is an ingredient of every stage."""
        return {"captioner": SOURCE, "script": 1}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Make the table `captions`; a clip across two scenes, after a missed cut, gets a caption with that fault."""
        levels = {row.clip_id: row.level for row in folder.read("screened", Verdict) if row.keep}
        clips = [clip for clip in folder.read("clips", Clip) if clip.clip_id in levels]
        captions = [self._caption(clip, levels[clip.clip_id] or 1) for clip in clips]
        progress(len(captions), len(captions))
        failures = tuple(Failure(record_id=row.clip_id, reason=row.fault) for row in captions if row.fault)
        return Outcome(tables={"captions": captions}, failures=failures)

    def _caption(self, clip: Clip, level: int) -> Caption:
        scenes = {self.truth.scene_at(frame) for frame in clip.source_frames}
        if len(scenes) > 1:
            names = ", ".join(sorted(scene.name for scene in scenes))
            return Caption(clip_id=clip.clip_id, source=SOURCE, fault=f"it spans several scenes: {names}")
        return caption_of(clip.clip_id, scenes.pop(), level)


def build_labelled(folder: Path) -> Dataset:
    """Compose the film and make a data set of it in `folder/dataset`; current parts are not made again.

    No data card and no report are written, since they describe captions by rules or by a model.

    Raises:
        UserError: the art cannot be fetched.
        RecordError: a stage cannot use the film.
        StoreError: the folder holds a data set of another film.
    """
    film = folder / "film.mp4"
    folder.mkdir(parents=True, exist_ok=True)
    with watched(film.name, "compose"):
        truth = compose_film(film, story())
    request = BuildRequest(
        films=(film,), out=folder / "dataset", cast=write_cast(folder / "cast"), config=CONFIG, until=Until.motion
    )
    dataset = _run(request, truth)
    if len(dataset.record.films) > 1:
        raise StoreError(f"{dataset.root} holds the clips of an older film: delete it and start again")
    _calibrate_once(dataset)
    _run(request.model_copy(update={"until": Until.captions}), truth)
    with watched(dataset.root.name, "publish") as watch:
        Select(CONFIG).run(dataset, watch)
        WriteShards(CONFIG).run(dataset, watch)
    return dataset


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


def _run(request: BuildRequest, truth: Truth) -> Dataset:
    plan = make_plan(request, Workspace(request.out))
    (film_id,) = plan.films
    folder = plan.dataset.folder(film_id)
    for planned in plan.stages:
        stage = CaptionByScript(truth) if planned.name == WriteCaptions.name else planned
        with watched(folder.film.name, stage.name) as watch:
            watch.changed = perform(stage, folder, watch)
    return plan.dataset


def _calibrate_once(dataset: Dataset) -> None:
    record = dataset.record
    if record.edges_from and record.edges_from.startswith("calibrated"):
        return
    fitted = calibrate(dataset, "quantiles")
    updates = {"edges": fitted.edges, "level_values": fitted.values, "edges_from": "calibrated: quantiles"}
    dataset.save(record.model_copy(update=updates))
