"""The games of the page: each a folder of its own, and one worker that draws their turns, first come first served.

Nothing of a game stays in memory but its drawing under way: what was played is read from its folder when asked for.
The networks are shared and keep nothing from one turn to the next.
"""

from __future__ import annotations

import errno
import re
import secrets
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flows.console.terminal import say
from flows.game.folder import GameFolder
from flows.game.play_file import SHARES, play_turn
from flows.game.records import GameError, GameSettings
from models.turns import TurnMaker
from pipeline.core.errors import DiskError, NoRoomError, UserError
from pipeline.core.plain_text import is_text

Status = Literal["waiting", "drawing", "done", "refused", "failed", "cancelled"]

GAME_ID = re.compile(r"[A-Za-z0-9_-]{22}")
"""Results of `secrets.token_urlsafe(16)`: 128 random bits, and no character that means anything in a path."""
MOST_WAITING = 50
REMEMBERED = 200
"""Most drawings remembered after their end, for pages that ask late."""
PARTS = {part: share for part, (_, share) in SHARES.items()}
"""The parts of a turn in order, with the share of its time that each may take while none was measured."""
MOST_REASON = 300
"""Characters of a failure's reason that the player is shown; the terminal has all of it."""
SURE_SHARE = 0.15
"""Share of the first turn that must be done before a time left is shown."""


class UnplayableError(UserError):
    """The game cannot go on as asked, or not now; the message is for the player."""


class _StoppedError(Exception):
    """Raised inside the engine to end a drawing."""


@dataclass
class Drawing:
    """One turn on its way from instruction to shot. Written by the worker, read by the requests."""

    game_id: str
    after: str | None
    """The turn it follows; None is the start of the game."""
    instruction: str
    status: Status = "waiting"
    part: str = ""
    share: float = 0.0
    """Share of the work that is done, 0 to 1."""
    started: float = 0.0
    message: str = ""
    """Reason of a refusal or failure, for the player."""
    turn: str | None = None
    """The finished turn."""
    stopped: bool = False
    """The player has cancelled it."""
    work: Future[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Return whether it waits or is being drawn."""
        return self.status in ("waiting", "drawing")


class Pace:
    """Time that the parts of a turn take, as measured on the last one."""

    def __init__(self) -> None:
        self._seconds = dict(PARTS)
        self._measured = False

    def learn(self, seconds: dict[str, float]) -> None:
        """Take the times of a finished turn."""
        if sum(seconds.values()) > 0:
            self._seconds, self._measured = dict(seconds), True

    def share(self, part: str, done: float, total: float) -> float:
        """Return the share of the turn that is done after `done` of the `total` steps of a part."""
        passed = 0.0
        for name, seconds in self._seconds.items():
            if name == part:
                passed += seconds * done / max(total, 1)
                break
            passed += seconds
        return min(1.0, passed / sum(self._seconds.values()))

    def left_seconds(self, drawing: Drawing) -> float | None:
        """Return the time until the drawing is done; None as long as it is unknown."""
        if drawing.status != "drawing":
            return None
        if self._measured:
            return sum(self._seconds.values()) * (1 - drawing.share)
        if drawing.share < SURE_SHARE:
            return None
        return (time.monotonic() - drawing.started) * (1 - drawing.share) / drawing.share


class Games:
    """All games under a folder, and the queue of their drawings.

    Args:
        folder: every game is a folder in it, named by its id.
        engine: draws the turns; used by one thread at a time.
        settings: of the engine; a game made with others can be looked at, but not go on.
        check: called with every instruction before it waits its turn; a UserError refuses it.
    """

    def __init__(self, folder: Path, engine: TurnMaker, settings: GameSettings, check: Callable[[str], object]) -> None:
        self.folder = folder
        self.engine = engine
        self.settings = settings
        self.check = check
        self.pace = Pace()
        self.closing = False
        """Set by `stop`."""
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="draws")
        self._lock = threading.Lock()
        self._latest: OrderedDict[str, Drawing] = OrderedDict()
        """The latest drawing of each game, in the order they were asked for."""

    def make(self) -> str:
        """A new game; its id is its only key."""
        game_id = secrets.token_urlsafe(16)
        settings = self.settings.model_copy(update={"seed": secrets.randbits(31)})
        GameFolder.create(self.folder / game_id, settings)
        return game_id

    def open(self, game_id: str) -> GameFolder:
        """The folder of a game.

        Raises:
            KeyError: there is no such game.
            GameError: its folder is damaged.
        """
        if not GAME_ID.fullmatch(game_id) or not (self.folder / game_id).is_dir():
            raise KeyError(game_id)
        return GameFolder.open(self.folder / game_id)

    def draw(self, game_id: str, after: str | None, instruction: str) -> Drawing:
        """Ask for the turn that follows `after`.

        Raises:
            KeyError: there is no such game.
            GameError: the game's folder is damaged.
            UnplayableError: there is no such turn, the game was played with another engine or has a drawing under way,
                or the queue is full.
            UserError: the instruction is empty, too long, or no text.
        """
        self._check_game(self.open(game_id), after)
        if not is_text(instruction):
            raise UserError("the instruction holds half a character: type it again")
        self.check(instruction)
        drawing = Drawing(game_id, after, instruction)
        with self._lock:
            waiting = self._under_way()
            if any(other.game_id == game_id for other in waiting):
                raise UnplayableError("A turn of this game is being drawn already: wait for it, or cancel it.")
            if len(waiting) >= MOST_WAITING:
                raise UnplayableError(f"{len(waiting)} turns wait to be drawn: try again in a while.")
            drawing.work = self._worker.submit(self._draw, drawing)
            self._remember(drawing)
        drawing.work.add_done_callback(lambda work: _settle(drawing, work))
        return drawing

    def drawing(self, game_id: str) -> Drawing | None:
        """The latest drawing of a game, under way or ended."""
        with self._lock:
            return self._latest.get(game_id)

    def before(self, drawing: Drawing) -> int:
        """Return the number of drawings before this one."""
        with self._lock:
            waiting = self._under_way()
        return waiting.index(drawing) if drawing in waiting else 0

    def cancel(self, game_id: str) -> None:
        """End the drawing of a game, if one is under way; the game stays as it is."""
        drawing = self.drawing(game_id)
        if drawing is not None and drawing.work is not None:
            drawing.stopped = True
            drawing.work.cancel()  # at once if it still waits; else it stops at its next step

    def stop(self) -> None:
        """End every drawing at its next step."""
        self.closing = True

    def close(self) -> None:
        """End all drawings and wait for the worker."""
        self.stop()
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _check_game(self, folder: GameFolder, after: str | None) -> None:
        if after is not None and all(turn.id != after for turn in folder.turns):
            raise UnplayableError("This game has no such turn to go on from.")
        if folder.settings != self.settings.model_copy(update={"seed": folder.settings.seed}):
            raise UnplayableError(
                "This game was played with another checkpoint or other settings, so it cannot go on here: start a new "
                "one, or start the server as it was."
            )

    def _under_way(self) -> list[Drawing]:
        return [drawing for drawing in self._latest.values() if drawing.is_under_way]

    def _remember(self, drawing: Drawing) -> None:
        self._latest.pop(drawing.game_id, None)
        self._latest[drawing.game_id] = drawing
        ended = [game_id for game_id, known in self._latest.items() if not known.is_under_way]
        for game_id in ended[: max(0, len(self._latest) - REMEMBERED)]:
            del self._latest[game_id]

    def _draw(self, drawing: Drawing) -> None:
        def progress(part: str, done: float, total: float) -> None:
            if drawing.stopped or self.closing:
                raise _StoppedError
            drawing.part, drawing.share = part, self.pace.share(part, done, total)

        drawing.started = time.monotonic()
        drawing.status = "drawing"
        record = play_turn(self.open(drawing.game_id), self.engine, drawing.instruction, drawing.after, progress)
        self.pace.learn(record.seconds)
        drawing.turn = record.id


def _settle(drawing: Drawing, work: Future[None]) -> None:
    """Note how a drawing ended. A failure is the drawing's own: the worker goes on with the next."""
    error = None if work.cancelled() else work.exception()
    if work.cancelled() or isinstance(error, _StoppedError):
        drawing.status = "cancelled"
    elif error is None:
        drawing.status = "done"
    elif isinstance(error, UserError) and not isinstance(error, DiskError | GameError):
        drawing.message = str(error)
        drawing.status = "refused"
    else:
        drawing.message = reason(error)
        drawing.status = "failed"
        report("".join(traceback.format_exception(error)))


def reason(error: BaseException) -> str:
    """Explain a failed request to the player, without paths of the server's disk."""
    if is_disk_full(error):
        return "The disk of the game's server is full: make room there, then play the turn again."
    if isinstance(error, DiskError | OSError):
        return "The game's server could not read or write the game's files; its terminal says why."
    if isinstance(error, GameError):
        return "The files of this game are damaged, or in use by another program; the server's terminal says more."
    return f"The shot could not be drawn: {str(error)[:MOST_REASON] or type(error).__name__}"


def is_disk_full(error: BaseException) -> bool:
    """Return whether nothing more can be written, on the disk or within the quota."""
    return isinstance(error, NoRoomError) or (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    )


def report(text: str) -> None:
    """Write to the server's terminal, which may be gone."""
    with suppress(OSError):
        for line in text.splitlines():
            say(line)
