"""Which stages a film goes through, in order, and what a build is asked to do. Plain Python, no Prefect.

    plan = make_plan(BuildRequest(films=(Path("film.mkv"),), out=Path("data")))
    for film_id in plan.films.values():
        for stage in plan.stages:
            perform(stage, plan.dataset.folder(film_id))

The plan is made before any flow starts: it names the films by their content, probes new ones, and refuses what could
only fail later (a second captioner in one data set, a broken cast folder).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flows.request import BuildRequest, Until
from pipeline.captions import WriteCaptions
from pipeline.cast import Cast, load_cast
from pipeline.config import Config, ConfigError
from pipeline.crop import FindCrop
from pipeline.cut import Cut
from pipeline.levels import PUBLISHED_EDGES
from pipeline.looks import MeasureLooks
from pipeline.motion import MeasureMotion, flow_model_of
from pipeline.probe import probe
from pipeline.records import Failure, Film, RecordError, make_film_id
from pipeline.selection import Screen
from pipeline.stage import Stage, is_current
from pipeline.store import Dataset, DatasetRecord, FilmEntry, FilmFolder, content_hash


@dataclass(frozen=True)
class Plan:
    """A request with everything looked up that can be known before the work starts."""

    dataset: Dataset
    config: Config
    stages: tuple[Stage, ...]
    films: dict[Path, str]
    """The films to bring up to date, in the order given: where each lies, and its id."""
    refused: tuple[Failure, ...]
    """Files that cannot be used, each with its reason."""
    notices: tuple[str, ...]
    """What the user should know though nothing is wrong, such as one film given twice."""
    publish: bool


def make_plan(request: BuildRequest) -> Plan:
    """Identify the films, list new ones in `dataset.json`, and choose the stages.

    Making the same plan again writes nothing, so the flows of the single films may make it side by side.

    Raises:
        ConfigError: the request cannot be joined with the data set that is already in `out`.
        CastError: the cast folder cannot be used.
    """
    dataset = Dataset(request.out)
    cast = load_cast(request.cast)
    films, refused, notices = _identify(request.films, dataset)
    record = dataset.record
    edges, edges_from = choose_edges(request.config, record)
    stages = _stages_until(request.until, film_stages(request.config, cast, edges))
    for stage in stages:
        stage.ingredients()  # a missing checkpoint or package is better known now than hours later
    if {entry.film_id for entry in record.films} - {film.film_id for film in films}:
        _refuse_mixtures(request, record)
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
        films={Path(film.source): film.film_id for film in films},
        refused=tuple(refused),
        notices=tuple(notices),
        publish=request.until is Until.publish,
    )


def is_settled(plan: Plan) -> bool:
    """Whether running the plan would change nothing."""
    folders = [plan.dataset.folder(film_id) for film_id in plan.films.values()]
    return bool(folders) and all(_is_done(stage, folder) for folder in folders for stage in plan.stages)


def _is_done(stage: Stage, folder: FilmFolder) -> bool:
    # clips whose requests failed last time have no reply yet: the captions are current, and still something waits
    return is_current(stage, folder) and not (isinstance(stage, WriteCaptions) and stage.waiting(folder))


def film_stages(config: Config, cast: Cast, edges: tuple[float, float, float, float]) -> tuple[Stage, ...]:
    """Every stage a probed film goes through, in order."""
    threads = config.run.threads or os.cpu_count() or 1
    limit = config.run.failed_limit
    return (
        FindCrop(config.crop),
        Cut(config.film, config.scenes, config.clips, threads),
        MeasureLooks(config.looks, threads, limit),
        MeasureMotion(config.motion, threads, limit),
        Screen(config.selection, edges),
        WriteCaptions(config.captions, cast),
    )


def _stages_until(until: Until, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    if until is Until.probe:
        return ()
    names = [stage.name for stage in stages]
    return stages if until is Until.publish else stages[: names.index(until.value) + 1]


def choose_edges(config: Config, record: DatasetRecord) -> tuple[tuple[float, float, float, float], str]:
    """The level edges in force and where they come from: the config, else a calibration, else the published table."""
    if config.motion.edges is not None:
        return config.motion.edges, "config"
    if record.edges is not None and record.edges_from and record.edges_from.startswith("calibrated"):
        return record.edges, record.edges_from
    return PUBLISHED_EDGES, "published"


def _identify(paths: tuple[Path, ...], dataset: Dataset) -> tuple[list[Film], list[Failure], list[str]]:
    """Probe each file under the id its content has; a content seen twice is used once, under its first name."""
    films: dict[str, Film] = {}
    refused, notices = [], []
    for path in paths:
        try:
            film = _identify_one(path, dataset)
        except RecordError as error:
            refused.append(Failure(record_id=str(path), reason=error.reason))
            continue
        if film.film_id in films:
            notices.append(f"{path}: the same content as {films[film.film_id].name}, used once")
        films.setdefault(film.film_id, film)
    return list(films.values()), refused, notices


def _identify_one(path: Path, dataset: Dataset) -> Film:
    sha256 = content_hash(path, dataset.root / ".cache" / "content-hashes.json")
    entry = next((entry for entry in dataset.record.films if entry.sha256 == sha256), None)
    film_id = entry.film_id if entry else make_film_id(path.name, sha256)
    folder = dataset.folder(film_id)
    if not (folder.path / "film.json").exists():
        folder.save_film(probe(path.resolve(), film_id, sha256))
    elif folder.film.source != str(path.resolve()):
        folder.save_film(folder.film.model_copy(update={"source": str(path.resolve())}))
    return folder.film


def _refuse_mixtures(request: BuildRequest, record: DatasetRecord) -> None:
    """Films that stay as they are must agree with this build in what a data set has only one of."""
    captions, order = request.config.captions, list(Until)
    if order.index(request.until) < order.index(Until.motion):
        return
    wanted = {"optical flow": (record.flow_model, flow_model_of(request.config.motion))}
    if request.until is not Until.motion:
        captioner = captions.model if captions.captioner == "server" else captions.captioner
        wanted["captioner"] = (record.captioner, captioner)
    for what, (there, here) in wanted.items():
        if there not in (None, here):
            raise ConfigError(
                f"{request.out}: the {what} of its other films is {there}, this build would use {here}, and one data "
                "set never mixes two; name all its films in one build, or choose another --out"
            )
