"""Build plan: films, stages and unfinished work of a build request, compared with the existing dataset.

    plan = make_plan(BuildRequest(films=("film.mkv",), out="data"), Workspace("data"))
    for film_id, stages in plan.unfinished.items():
        for stage in stages:
            perform(stage, plan.dataset.folder(film_id))

Planning identifies the films by content, probes new ones, rejects requests that would fail later (a second captioner in
one dataset, a broken cast folder), and finds the films with a stage to run. `draft_plan` only shows a plan and does not
change the dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.captions.answers import Repeats, merged, refuse_repeats
from pipeline.captions.cast import Cast
from pipeline.captions.stage import WriteCaptions
from pipeline.core.atomic import HeldError, held
from pipeline.core.config import CaptionSettings, Config, ReviewSettings
from pipeline.core.errors import UserError
from pipeline.core.ingredients import changed
from pipeline.core.plain_text import counted, first_few
from pipeline.core.progress import watched
from pipeline.core.records import Failure
from pipeline.core.stage import Stage, is_current, staleness_of
from pipeline.core.store import ClipFormat, Dataset, DatasetRecord, FilmEntry, FilmFolder, LevelCalibration
from pipeline.plan.episodes import episode_notices, with_episodes
from pipeline.plan.film_stages import cast_of, choose_edges, planned_stages, refuse_to_join
from pipeline.plan.identify import identify
from pipeline.plan.publish import PublishStage, films_in_shards, publish_stages
from pipeline.plan.request import BuildRequest, Until, absolute
from pipeline.plan.seasons import compare_episodes
from pipeline.plan.workspace import Workspace
from pipeline.publish.vocabulary import load_vocabulary
from pipeline.remote.film_cache import delete_local_film
from pipeline.reviews.applied import outside_cast, review_path
from pipeline.reviews.cut_again import captions_and_reviews
from pipeline.reviews.decisions import Decision, Reading, read_decisions
from pipeline.stages.motion_levels import Edges
from pipeline.stages.selection import Screen

_MOST_NAMED = 6
"""Changed settings, and lines of reviews, that a notice names."""


@dataclass(frozen=True)
class Plan:
    """Build request, with all that is known before the work starts."""

    request: BuildRequest
    workspace: Workspace
    stages: tuple[Stage, ...]
    films: tuple[str, ...]
    """Ids of the requested films, in the order given."""
    unfinished: Mapping[str, tuple[Stage, ...]]
    """Films with work to do, by id: their stages from the first that is not done. No stage: the film failed after its
    last stage, and its failure is to be cleared."""
    publishing: tuple[PublishStage, ...]
    """Stages of publishing; none if the build ends before them, or has no film."""
    refused: tuple[Failure, ...]
    """Files that cannot be used, each with its reason."""
    notices: tuple[str, ...]
    """Information for the user that is not an error, such as a film given twice."""
    record: DatasetRecord
    """`dataset.json` of the build, with its films, level edges and settings."""
    in_shards: frozenset[str]
    """Ids of the films in the shards before the build."""

    @property
    def dataset(self) -> Dataset:
        """The dataset, or the local copy of one at an address."""
        return self.workspace.dataset

    @property
    def config(self) -> Config:
        """The settings of the build."""
        return self.request.config

    @property
    def refusals(self) -> list[str]:
        """A line for each file that cannot be used."""
        return [f"{refusal.record_id}: {refusal.reason}" for refusal in self.refused]


def make_plan(request: BuildRequest, workspace: Workspace) -> Plan:
    """Plan a build that is going to run: store the films and settings in `dataset.json`, and send them to the store.

    A build without a usable film changes nothing, because its settings would seem to describe what is published. Raises
    as `draft_plan` does.
    """
    workspace.dataset.sweep()
    plan = draft_plan(request, workspace)
    _clear_leftovers([plan.dataset.folder(film_id) for film_id in plan.films if film_id not in plan.unfinished])
    if not plan.films:
        return plan
    if plan.dataset.record != plan.record:
        plan.dataset.save(plan.record)
    for stage in plan.stages:
        _check_networks(stage, plan.dataset.root, record=True)
    # not the shards: a killed build may have left them without their index
    for part in ("films/", "dataset.json", "networks.json"):
        workspace.send(part)
    return plan


def draft_plan(request: BuildRequest, workspace: Workspace, *, fetch: bool = True) -> Plan:
    """Identify the films and choose the stages; only films' records and caches are written.

    The workspace must be locked, unless its dataset has a scratch folder for these. Without `fetch`, embeddings are
    left out of the plan if this machine lacks their networks.

    Raises:
        UserError: `out` is not a dataset, or the request does not fit it; the cast folder cannot be used, or a good
            caption would be requested again.
        RemoteError: an address cannot be used.
    """
    # 1. Bring the dataset here, if it is at an address.
    in_threads = request.config.run.runner == "threads"
    request = request.with_absolute_checkpoint() if in_threads else request.with_absolute_paths()
    dataset = workspace.dataset
    workspace.check_free()
    with watched(dataset.root.name, "fetch") as watch:
        watch.changed = False
        workspace.fetch(progress=watch)
    # 2. Read all that a person wrote: what is broken ends the build now, not hours later.
    cast = cast_of(request)
    load_vocabulary(dataset.root)
    review_file = review_path(dataset.root, request.config.review)
    reviews = read_decisions(review_file)
    # 3. Identify the films by their content, and choose the stages for them.
    found = identify(request.films, dataset)
    record = dataset.record
    films = tuple(film.film_id for film in found.films)
    listed = found.listed(record.films)
    others = [dataset.folder(entry.film_id) for entry in listed if entry.film_id not in films]
    named = with_episodes(
        found.films, request.config.films, [film for folder in others if (film := folder.film_if_made)]
    )
    for before, film in zip(found.films, named, strict=True):
        if film != before:
            dataset.folder(film.film_id).save_film(film)
    edges, edges_from = choose_edges(request.config, record)
    stages, missing = _with_networks(planned_stages(request, edges, cast, fetch=fetch))
    for stage in stages:
        stage.ingredients()  # fails if a checkpoint or a package is missing
        _check_networks(stage, dataset.root, record=False)
    # 4. Refuse what would pay twice, or leave films of two kinds in one dataset.
    # films that this build leaves alone keep their cast: their reviews need its names
    names = tuple(dict.fromkeys([*(record.cast if others else ()), *cast.all_names]))
    _refuse_repeated_captions([dataset.folder(film_id) for film_id in films], stages)
    refuse_to_join(others, stages)
    # 5. Find the films with work left, and what to tell the user. Episodes may have gone since they were compared.
    compare_episodes(dataset, [entry.film_id for entry in listed])
    unfinished = unfinished_of([dataset.folder(film_id) for film_id in films], stages)
    settings = request.config.model_dump(mode="json", exclude={"run"})
    changes = {
        "films": listed,
        "edges": edges,
        "edges_from": edges_from,
        "calibration": record.calibration,
        "clips": ClipFormat(**request.config.clips.model_dump(include=set(ClipFormat.model_fields))),
        "cast": names,
        "cast_source": request.cast and absolute(request.cast),
        "config": settings,
    }
    return Plan(
        request=request,
        workspace=workspace,
        stages=stages,
        films=films,
        unfinished=unfinished,
        publishing=publish_stages(request.config) if films and request.until is Until.publish else (),
        refused=tuple(found.refused),
        notices=(
            *found.notices,
            *missing,
            *episode_notices(named, request.config),
            *_settings_notices(record.config, settings),
            *_edges_notices(record.calibration, edges, edges_from),
            *_cast_notices(cast, record.cast, listed, stages),
            *_review_notices(review_file, request.config.review, reviews),
            *_cut_again_notices({dataset.folder(key): left for key, left in unfinished.items()}, reviews.decisions),
            *_unapplied_notices(review_file, outside_cast(reviews, {entry.sha256 for entry in listed}, names)),
        ),
        record=record.model_copy(update=changes),
        in_shards=films_in_shards(dataset),
    )


def _with_networks(stages: tuple[Stage, ...]) -> tuple[tuple[Stage, ...], list[str]]:
    """Return the stages without `embed` if its networks are on the hub alone and may not be fetched, and a notice."""
    from pipeline.stages.embedding.network_files import NotHereError  # most builds embed nothing

    try:
        for stage in stages:
            if stage.name == "embed":
                stage.ingredients()
    except NotHereError as error:
        return tuple(stage for stage in stages if stage.name != "embed"), [f"embeddings are not in this plan: {error}"]
    return stages, []


def _check_networks(stage: Stage, root: Path, *, record: bool) -> None:
    """Raise a UserError if a network is not the one that the dataset was made with; `record` pins new ones."""
    if stage.name == "embed":
        from pipeline.stages.embed import Embed
        from pipeline.stages.embedding.network_files import check_pins

        assert isinstance(stage, Embed)
        check_pins(root, stage.networks().values(), record=record)


def _review_notices(path: Path, settings: ReviewSettings, reviews: Reading) -> list[str]:
    if settings.file and not path.exists():
        return [f"{path}: no such review file; the dataset is published without reviews"]
    faults = reviews.faults
    if not faults:
        return []
    more = f", nor are {len(faults) - 1} more" if len(faults) > 1 else ""
    return [f"{path}: line {faults[0].line} is not a decision and counts for nothing ({faults[0].reason}){more}"]


def _unapplied_notices(path: Path, lines: Sequence[int]) -> list[str]:
    """Name the decisions that are not published because a name in them is not in the cast."""
    if not lines:
        return []
    return [
        f"{path}: not applied, since they name a character outside the cast: line "
        f"{first_few([str(line) for line in lines], _MOST_NAMED)}; give --cast a folder of that name, or edit the lines"
    ]


def _cut_again_notices(unfinished: Mapping[FilmFolder, Sequence[Stage]], decisions: Sequence[Decision]) -> list[str]:
    """Name the films to cut again that have captions or reviews; the new clips show how many of them still match."""
    notices = []
    for folder, left in unfinished.items():
        names = [stage.name for stage in left]
        captioned, reviews = captions_and_reviews(folder, decisions) if "cut" in names else ([], [])
        if captioned or reviews:
            will = "will" if names[0] == "cut" else "may"  # the stages before it may give the same results again
            have = f"{counted(len(captioned), 'caption')} and {counted(len(reviews), 'review')}"
            notices.append(f"{folder.film.name} {will} be cut again; it has {have}")
    return notices


def _refuse_repeated_captions(folders: Sequence[FilmFolder], stages: Sequence[Stage]) -> None:
    """Raise a UserError before any work is done if a good caption would be requested again."""
    match stages:
        case [*_, Screen() as screen, WriteCaptions(spares_captions=True) as captions]:
            repeats = [_repeats(folder, screen, captions) for folder in folders]
            refuse_repeats(merged(repeats), keep_old=captions.settings.keep_old)


def _repeats(folder: FilmFolder, screen: Screen, captions: WriteCaptions) -> Repeats:
    """The repeats in a film, under the level edges and thresholds of this build; none if they are unknown."""
    if not all(folder.stage_record(name) for name in captions.needs if name != screen.name):
        return Repeats()
    try:
        return captions.repeats(folder, None if is_current(screen, folder) else screen.verdicts(folder))
    except (UserError, OSError):  # a damaged table or reply: the film's run makes it again, or says why not
        return Repeats()


def _cast_notices(cast: Cast, before: Sequence[str], listed: Sequence[FilmEntry], stages: Sequence[Stage]) -> list[str]:
    if before and not cast.all_names:
        names = ", ".join(before)
        return [f"this build has no cast, the dataset has {names}: add its --cast folder unless you mean that"]
    reason = (
        "not used, since no film of the dataset had this file name (without suffix) at its first build, nor has this id"
    )
    unused = [f"cast of the film {key}: {reason}" for key in cast.without_film(listed)]
    match stages:
        case [*_, WriteCaptions(settings=CaptionSettings(captioner="rules"))] if cast.all_names:
            unused.append("the cast serves only reviews: captions by rules name no characters; use --captioner server")
    return [*cast.warnings, *unused]


def _edges_notices(calibration: LevelCalibration | None, edges: Edges, edges_from: str) -> list[str]:
    """Name a calibration that this build does not use because it measures motion differently."""
    if not calibration or edges_from in ("config", calibration.source) or calibration.edges == edges:
        return []
    return [
        "the calibrated level edges are for motion measured with other settings, so this build uses the published "
        "edges; to calibrate again, run `animegamer calibrate` after the build, then build once more"
    ]


def _settings_notices(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name the settings that differ from the previous build, because a build does not reuse earlier settings."""
    names = changed(_shared(before, now), _shared(now, before))  # a setting of one side alone is new, or gone
    if not names:
        return []
    return [
        f"settings differ from the previous build: {first_few(names, _MOST_NAMED)}; "
        "to keep them, pass its options and --config again"
    ]


def _shared(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values whose keys the others have too, in their sections as well."""
    both = ((key, value) for key, value in values.items() if key in others)
    return {key: _shared(value, others[key]) if isinstance(value, Mapping) else value for key, value in both}


def unfinished_of(folders: Sequence[FilmFolder], stages: tuple[Stage, ...]) -> dict[str, tuple[Stage, ...]]:
    """The stages left of each film that has some, by its id."""
    unfinished = {}
    for folder in folders:
        left = _stages_left(folder, stages)
        if left or folder.failure:
            unfinished[folder.film_id] = left
    return unfinished


def _clear_leftovers(folders: Sequence[FilmFolder]) -> None:
    """Remove the local copies of finished films, and temporary files in their folders."""
    for folder in folders:
        delete_local_film(folder)
        with suppress(HeldError), held(folder.path, "removing leftovers"):
            folder.sweep()


def _stages_left(folder: FilmFolder, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The stages from the first that is not done; all of them if a file cannot be read: the film's run says why."""
    with watched(folder.film_id, "check") as watch:
        watch.changed = False
        try:
            for done, stage in enumerate(stages):
                watch(done, len(stages))
                if staleness_of(stage, folder).reason:
                    return stages[done:]
        except (UserError, OSError):
            return stages
    return ()
