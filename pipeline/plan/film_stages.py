"""Stages of a film, in order, with their settings, cast and level edges from a build request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pipeline.captions.cast import Cast, load_cast
from pipeline.captions.stage import WriteCaptions, WriteCaptionsWithDialogue
from pipeline.core.config import ClipSettings, Config, MotionSettings
from pipeline.core.errors import UserError
from pipeline.core.records import Verdict
from pipeline.core.stage import Stage, is_current
from pipeline.core.store import Dataset, DatasetRecord, FilmFolder, LevelCalibration
from pipeline.plan.request import BuildRequest, Until
from pipeline.remote.film_cache import local_folder
from pipeline.reviews.cut_again import say_what_matches
from pipeline.stages.crop import FindCrop
from pipeline.stages.cut import Cut
from pipeline.stages.dialogue import ReadDialogue
from pipeline.stages.looks import MeasureLooks
from pipeline.stages.motion import MeasureMotion, flow_model_of
from pipeline.stages.motion_levels import PUBLISHED_EDGES, Edges
from pipeline.stages.selection import Screen
from pipeline.stages.sound import KeepSound

STAGES = (FindCrop, Cut, ReadDialogue, MeasureLooks, MeasureMotion, Screen, WriteCaptions)
STAGE_NAMES = tuple(stage.name for stage in STAGES)


def planned_stages(
    request: BuildRequest, edges: Edges, cast: Cast | None = None, *, fetch: bool = True
) -> tuple[Stage, ...]:
    """The stages of this build for a probed film, in order; the cast is read from the request if it is not given.

    `fetch`: networks that this machine lacks may be fetched from the hub.

    Raises:
        CastError, RemoteError: the cast folder cannot be used.
    """
    config, run = request.config, request.config.run
    if config.captions.captioner == "rules":
        cast = Cast()
    write_captions = WriteCaptionsWithDialogue if config.captions.dialogue else WriteCaptions
    threads = run.threads or (1 if run.runner == "ray" else os.cpu_count() or 1)
    stages: tuple[Stage, ...] = (
        FindCrop(config.crop, config.clips.avoid_overlays),
        Cut(config.film, config.scenes, config.clips, threads, partial(say_what_matches, settings=config.review)),
        ReadDialogue(config.dialogue, config.films, config.sound.language if config.sound.keep else None),
        MeasureLooks(config.looks, threads, config.run.failed_limit),
        MeasureMotion(config.motion, threads, config.run.failed_limit),
        Screen(config.selection, edges),
        write_captions(config.captions, cast or cast_of(request), request.ask_again),
    )
    if request.until is not Until.publish:
        last = STAGE_NAMES.index(request.until.value) if request.until is not Until.probe else -1
        stages = stages[: last + 1]
    if config.sound.keep and len(stages) > STAGE_NAMES.index(Cut.name):
        before = STAGE_NAMES.index(Screen.name)  # with the other measurements: episodes wait for them
        stages = (*stages[:before], KeepSound(config.sound, config.films), *stages[before:])
    if config.embed.named() and len(stages) > STAGE_NAMES.index(Cut.name):
        from pipeline.stages.embed import Embed  # most builds embed nothing

        at = next((place for place, stage in enumerate(stages) if isinstance(stage, Screen)), len(stages))
        stages = (*stages[:at], Embed(config.embed, threads, config.run.failed_limit, fetch), *stages[at:])
    return stages


def captions_of(
    dataset: Dataset, request: BuildRequest
) -> tuple[WriteCaptions, list[tuple[FilmFolder, list[Verdict]]]]:
    """Return the stage that captions the films of a dataset, and the measured films with the verdicts of screening.

    Writes nothing: a table `screened` with other verdicts would remove a finished film from the shards. Raises a
    UserError if the cast folder cannot be used.
    """
    edges, _ = choose_edges(request.config, dataset.record)
    *_, screen, captions = planned_stages(request, edges)
    assert isinstance(screen, Screen)
    assert isinstance(captions, WriteCaptions)
    folders = [folder for folder in dataset.folders() if all(map(folder.stage_record, screen.needs))]
    return captions, [
        (folder, folder.read("screened", Verdict) if is_current(screen, folder) else screen.verdicts(folder))
        for folder in folders
    ]


def cast_of(request: BuildRequest) -> Cast:
    """Load the cast of the request, or an empty one. Raises CastError or RemoteError if the folder cannot be used."""
    return load_cast(local_folder(request.cast) if request.cast else None)


def choose_edges(config: Config, record: DatasetRecord) -> tuple[Edges, str]:
    """The level edges to use, and their source: the config, a calibration for its optical flow, or published."""
    if config.motion.edges is not None:
        return config.motion.edges, "config"
    calibration = record.calibration
    if calibration and _measured_alike(calibration, config.motion):
        return calibration.edges, calibration.source
    return PUBLISHED_EDGES, "published"


def _measured_alike(calibration: LevelCalibration, settings: MotionSettings) -> bool:
    """Return False if a calibration is known to belong to another measurement of motion than the settings."""
    if calibration.background_px != settings.background_px:
        return False
    try:
        return calibration.flow_model == flow_model_of(settings)
    except UserError:  # the weights are on another machine; a build that measures stops for the same reason
        return True


Ingredients = Mapping[str, Any]


def _clips(made_from: Ingredients) -> str:
    clips = made_from["clips"]
    placing = clips.get("placing", ClipSettings().placing)
    return (
        f"{clips['frames']} frames at {clips['fps']} per second, one every {clips['seconds']:g} s by {placing}, "
        f"{clips['width']}x{clips['height']} by {clips['fit']}"
    )


def _optical_flow(made_from: Ingredients) -> str:
    motion = made_from["motion"]
    weights = f":{motion['weights'][:8]}" if "weights" in motion else ""
    return f"{motion['model']}{weights} at scale {motion['scale']:g}, background below {motion['background_px']:g} px"


def _edges(made_from: Ingredients) -> str:
    return ", ".join(f"{edge:g}" for edge in made_from["edges"]) + " px"


def _captioner(made_from: Ingredients) -> str:
    return str(made_from.get("model", made_from["captioner"]))


def _networks(made_from: Ingredients) -> str:
    return ", ".join(f"{role} {files[0][:8]}" for role, files in made_from["embed"].items() if isinstance(files, list))


SHARED: dict[str, tuple[str, Callable[[Ingredients], str]]] = {
    "cut": ("clips", _clips),
    "motion": ("optical flow", _optical_flow),
    "embed": ("embeddings", _networks),
    "screened": ("level edges", _edges),
    "captions": ("captioner", _captioner),
}


def refuse_to_join(others: Iterable[FilmFolder], stages: Sequence[Stage]) -> None:
    """Raise a UserError if the films that a build leaves unchanged were made with another setting of `SHARED`."""
    wanted = {stage.name: SHARED[stage.name][1](stage.ingredients()) for stage in stages if stage.name in SHARED}
    for folder in others:
        for name, here in wanted.items():
            setting, describe = SHARED[name]
            record = folder.stage_record(name)
            if record and (there := describe(record.ingredients)) != here:
                raise UserError(
                    f"the {setting} of {folder.film.name}, which is not in this build: {there}; of this build: {here}. "
                    "One dataset never mixes two: name all its films in one build, or choose another --out"
                )


def refuse_to_publish(folders: Iterable[FilmFolder], edges: Edges) -> None:
    """Raise a UserError if the films to publish differ in a setting of `SHARED`, or their edges from `dataset.json`."""
    kinds: dict[str, dict[str, str]] = {name: {} for name in SHARED}
    kinds["screened"][_edges({"edges": edges})] = "dataset.json"
    for folder in folders:
        for name, (_, describe) in SHARED.items():
            if record := folder.stage_record(name):
                kinds[name].setdefault(describe(record.ingredients), folder.film.name)
    for name, found in kinds.items():
        if len(found) > 1:
            each = "; ".join(f"{kind} ({where})" for kind, where in found.items())
            raise UserError(
                f"{SHARED[name][0]} of several kinds: {each}. One dataset never mixes two, so nothing was published. "
                "Build all its films again together with the settings you want"
            )
