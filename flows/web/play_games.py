"""Games of the page: a folder each, and a queue with one worker thread that draws their turns in order.

Only the latest drawing of a game is kept in memory; its turns are read from its folder on each request. The networks
are shared and keep no state between turns.
"""

from __future__ import annotations

import errno
import re
import secrets
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import torch

from flows.console.terminal import say
from flows.game.folder import GameFolder
from flows.game.play_file import SHARES, check_line, play_turn
from flows.game.records import GameError, GameSettings
from flows.game.saved_game import open_saved
from models.turns import Frames, TurnMaker, stays
from pipeline.core.errors import DiskError, NoRoomError, UserError

Status = Literal["waiting", "drawing", "done", "invalid", "failed", "cancelled"]

GAME_ID = re.compile(r"[A-Za-z0-9_-]{22}")
"""Form of `secrets.token_urlsafe(16)`: 128 random bits, without special characters of paths."""
MAX_WAITING = 50
MAX_KEPT = 200
"""Most drawings kept in memory; ended ones are kept for pages that poll late."""
PARTS = {part: share for part, (_, share) in SHARES.items()}
"""Parts of a turn in order, with the assumed share of its time until one is measured."""
MAX_REASON_CHARACTERS = 300
"""Length at which a failure's reason is cut for the player. The terminal shows the full reason."""
ESTIMATE_SHARE = 0.15
"""Share of the first turn that must be done before the time left is estimated."""


class UnplayableError(UserError):
    """Request that cannot be played, or not now; the message is shown to the player."""


class _StoppedError(Exception):
    """Raised inside the engine to end a drawing."""


@dataclass
class Drawing:
    """Drawing of one turn. Written by the worker, read by the requests."""

    game_id: str
    after: str | None
    """Id of the turn before; None is the start of the game."""
    instruction: str
    stays: bool = False
    """The instruction names the place of the turn before."""
    new_shot: bool = False
    """It does not continue the last shot."""
    status: Status = "waiting"
    part: str = ""
    share: float = 0.0
    """Share of the work that is done, 0 to 1."""
    started: float = 0.0
    message: str = ""
    """Reason of a refusal or failure, for the player."""
    turn: str | None = None
    early: Frames | None = None
    """First frames of the shot, from when they are decoded until the turn is on the disk, or has ended without."""
    stopped: bool = False
    """True after the player has cancelled it."""
    work: Future[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Waiting or being drawn."""
        return self.status in ("waiting", "drawing")


class Pace:
    """Duration of the parts of a turn, as measured on the last one."""

    def __init__(self) -> None:
        self._seconds = dict(PARTS)
        self._measured = False

    def learn(self, seconds: dict[str, float]) -> None:
        """Store the durations of a finished turn."""
        if sum(seconds.values()) > 0:
            self._seconds, self._measured = dict(seconds), True

    def share(self, part: str, done: float, total: float) -> float:
        """Return the finished share of the turn when a part has done `done` of `total` steps."""
        passed = 0.0
        for name, seconds in self._seconds.items():
            if name == part:
                passed += seconds * done / max(total, 1)
                break
            passed += seconds
        return min(1.0, passed / sum(self._seconds.values()))

    def left_seconds(self, drawing: Drawing) -> float | None:
        """Return the time until the drawing is done; None if unknown."""
        if drawing.status != "drawing":
            return None
        if self._measured:
            return sum(self._seconds.values()) * (1 - drawing.share)
        if drawing.share < ESTIMATE_SHARE:
            return None
        return (time.monotonic() - drawing.started) * (1 - drawing.share) / drawing.share


class Games:
    """Games under a folder, and the queue of their drawings.

    Args:
        folder: parent of the game folders, each named by its id.
        engine: draws the turns; used by one thread at a time.
        settings: settings of the engine; a game with other settings can be viewed but not continued.
        check: returns the tokens of an instruction, or raises a UserError to refuse it; called before it is queued.
    """

    def __init__(self, folder: Path, engine: TurnMaker, settings: GameSettings, check: Callable[[str], Sized]) -> None:
        self.folder = folder
        self.engine = engine
        self.settings = settings
        self.check = check
        self.pace = Pace()
        self.closing = False
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="draws")
        self._lock = threading.Lock()
        self._latest: OrderedDict[str, Drawing] = OrderedDict()
        """Latest drawing of each game, in the order of the requests."""

    def make(self) -> str:
        """Create a game and return its id, which nobody else can guess."""
        game_id = secrets.token_urlsafe(16)
        settings = self.settings.model_copy(update={"seed": secrets.randbits(31)})
        GameFolder.create(self.folder / game_id, settings)
        return game_id

    def open(self, game_id: str) -> GameFolder:
        """Open the folder of a game.

        Raises:
            KeyError: there is no such game.
            GameError: its folder is damaged.
        """
        if not GAME_ID.fullmatch(game_id) or not (self.folder / game_id).is_dir():
            raise KeyError(game_id)
        return GameFolder.open(self.folder / game_id)

    def open_saved(self, file: BinaryIO, model: str) -> str:
        """Open a saved game as a new one, and return its id.

        Args:
            model: size of the checkpoint here.

        Raises:
            SavedGameError: the file is damaged, or of another model.
        """
        game_id = secrets.token_urlsafe(16)
        open_saved(file, self.folder / game_id, self.settings, model)
        return game_id

    def draw(self, game_id: str, after: str | None, instruction: str, *, new_shot: bool = False) -> Drawing:
        """Queue the drawing of a turn after the turn `after`; `new_shot`: as of `play_turn`.

        Raises:
            KeyError: there is no such game.
            GameError: the game's folder is damaged.
            UnplayableError: there is no such turn, the game was played with another engine or has a drawing in
                progress, or the queue is full.
            UserError: the instruction is empty, too long, or not one line of text.
        """
        # 1. Check the request before it enters the queue, so that the player sees a mistake at once.
        folder = self.open(game_id)
        self._check_game(folder, after)
        check_line(instruction)
        self.check(instruction)
        in_place = after is not None and stays(folder.turn(after).instruction, instruction)
        drawing = Drawing(game_id, after, instruction, in_place, new_shot)
        # 2. Queue it under the lock. Otherwise two requests for one game could both find it idle.
        with self._lock:
            waiting = self._under_way()
            if any(other.game_id == game_id for other in waiting):
                raise UnplayableError("A turn of this game is being drawn already: wait for it, or cancel it.")
            if len(waiting) >= MAX_WAITING:
                raise UnplayableError(f"{len(waiting)} turns wait to be drawn: try again in a while.")
            drawing.work = self._worker.submit(self._draw, drawing)
            self._add_latest(drawing)
        # 3. The worker never touches the status of an ended drawing: one callback settles success, error and cancel.
        drawing.work.add_done_callback(lambda work: _settle(drawing, work))
        return drawing

    def drawing(self, game_id: str) -> Drawing | None:
        """Return the latest drawing of a game, in progress or ended."""
        with self._lock:
            return self._latest.get(game_id)

    def before(self, drawing: Drawing) -> int:
        """Return the number of drawings before this one in the queue."""
        with self._lock:
            waiting = self._under_way()
        return waiting.index(drawing) if drawing in waiting else 0

    def cancel(self, game_id: str) -> None:
        """Cancel the drawing of a game, if one is in progress; the game is unchanged."""
        drawing = self.drawing(game_id)
        if drawing is not None and drawing.work is not None:
            drawing.stopped = True
            drawing.work.cancel()  # at once if still queued; else it stops at its next step

    def stop(self) -> None:
        """End every drawing at its next step."""
        self.closing = True

    def close(self) -> None:
        """End all drawings and wait for the worker."""
        self.stop()
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _check_game(self, folder: GameFolder, after: str | None) -> None:
        if after is not None and all(turn.id != after for turn in folder.turns):
            raise UnplayableError("This game has no such turn to continue from.")
        if folder.settings.unlike(self.settings.model_copy(update={"seed": folder.settings.seed})):
            raise UnplayableError(
                "This game was played with another checkpoint or other settings, so it cannot continue here. "
                "Start a new game, or start the server with the old settings."
            )

    def _under_way(self) -> list[Drawing]:
        return [drawing for drawing in self._latest.values() if drawing.is_under_way]

    def _add_latest(self, drawing: Drawing) -> None:
        self._latest.pop(drawing.game_id, None)
        self._latest[drawing.game_id] = drawing
        # Only ended drawings may go: one in progress is what keeps its game from a second one.
        ended = [game_id for game_id, known in self._latest.items() if not known.is_under_way]
        for game_id in ended[: max(0, len(self._latest) - MAX_KEPT)]:
            del self._latest[game_id]

    def _draw(self, drawing: Drawing) -> None:
        """Draw a turn on the worker thread."""

        # The engine cannot be interrupted, but it reports each of its steps here: raising from here stops a drawing.
        def progress(part: str, done: float, total: float) -> None:
            if drawing.stopped or self.closing:
                raise _StoppedError
            drawing.part, drawing.share = part, self.pace.share(part, done, total)

        def show(frames_THWC: Frames) -> None:
            drawing.early = frames_THWC

        # 1. From here on, pages show the leader with the share of the work instead of the position in the queue.
        drawing.started = time.monotonic()
        drawing.status = "drawing"
        # 2. Read the game from its folder again: the queue may have waited while another program changed the game.
        folder, asked = self.open(drawing.game_id), (drawing.instruction, drawing.after)
        record = play_turn(folder, self.engine, *asked, progress, show, new_shot=drawing.new_shot)
        # 3. The turn is on the disk. Its times predict the next one, and its id tells the page what to fetch.
        self.pace.learn(record.seconds)
        drawing.turn = record.id


def _settle(drawing: Drawing, work: Future[None]) -> None:
    """Set the final status of a drawing. A failure does not stop the worker."""
    drawing.early = None
    # 1. A drawing is cancelled in the queue (the future says so) or at one of its steps (the error says so).
    error = None if work.cancelled() else work.exception()
    if work.cancelled() or isinstance(error, _StoppedError):
        drawing.status = "cancelled"
    elif error is None:
        drawing.status = "done"
    # 2. A player can fix a wrong instruction, but not the server's disk or a damaged game: those count as failures.
    elif isinstance(error, UserError) and not isinstance(error, DiskError | GameError):
        drawing.message = str(error)
        drawing.status = "invalid"
    else:
        drawing.message = reason(error)
        drawing.status = "failed"
        report("".join(traceback.format_exception(error)))
    # 3. The drawing stays in memory for pages that poll late. Its traceback would keep the turn's tensors there too.
    _forget_frames(error)


def _forget_frames(error: BaseException | None) -> None:
    """Clear the frames of an error and of its causes."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def reason(error: BaseException) -> str:
    """Return the reason of a failed request for the player, without paths on the server."""
    if is_disk_full(error):
        return "The disk of the game's server is full: make room there, then try again."
    if isinstance(error, DiskError | OSError):
        return "The game's server could not read or write the game's files; its terminal says why."
    if isinstance(error, torch.OutOfMemoryError):
        return "The GPU's memory is full: start the game's server with --offload, then play the turn again."
    if isinstance(error, GameError):
        return "The files of this game are damaged, or in use by another program; the server's terminal says more."
    return f"The shot could not be drawn: {str(error)[:MAX_REASON_CHARACTERS] or type(error).__name__}"


def is_disk_full(error: BaseException) -> bool:
    """Return whether the disk or the quota is full."""
    return isinstance(error, NoRoomError) or (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    )


def report(text: str) -> None:
    """Print to the server's terminal, which may be closed."""
    with suppress(OSError):
        for line in text.splitlines():
            say(line)
