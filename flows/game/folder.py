"""Game folder: settings, log, shots and shot tokens of every turn played, as a tree of turns.

    GAME/
      game.json            seed, steps, guidance and checkpoint; must be equal for the game to continue
      turns.jsonl          one line per turn, in the order played; append-only
      <id>.mp4             its animation shot
      <id>.safetensors     its shot tokens, input of later turns; and its end, if the next shot may continue it

Each turn names its parent: a player may go back to an earlier turn and continue from there. Ids are made here (`0003`,
and `0003-1` for the next third turn); the text of a player is stored in the log only.

A turn is logged only when its files are complete and synced. An incomplete last line, left by a killed process, is
ignored and overwritten by the next turn.
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
from torch import Tensor

from flows.game.game_file import check_folder
from flows.game.records import GameError, GameSettings, TurnCost, TurnRecord, id_of, read_log, record_of
from models.tokens import PastTurn
from models.turns import GameState, LastShot, Turn, Values, stays
from pipeline.core.atomic import HeldError, held, lock_file, open_in_place, replacing, sync, write_json
from pipeline.core.errors import disk_errors
from pipeline.core.records import RecordError, faults_of
from pipeline.video.clip_files import join_clips, write_clip

CRF = 17
"""x264 quality of the shots, almost visually lossless."""
_TOKENS, _ENDING = "shot_tokens_LD", "ending_CHW"
"""Names of the tensors of a turn."""


@contextmanager
def game_lock(path: Path) -> Iterator[None]:
    """Lock a game folder, existing or new, for this process during the block.

    Raises:
        GameError: another process holds the lock.
        UserError: the path is a file, or the folder is not writable.
    """
    check_folder(path)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(path, "animegamer play"))
        except HeldError as error:
            raise GameError(f"{error}, or name another --out") from error
        yield


class GameFolder:
    """Game folder, opened with `create` or `open`. Other processes may read it while one process plays."""

    def __init__(self, path: Path, settings: GameSettings) -> None:
        self.path = path
        self.settings = settings
        self._turns, self._end = read_log(path / "turns.jsonl")

    @classmethod
    def create(cls, path: Path, settings: GameSettings) -> GameFolder:
        """Start a game in a folder that is new, empty, or holds a game without turns.

        Raises:
            GameError: the folder holds other files.
        """
        if path.exists() and not _is_free(path):
            raise GameError(f"{path} is not empty and holds no game to resume; name another --out")
        write_json(path / "game.json", settings.model_dump(mode="json"))
        return cls(path, settings)

    @classmethod
    def open(cls, path: Path) -> GameFolder:
        """Open an existing game. GameError if there is no game, or it is damaged."""
        try:
            return cls(path, GameSettings.model_validate_json((path / "game.json").read_bytes()))
        except OSError as error:
            raise GameError(f"{path} holds no game: game.json cannot be read ({error.strerror})") from error
        except ValidationError as error:
            fault = f"is damaged, or of another version ({faults_of(error)}); name another --out"
            raise GameError(f"{path / 'game.json'} {fault}") from error

    @property
    def turns(self) -> list[TurnRecord]:
        """All turns, in the order played."""
        return list(self._turns.values())

    def turn(self, turn_id: str) -> TurnRecord:
        """Return a turn by its id. GameError if the game has no such turn."""
        if turn_id not in self._turns:
            raise GameError(f"{self.path} has no turn {turn_id!r}; choose one of the turns in `turns.jsonl`")
        return self._turns[turn_id]

    def path_to(self, turn_id: str) -> list[TurnRecord]:
        """Return the turns from the start of the game to a turn, inclusive."""
        return list(self._ancestors(turn_id))[::-1]

    def stays(self, turn: TurnRecord) -> bool:
        """Return whether a turn plays in the place of the turn before it."""
        return turn.parent is not None and stays(self.turn(turn.parent).instruction, turn.instruction)

    def state_at(self, turn_id: str | None) -> GameState:
        """Return the state of the game after a turn; None is the start of the game.

        Raises:
            GameError: there is no such turn, or its files or its ancestors' files cannot be read.
        """
        if turn_id is None:
            return GameState()
        last = self.turn(turn_id)
        window: list[PastTurn] = []
        for record in self._ancestors(turn_id):
            if len(window) == self.settings.window_turns - 1:
                break
            window.insert(0, self._past_turn(record))
        ending_CHW = self._tensors(last).get(_ENDING)
        shot = None if ending_CHW is None else LastShot(last.instruction, ending_CHW)
        return GameState(last.number, Values(**last.values.model_dump()), tuple(window), shot)

    def clip_path(self, turn_id: str) -> Path:
        """Return the path of a turn's animation shot."""
        return self.path / f"{self.turn(turn_id).id}.mp4"

    def join_film(self, turn_id: str, out: Path) -> None:
        """Write the shots from the start of the game to a turn as one film, without re-encoding them.

        Raises:
            GameError: there is no such turn, or a shot cannot be read.
        """
        clips = [self.clip_path(record.id) for record in self.path_to(turn_id)]
        try:
            with replacing(out) as temporary:
                join_clips(clips, temporary)
        except RecordError as error:
            raise GameError(f"{self.path}, turn {error}; play the game again into another --out") from error

    def branch(self, number: int) -> int:
        """Return the branch of the next turn with a number: the count of existing turns with that number."""
        return sum(record.number == number for record in self._turns.values())

    def keep(self, turn: Turn, parent: str | None, cost: TurnCost | None = None) -> TurnRecord:
        """Write a turn's files, and once they are synced its line in the log.

        Raises:
            GameError: another process is playing this game.
            DiskError: a file cannot be written.
        """
        record = record_of(turn, id_of(turn.number, self.branch(turn.number)), parent, cost)
        with disk_errors(self.path), self._locked_log() as log:
            for leftover in self.path.glob(f".{record.id}.*"):  # from a process killed while writing this turn
                leftover.unlink()
            for shown in (f"{record.id}.jpg", f"film-{record.id}.*"):  # from a turn that was deleted from the log
                for leftover in self.path.glob(shown):
                    leftover.unlink()
            with replacing(self.path / f"{record.id}.mp4") as temporary:
                write_clip(temporary, turn.frames_THWC[..., ::-1], Fraction(self.settings.fps), CRF)
            with replacing(self.path / f"{record.id}.safetensors") as temporary:
                kept = {_TOKENS: turn.shot_tokens_LD, **({} if turn.ending_CHW is None else {_ENDING: turn.ending_CHW})}
                save_file({name: tensor.contiguous() for name, tensor in kept.items()}, temporary)
            sync(self.path)  # the log names only files that are on the disk
            log.write(record.model_dump_json(exclude_defaults=True).encode() + b"\n")
            log.flush()
            os.fsync(log.fileno())
            self._turns[record.id], self._end = record, log.tell()
        return record

    @contextmanager
    def _locked_log(self) -> Iterator[BinaryIO]:
        """Open the log for appending after its last complete line, locked for this process."""
        path = self.path / "turns.jsonl"
        with os.fdopen(open_in_place(path), "r+b") as log:
            try:
                lock_file(log, fcntl.LOCK_EX | fcntl.LOCK_NB, self.path)
            except BlockingIOError as error:
                raise GameError(f"{self.path}: another process is playing this game; wait until it stops") from error
            log.seek(self._end)
            if b"\n" in log.read():
                raise GameError(f"{self.path}: another process has added turns; open the game again")
            log.truncate(self._end)
            log.seek(self._end)
            yield log

    def _ancestors(self, turn_id: str) -> Iterator[TurnRecord]:
        record: TurnRecord | None = self.turn(turn_id)
        while record:
            yield record
            record = self.turn(record.parent) if record.parent else None

    def _past_turn(self, record: TurnRecord) -> PastTurn:
        return PastTurn(record.instruction, self._tensors(record)[_TOKENS], record.state)

    def _tensors(self, record: TurnRecord) -> dict[str, Tensor]:
        """Return what later turns read of a turn, the shot tokens at least."""
        path = self.path / f"{record.id}.safetensors"
        try:
            tensors = load_file(path)
            return {_TOKENS: tensors[_TOKENS], **tensors}
        except (OSError, SafetensorError, KeyError) as error:
            raise GameError(
                f"{path} cannot be read ({error}); continue from an earlier turn, or into another --out"
            ) from error


def files_of(turn_id: str) -> tuple[str, str]:
    """Return the names of a turn's files: its animation shot and its shot tokens."""
    return f"{turn_id}.mp4", f"{turn_id}.safetensors"


def _is_free(path: Path) -> bool:
    """Return whether a game may start here: the folder holds at most leftovers of a game without a finished turn.

    Leftovers may include the files of a first turn whose log line is missing or incomplete after a kill.
    """
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
    if "game.json" not in names:
        return not names
    return names <= {"game.json", "turns.jsonl", "0001.mp4", "0001.safetensors"} and not GameFolder.open(path).turns
