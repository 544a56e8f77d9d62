"""A game on disk: every turn that was ever played, each knowing which one it followed.

    GAME/
      game.json            seed, steps, guidance and checkpoint: what must be equal for the game to go on
      turns.jsonl          a line for each turn, in the order they were played; only ever added to
      <id>.mp4             its animation shot
      <id>.safetensors     its shot tokens, which later turns look back on

The turns are a tree: a player may go back to an earlier turn and play on from there. Ids are made here (`0003`, and
`0003-1` for the next third turn); what a player types is in the log and nowhere else.

A turn is in the log only when its files are whole and synced. The line that a killed process left half-written does not
count, and is written over by the next turn.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from flows.game.records import GameError, GameSettings, TurnRecord, read_log, record_of
from models.tokens import PastTurn
from models.turns import GameState, Turn, Values
from pipeline.core.atomic import HeldError, held, replacing, write_json
from pipeline.core.errors import disk_errors
from pipeline.core.records import RecordError, faults_of
from pipeline.video.clip_files import join_clips, write_clip

CRF = 17
"""x264's quality of the shots: hardly distinguishable from the frames themselves."""


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep every other process that asks from playing in a folder meanwhile, also from beginning a game there.

    Raises:
        GameError: another process has it, or it is not a folder.
        DiskError: it is not to be written in.
    """
    if path.is_file():
        raise GameError(f"{path}: is a file; name another --out")
    with ExitStack() as stack:
        try:
            stack.enter_context(held(path, "animegamer play"))
        except HeldError as error:
            raise GameError(f"{error}, or name another --out") from error
        yield


class GameFolder:
    """A game folder, opened with `create` or `open`. It may be read by others while one process plays."""

    def __init__(self, path: Path, settings: GameSettings) -> None:
        self.path = path
        self.settings = settings
        self._turns, self._end = read_log(path / "turns.jsonl")

    @classmethod
    def create(cls, path: Path, settings: GameSettings) -> GameFolder:
        """Begin a game in a new or empty folder, or in the place of one in which nothing was played.

        Raises:
            GameError: there is something in the folder already.
        """
        if path.exists() and not _is_free(path):
            raise GameError(f"{path}: not empty, and no game that could go on; name another --out")
        write_json(path / "game.json", settings.model_dump(mode="json"))
        return cls(path, settings)

    @classmethod
    def open(cls, path: Path) -> GameFolder:
        """Open a game that was begun earlier.

        Raises:
            GameError: there is none, or it is damaged.
        """
        try:
            return cls(path, GameSettings.model_validate_json((path / "game.json").read_bytes()))
        except OSError as error:
            raise GameError(f"{path}: no game here: game.json cannot be read ({error.strerror})") from error
        except ValidationError as error:
            raise GameError(
                f"{path / 'game.json'}: damaged, or of another version ({faults_of(error)}); name another --out"
            ) from error

    @property
    def turns(self) -> list[TurnRecord]:
        """All turns in the order they were played."""
        return list(self._turns.values())

    def turn(self, turn_id: str) -> TurnRecord:
        """A turn by its id.

        Raises:
            GameError: the game has no such turn.
        """
        if turn_id not in self._turns:
            raise GameError(f"{self.path}: has no turn {turn_id!r}; `turns.jsonl` lists the turns it has")
        return self._turns[turn_id]

    def path_to(self, turn_id: str) -> list[TurnRecord]:
        """The turns that lead from the start of the game to a turn, it included."""
        return list(self._back_from(turn_id))[::-1]

    def state_at(self, turn_id: str | None) -> GameState:
        """The state of the game after a turn; None is the start of the game.

        Raises:
            GameError: there is no such turn, or its files or those of the turns before it cannot be read.
        """
        if turn_id is None:
            return GameState()
        last = self.turn(turn_id)
        window: list[PastTurn] = []
        for record in self._back_from(turn_id):
            if len(window) == self.settings.window_turns - 1:
                break
            window.insert(0, self._remembered(record))
        return GameState(last.number, Values(**last.values.model_dump()), tuple(window))

    def clip_path(self, turn_id: str) -> Path:
        """The animation shot of a turn."""
        return self.path / f"{self.turn(turn_id).id}.mp4"

    def film(self, turn_id: str, out: Path | None = None) -> Path:
        """Write the film of the game from its start to a turn; gives its path.

        Args:
            turn_id: the last turn to show.
            out: where to write it; unset: `film-<id>.mp4` in the folder, in the place of an earlier one.

        Raises:
            GameError: there is no such turn, or a shot cannot be read.
        """
        target = out or self.path / f"film-{self.turn(turn_id).id}.mp4"
        if out or not target.exists():
            clips = [self.clip_path(record.id) for record in self.path_to(turn_id)]
            try:
                with replacing(target) as temporary:
                    join_clips(clips, temporary)
            except RecordError as error:
                raise GameError(f"{self.path}: turn {error}; play the game again into another --out") from error
        for film in self.path.glob("film-*.mp4"):
            if not out and film != target:  # or a long game would fill the disk with films of itself
                film.unlink(missing_ok=True)
        return target

    def branch(self, number: int) -> int:
        """The branch of the next turn with a number: how many turns have that number already."""
        return sum(record.number == number for record in self._turns.values())

    def keep(self, turn: Turn, parent: str | None) -> TurnRecord:
        """Write a turn's files, and when they are safe its line in the log.

        Raises:
            GameError: another process plays this game.
            DiskError: a file cannot be written.
        """
        branch = self.branch(turn.number)
        record = record_of(turn, f"{turn.number:04d}-{branch}" if branch else f"{turn.number:04d}", parent)
        with disk_errors(self.path), self._log_to_add_to() as log:
            for leftover in self.path.glob(f".{record.id}.*"):  # of a process that was killed while it wrote this turn
                leftover.unlink()
            with replacing(self.path / f"{record.id}.mp4") as temporary:
                write_clip(temporary, turn.frames_THWC[..., ::-1], Fraction(self.settings.fps), CRF)
            with replacing(self.path / f"{record.id}.safetensors") as temporary:
                save_file({"shot_tokens_LD": turn.shot_tokens_LD.contiguous()}, temporary)
            _sync_folder(self.path)
            log.write(record.model_dump_json().encode() + b"\n")
            log.flush()
            os.fsync(log.fileno())
            self._turns[record.id], self._end = record, log.tell()
        return record

    @contextmanager
    def _log_to_add_to(self) -> Iterator[BinaryIO]:
        """The log, opened behind its last whole line, for this process alone."""
        path = self.path / "turns.jsonl"
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as log:  # noqa: PTH123 - of a descriptor
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise GameError(f"{self.path}: another process is playing this game; wait for it") from error
            log.seek(self._end)
            if b"\n" in log.read():
                raise GameError(f"{self.path}: another process has played on; open the game again")
            log.truncate(self._end)
            log.seek(self._end)
            yield log

    def _back_from(self, turn_id: str) -> Iterator[TurnRecord]:
        record: TurnRecord | None = self.turn(turn_id)
        while record:
            yield record
            record = self.turn(record.parent) if record.parent else None

    def _remembered(self, record: TurnRecord) -> PastTurn:
        path = self.path / f"{record.id}.safetensors"
        try:
            return PastTurn(record.instruction, load_file(path)["shot_tokens_LD"], record.state)
        except (OSError, SafetensorError, KeyError) as error:
            raise GameError(
                f"{path}: cannot be read ({error}); play on from a turn before it, or into another --out"
            ) from error


def _is_free(path: Path) -> bool:
    """Return whether a game may begin here: nothing is there but leftovers of a start without a finished turn.

    That may be the files of a first turn, whose line a kill kept out of the log or tore.
    """
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
    if "game.json" not in names:
        return not names
    return names <= {"game.json", "turns.jsonl", "0001.mp4", "0001.safetensors"} and not GameFolder.open(path).turns


def _sync_folder(path: Path) -> None:
    """Have the names of new files on disk too, before the log speaks of them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
