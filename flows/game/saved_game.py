"""Saved game: a whole game with all its branches as one file, `.animegame`, to keep and to open elsewhere.

    with Path("game.animegame").open("wb") as file:
        file.writelines(saved_parts(folder, "mini"))
    opened = open_saved(file, games / "NEW", settings, "mini")

    animegame.json       format, size of the model, version of the package that saved it
    game.json  turns.jsonl  0001.mp4  0001.safetensors ...        the files of a game folder

It is a plain zip without compression: any program unpacks it, and the same game gives the same bytes. Each file in it
has a checksum. What is opened comes from a stranger: a new folder gets the files that the log names and no others.
"""

from __future__ import annotations

import io
import json
import math
import shutil
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import Field, ValidationError

from flows.game.folder import GameFolder, files_of
from flows.game.records import GameError, GameSettings, TurnRecord, id_of, parse_log
from models.checkpoint_writer import writing
from pipeline.core.errors import UserError
from pipeline.core.plain_text import is_line
from pipeline.core.records import Record, RecordError
from pipeline.video.clip_files import ClipShape, clip_shape

SUFFIX = ".animegame"
FORMAT: Literal[1] = 1
MOST_TURNS = 20_000
MOST_BYTES = 2**32 - 2**20
"""Most bytes of a saved game: a zip of up to 4 GiB needs no extension, and fits on any disk."""
_MOST_LOG_BYTES, _MOST_JSON_BYTES = 2**26, 2**16
_MOST_SIDE, _MOST_FRAMES, _MOST_CHARACTERS = 4096, 1000, 10_000
_HEAD, _SETTINGS, _LOG = "animegame.json", "game.json", "turns.jsonl"
_PACKAGE = "animegamer-pipeline"
_END = struct.Struct("<4s4H2LH")
"""Last record of a zip without a comment: signature, disks, entries here and in all, size and start of the list."""
_COPY_BYTES = 2**20
_OTHER_COPY = "save the game again where it was played, or use another copy of the file"


class SavedGameError(UserError):
    """Saved game that cannot be opened or written here; the message is shown to the player and names no path."""


class SavedAs(Record):
    """`animegame.json`."""

    format: Literal[1] = FORMAT
    model: str = Field(description="size of the model's checkpoint; game.json has its identity")
    saved_by: str = Field(description="version of the package")


def saved_parts(folder: GameFolder, model: str) -> Iterator[bytes]:
    """Return the content of a saved game in parts, a few hundred kilobytes in memory at a time.

    Args:
        model: size of the model's checkpoint, shown where the game does not fit.

    Raises:
        SavedGameError: the game is too long or too large, or a file of it is missing; before the first part.
    """
    turns = folder.turns
    head = SavedAs(model=model, saved_by=version(_PACKAGE))
    log = "".join(f"{turn.model_dump_json(exclude_defaults=True)}\n" for turn in turns)
    texts = {_HEAD: head.model_dump_json(), _SETTINGS: folder.settings.model_dump_json(), _LOG: log}
    paths = [folder.path / name for turn in turns for name in files_of(turn.id)]
    if missing := next((path for path in paths if not path.is_file()), None):
        raise SavedGameError(f"{missing.name} of this game is gone from the server: the game cannot be saved whole")
    size = sum(len(text.encode()) for text in texts.values()) + sum(path.stat().st_size + 300 for path in paths)
    if len(turns) > MOST_TURNS or size > MOST_BYTES:
        raise SavedGameError(
            f"This game has {len(turns):,} turns and {size / 1e6:,.0f} MB. One file holds at most {MOST_TURNS:,} turns "
            f"and {MOST_BYTES / 1e6:,.0f} MB: copy the game's folder on the server instead"
        )
    return _zipped(texts, paths)


def _zipped(texts: dict[str, str], paths: Sequence[Path]) -> Iterator[bytes]:
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, text in texts.items():
            archive.writestr(_entry(name), text)
        for path in paths:
            with path.open("rb") as source, archive.open(_entry(path.name), "w") as target:
                shutil.copyfileobj(source, target, _COPY_BYTES)
            yield pipe.taken()
    yield pipe.taken()


def _entry(name: str) -> zipfile.ZipInfo:
    """Return a readable entry without a date, so that the same game gives the same bytes."""
    entry = zipfile.ZipInfo(name)
    entry.external_attr = 0o644 << 16
    return entry


class _Pipe(io.RawIOBase):
    """File that cannot be read back; what was written is taken out in parts."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, part: bytes) -> int:  # type: ignore[override]
        self._parts.append(bytes(part))
        return len(part)

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def open_saved(file: BinaryIO, target: Path, ours: GameSettings, model: str) -> GameFolder:
    """Unpack a saved game into a new folder, which is complete or absent.

    The game continues in the precision of this machine.

    Args:
        target: the new folder.
        ours: settings of the games here.
        model: size of the checkpoint here.

    Raises:
        SavedGameError: the file is damaged or no saved game, or it is of another model or format.
        DiskError: the folder cannot be written.
    """
    try:
        with _opened(file) as archive:
            contents = _Contents.read(archive, ours, model)
            here = ours.model_dump(include={"precision", "compile"})
            with writing(target) as part:
                settings = contents.settings.model_copy(update=here)
                (part / _SETTINGS).write_text(settings.model_dump_json(), encoding="utf-8")
                (part / _LOG).write_bytes(contents.log)
                for turn in contents.turns:
                    for name in files_of(turn.id):
                        with archive.open(name) as source, (part / name).open("xb") as copy:
                            shutil.copyfileobj(source, copy, _COPY_BYTES)
                _check_clips(part, contents.turns, settings.fps)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, UnicodeError) as error:
        raise SavedGameError(f"This file is damaged ({error}): {_OTHER_COPY}") from error
    return GameFolder.open(target)


def _opened(file: BinaryIO) -> zipfile.ZipFile:
    """Open the zip, unless its list of files is longer than that of a saved game, or not where ours is."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _END.size))
    end = file.read(_END.size)
    if len(end) < _END.size or not end.startswith(b"PK\5\6"):
        raise SavedGameError(f"This file is damaged, or no saved game ({SUFFIX}): {_OTHER_COPY}")
    *_, entries, list_size, list_start, comment = _END.unpack(end)
    if entries > 2 * MOST_TURNS + 3 or comment or list_start + list_size + _END.size != size:
        raise SavedGameError(f"This file is damaged, or not written by AnimeGamer: {_OTHER_COPY}")
    return zipfile.ZipFile(file)


@dataclass(frozen=True)
class _Contents:
    """Checked settings and log of a saved game."""

    settings: GameSettings
    turns: Sequence[TurnRecord]
    log: bytes

    @classmethod
    def read(cls, archive: zipfile.ZipFile, ours: GameSettings, model: str) -> _Contents:
        """Read them, and check that the file holds what they name and no more."""
        _check_entries(archive)
        saved_as = _saved_as(_read(archive, _HEAD, _MOST_JSON_BYTES))
        try:
            settings = GameSettings.model_validate_json(_read(archive, _SETTINGS, _MOST_JSON_BYTES))
        except ValidationError as error:
            raise SavedGameError(
                f"This game was saved by AnimeGamer {saved_as.saved_by}, whose settings AnimeGamer {version(_PACKAGE)} "
                "cannot read: open it with that version"
            ) from error
        for name in ("checkpoint", "window_turns", "fps"):
            if getattr(settings, name) != getattr(ours, name):
                raise SavedGameError(
                    f"This game was played with the model {saved_as.model} {settings.checkpoint} (AnimeGamer "
                    f"{saved_as.saved_by}), and this page plays {model} {ours.checkpoint} (AnimeGamer "
                    f"{version(_PACKAGE)}): open it where its model is"
                )
        log = _read(archive, _LOG, _MOST_LOG_BYTES)
        turns = _turns(log)
        expected = {_HEAD, _SETTINGS, _LOG, *(name for turn in turns for name in files_of(turn.id))}
        names = archive.namelist()
        if odd := sorted(expected.symmetric_difference(names)):
            what = "lacks" if odd[0] in expected else "holds, beside the game,"
            raise SavedGameError(f"This file {what} {odd[0][:60]!a}: {_OTHER_COPY}")
        if len(names) != len(expected):
            raise SavedGameError(f"This file holds a file twice: {_OTHER_COPY}")
        return cls(settings, turns, log)


def _check_entries(archive: zipfile.ZipFile) -> None:
    """Refuse entries that are larger than they take in the file, so that nothing grows when it is unpacked."""
    entries = archive.infolist()
    packed = any(each.compress_type != zipfile.ZIP_STORED or each.file_size != each.compress_size for each in entries)
    if packed or any(each.flag_bits & 1 for each in entries):
        raise SavedGameError(f"This file was compressed or encrypted by another program: {_OTHER_COPY}")
    if sum(each.file_size for each in entries) > archive.start_dir:
        raise SavedGameError(f"This file states more than it holds: {_OTHER_COPY}")


def _read(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    try:
        entry = archive.getinfo(name)
    except KeyError as error:
        raise SavedGameError(f"This file is no saved game, it lacks {name}: {_OTHER_COPY}") from error
    if entry.file_size > most:
        raise SavedGameError(f"{name} in this file has {entry.file_size / 1e6:,.0f} MB: {_OTHER_COPY}")
    return archive.read(entry)


def _saved_as(content: bytes) -> SavedAs:
    """Read `animegame.json`; another format is named with the version that wrote it."""
    try:
        found = json.loads(content)
        if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] != FORMAT:
            raise SavedGameError(
                f"This game was saved by AnimeGamer {str(found.get('saved_by'))[:40]!r} in format {found['format']}, "
                f"and AnimeGamer {version(_PACKAGE)} reads format {FORMAT}: open it with that version"
            )
        return SavedAs.model_validate(found)
    except (ValueError, RecursionError) as error:
        raise SavedGameError(f"{_HEAD} in this file is damaged: {_OTHER_COPY}") from error


def _turns(log: bytes) -> Sequence[TurnRecord]:
    """Parse the log, whose ids must be those that the game would have given: they become names of files."""
    try:
        turns, end = parse_log(log, _LOG)
    except GameError as error:
        where, _, _ = str(error).partition(" is damaged")
        raise SavedGameError(f"{where} in this file is damaged: {_OTHER_COPY}") from error
    branches: dict[int, int] = {}
    for turn in turns.values():
        branch = branches[turn.number] = branches.get(turn.number, -1) + 1
        if turn.id != id_of(turn.number, branch) or not _is_playable(turn):
            raise SavedGameError(f"turn {turn.id[:20]} in this file is not one that a game writes: {_OTHER_COPY}")
    if end != len(log) or len(turns) > MOST_TURNS:
        raise SavedGameError(f"{_LOG} in this file breaks off, or has over {MOST_TURNS:,} turns: {_OTHER_COPY}")
    return list(turns.values())


def _is_playable(turn: TurnRecord) -> bool:
    """Return whether the page can show a turn, and the game model read it."""
    try:
        _ = turn.state
    except ValueError:
        return False
    waits = (turn.scope_px, turn.first_frame_seconds or 0.0, *turn.seconds.values())
    is_short = len(turn.instruction) <= _MOST_CHARACTERS and len(turn.device) <= _MOST_CHARACTERS
    return is_short and is_line(turn.instruction) and is_line(turn.device) and all(map(math.isfinite, waits))


def _check_clips(part: Path, turns: Sequence[TurnRecord], fps: int) -> None:
    """Check the first frame of every shot: all are alike, and of a size that can be decoded."""
    first: ClipShape | None = None
    for turn in turns:
        try:
            shape = clip_shape(part / files_of(turn.id)[0])
        except RecordError as error:
            raise SavedGameError(f"the shot of turn {turn.id} in this file cannot be shown: {_OTHER_COPY}") from error
        first = first or shape
        is_usual = shape.fps == fps and max(shape.width, shape.height) <= _MOST_SIDE and shape.frames <= _MOST_FRAMES
        if shape != first or not is_usual:
            raise SavedGameError(f"the shot of turn {turn.id} in this file is not one of this game: {_OTHER_COPY}")
