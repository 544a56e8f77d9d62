"""A small data set with true labels: a film composed of anime art goes through the ordinary pipeline, and its captions
are read off the script it was composed from.

    build_labelled(Path("demo-model"))

Every stage but one is that of `animegamer build`. Captions of a model would be mostly right; those of the script are
right, so what a game model gets wrong on these shards is its own fault. The levels are calibrated to the film: the
published edges belong to pictures seven times as wide.
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
from pipeline.plan.publish import select, write_shards
from pipeline.plan.request import BuildRequest, Until
from pipeline.stages.motion_levels import calibrate

CONFIG = Config(
    clips=ClipSettings(frames=17, fps=Fraction(8), height=64, width=96),
    motion=MotionSettings(scale=1.0),  # a clip this small is not halved for the optical flow
    shards=ShardSettings(block_seconds=4.0, val_share=0.2),  # blocks of about a scene: `val` lies all over the film
    run=RunSettings(threads=1),
)
"""Clips as `models.config.tiny_config` has them."""


@dataclass(frozen=True)
class CaptionByScript(Stage):
    """Caption the clips that `screened` keeps with what the script says; takes the place of `WriteCaptions`."""

    truth: Truth
    name: ClassVar[str] = WriteCaptions.name
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = WriteCaptions.needs

    def ingredients(self) -> dict[str, Any]:
        """The script alone: the film's content already counts."""
        return {"captioner": SOURCE, "script": 1}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Make the table captions; a clip that spans two scenes, after a missed cut, has a caption with that fault."""
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
    """Compose the film and make a data set of it in `folder/dataset`; what is there and current is not made again.

    There is no data card and no report: they would speak of captions by rules or by a model.

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
        films=(film,), out=folder / "dataset", cast=_cast(folder / "cast"), config=CONFIG, until=Until.motion
    )
    dataset = _run(request, truth)
    if len(dataset.record.films) > 1:
        raise StoreError(f"{dataset.root} holds the clips of an older film: delete it and start again")
    _calibrate_once(dataset)
    _run(request.model_copy(update={"until": Until.captions}), truth)
    with watched(dataset.root.name, "publish") as watch:
        select(dataset, CONFIG)
        write_shards(dataset, CONFIG, watch)
    return dataset


def _run(request: BuildRequest, truth: Truth) -> Dataset:
    plan = make_plan(request)
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
    news = {"edges": fitted.edges, "level_values": fitted.values, "edges_from": "calibrated: quantiles"}
    dataset.save(record.model_copy(update=news))


def _cast(folder: Path) -> Path:
    """A cast folder of the film's characters, each with its first drawing."""
    art = art_folder()
    for key, (first, *_) in SPRITES.items():
        name, _, other_clothes = key.partition(" ")
        if not other_clothes:
            (picture,) = art.glob(f"*/game/images/{first}.png")
            home = folder / name.capitalize()
            home.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, home / "front.png")
    return folder
