"""Dataset folder: paths of its files, atomic writes, and the stage records with the ingredients of each result.

    DATASET/
      dataset.json                    films in the order they were added, level edges, flow model, captioner
      films/<film_id>/film.json       the probed film
      films/<film_id>/<table>.parquet one per table in TABLES
      films/<film_id>/<stage>.json    fingerprint of the stage's result: ingredients, files, failures
      films/<film_id>/clips/*.mp4     the clip files
      review.jsonl                    decisions of reviewers, if there are any
      shards/ README.md report.html   the published data

No file is half-written under its final name (`atomic.py`). Names with a leading dot (`.lock`, `.cache/`) belong to this
machine and are not part of the dataset. Its folders must not be links, because a dataset from a stranger could make a
build write to and delete from any folder of the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field, ValidationError

from pipeline.core.atomic import replacing, sweep, write_json
from pipeline.core.dialogue import SpokenLine, SubtitleTrack
from pipeline.core.errors import DiskError, UserError
from pipeline.core.hashes import Hashes
from pipeline.core.ingredients import fingerprint
from pipeline.core.measurements import ClipSound, Embedded, FoundFigure, Looks, Motion
from pipeline.core.plain_text import printable
from pipeline.core.records import (
    SCHEMA_VERSION,
    Caption,
    Clip,
    Crop,
    Damage,
    Failure,
    FieldStretch,
    Film,
    HashedPicture,
    Rate,
    Record,
    RecordError,
    Reviewed,
    Scene,
    SchemaVersion,
    SpanCaption,
    Verdict,
    arrow_schema,
    faults_of,
)

R = TypeVar("R", bound=Record)

TABLES: dict[str, type[Record]] = {
    "crop": Crop,
    "scenes": Scene,
    "damage": Damage,
    "fields": FieldStretch,
    "hashes": HashedPicture,  # no table for a film cut by an earlier version
    "clips": Clip,
    "subtitles": SubtitleTrack,
    "dialogue": SpokenLine,
    "sound": ClipSound,  # no table without `[sound] keep`
    "embedded": Embedded,  # neither this nor figures without a network in `[embed]`
    "figures": FoundFigure,
    "looks": Looks,
    "motion": Motion,
    "screened": Verdict,  # before captions: clips not worth a request are dropped
    "captions": Caption,
    "reviewed": Reviewed,  # no table for a film without reviews
    "carried": Caption,  # no table for a film without captions of displaced copies
    "verdicts": Verdict,
    "spans": SpanCaption,  # written by `captions --spans`
}


class StoreError(UserError):
    """This version cannot read a file of the dataset; the message names the file and the remedy."""


class FileMark(Record):
    """Size and hash of a file when it was made; if they differ now, the file is damaged."""

    bytes: int
    sha256: str


class StageRecord(Record):
    """Record of a finished stage (`<stage>.json`), next to its tables."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    stage: str
    fingerprint: str
    ingredients: dict[str, Any]
    files: dict[str, FileMark] = Field(description="by path relative to the film's folder")
    failures: tuple[Failure, ...] = ()

    @property
    def result(self) -> str:
        """Fingerprint of the content of its files: stages that depend on this one rerun only when it changes."""
        return fingerprint({name: mark.sha256 for name, mark in self.files.items()})


class FilmFolder:
    """Folder of one film in the dataset.

    Args:
        path: the folder.
        source: the film's file on this machine, if `film.json` names an address.
        scratch: folder that takes `film.json` instead of this one, which is then only read.

    Raises:
        StoreError: the folder or one in it is a link.
    """

    def __init__(self, path: Path, source: Path | None = None, scratch: Path | None = None) -> None:
        _refuse_links(path, *(path / name for name in ("clips", "replies", ".cache")))
        self.path = path
        self._source, self._scratch = source, scratch

    @property
    def film_id(self) -> str:
        """The film's id, the name of the folder."""
        return self.path.name

    @property
    def film(self) -> Film:
        """The film as probed."""
        drafted = (self._scratch or self.path) / "film.json"
        film = _read_model(drafted if drafted.exists() else self.path / "film.json", Film)
        return film.model_copy(update={"source": str(self._source)}) if self._source else film

    @property
    def film_if_made(self) -> Film | None:
        """The film as probed, or None without `film.json`."""
        return self.film if (self.path / "film.json").exists() else None

    def save_film(self, film: Film) -> None:
        """Write `film.json`."""
        write_json((self._scratch or self.path) / "film.json", film.model_dump(mode="json"))

    def clip_path(self, clip_id: str) -> Path:
        """Path of the clip's video file."""
        return self.path / "clips" / f"{_one_name(clip_id)}.mp4"

    def sound_path(self, clip_id: str) -> Path:
        """Path of the clip's sound."""
        return self.clip_path(clip_id).with_suffix(".m4a")

    def table_path(self, table: str) -> Path:
        """Path of a table."""
        return self.path / f"{table}.parquet"

    def read(self, table: str, record: type[R]) -> list[R]:
        """All rows of a table as records.

        Raises:
            StoreError: the table is missing or does not hold such records.
        """
        path = self.table_path(table)
        try:
            with pq.ParquetFile(path) as file:  # pq.read_table would import pandas, which takes a second
                rows = file.read().to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{path}: cannot be read ({error}); run `animegamer build` to make it again") from error
        try:
            return [record.model_validate(row) for row in rows]
        except ValidationError as error:
            raise StoreError(f"{path}: of another version ({faults_of(error)}); delete it and build again") from error

    def read_if_made(self, table: str, record: type[R]) -> list[R]:
        """All rows of a table as records; none if there is no such table. Raises as `read` does."""
        return self.read(table, record) if self.table_path(table).exists() else []

    def sounds(self) -> dict[str, ClipSound]:
        """Return the sound of each clip by its id; none if there is none, or the clips were cut again since.

        Raises:
            StoreError: the table cannot be read.
        """
        sound, cut = self.stage_record("sound"), self.stage_record("cut")
        if sound is None or cut is None or sound.ingredients["upstream"] != {"cut": cut.result}:
            return {}
        return {row.clip_id: row for row in self.read("sound", ClipSound)}

    def write(self, table: str, rows: Sequence[Record]) -> Path:
        """Write a table atomically; an empty table keeps its columns."""
        schema = arrow_schema(TABLES[table])
        content = pa.Table.from_pylist([row.model_dump(mode="json") for row in rows], schema=schema)
        with replacing(self.table_path(table)) as temporary:
            pq.write_table(content, temporary, compression="zstd")
        return self.table_path(table)

    @property
    def failure(self) -> Failure | None:
        """Failure of this film in the last build, or None."""
        path = self.path / "failure.json"
        return _read_model(path, Failure) if path.exists() else None

    def save_failure(self, error: RecordError) -> None:
        """Record the failure of the film, for the report and the next run."""
        write_json(self.path / "failure.json", {"record_id": error.record_id, "reason": error.reason})

    def clear_failure(self) -> None:
        """Delete the record of an earlier failure before a new attempt."""
        (self.path / "failure.json").unlink(missing_ok=True)

    def stage_record(self, stage: str) -> StageRecord | None:
        """The record of a stage, or None if the stage has not finished or its record cannot be read."""
        try:
            return _read_model(self.path / f"{stage}.json", StageRecord)
        except StoreError:
            return None

    def forget_stage(self, stage: str) -> None:
        """Delete the record of a stage: its result counts as not made until it has run again."""
        (self.path / f"{stage}.json").unlink(missing_ok=True)

    def save_stage_record(self, record: StageRecord) -> None:
        """Write `<stage>.json`: from then on the stage's result counts as made."""
        write_json(self.path / f"{record.stage}.json", record.model_dump(mode="json"))

    def marks(self, names: Iterable[str]) -> dict[str, FileMark]:
        """Size and hash of these files of the folder now; missing files are left out."""
        hashes = Hashes(self.path / ".cache" / "hashes.json")
        paths = {name: self.path / name for name in names}
        marks = {
            name: FileMark(bytes=path.stat().st_size, sha256=hashes.of(path))
            for name, path in paths.items()
            if path.is_file()
        }
        if not self._scratch:
            with suppress(OSError, DiskError):  # only a cache: reading a dataset needs no write permission
                hashes.save()
        return marks

    def sweep(self) -> None:
        """Remove temporary files of killed builds."""
        sweep(self.path)


_FOLDERS = ("films", "shards", "shards/train", "shards/val", "audit", ".cache", ".cache/films")
"""Folders of a dataset that a build writes to or deletes from, except the folders of the films."""


class FilmEntry(Record):
    """Entry of a film in `dataset.json`."""

    film_id: str
    name: str
    sha256: str


class ClipFormat(Record):
    """Frames, rate and size that all clips of a dataset have."""

    frames: int
    fps: Rate
    width: int
    height: int


class LevelCalibration(Record):
    """Level edges fitted by `animegamer calibrate`, and the measurement of motion that they belong to."""

    method: str
    flow_model: str
    background_px: float = Field(description="as `[motion] background_px`")
    edges: tuple[float, float, float, float]

    @property
    def source(self) -> str:
        """Text of `edges_from` in a dataset with these edges."""
        return f"calibrated: {self.method}"


class DatasetRecord(Record):
    """`dataset.json`: facts about the whole dataset."""

    schema_version: SchemaVersion = SCHEMA_VERSION
    films: tuple[FilmEntry, ...] = Field(default=(), description="in the order they were added")
    flow_model: str | None = Field(default=None, description="one per dataset; the edges depend on it")
    edges: tuple[float, float, float, float] | None = Field(default=None, description="level edges in use")
    edges_from: str | None = Field(default=None, description="published, config, or `calibrated: METHOD`")
    calibration: LevelCalibration | None = Field(default=None, description="the last one, in use or not")
    level_values: tuple[float, ...] | None = Field(default=None, description="median scope of each level, px per step")
    captioner: str | None = Field(default=None, description="one per dataset: `rules` or a model")
    clips: ClipFormat | None = None
    cast: tuple[str, ...] = Field(default=(), description="of the last build, and of earlier ones for other films")
    cast_source: str | None = Field(default=None, description="path or address of the cast folder of the last build")
    config: dict[str, Any] = Field(default_factory=dict, description="the configuration of the last build")

    @property
    def keeps_sound(self) -> bool:
        """True if clips are published with sound, by `[sound] keep` of the last build."""
        return bool(self.config.get("sound", {}).get("keep"))


class Dataset:
    """The folder that `--out` names. Raises StoreError if a folder in it is a link.

    Args:
        root: the folder.
        scratch: folder to write to while a build is only planned; the dataset is then only read.
    """

    def __init__(self, root: Path, scratch: Path | None = None) -> None:
        _refuse_links(*(root / name for name in _FOLDERS))
        self.root, self.scratch = root, scratch

    @property
    def record(self) -> DatasetRecord:
        """`dataset.json`, or an empty record for a new dataset."""
        path = self.root / "dataset.json"
        return _read_model(path, DatasetRecord) if path.exists() else DatasetRecord()

    def save(self, record: DatasetRecord) -> None:
        """Write `dataset.json`."""
        write_json(self.root / "dataset.json", record.model_dump(mode="json"))

    def sweep(self) -> None:
        """Remove temporary files of killed builds outside the films' folders."""
        sweep(self.root, deep=False)
        sweep(self.root / "shards")
        sweep(self.root / "audit")
        # workers write here too while no build runs, and films may be downloading in its subfolders
        sweep(self.root / ".cache", deep=False, older_seconds=3600)

    def folder(self, film_id: str) -> FilmFolder:
        """The film's folder; it need not exist yet."""
        scratch = self.scratch and self.scratch / "films" / _one_name(film_id)
        return FilmFolder(self.root / "films" / _one_name(film_id), scratch=scratch)

    def folders(self) -> list[FilmFolder]:
        """Folders of the listed films, in the order the films were added."""
        return [self.folder(entry.film_id) for entry in self.record.films]


M = TypeVar("M", bound=BaseModel)


def _read_model(path: Path, model: type[M]) -> M:
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file; is this a dataset that `animegamer build` made?") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        faults = faults_of(error)
        raise StoreError(f"{path}: damaged, or of another version ({faults}); delete it and build again") from error


def _refuse_links(*folders: Path) -> None:
    for folder in folders:
        if folder.is_symlink():
            target = printable(str(folder.readlink()))
            raise StoreError(f"{folder}: is a link to {target}; a dataset holds its own folders, so delete the link")


def _one_name(record_id: str) -> str:
    """The id, if it is a plain name: ids are read from files, and must not lead out of the dataset's folder."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", record_id):
        raise StoreError(f"{record_id!r} is not an id of `animegamer build`; remove it from the dataset's files")
    return record_id


def open_dataset(root: Path) -> Dataset:
    """Open the dataset in a folder. Raises StoreError if the folder has no `dataset.json`."""
    if not (root / "dataset.json").exists():
        raise StoreError(f"{root}: no dataset here (it has no dataset.json); `animegamer build --out` makes one")
    return Dataset(root)
