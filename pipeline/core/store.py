"""The data set folder: which file is where, atomic writes, and the record that says what a result was made from.

    DATASET/
      dataset.json                    films in the order they were added, level edges, flow model, captioner
      films/<film_id>/film.json       what the probe found
      films/<film_id>/<table>.parquet one per table in TABLES
      films/<film_id>/<stage>.json    fingerprint of the stage's result: ingredients, files, failures
      films/<film_id>/clips/*.mp4     the clip files
      shards/ README.md report.html   what is published

Nothing is ever half-written under its final name (`atomic.py`). Names with a dot in front (`.lock`, `.cache/`) belong
to this machine and are no part of the data set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field, ValidationError

from pipeline.core.atomic import replacing, sweep, write_json
from pipeline.core.errors import DiskError, UserError
from pipeline.core.hashes import Hashes
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import (
    SCHEMA_VERSION,
    Caption,
    Clip,
    Crop,
    Damage,
    Failure,
    Film,
    Looks,
    Motion,
    Record,
    RecordError,
    Scene,
    Verdict,
    arrow_schema,
    faults_of,
)

R = TypeVar("R", bound=Record)

TABLES: dict[str, type[Record]] = {
    "crop": Crop,
    "scenes": Scene,
    "damage": Damage,
    "clips": Clip,
    "looks": Looks,
    "motion": Motion,
    "screened": Verdict,  # before captions: is this clip worth asking about
    "captions": Caption,
    "verdicts": Verdict,
}


class StoreError(UserError):
    """The data set folder holds something this version cannot read; the message names the file and the remedy."""


class FileMark(Record):
    """What a file was when it was made; anything else there now is damage."""

    bytes: int
    sha256: str


class StageRecord(Record):
    """What a finished stage left beside its tables (`<stage>.json`)."""

    schema_version: Literal[1] = SCHEMA_VERSION
    stage: str
    fingerprint: str
    ingredients: dict[str, Any]
    files: dict[str, FileMark] = Field(description="by path relative to the film's folder")
    failures: tuple[Failure, ...] = ()

    @property
    def result(self) -> str:
        """Names the content of its files: what depends on this stage is redone when this changes, not before."""
        return fingerprint({name: mark.sha256 for name, mark in self.files.items()})


class FilmFolder:
    """One film's part of the data set.

    Args:
        path: the folder.
        source: the film's file on this machine, where `film.json` names an address.
    """

    def __init__(self, path: Path, source: Path | None = None) -> None:
        self.path = path
        self._source = source

    @property
    def film_id(self) -> str:
        """The film's id, which names the folder."""
        return self.path.name

    @property
    def film(self) -> Film:
        """The record of the probe."""
        film = _read_model(self.path / "film.json", Film)
        return film.model_copy(update={"source": str(self._source)}) if self._source else film

    def save_film(self, film: Film) -> None:
        """Write `film.json`."""
        write_json(self.path / "film.json", film.model_dump(mode="json"))

    def clip_path(self, clip_id: str) -> Path:
        """Where the clip's video file lies."""
        return self.path / "clips" / f"{_one_name(clip_id)}.mp4"

    def table_path(self, table: str) -> Path:
        """Where a table lies."""
        return self.path / f"{table}.parquet"

    def read(self, table: str, record: type[R]) -> list[R]:
        """All rows of a table as records.

        Raises:
            StoreError: the table is missing or does not hold such records.
        """
        path = self.table_path(table)
        try:
            with pq.ParquetFile(path) as file:  # pq.read_table would import pandas, a second for nothing
                rows = file.read().to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{path}: cannot be read ({error}); run `animegamer build` to make it again") from error
        try:
            return [record.model_validate(row) for row in rows]
        except ValidationError as error:
            raise StoreError(f"{path}: of another version ({faults_of(error)}); delete it and build again") from error

    def write(self, table: str, rows: Sequence[Record]) -> Path:
        """Write a table atomically; an empty one keeps its columns."""
        schema = arrow_schema(TABLES[table])
        content = pa.Table.from_pylist([row.model_dump(mode="json") for row in rows], schema=schema)
        with replacing(self.table_path(table)) as temporary:
            pq.write_table(content, temporary, compression="zstd")
        return self.table_path(table)

    @property
    def failure(self) -> Failure | None:
        """Why the last build gave this film up, or None."""
        path = self.path / "failure.json"
        return _read_model(path, Failure) if path.exists() else None

    def save_failure(self, error: RecordError) -> None:
        """Note why the film was given up, for the report and the next run."""
        write_json(self.path / "failure.json", {"record_id": error.record_id, "reason": error.reason})

    def clear_failure(self) -> None:
        """Forget an earlier failure: the film is being tried again."""
        (self.path / "failure.json").unlink(missing_ok=True)

    def stage_record(self, stage: str) -> StageRecord | None:
        """What the stage left here, or None if it never finished, or so that its record cannot be read."""
        try:
            return _read_model(self.path / f"{stage}.json", StageRecord)
        except StoreError:
            return None

    def forget_stage(self, stage: str) -> None:
        """Its result is to be replaced: until the stage has run again, it counts as not made."""
        (self.path / f"{stage}.json").unlink(missing_ok=True)

    def save_stage_record(self, record: StageRecord) -> None:
        """Write `<stage>.json`: from now on the stage's result counts as made."""
        write_json(self.path / f"{record.stage}.json", record.model_dump(mode="json"))

    def marks(self, names: Iterable[str]) -> dict[str, FileMark]:
        """What these files of the folder are now; those that are not there are left out."""
        hashes = Hashes(self.path / ".cache" / "hashes.json")
        paths = {name: self.path / name for name in names}
        marks = {
            name: FileMark(bytes=path.stat().st_size, sha256=hashes.of(path))
            for name, path in paths.items()
            if path.is_file()
        }
        with suppress(OSError, DiskError):  # it is only a cache; to look at a data set needs no right to write there
            hashes.save()
        return marks

    def sweep(self) -> None:
        """Remove what killed builds left half-written."""
        sweep(self.path)


class FilmEntry(Record):
    """A film as the data set lists it."""

    film_id: str
    name: str
    sha256: str


class DatasetRecord(Record):
    """`dataset.json`: what holds for the whole data set."""

    schema_version: Literal[1] = SCHEMA_VERSION
    films: tuple[FilmEntry, ...] = Field(default=(), description="in the order they were added")
    flow_model: str | None = Field(default=None, description="one per data set; edges belong to it")
    edges: tuple[float, float, float, float] | None = None
    edges_from: str | None = Field(default=None, description="published, config, or how they were calibrated")
    level_values: tuple[float, ...] | None = Field(default=None, description="median scope of each level, px per step")
    captioner: str | None = Field(default=None, description="one per data set: `rules` or a model")
    cast: tuple[str, ...] = ()
    cast_source: str | None = Field(default=None, description="where the cast folder of the last build lies")
    config: dict[str, Any] = Field(default_factory=dict, description="the configuration of the last build")


class Dataset:
    """The folder that `--out` names."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def record(self) -> DatasetRecord:
        """`dataset.json`, or an empty record for a new data set."""
        path = self.root / "dataset.json"
        return _read_model(path, DatasetRecord) if path.exists() else DatasetRecord()

    def save(self, record: DatasetRecord) -> None:
        """Write `dataset.json`."""
        write_json(self.root / "dataset.json", record.model_dump(mode="json"))

    def sweep(self) -> None:
        """Remove what killed builds left half-written outside the films' folders."""
        sweep(self.root, deep=False)
        sweep(self.root / "shards")
        # there workers write too, while no build is under way; and below it films may be on their way
        sweep(self.root / ".cache", deep=False, older_seconds=3600)

    def folder(self, film_id: str) -> FilmFolder:
        """The film's folder, whether or not it exists yet."""
        return FilmFolder(self.root / "films" / _one_name(film_id))

    def folders(self) -> list[FilmFolder]:
        """Folders of the listed films, in the order the films were added."""
        return [self.folder(entry.film_id) for entry in self.record.films]


M = TypeVar("M", bound=BaseModel)


def _read_model(path: Path, model: type[M]) -> M:
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file; is this a data set that `animegamer build` made?") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        faults = faults_of(error)
        raise StoreError(f"{path}: damaged, or of another version ({faults}); delete it and build again") from error


def _one_name(record_id: str) -> str:
    """The id, if it is a plain name: ids come from files, and must not lead out of the data set's folder."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", record_id):
        raise StoreError(f"{record_id!r} is no id that `animegamer build` gives; remove it from the data set's files")
    return record_id


def open_dataset(root: Path) -> Dataset:
    """The data set in a folder.

    Raises:
        StoreError: there is none, or not one that this version reads.
    """
    if not (root / "dataset.json").exists():
        raise StoreError(f"{root}: no data set here (it has no dataset.json); `animegamer build --out` makes one")
    return Dataset(root)
