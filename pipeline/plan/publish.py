"""Publishing stages: verdicts over all finished films, shards, data card, report. Plain Python, no Prefect.

A film is published once all its stages are finished; failed and unfinished films are left out of the shards and listed
in the report. A result is published again only when its ingredients have changed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pipeline.core.config import Config
from pipeline.core.ingredients import Ingredients, ResultNotes, fingerprint
from pipeline.core.measurements import Motion
from pipeline.core.progress import Progress
from pipeline.core.records import Caption, Verdict
from pipeline.core.stage import is_whole
from pipeline.core.store import Dataset, DatasetRecord, FilmEntry, FilmFolder, StoreError
from pipeline.pages import CARD_VERSION, REPORT_VERSION
from pipeline.plan.film_stages import STAGE_NAMES, refuse_to_publish
from pipeline.plan.identify import known_film
from pipeline.publish import shards
from pipeline.publish.samples import EPISODE, SHARD_SCHEMA
from pipeline.publish.vocabulary import load_vocabulary
from pipeline.reviews.applied import (
    CARRIED,
    TABLE,
    captions_of_copies,
    carried_over,
    load_reviews,
    review_path,
    save_published,
)
from pipeline.reviews.audit_sample import AUDIT_FILES
from pipeline.stages import selection
from pipeline.stages.motion_levels import level_values
from pipeline.stages.sound import KeepSound


class PublishStage(Protocol):
    """One step of publishing, over all films. It skips results that are current."""

    name: ClassVar[str]

    def run(self, dataset: Dataset, progress: Progress) -> bool:
        """Bring its results up to date; return False if they already were."""
        ...


def publish_stages(config: Config) -> tuple[PublishStage, ...]:
    """The stages of publishing, in order."""
    return (Select(config), WriteShards(config), WritePages(config))


@dataclass(frozen=True)
class Select:
    """Final verdicts of every finished film, and the dataset's flow model, captioner and level values."""

    name: ClassVar[str] = "selection"

    config: Config

    def run(self, dataset: Dataset, progress: Progress) -> bool:  # noqa: ARG002 - it takes no time
        """Write the reviewed values, the verdicts and `dataset.json` if they have changed.

        Raises:
            UserError: some films were made with other settings.
        """
        folders, record = finished(dataset), dataset.record
        refuse_to_publish(folders, _edges(record))
        for folder in dataset.folders():
            if folder.film_id not in {done.film_id for done in folders}:
                # verdicts of an earlier run would put old clips into the shards
                folder.table_path("verdicts").unlink(missing_ok=True)
        reviews = load_reviews(dataset, review_path(dataset.root, self.config.review))
        reviewed = {folder.film_id: reviews.rows(folder, record.cast) for folder in folders}
        chosen = self.config.selection
        facts = [selection.film_facts(folder, reviewed[folder.film_id], chosen) for folder in folders]
        verdicts = selection.verdicts_of(facts, chosen)
        captions: dict[str, list[Caption]] = {}
        if chosen.prefer == "quality":
            reviewed = carried_over(reviewed, verdicts)
            made = {film.film_id: tuple((film.captions or {}).values()) for film in facts}
            captions = captions_of_copies(made, verdicts)
        if (least := self.config.review.carry) is not None:
            from pipeline.publish.carried_characters import captions_by_likeness, carry_through  # most carry nothing

            guesses = carry_through(dataset, reviews.standings, most=0).guesses
            for folder in folders:
                machine = {row.clip_id: row for row in folder.read("captions", Caption)}
                copies = {row.clip_id: row for row in captions.get(folder.film_id, ())}
                found = captions_by_likeness((machine | copies).values(), guesses, least, record.cast)
                captions[folder.film_id] = list((copies | {row.clip_id: row for row in found}).values())
        changed = False
        for folder in folders:
            changed |= save_published(folder, TABLE, reviewed[folder.film_id])
            changed |= save_published(folder, CARRIED, captions.get(folder.film_id, ()))
            if verdicts_of(folder) != verdicts[folder.film_id]:
                folder.write("verdicts", verdicts[folder.film_id])
                changed = True
        kept = {verdict.clip_id for rows in verdicts.values() for verdict in rows if verdict.keep}
        motion = [row for folder in folders for row in folder.read("motion", Motion)]
        updates = {
            "flow_model": next((row.flow_model for row in motion), None),
            "captioner": next((row.source for folder in folders for row in folder.read("captions", Caption)), None),
            "level_values": level_values([row.scope_px for row in motion if row.clip_id in kept], _edges(record)),
        }
        if record != (selected := record.model_copy(update=updates)):
            dataset.save(selected)
            changed = True
        return changed


@dataclass(frozen=True)
class WriteShards:
    """Shards and their index."""

    name: ClassVar[str] = "shards"

    config: Config

    def run(self, dataset: Dataset, progress: Progress) -> bool:
        """Write the shards unless they are current."""

        def write() -> list[Path]:
            index, folder = shards.write_shards(dataset, self.config.shards, progress), dataset.root / "shards"
            return [folder / "index.json", *(folder / shard.name for shard in index.shards)]

        return _notes(dataset).renew(self.name, _ingredients(dataset, self.config)[self.name], write)


@dataclass(frozen=True)
class WritePages:
    """Data card and report."""

    name: ClassVar[str] = "report"

    config: Config

    def run(self, dataset: Dataset, progress: Progress) -> bool:
        """Write both pages unless they are current."""
        from pipeline.pages import card, report  # `status` reads the ingredients alone

        def write() -> list[Path]:
            of_dataset = card.write_card(dataset, self.config.card)
            return [of_dataset, report.write_report(dataset, progress, self.config.run.threads)]

        return _notes(dataset).renew(self.name, _ingredients(dataset, self.config)[self.name], write)


def finished(dataset: Dataset) -> list[FilmFolder]:
    """The films with every stage done on the current results of the others, in the order they were added.

    A film whose last attempt failed before it changed a result is still complete, and stays published.
    """
    return [folder for folder in dataset.folders() if is_whole(folder, STAGE_NAMES)]


def films_in_shards(dataset: Dataset) -> frozenset[str]:
    """Ids of the films with samples in the shards; none without a readable index."""
    try:
        return frozenset(shard.film_id for shard in shards.read_index(dataset.root).shards)
    except StoreError:
        return frozenset()


def left_out(dataset: Dataset, before: Collection[str]) -> list[FilmEntry]:
    """Films of the dataset that were in the shards before (by id) and are now missing because a stage is undone."""
    gone = set(before) - films_in_shards(dataset)
    listed = [entry for entry in dataset.record.films if entry.film_id in gone]
    return [entry for entry in listed if not is_whole(dataset.folder(entry.film_id), STAGE_NAMES)]


def is_published(dataset: Dataset, config: Config) -> bool:
    """Return True if shards and pages on disk are current."""
    notes = _notes(dataset)
    return all(notes.why_stale(name, made_from) is None for name, made_from in _ingredients(dataset, config).items())


def _notes(dataset: Dataset) -> ResultNotes:
    return ResultNotes(dataset.root / "published.json")


def _ingredients(dataset: Dataset, config: Config) -> dict[str, Ingredients]:
    """Current ingredients of shards and report."""
    contents: dict[str, Any] = {
        "films": {folder.film_id: _made_of(folder, config) for folder in dataset.folders()},
        "record": dataset.record.model_dump(mode="json", exclude={"config", "cast_source"}),
    }
    if vocabulary := load_vocabulary(dataset.root).published:
        contents["vocabulary"] = vocabulary
    settings = [config.selection.ingredients(), config.shards.ingredients()]
    made: Ingredients = {"version": shards.VERSION, "schema": SHARD_SCHEMA, "settings": settings, **contents}
    versions = [CARD_VERSION, REPORT_VERSION, fingerprint(made)]
    pages: dict[str, Any] = {"versions": versions, "card": config.card.ingredients()}
    records = {folder.film_id: folder.stage_record("embed") for folder in dataset.folders()}
    if embedded := {film_id: record.result for film_id, record in records.items() if record}:
        pages["embedded"] = embedded
    if (reviews := review_path(dataset.root, config.review)).is_file():
        pages["review"] = shards.file_sha256(reviews)
    if audit := {name: shards.file_sha256(path) for name in AUDIT_FILES if (path := dataset.root / name).is_file()}:
        pages["audit"] = audit
    return {"shards": made, "report": pages}


def _made_of(folder: FilmFolder, config: Config) -> list[Any]:
    """Ingredients of the published data from one film: result of every stage, reviewed values, verdicts, failure, name.

    The results themselves, not only their ingredients: the same request to a captioner may get another reply.
    """
    names = (*STAGE_NAMES, KeepSound.name) if config.sound.keep else STAGE_NAMES
    records = {stage: record for stage in names if (record := folder.stage_record(stage))}
    stages = {stage: [record.fingerprint, record.result] for stage, record in records.items()}
    tables = folder.marks(folder.table_path(table).name for table in (TABLE, CARRIED, "verdicts"))
    made_of = [stages, [mark.sha256 for mark in tables.values()], folder.failure.reason if folder.failure else None]
    film = known_film(folder)  # None: its folder was deleted by hand
    return [*made_of, film and film.model_dump(include=EPISODE)]


def verdicts_of(folder: FilmFolder) -> list[Verdict] | None:
    """A film's verdicts, or None without a readable table."""
    try:
        return folder.read("verdicts", Verdict)
    except StoreError:
        return None


def _edges(record: DatasetRecord) -> tuple[float, float, float, float]:
    if record.edges is None:
        raise StoreError("dataset.json names no level edges; run `animegamer build` on it first")
    return record.edges
