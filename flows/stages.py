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
from dataclasses import dataclass
from pathlib import Path

from flows.mixtures import refuse_mixtures
from flows.progress import watched
from flows.request import BuildRequest, Until
from flows.terminal import is_text, printable
from pipeline.captions import WriteCaptions
from pipeline.cast import Cast, load_cast
from pipeline.config import Config
from pipeline.crop import FindCrop
from pipeline.cut import Cut
from pipeline.levels import PUBLISHED_EDGES, Edges
from pipeline.looks import MeasureLooks
from pipeline.motion import MeasureMotion
from pipeline.probe import probe_in_child
from pipeline.records import Failure, Film, RecordError, make_film_id
from pipeline.selection import Screen
from pipeline.stage import Stage, is_current
from pipeline.store import Dataset, DatasetRecord, FilmEntry, FilmFolder, content_hash

STAGES = (FindCrop, Cut, MeasureLooks, MeasureMotion, Screen, WriteCaptions)
STAGE_NAMES = tuple(stage.name for stage in STAGES)


@dataclass(frozen=True)
class Plan:
    """A request with everything looked up that can be known before the work starts."""

    dataset: Dataset
    config: Config
    stages: tuple[Stage, ...]
    films: tuple[str, ...]
    """Ids of the films to bring up to date, in the order given."""
    refused: tuple[Failure, ...]
    """Files that cannot be used, each with its reason."""
    notices: tuple[str, ...]
    """What the user should know though nothing is wrong, such as one film given twice."""
    publish: bool


def make_plan(request: BuildRequest) -> Plan:
    """Identify the films, list new ones in `dataset.json`, and choose the stages.

    Raises:
        ConfigError: the request cannot be joined with the data set that is already in `out`.
        CastError: the cast folder cannot be used.
    """
    dataset = Dataset(request.out)
    cast = load_cast(request.cast)
    films, refused, notices = _identify(request.films, dataset)
    record = dataset.record
    edges, edges_from = choose_edges(request.config, record)
    stages = planned_stages(request, cast, edges)
    for stage in stages:
        stage.ingredients()  # a missing checkpoint or package is better known now than hours later
    others = [folder for folder in dataset.folders() if folder.film_id not in {film.film_id for film in films}]
    refuse_mixtures(others, stages)
    known = {entry.film_id for entry in record.films}
    added = [FilmEntry(film_id=f.film_id, name=f.name, sha256=f.sha256) for f in films if f.film_id not in known]
    news = {
        "films": (*record.films, *added),
        "edges": edges,
        "edges_from": edges_from,
        "cast": cast.names,
        "config": request.config.model_dump(mode="json"),
    }
    if record != (planned := record.model_copy(update=news)):
        dataset.save(planned)
    return Plan(
        dataset=dataset,
        config=request.config,
        stages=stages,
        films=tuple(film.film_id for film in films),
        refused=tuple(refused),
        notices=(*notices, *cast.warnings),
        publish=request.until is Until.publish,
    )


def is_settled(plan: Plan) -> bool:
    """Whether running the plan's stages would change nothing."""
    folders = [plan.dataset.folder(film_id) for film_id in plan.films]
    return all(not folder.failure and _is_done(stage, folder) for folder in folders for stage in plan.stages)


def _is_done(stage: Stage, folder: FilmFolder) -> bool:
    # clips whose requests failed last time have no reply yet: the captions are current, and still something waits
    return is_current(stage, folder) and not (isinstance(stage, WriteCaptions) and stage.waiting(folder))


def planned_stages(request: BuildRequest, cast: Cast, edges: Edges) -> tuple[Stage, ...]:
    """The stages of this build that a probed film goes through, in order."""
    config, threads = request.config, request.config.run.threads or os.cpu_count() or 1
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


def choose_edges(config: Config, record: DatasetRecord) -> tuple[Edges, str]:
    """The level edges in force and where they come from: the config, else a calibration, else the published table."""
    if config.motion.edges is not None:
        return config.motion.edges, "config"
    if record.edges is not None and record.edges_from and record.edges_from.startswith("calibrated"):
        return record.edges, record.edges_from
    return PUBLISHED_EDGES, "published"


def _identify(paths: tuple[Path, ...], dataset: Dataset) -> tuple[list[Film], list[Failure], list[str]]:
    """The films by their content; a content seen twice is used once, under its first name."""
    films: dict[str, Film] = {}
    refused, notices = [], []
    for path in paths:
        try:
            with watched(path.name, "identify") as watch:
                watch.changed = False
                sha256 = content_hash(path, dataset.root / ".cache" / "content-hashes.json", watch)
                if sha256 in films:
                    notices.append(f"{path}: the same content as {films[sha256].name}, used once")
                else:
                    films[sha256] = _probe(path, sha256, dataset)
        except RecordError as error:
            refused.append(Failure(record_id=printable(str(path)), reason=error.reason))
    return list(films.values()), refused, notices


def _probe(path: Path, sha256: str, dataset: Dataset) -> Film:
    """What is known of the film, found out if it is new; where it lies now is noted."""
    source = str(path.absolute())
    if not is_text(source):
        raise RecordError(path.name, "its name is not valid UTF-8, which no table can hold; rename the file")
    entry = next((entry for entry in dataset.record.films if entry.sha256 == sha256), None)
    film_id = entry.film_id if entry else make_film_id(path.name, sha256)
    folder = dataset.folder(film_id)
    if not (folder.path / "film.json").exists():
        folder.save_film(probe_in_child(path.absolute(), film_id, sha256))
    elif folder.film.source != source:
        folder.save_film(folder.film.model_copy(update={"source": source}))
    return folder.film
