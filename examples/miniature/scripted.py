"""Dataset by script: composed films through the ordinary pipeline, captioned by their script.

    build_scripted(Path("dataset"), [ScriptedFilm(path, truth, caption_of)], config, cast)

All stages except captions are the same as in `animegamer build`. A model's captions would have errors, but the script's
captions are exact. So a game model trained on these shards causes all of its errors itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from examples.world.truth import SOURCE, SceneTruth, Truth
from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import Config
from pipeline.core.errors import UserError
from pipeline.core.ingredients import fingerprint
from pipeline.core.progress import Progress, watched
from pipeline.core.records import Caption, Clip, Failure, Verdict
from pipeline.core.stage import Outcome, Stage, perform
from pipeline.core.store import Dataset, FilmFolder, StoreError
from pipeline.plan.build_plan import make_plan
from pipeline.plan.publish import Select, WriteShards
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.workspace import Workspace
from pipeline.stages.motion_levels import LEVELS, calibrate

CaptionOf = Callable[[str, SceneTruth, int], Caption]
"""Clip id, truth about its scene, measured motion level -> the true tags."""


@dataclass(frozen=True)
class ScriptedFilm:
    """Composed film and its script."""

    path: Path
    truth: Truth
    caption_of: CaptionOf


@dataclass(frozen=True)
class CaptionByScript(Stage):
    """Stage that captions the clips kept by `screened` from the script; replaces `WriteCaptions`."""

    truth: Truth
    caption_of: CaptionOf
    name: ClassVar[str] = WriteCaptions.name
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = WriteCaptions.needs

    def ingredients(self) -> dict[str, Any]:
        """Return a fingerprint of all captions at every level: a script may change without its pictures."""
        scenes, levels = self.truth.scenes, range(1, LEVELS + 1)
        said = [self.caption_of("", scene, level).model_dump(mode="json") for scene in scenes for level in levels]
        return {"captioner": SOURCE, "script": fingerprint({"captions": said})}

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
        return self.caption_of(clip.clip_id, scenes.pop(), level)


def build_scripted(out: Path, films: Sequence[ScriptedFilm], config: Config, cast: Path) -> Dataset:
    """Make a dataset of composed films; current parts are not made again.

    Without level edges in the configuration, the levels are calibrated to the films. No data card and no report are
    written, since they describe captions by rules or by a model.

    Raises:
        UserError: a file cannot be read as a film.
        RecordError: a stage cannot use a film.
        StoreError: the folder holds a dataset of other films.
    """
    paths = tuple(str(film.path) for film in films)
    request = BuildRequest(films=paths, out=str(out), cast=str(cast), config=config, until=Until.motion)
    dataset = _run(request, films)
    if len(dataset.record.films) > len(films):
        raise StoreError(f"{dataset.root} holds the clips of an older film: delete it and start again")
    if config.motion.edges is None:
        _calibrate_once(dataset)
    _run(request.model_copy(update={"until": Until.captions}), films)
    with watched(dataset.root.name, "publish") as watch:
        changed = Select(config).run(dataset, watch)
        watch.changed = WriteShards(config).run(dataset, watch) or changed
    return dataset


def _run(request: BuildRequest, films: Sequence[ScriptedFilm]) -> Dataset:
    plan = make_plan(request, Workspace(request.out))
    if refusals := plan.refusals:
        raise UserError("; ".join(refusals))

    def onboard(film_id: str, film: ScriptedFilm) -> None:
        folder = plan.dataset.folder(film_id)
        for planned in plan.stages:
            by_script = planned.name == WriteCaptions.name
            stage = CaptionByScript(film.truth, film.caption_of) if by_script else planned
            with watched(folder.film.name, stage.name) as watch:
                watch.changed = perform(stage, folder, watch)

    pool = ThreadPoolExecutor(request.config.run.films_at_once)
    try:
        together = zip(plan.films, films, strict=True)
        runs = [pool.submit(copy_context().run, onboard, film_id, film) for film_id, film in together]
        for run in runs:
            run.result()
    finally:  # a stopped build starts no further film
        pool.shutdown(cancel_futures=True)
    return plan.dataset


def _calibrate_once(dataset: Dataset) -> None:
    record = dataset.record
    if not record.calibration or record.edges_from != record.calibration.source:
        dataset.save(calibrate(dataset, "quantiles").stored_in(record))
