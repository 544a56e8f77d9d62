"""Stage protocol, and one run of a stage on a film: skip if nothing changed, else run, write, record the ingredients.

A stage is a frozen dataclass whose fields are its settings. Its method `run` makes tables from the tables of earlier
stages, and does the same in a plain call, a Prefect task or a test.

    perform(FindCrop(config.crop), folder, progress)      # examples, benchmarks, tests: one call does it all

In a build, each step is a separate task (`flows/dataset.py`): `staleness_of` decides, `run_batch` processes what is
pending, `make` runs the stage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Protocol, TypeVar

from pipeline.core.ingredients import ResultNote, fingerprint
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Failure, Film, Record, RecordError
from pipeline.core.store import FilmFolder, StageRecord, StoreError


@dataclass(frozen=True)
class Outcome:
    """Tables, failures and files of one run of a stage."""

    tables: Mapping[str, Sequence[Record]]
    failures: tuple[Failure, ...] = ()
    files: tuple[str, ...] = ()
    """Paths of the other files made, relative to the film's folder."""
    film: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the film's record that the stage found out; no result may depend on these fields."""


OpenFilm = Callable[[FilmFolder], AbstractContextManager[FilmFolder]]
"""Opens a film's folder such that `folder.film.source` is a file on this machine, for the block."""
GPU, CAPTIONS = "gpu", "captions"
"""Tags of stages: a scheduler may limit how many stages with one of them run at once."""


@dataclass(frozen=True)
class Resources:
    """Needs of a stage while it runs, for the runner that places it."""

    reads_film: bool = False
    """True if the stage reads the film itself: `folder.film.source` is then a file on this machine."""
    cpus: float = 1.0
    gpu: bool = False
    tags: tuple[str, ...] = ()
    """Names of concurrency limits of a scheduler that apply to the stage."""
    retry_on: tuple[type[Exception], ...] = ()
    """Errors worth a retry, such as a service that is down."""


@dataclass(frozen=True)
class Pending:
    """Work left to a stage, although its result may be current."""

    batches: tuple[tuple[str, ...], ...] = ()
    """Ids of records to process before `run`, with marks of the stage, in batches that can be retried alone."""
    uncollected: bool = False
    """True if stored replies are missing from the result: the stage has to run again, without new requests."""
    reason: str | None = None
    """Description of what is left; None if nothing is."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all batches, in order, with their marks."""
        return tuple(chain.from_iterable(self.batches))


NOTHING_PENDING = Pending()


class Stage(Protocol):
    """One step from records to records, for one film. Stages inherit from it for the defaults."""

    name: ClassVar[str]
    version: ClassVar[int]
    """Version number, raised by hand whenever the same input would give another result."""
    needs: ClassVar[tuple[str, ...]]
    """Names of the stages whose tables it reads; their results are part of its fingerprint."""

    @property
    def resources(self) -> Resources:
        """Resources needed while it runs; by default one CPU."""
        return Resources()

    def ingredients(self) -> dict[str, Any]:
        """Return the other dependencies of the result: settings, models and revisions, prompt versions; JSON values."""
        ...

    def film_ingredients(self, film: Film) -> dict[str, Any]:  # noqa: ARG002
        """Return the special treatment of this film because of its kind; by default nothing.

        If the pipeline learns to treat a kind, only the films of this kind are made again.
        """
        return {}

    def pending(self, folder: FilmFolder, *, current: bool) -> Pending:  # noqa: ARG002
        """Return the work left besides `run`; `current`: the result on disk is current. By default nothing."""
        return NOTHING_PENDING

    def run_batch(self, folder: FilmFolder, batch: Sequence[str], progress: Progress) -> None:  # noqa: ARG002
        """Process one pending batch; each can be retried alone."""
        raise AssertionError(f"{self.name} has no batches")

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Make the tables. Raises RecordError when the film itself cannot be used."""
        ...


@dataclass(frozen=True)
class Staleness:
    """Staleness and pending work of a stage on a film."""

    stale_reason: str | None
    """Reason to run the stage: the changed ingredient or the missing file; None if its result is current."""
    pending: Pending = NOTHING_PENDING

    @property
    def reason(self) -> str | None:
        """Reason the stage is not done; None if it is."""
        return self.stale_reason or self.pending.reason


def staleness_of(stage: Stage, folder: FilmFolder) -> Staleness:
    """Compare the stage's result on a film with its ingredients now, and look for pending work."""
    reason = why_stale(stage, folder)
    if reason and any(folder.stage_record(name) is None for name in stage.needs):
        return Staleness(reason)  # pending work is known once the stages before it are done
    return Staleness(reason, stage.pending(folder, current=reason is None))


def ingredients_of(stage: Stage, folder: FilmFolder) -> dict[str, Any]:
    """Ingredients of the stage's result on this film, the results of the stages before it included."""
    upstream = {}
    for name in stage.needs:
        record = folder.stage_record(name)
        upstream[name] = record.result if record else None
    return {
        "content": folder.film.sha256,
        "stage": f"{stage.name} {stage.version}",
        "upstream": upstream,
        **stage.ingredients(),
        **stage.film_ingredients(folder.film),
    }


def is_current(stage: Stage, folder: FilmFolder) -> bool:
    """Return True if the result on disk has the same ingredients as a run now, and every file is unchanged."""
    return why_stale(stage, folder) is None


def is_whole(folder: FilmFolder, stages: Sequence[str]) -> bool:
    """Return True if these stages, by name, are finished and each was made from the current results of the others.

    A build that stops early can leave results of later stages about clips that no longer exist.
    """
    records = {name: folder.stage_record(name) for name in stages}
    made = {name: record.result for name, record in records.items() if record}
    upstream = [item for record in records.values() if record for item in record.ingredients["upstream"].items()]
    return len(made) == len(records) and all(made.get(name) == made_from for name, made_from in upstream)


def why_stale(stage: Stage, folder: FilmFolder) -> str | None:
    """Return the reason to run the stage: the changed ingredient or the missing file; None if it is current."""
    record = folder.stage_record(stage.name)
    if record is None:
        return "not made yet"
    note = ResultNote(record.fingerprint, record.files, record.ingredients)
    return note.why_stale(ingredients_of(stage, folder), folder.marks)


def perform(stage: Stage, folder: FilmFolder, progress: Progress = silent) -> bool:
    """Bring the stage's result on this film up to date; return False if it already was. Raises as `make` does."""
    if is_current(stage, folder):
        return False
    make(stage, folder, progress)
    return True


def make(stage: Stage, folder: FilmFolder, progress: Progress, open_film: OpenFilm = nullcontext) -> None:
    """Run the stage on this film and record the ingredients of its result.

    `open_film` makes the film a local file while the stage runs; if it raises when closed, no record is written.

    Raises:
        StoreError: a stage that this one needs has not finished.
        RecordError: the film itself cannot be used.
    """
    ingredients = ingredients_of(stage, folder)
    unfinished = [name for name, made_from in ingredients["upstream"].items() if made_from is None]
    if unfinished:
        raise StoreError(f"{folder.path}: {stage.name} needs {', '.join(unfinished)}, which has not finished here")
    folder.forget_stage(stage.name)  # if this run is killed, its partial files must not pass for the old result
    with open_film(folder) as readable:  # closed, and its content checked again, before the result is recorded
        outcome = stage.run(readable, progress)
    for table, rows in outcome.tables.items():
        folder.write(table, rows)
    if outcome.film:
        folder.save_film(folder.film.model_copy(update=outcome.film))
    names = [*outcome.files, *(folder.table_path(table).name for table in outcome.tables)]
    folder.save_stage_record(
        StageRecord(
            stage=stage.name,
            fingerprint=fingerprint(ingredients),
            ingredients=ingredients,
            files=folder.marks(names),
            failures=outcome.failures,
        )
    )


T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")


def attempt_each(
    items: Sequence[T], work: Callable[[T], R], *, threads: int, failed_limit: float, progress: Progress
) -> tuple[list[R], tuple[Failure, ...]]:
    """Run `work` on every item, in threads (0: one per core), keeping order; RecordErrors become failures.

    Raises:
        RecordError: more than the share `failed_limit` of the items failed, a sign of a larger fault.
    """

    def attempt(batch: Sequence[T]) -> list[R | RecordError]:
        try:
            return [work(item) for item in batch]
        except RecordError as error:
            return [error]

    return attempt_batches(items, attempt, size=1, threads=threads, failed_limit=failed_limit, progress=progress)


def attempt_batches(
    items: Sequence[T],
    work: Callable[[Sequence[T]], Sequence[R | RecordError]],
    *,
    size: int,
    threads: int,
    failed_limit: float,
    progress: Progress,
) -> tuple[list[R], tuple[Failure, ...]]:
    """Variant of `attempt_each` for work that is cheaper on `size` items at once and returns one answer per item."""
    done: list[R] = []
    failures: list[Failure] = []
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    # closing: when `progress` raises to stop the build, batches not yet started are cancelled
    with closing(_in_threads(batches, work, threads)) as answers:
        for result in chain.from_iterable(answers):
            if isinstance(result, RecordError):
                failures.append(Failure(record_id=result.record_id, reason=result.reason))
            else:
                done.append(result)
            progress(len(done) + len(failures), len(items))
    if len(failures) > failed_limit * len(items):
        raise RecordError(failures[0].record_id, f"{len(failures)} of {len(items)} failed; first: {failures[0].reason}")
    return done, tuple(failures)


def _in_threads(items: Sequence[T], work: Callable[[T], A], threads: int) -> Generator[A, None, None]:
    with ThreadPoolExecutor(max_workers=threads or os.cpu_count()) as pool:
        yield from pool.map(work, items)
