"""Status of a dataset: per film and stage done, stale, failed, missing or unknown, with the reason; read-only.

    for row in film_rows(dataset, request):
        row.cells["cut"].state, row.cells["cut"].why

A stage is judged as in a build: by the ingredients of its result, and by its files. So `status` with another
configuration shows in advance the stages that a build with it would rerun.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.filesize import decimal
from rich.table import Table

from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import ClipSettings, Config
from pipeline.core.errors import UserError
from pipeline.core.ingredients import damage
from pipeline.core.plain_text import printable
from pipeline.core.records import Clip
from pipeline.core.stage import Stage, staleness_of
from pipeline.core.store import Dataset, FilmFolder, StoreError
from pipeline.plan.film_stages import choose_edges, planned_stages
from pipeline.plan.identify import known_film
from pipeline.plan.publish import finished, is_published, verdicts_of
from pipeline.plan.request import BuildRequest
from pipeline.publish.coverage import why_no_clip
from pipeline.publish.shards import read_index
from pipeline.reviews.applied import count_reviews, load_reviews, review_path


class StageState(StrEnum):
    """State of one stage of one film."""

    done = "done"
    stale = "stale"
    failed = "failed"
    missing = "missing"
    unknown = "unknown"
    """Ingredients are missing on this machine: the cast folder, or the weights of an optical-flow network."""


SETTLED = (StageState.done, StageState.unknown)
"""States without known work for a build."""
_COLOURS = {
    StageState.done: "green",
    StageState.stale: "yellow",
    StageState.failed: "red",
    StageState.missing: "dim",
    StageState.unknown: "magenta",
}


@dataclass(frozen=True)
class Cell:
    """State of one stage of one film, and the reason it is not done."""

    state: StageState
    why: str = ""


@dataclass(frozen=True)
class FilmRow:
    """Status of one film: its stages by name, its clips and its size on disk."""

    film_id: str
    cells: dict[str, Cell]
    clips: int | None
    kept: int | None
    bytes: int
    no_clip: str | None = None
    """Reason that it has no clip; None if it has one, or is not cut."""

    @property
    def open_parts(self) -> int:
        """Number of stages that a build would have to run."""
        return sum(cell.state not in SETTLED for cell in self.cells.values())

    @property
    def unknown_parts(self) -> int:
        """Number of stages that can be judged only on another machine."""
        return sum(cell.state is StageState.unknown for cell in self.cells.values())


def film_rows(dataset: Dataset, request: BuildRequest, certain: Collection[str] = ()) -> list[FilmRow]:
    """Status of every film of the dataset under the settings and the cast of a request.

    Raises:
        UserError: ingredients of a stage in `certain` are missing. The user named them, so its state must be known.
    """
    edges, _ = choose_edges(request.config, dataset.record)
    unknown: dict[str, str] = {}
    try:
        stages = planned_stages(request, edges, fetch=False)
    except UserError as error:
        if WriteCaptions.name in certain:
            raise
        stages = planned_stages(request.model_copy(update={"cast": None}), edges, fetch=False)
        unknown[WriteCaptions.name] = f"{error}; --cast names another"
    for stage in stages:
        try:
            stage.ingredients()
        except UserError as error:
            if stage.name in certain:
                raise
            unknown[stage.name] = str(error)
    lost = Cell(StageState.missing, "film.json is missing or damaged; build the film again, or `animegamer remove` it")
    with _as_named(dataset, request.config) as named:
        return [
            _row(folder, stages, unknown, request.config.clips)
            if known_film(folder)
            else FilmRow(folder.film_id, {stage.name: lost for stage in stages}, None, None, size_of(folder.path))
            for folder in named.folders()
        ]


@contextmanager
def _as_named(dataset: Dataset, config: Config) -> Iterator[Dataset]:
    """The dataset with its films as `[[films]]` corrects them, in a folder of its own: status writes nothing."""
    if not config.films:
        yield dataset
        return
    from pipeline.plan.episodes import with_episodes  # most configurations correct nothing

    with TemporaryDirectory() as scratch:
        named = Dataset(dataset.root, Path(scratch))
        films = [film for folder in dataset.folders() if (film := known_film(folder))]
        for film in with_episodes(films, config.films):
            named.folder(film.film_id).save_film(film)
        yield named


def _row(folder: FilmFolder, stages: Sequence[Stage], unknown: Mapping[str, str], settings: ClipSettings) -> FilmRow:
    cells: dict[str, Cell] = {}
    for stage in stages:
        cells[stage.name] = _cell(folder, stage, cells, unknown)
    if (failure := folder.failure) and all(cell.state in SETTLED for cell in cells.values()):
        cells[stages[-1].name] = Cell(StageState.failed, failure.reason)  # it failed after its last stage
    verdicts = verdicts_of(folder)
    return FilmRow(
        film_id=folder.film_id,
        cells=cells,
        clips=len(folder.read("clips", Clip)) if cells["cut"].state is StageState.done else None,
        kept=sum(verdict.keep for verdict in verdicts) if verdicts is not None else None,
        bytes=size_of(folder.path),
        no_clip=why_no_clip(folder, settings) if cells["cut"].state is StageState.done else None,
    )


def _cell(folder: FilmFolder, stage: Stage, before: Mapping[str, Cell], unknown: Mapping[str, str]) -> Cell:
    record = folder.stage_record(stage.name)
    undone = [name for name in stage.needs if before[name].state not in SETTLED]
    unjudged = [name for name in stage.needs if before[name].state is StageState.unknown]
    unsure = unknown.get(stage.name) or (f"after {', '.join(unjudged)}" if unjudged else None)
    if undone:
        why: str | None = f"after {', '.join(undone)}"
    elif record and unsure:
        why = damage(record.files, folder.marks)
    else:
        why = staleness_of(stage, folder).reason
    if why is None:
        return Cell(StageState.unknown, unsure) if unsure else Cell(StageState.done)
    first = all(cell.state in SETTLED for cell in before.values())
    if first and (failure := folder.failure):
        return Cell(StageState.failed, failure.reason)
    return Cell(StageState.stale if record else StageState.missing, why)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder, without hidden ones, which belong to this machine only."""
    files = (path for path in folder.rglob("*") if not any(part[0] == "." for part in path.relative_to(folder).parts))
    return sum(path.stat().st_size for path in files if path.is_file())


def review_lines(dataset: Dataset, config: Config) -> list[str]:
    """Status lines of the reviews: reviewed clips, fields and reviewers, and a line per finding; none without any."""
    try:
        counts = count_reviews(load_reviews(dataset, review_path(dataset.root, config.review)))
        # from the tables, like the reviews: a film that is to be cut again still has its reviewed clips
        clips = sum(len(folder.read_if_made("clips", Clip)) for folder in dataset.folders())
    except UserError as error:
        return [f"cannot be read: {error}"]
    if not counts.clips:
        return [*counts.findings, *counts.remarks]
    fields = ", ".join(f"{name} {count:,}" for name, count in counts.fields.items())
    by = ", ".join(counts.reviewers)
    reviewed = f"{counts.clips:,} of {clips:,} clips ({fields}) by {by}"
    return [reviewed, *counts.findings, *counts.remarks]


def published_line(dataset: Dataset, config: Config, rows: Sequence[FilmRow]) -> str:
    """Status line of the published data: done, stale or missing, with its size."""
    try:
        index = read_index(dataset.root)
    except StoreError as error:
        return f"stale: {error}" if (dataset.root / "shards" / "index.json").exists() else "missing"
    samples = sum(index.counts.split.values())
    held = f"{len(index.shards)} shards, {samples} samples, {decimal(sum(shard.bytes for shard in index.shards))}"
    waiting = len(rows) - len(finished(dataset))
    if is_published(dataset, config) and not any(row.open_parts for row in rows):
        return f"done: {held}"
    return f"stale: {held}" + (f"; {waiting} films are not in them" if waiting else "")


def as_table(rows: Sequence[FilmRow]) -> Table:
    """Table with a row per film: the state of each stage, counts and size."""
    stages = list(rows[0].cells) if rows else []
    table = Table("film", *stages, "clips", "kept", "size", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        states = (f"[{_COLOURS[cell.state]}]{cell.state}[/]" for cell in row.cells.values())
        counts = ("-" if count is None else str(count) for count in (row.clips, row.kept))
        table.add_row(printable(row.film_id), *states, *counts, decimal(row.bytes))
    return table


def explanations(rows: Sequence[FilmRow]) -> list[str]:
    """Reasons, one line for each part that is not done."""
    return [
        f"{row.film_id}  {name}: {cell.state}, {cell.why}"
        for row in rows
        for name, cell in row.cells.items()
        if cell.state is not StageState.done
    ]
