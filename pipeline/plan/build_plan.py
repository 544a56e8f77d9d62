"""Build plan: the stages of a film in order, and what a request means for the data set that is there.

    plan = make_plan(BuildRequest(films=(Path("film.mkv"),), out=Path("data")))
    for film_id, stages in plan.unfinished.items():
        for stage in stages:
            perform(stage, plan.dataset.folder(film_id))

The plan names the films by their content, probes new ones, refuses what could only fail later (a second captioner in
one data set, a broken cast folder), and finds which films have a stage to run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile

from pipeline.captions.cast import Cast, load_cast
from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import Config
from pipeline.core.progress import watched
from pipeline.core.records import Failure
from pipeline.core.stage import Stage, judge
from pipeline.core.store import Dataset, DatasetRecord, FilmFolder
from pipeline.plan.consistency import refuse_to_join
from pipeline.plan.identify import identify
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.workspace import Workspace, absolute, cast_folder
from pipeline.remote.film_cache import drop_film
from pipeline.stages.crop import FindCrop
from pipeline.stages.cut import Cut
from pipeline.stages.looks import MeasureLooks
from pipeline.stages.motion import MeasureMotion
from pipeline.stages.motion_levels import PUBLISHED_EDGES, Edges
from pipeline.stages.selection import Screen

STAGES = (FindCrop, Cut, MeasureLooks, MeasureMotion, Screen, WriteCaptions)
STAGE_NAMES = tuple(stage.name for stage in STAGES)


@dataclass(frozen=True)
class Plan:
    """A request with everything looked up that can be known before the work starts."""

    request: BuildRequest
    workspace: Workspace
    stages: tuple[Stage, ...]
    films: tuple[str, ...]
    """Ids of the films that the request names, in the order given."""
    unfinished: Mapping[str, tuple[Stage, ...]]
    """Of those that have something to do, or failed the last time: the stages left, from the first that is not done."""
    refused: tuple[Failure, ...]
    """Files that cannot be used, each with its reason."""
    notices: tuple[str, ...]
    """What the user should know though nothing is wrong, such as one film given twice."""

    @property
    def dataset(self) -> Dataset:
        """The data set, or the local copy of one at an address."""
        return self.workspace.dataset

    @property
    def config(self) -> Config:
        """The settings of the build."""
        return self.request.config

    @property
    def publishes(self) -> bool:
        """True if shards, card and report are to follow the stages."""
        return self.request.until is Until.publish

    @property
    def refusals(self) -> list[str]:
        """A line for each file that cannot be used."""
        return [f"{refusal.record_id}: {refusal.reason}" for refusal in self.refused]


def make_plan(request: BuildRequest) -> Plan:
    """Identify the films, list new ones in `dataset.json`, and choose the stages; the workspace must be locked.

    Raises:
        UserError: the request cannot be joined with the data set that is already in `out`, or the cast folder cannot be
            used.
        RemoteError: an address cannot be used.
    """
    workspace = Workspace(request.out)
    dataset = workspace.dataset
    dataset.sweep()
    with watched(dataset.root.name, "fetch") as watch:
        watch.changed = False
        workspace.fetch(progress=watch)
    cast = cast_of(request)
    found = identify(request.films, dataset)
    record = dataset.record
    edges, edges_from = choose_edges(request.config, record)
    stages = planned_stages(request, edges, cast)
    for stage in stages:
        stage.ingredients()  # a missing checkpoint or package is better known now than hours later
    films = tuple(film.film_id for film in found.films)
    listed = found.listed(record.films)
    refuse_to_join([dataset.folder(entry.film_id) for entry in listed if entry.film_id not in films], stages)
    changes = {
        "films": listed,
        "edges": edges,
        "edges_from": edges_from,
        "cast": cast.names,
        "cast_source": request.cast and absolute(request.cast),
        "config": request.config.model_dump(mode="json", exclude={"run"}),
    }
    if record != (planned := record.model_copy(update=changes)):
        dataset.save(planned)
    for part in ("films/", "dataset.json"):  # not shards that a killed build left without their index
        workspace.send(part)
    return Plan(
        request=request,
        workspace=workspace,
        stages=stages,
        films=films,
        unfinished=_unfinished([dataset.folder(film_id) for film_id in films], stages),
        refused=tuple(found.refused),
        notices=(*found.notices, *cast.warnings),
    )


def _unfinished(folders: Sequence[FilmFolder], stages: tuple[Stage, ...]) -> dict[str, tuple[Stage, ...]]:
    """The stages left of each film that has some; this machine's copies of the other films are removed."""
    unfinished = {}
    for folder in folders:
        left = tuple(dropwhile(lambda stage: judge(stage, folder).reason is None, stages))  # noqa: B023 - used at once
        if left or folder.failure:
            unfinished[folder.film_id] = left
        else:
            drop_film(folder)
    return unfinished


def planned_stages(request: BuildRequest, edges: Edges, cast: Cast | None = None) -> tuple[Stage, ...]:
    """The stages of this build that a probed film goes through, in order.

    Args:
        request: its settings, and the last stage to run.
        edges: level edges in force.
        cast: None: read from the folder that the request names, if the captioner is asked about characters.

    Raises:
        CastError, RemoteError: the cast folder cannot be used.
    """
    config, run = request.config, request.config.run
    if config.captions.captioner == "rules":
        cast = Cast()
    threads = run.threads or (1 if run.runner == "ray" else os.cpu_count() or 1)
    stages: tuple[Stage, ...] = (
        FindCrop(config.crop),
        Cut(config.film, config.scenes, config.clips, threads),
        MeasureLooks(config.looks, threads, config.run.failed_limit),
        MeasureMotion(config.motion, threads, config.run.failed_limit),
        Screen(config.selection, edges),
        WriteCaptions(config.captions, cast or cast_of(request)),
    )
    if request.until is Until.publish:
        return stages
    last = STAGE_NAMES.index(request.until.value) if request.until is not Until.probe else -1
    return stages[: last + 1]


def cast_of(request: BuildRequest) -> Cast:
    """The cast that the request names, or an empty one.

    Raises:
        CastError: the folder cannot be used.
        RemoteError: its address cannot be used.
    """
    return load_cast(cast_folder(request.cast) if request.cast else None)


def choose_edges(config: Config, record: DatasetRecord) -> tuple[Edges, str]:
    """The level edges in force and where they come from: the config, else a calibration, else the published table."""
    if config.motion.edges is not None:
        return config.motion.edges, "config"
    if record.edges is not None and record.edges_from and record.edges_from.startswith("calibrated"):
        return record.edges, record.edges_from
    return PUBLISHED_EDGES, "published"
