"""Stage protocol, and one run of a stage on a film: skip if nothing changed, else run, write, record the ingredients.

A stage is a frozen dataclass whose fields are its settings, with one method `run` that turns the tables of the
stages before it into its own. It is the same under a plain call, a Prefect task or a test.

    perform(FindCrop(config.crop), folder, progress)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Protocol, TypeVar

from pipeline.core.ingredients import ResultNote, fingerprint
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Failure, Record, RecordError
from pipeline.core.store import FilmFolder, StageRecord, StoreError


@dataclass(frozen=True)
class Outcome:
    """What one run of a stage produced."""

    tables: Mapping[str, Sequence[Record]]
    failures: tuple[Failure, ...] = ()
    files: tuple[str, ...] = ()
    """Other files it made, relative to the film's folder."""


GPU, CAPTIONS = "gpu", "captions"
"""Tags: a scheduler may limit how many stages with one of them run at once."""


@dataclass(frozen=True)
class Resources:
    """Needs of a stage while it runs, for the runner that places it."""

    reads_film: bool = False
    """The film itself is read: `folder.film.source` is then a file on this machine."""
    cpus: float = 1.0
    gpu: bool = False
    tags: tuple[str, ...] = ()
    """Concurrency limits of these names, where a scheduler has them, hold for the stage."""
    retry_on: tuple[type[Exception], ...] = ()
    """Failures that another try may mend, such as a service that is down."""


@dataclass(frozen=True)
class Pending:
    """Work left to a stage although its result may be current."""

    batches: tuple[tuple[str, ...], ...] = ()
    """Ids of records to work on before `run`, in batches that can be retried alone."""
    uncollected: bool = False
    """Answers have come that the result lacks: the stage has to run again, and asks nothing for them."""
    reason: str | None = None
    """Description of what is left; None if nothing is."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all batches, in order."""
        return tuple(chain.from_iterable(self.batches))


NOTHING_PENDING = Pending()


class Stage(Protocol):
    """One step from records to records, for one film. Stages inherit from it for the defaults."""

    name: ClassVar[str]
    version: ClassVar[int]
    """Raised by hand whenever the same input would give another result."""
    needs: ClassVar[tuple[str, ...]]
    """Names of the stages whose tables it reads; their fingerprints are part of its own."""

    @property
    def resources(self) -> Resources:
        """Needs while it runs; by default one CPU."""
        return Resources()

    def ingredients(self) -> dict[str, Any]:
        """Return what else the result depends on: settings, models and revisions, prompt versions; JSON values."""
        ...

    def pending(self, folder: FilmFolder, *, current: bool) -> Pending:  # noqa: ARG002
        """Return the work left besides `run`; `current` says that the result on disk is. By default nothing."""
        return NOTHING_PENDING

    def work_off(self, folder: FilmFolder, batch: Sequence[str], progress: Progress) -> None:  # noqa: ARG002
        """Do one batch of what is pending; each may be retried alone."""
        raise AssertionError(f"{self.name} has no batches")

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Do the work. Raises RecordError when the film itself cannot be used."""
        ...


@dataclass(frozen=True)
class Judgement:
    """Comparison of a stage's result on a film with what running the stage would give."""

    stale: str | None
    """Why the stage has to run: the ingredient that changed, or the file that is missing; None if it need not."""
    pending: Pending = NOTHING_PENDING

    @property
    def reason(self) -> str | None:
        """Why the stage is not done; None if it is."""
        return self.stale or self.pending.reason


def judge(stage: Stage, folder: FilmFolder) -> Judgement:
    """Compare the stage's result on a film with what running it would give."""
    stale = why_stale(stage, folder)
    if stale and any(folder.stage_record(name) is None for name in stage.needs):
        return Judgement(stale)  # what is pending shows once the stages before it are done
    return Judgement(stale, stage.pending(folder, current=stale is None))


def ingredients_of(stage: Stage, folder: FilmFolder) -> dict[str, Any]:
    """Everything that defines the stage's result on this film, what the stages before it made included."""
    upstream = {}
    for name in stage.needs:
        record = folder.stage_record(name)
        upstream[name] = record.result if record else None
    return {
        "content": folder.film.sha256,
        "stage": f"{stage.name} {stage.version}",
        "upstream": upstream,
        **stage.ingredients(),
    }


def is_current(stage: Stage, folder: FilmFolder) -> bool:
    """Whether the result on disk is what running the stage would give, with every file whole."""
    return why_stale(stage, folder) is None


def is_whole(folder: FilmFolder, stages: Sequence[str]) -> bool:
    """Whether these stages, by name, are finished and each was made from what the others hold now.

    A build that stops early can leave later stages behind with facts about clips that are no more.
    """
    records = {name: folder.stage_record(name) for name in stages}
    made = {name: record.result for name, record in records.items() if record}
    upstream = [item for record in records.values() if record for item in record.ingredients["upstream"].items()]
    return len(made) == len(records) and all(made.get(name) == made_from for name, made_from in upstream)


def why_stale(stage: Stage, folder: FilmFolder) -> str | None:
    """Why the stage has to run, in words: which ingredient changed, which file is missing; None if it need not."""
    record = folder.stage_record(stage.name)
    if record is None:
        return "not made yet"
    note = ResultNote(record.fingerprint, record.files, record.ingredients)
    return note.why_stale(ingredients_of(stage, folder), folder.marks)


def perform(stage: Stage, folder: FilmFolder, progress: Progress = silent) -> bool:
    """Bring the stage's result on this film up to date; False if it already was.

    Raises:
        StoreError: a stage that this one needs has not finished.
        RecordError: the film itself cannot be used.
    """
    if is_current(stage, folder):
        return False
    make(stage, folder, progress)
    return True


def make(stage: Stage, folder: FilmFolder, progress: Progress) -> None:
    """Run the stage on this film, and record what its result was made from.

    Raises:
        StoreError: a stage that this one needs has not finished.
        RecordError: the film itself cannot be used.
    """
    ingredients = ingredients_of(stage, folder)
    unfinished = [name for name, made_from in ingredients["upstream"].items() if made_from is None]
    if unfinished:
        raise StoreError(f"{folder.path}: {stage.name} needs {', '.join(unfinished)}, which has not finished here")
    folder.forget_stage(stage.name)  # should this run be cut short, its leftovers must not pass for the old result
    outcome = stage.run(folder, progress)
    for table, rows in outcome.tables.items():
        folder.write(table, rows)
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
R = TypeVar("R", bound=Record)


def attempt_each(
    items: Sequence[T], work: Callable[[T], R], *, threads: int, failed_limit: float, progress: Progress
) -> tuple[list[R], tuple[Failure, ...]]:
    """Run `work` on every item, in threads (0: one per core), keeping order; RecordErrors become failures.

    Raises:
        RecordError: more than `failed_limit` of the items failed, which means something larger is wrong.
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
    """As `attempt_each`, for work that is cheaper on `size` items at once: it returns one answer per item, in order.

    Raises:
        RecordError: more than `failed_limit` of the items failed.
    """
    done: list[R] = []
    failures: list[Failure] = []
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    # closing: when `progress` raises to stop the build, what has not begun is cancelled instead of waited for
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
