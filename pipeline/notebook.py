"""Dataset in a notebook: tables of clips and films as pandas DataFrames, frames of a clip as an array, clips to see.

    from pipeline.notebook import open_dataset

    data = open_dataset("data/")                        # a folder, or an address such as s3://bucket/data
    fast = data.clips[(data.clips.verdict == "kept") & (data.clips.level >= 4)]
    data.sheet(fast)
    data.frames(fast.clip_id.iloc[0])                   # RGB, uint8 of (16, 480, 720, 3)

From an address, only the tables are fetched, and a clip when you use it. The tables are read once; open the dataset
again after a build. This is the only module that imports pandas.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.core.errors import UserError
from pipeline.core.records import RecordError
from pipeline.core.store import FilmEntry, FilmFolder
from pipeline.pages.contact_sheet import Html, playing_clip, sheet_of_clips
from pipeline.plan.workspace import Workspace, film_part, open_tables
from pipeline.publish.clip_rows import ClipRow, clip_rows
from pipeline.publish.seen_clips import seen_clips
from pipeline.publish.shards import file_sha256
from pipeline.video.clip_files import read_clip
from pipeline.video.sound_files import with_sound

WHOLE_NUMBERS = (
    *("level", "unique_frames", "text_lines", "subtitle_lines", "SC", "ET", "ST", "others"),
    *("season", "episode", "figures"),
)
TEXTS = (
    *("series", "language", "split", "shard", "duplicate_of", "camera_kind", "camera_direction"),
    *("S", "MD", "EV", "MA", "actor", "sentence", "captioner", "fault", "bars", "sound_language"),
)
DTYPES = dict.fromkeys(WHOLE_NUMBERS, "Int64") | dict.fromkeys(TEXTS, "string")
"""Types of columns with missing values: without them, level 4 becomes 4.0, and an empty text column has no `.str`."""
FILM_COLUMNS = (
    *("film_id", "film", "sha256", "failure"),
    *("series", "season", "episode", "language"),
    *("seconds", "fps", "width", "height", "codec", "fields", "languages", "warnings"),
)
FATES = ("kept", "dropped", "failed", "pending")


def open_dataset(place: str | Path) -> OpenedDataset:
    """Open a dataset, a folder or an address, to look at it; nothing in it is changed.

    Raises:
        UserError: there is no dataset, a table cannot be read, or the store cannot be reached.
    """
    return OpenedDataset(open_tables(str(place)))


class OpenedDataset:
    """A dataset as its tables were when it was opened."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._fetching = threading.Lock()
        dataset = workspace.dataset
        self._rows = {row.clip_id: row for row in clip_rows(dataset, seen_clips(dataset))}

    def __repr__(self) -> str:
        films = len(self._workspace.dataset.record.films)
        kept = sum(row.verdict == "kept" for row in self._rows.values())
        return f"{self._workspace.name}: {films} films, {len(self._rows):,} clips, {kept:,} of them kept"

    @cached_property
    def clips(self) -> pd.DataFrame:
        """A row per clip, film by film and in time order, with the fields of `ClipRow` as columns."""
        names = [field.name for field in fields(ClipRow)]
        columns = {name: [getattr(row, name) for row in self._rows.values()] for name in names}
        return pd.DataFrame(columns).astype(DTYPES)

    @cached_property
    def films(self) -> pd.DataFrame:
        """A row per film: facts about its file, and the number of its clips by verdict."""
        dataset = self._workspace.dataset
        rows = [_film_row(entry, dataset.folder(entry.film_id)) for entry in dataset.record.films]
        table = pd.DataFrame(rows, columns=FILM_COLUMNS).astype({"season": "Int64", "episode": "Int64"})
        for fate in FATES:
            counts = self.clips[self.clips.verdict == fate].groupby("film_id").size()
            table[fate] = table.film_id.map(counts).fillna(0).astype(int)
        return table

    def path(self, clip_id: str) -> Path:
        """Return the path of a clip's file; at an address, the file is fetched first.

        Raises:
            UserError: there is no such clip, or its file is missing or damaged.
        """
        row = self._row(clip_id)
        path = self._fetched(row, self._workspace.dataset.folder(row.film_id).clip_path(clip_id), row.sha256)
        if not _is_whole(path, row.sha256):
            state = "changed since it was cut" if path.exists() else "missing"
            raise UserError(f"{path}: is {state}; run `animegamer build` to cut it again, then open the dataset again")
        return path

    def frames(self, clip_id: str) -> NDArray[np.uint8]:
        """Return all frames of a clip: RGB of (frames, height, width, 3). Raises as `path`."""
        try:
            frames_THWC = read_clip(self.path(clip_id))
        except RecordError as error:
            raise UserError(str(error)) from error
        return np.ascontiguousarray(frames_THWC[..., ::-1])

    def show(self, clip_id: str) -> Html:
        """Return a clip as a video for the notebook, with its sound and all known facts. Raises as `path`."""
        path, sound = self.path(clip_id), self._sound(clip_id)
        return playing_clip(self._row(clip_id), with_sound(path, sound) if sound else path.read_bytes())

    def _sound(self, clip_id: str) -> Path | None:
        """Return the path of a clip's sound, fetched; None if it has none, or its file is missing or damaged."""
        row = self._row(clip_id)
        folder = self._workspace.dataset.folder(row.film_id)
        if (sound := folder.sounds().get(clip_id)) is None:
            return None
        path = self._fetched(row, folder.sound_path(clip_id), sound.sha256)
        return path if _is_whole(path, sound.sha256) else None

    def _fetched(self, row: ClipRow, path: Path, sha256: str) -> Path:
        """Return the path of a file of a clip; if it is not there as it should be, it is fetched from an address."""
        if not _is_whole(path, sha256) and self._workspace.is_copy:
            with self._fetching, self._workspace.locked("fetching a clip"):
                self._workspace.fetch(f"{film_part(row.film_id)}clips/{path.name}")
        return path

    def sheet(self, rows: pd.DataFrame | Iterable[str], limit: int = 60) -> Html:
        """Return the first frames of at most `limit` clips with their captions, from rows of `clips` or clip ids.

        Raises:
            UserError: there is no such clip, or its file cannot be read, or the limit is below 1.
        """
        if limit < 1:
            raise UserError(f"limit={limit}: no clip would be shown; give 1 or more")
        if isinstance(rows, pd.DataFrame) and "clip_id" not in rows:
            raise UserError("the rows have no column `clip_id`; choose rows of `clips` with all columns, or clip ids")
        ids = [rows] if isinstance(rows, str) else rows.clip_id if isinstance(rows, pd.DataFrame) else rows
        wanted = [self._row(clip_id) for clip_id in ids]
        shown = wanted[:limit]
        return sheet_of_clips(shown, [self.path(row.clip_id) for row in shown], len(wanted) - len(shown))

    def _row(self, clip_id: str) -> ClipRow:
        if not isinstance(clip_id, str) or clip_id not in self._rows:  # a list or a row has no hash
            example = f", such as {next(iter(self._rows))}" if self._rows else ""
            raise UserError(f"no clip {str(clip_id)[:80]!r} in {self._workspace.name}; see `clips.clip_id`{example}")
        return self._rows[clip_id]


def _is_whole(path: Path, sha256: str) -> bool:
    return path.is_file() and file_sha256(path) == sha256


def _film_row(entry: FilmEntry, folder: FilmFolder) -> tuple[Any, ...]:
    """Values of `FILM_COLUMNS`; a file that could not be probed has few."""
    failure = folder.failure.reason if folder.failure else None
    known: tuple[Any, ...] = (entry.film_id, entry.name, entry.sha256, failure)
    if not (folder.path / "film.json").exists():
        return (*known, *[None] * (len(FILM_COLUMNS) - len(known)))
    film = folder.film
    languages = tuple(track.language for track in film.audio_tracks or ())
    known = (*known, film.series, film.season, film.episode, film.language, film.duration_seconds, float(film.fps))
    return (*known, film.display_width, film.display_height, film.codec, film.fields, languages, film.warnings)
