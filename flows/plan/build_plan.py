"""Which stages a film goes through, in order, and the plan of a build. Plain Python, no Prefect.

    plan = make_plan(BuildRequest(films=(Path("film.mkv"),), out=Path("data")))
    for film_id in plan.films:
        for stage in plan.stages:
            perform(stage, plan.dataset.folder(film_id))

The plan is made before any flow starts: it names the films by their content, probes new ones, and refuses what could
only fail later (a second captioner in one data set, a broken cast folder).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flows.console.progress import watched
from flows.plan.consistency import refuse_to_join
from flows.plan.identify import identify
from flows.plan.request import BuildRequest, Until
from flows.plan.workspace import Place, absolute, cast_folder
from pipeline.captions.cast import Cast, load_cast
from pipeline.captions.server_captioner import OpenEnds
from pipeline.captions.stage import WriteCaptions
from pipeline.core.atomic import held
from pipeline.core.config import Config
from pipeline.core.records import Failure
from pipeline.core.stage import Stage, is_current
from pipeline.core.store import Dataset, DatasetRecord, FilmFolder
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

    place: Place
    config: Config
    stages: tuple[Stage, ...]
    films: tuple[str, ...]
    """Ids of the films to bring up to date, in the order given."""
    refused: tuple[Failure, ...]
    """Files that cannot be used, each with its reason."""
    notices: tuple[str, ...]
    """What the user should know though nothing is wrong, such as one film given twice."""
    publish: bool

    @property
    def dataset(self) -> Dataset:
        """The data set, or the local copy of one at an address."""
        return self.place.dataset


@contextmanager
def alone(request: BuildRequest) -> Iterator[None]:
    """Hold the data set against a second build for as long as the block lasts.

    Raises:
        HeldError: another build is at work on it; the message says which.
    """
    with held(Place(request.out).dataset.root, "animegamer build"):
        yield


def make_plan(request: BuildRequest) -> Plan:
    """Identify the films, list new ones in `dataset.json`, and choose the stages; to be called `alone`.

    Raises:
        UserError: the request cannot be joined with the data set that is already in `out`, or the cast folder cannot be
            used.
        RemoteError: an address cannot be used.
    """
    place = Place(request.out)
    dataset = place.dataset
    dataset.sweep()
    with watched(dataset.root.name, "fetch") as watch:
        watch.changed = False
        place.fetch(progress=watch)
    cast = cast_of(request)
    found = identify(request.films, dataset)
    record = dataset.record
    edges, edges_from = choose_edges(request.config, record)
    stages = planned_stages(request, edges)
    for stage in stages:
        stage.ingredients()  # a missing checkpoint or package is better known now than hours later
    films = {film.film_id for film in found.films}
    listed = found.listed(record.films)
    refuse_to_join([dataset.folder(entry.film_id) for entry in listed if entry.film_id not in films], stages)
    news = {
        "films": listed,
        "edges": edges,
        "edges_from": edges_from,
        "cast": cast.names,
        "cast_source": request.cast and absolute(request.cast),
        "config": request.config.model_dump(mode="json", exclude={"run"}),
    }
    if record != (planned := record.model_copy(update=news)):
        dataset.save(planned)
    for under in ("films/", "dataset.json"):  # not shards that a killed build left without their index
        place.send(under)
    return Plan(
        place=place,
        config=request.config,
        stages=stages,
        films=tuple(film.film_id for film in found.films),
        refused=tuple(found.refused),
        notices=(*found.notices, *cast.warnings),
        publish=request.until is Until.publish,
    )


def is_settled(plan: Plan) -> bool:
    """Whether running the plan's stages would change nothing."""
    folders = [plan.dataset.folder(film_id) for film_id in plan.films]
    return all(not folder.failure and _is_done(stage, folder) for folder in folders for stage in plan.stages)


def _is_done(stage: Stage, folder: FilmFolder) -> bool:
    if not is_current(stage, folder):
        return False
    # clips whose requests failed last time have no reply yet: the captions are current, and still something waits
    return not isinstance(stage, WriteCaptions) or stage.open_ends(folder) == OpenEnds()


def planned_stages(request: BuildRequest, edges: Edges) -> tuple[Stage, ...]:
    """The stages of this build that a probed film goes through, in order.

    Raises:
        UserError: the cast folder cannot be used.
    """
    config, run = request.config, request.config.run
    cast = cast_of(request) if config.captions.captioner == "server" else Cast()  # the rules know nobody
    threads = run.threads or (1 if run.runner == "ray" else os.cpu_count() or 1)
    stages: tuple[Stage, ...] = (
        FindCrop(config.crop),
        Cut(config.film, config.scenes, config.clips, threads),
        MeasureLooks(config.looks, threads, config.run.failed_limit),
        MeasureMotion(config.motion, threads, config.run.failed_limit),
        Screen(config.selection, edges),
        WriteCaptions(config.captions, cast),
    )
    if request.until is Until.publish:
        return stages
    last = STAGE_NAMES.index(request.until.value) if request.until is not Until.probe else -1
    return stages[: last + 1]


def cast_of(request: BuildRequest) -> Cast:
    """The cast that the request names, or one of nobody.

    Raises:
        UserError: the folder cannot be used.
    """
    return load_cast(cast_folder(request.cast) if request.cast else None)


def choose_edges(config: Config, record: DatasetRecord) -> tuple[Edges, str]:
    """The level edges in force and where they come from: the config, else a calibration, else the published table."""
    if config.motion.edges is not None:
        return config.motion.edges, "config"
    if record.edges is not None and record.edges_from and record.edges_from.startswith("calibrated"):
        return record.edges, record.edges_from
    return PUBLISHED_EDGES, "published"
