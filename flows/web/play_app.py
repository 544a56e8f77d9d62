"""Game page: its API as an application of the page server, and `animegamer play --serve`.

    serve(Path("checkpoint"), Path("out"))

GET    /                                  the page, from the package
GET    /api/info                          words to choose from, what can be played, and the initial values
POST   /api/readings                      what an instruction is understood as, before it is played
POST   /api/games                         create a game
GET    /api/games/ID                      its turns, and the drawing in progress
POST   /api/games/ID/turns                request the next turn of any branch
GET    /api/games/ID/drawing              its progress, as server-sent events
DELETE /api/games/ID/drawing              cancel it
GET    /api/games/ID/drawing.png          its first frames, while the others are decoded
GET    /api/games/ID/turns/TURN.mp4|.jpg  a shot, and its first frame
GET    /api/games/ID/films/TURN           make its film up to that turn, with its progress as server-sent events
GET    /api/games/ID/films/TURN.mp4|.gif  the film; `captions=true` adds the instructions, here and above
GET    /api/games/ID/savable              whether the game can be saved
GET    /api/games/ID/saved                the game with all its branches as one file
POST   /api/games/saved                   open such a file as a new game
GET    /api/games/ID/turns/TURN/standing  under rules: how the characters are, their wishes, and what may come next
GET    /api/standing                      the same before the first turn
"""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel, ConfigDict

from flows.console.terminal import say
from flows.game.film import GIF_TURNS
from flows.game.play_file import check_line
from flows.game.records import GameError, GameSettings, waited
from flows.game.saved_game import MOST_BYTES
from flows.web.page_server import (
    PageServer,
    address_of,
    error_reply,
    has_display,
    listening,
    page_app,
    until_stopped,
)
from flows.web.play_games import Drawing, Games, Status, UnplayableError, is_disk_full, reason, report
from flows.web.play_media import POLL_SECONDS, UPLOADS, Folder, PathTurn, add_keeping, add_media
from flows.web.play_rules import Referee, StandingNow
from flows.web.rules import Rules
from flows.web.understanding import Reader
from models.checkpoint import Checkpoint
from models.config import ModelConfig, Sampling
from models.engine import Engine
from models.engine_options import EngineOptions
from models.tokens import MOST_INSTRUCTION_TOKENS, instruction_ids
from models.turns import TIMES, Values
from pipeline.captions.rules import ADVERBS
from pipeline.core.errors import DiskError, UserError
from pipeline.core.plain_text import counted
from pipeline.core.records import RecordError


class Move(BaseModel):
    """Request for the next turn."""

    model_config = ConfigDict(extra="forbid", strict=True)

    after: str | None
    """Id of the turn before; None is the start of the game."""
    instruction: str
    new_shot: bool = False
    """Do not continue the last shot, though the place stays."""


class Draft(BaseModel):
    """Instruction that is being written."""

    model_config = ConfigDict(extra="forbid", strict=True)

    instruction: str
    first: bool
    """True for the first turn of a game."""


class ReadDraft(BaseModel):
    """Instruction as it is understood, and its length in tokens of the game model."""

    instruction: str
    unknown: tuple[str, ...]
    left_out: tuple[str, ...]
    tokens: int
    most: int = MOST_INSTRUCTION_TOKENS


class Step(BaseModel):
    """Progress of a drawing."""

    status: Status | Literal["none"]
    """`none`: no drawing is known, as after a restart of the server."""
    before: int = 0
    """Number of drawings before it in the queue."""
    part: str = ""
    share: float = 0.0
    left_seconds: float | None = None
    stays: bool = False
    """The place is that of the turn before."""
    early: bool = False
    """The first frames can be fetched."""
    message: str = ""
    note: str = ""
    """Reason for which the rules play something else; told to who asked."""
    turn: str | None = None


def serve(
    checkpoint: Path,
    out: Path,
    port: int = 8731,
    options: EngineOptions = EngineOptions(),
    *,
    rules: Rules | None = None,
    browse: bool = False,
) -> None:
    """Serve the game page of a checkpoint on this machine until Ctrl-C or SIGTERM.

    Args:
        out: folder of all games.
        port: port on 127.0.0.1; 0 is any free port.
        rules: of the games on the page; None: the values are the model's, and nothing else is at stake.

    Raises:
        UserError: the checkpoint cannot be used, or the port is in use; the message names the remedy.
    """
    with until_stopped(), listening(port, "the game") as listener:
        opened = Checkpoint.open(checkpoint)
        say("loading the networks")
        engine = Engine.load(checkpoint, options)
        settings = GameSettings.of(opened, options)
        games = Games(out, engine, settings, partial(instruction_ids, engine.tokenizer))
        say(f"play at {address_of(listener)}   Ctrl-C stops")
        if browse and has_display():
            webbrowser.open(address_of(listener))
        with closing(games):
            PageServer(make_app(games, opened.config, rules), games.stop).run(sockets=[listener])
    say("stopped; every game is kept")


def make_app(games: Games, config: ModelConfig, rules: Rules | None = None) -> FastAPI:
    """Return the application of the game page and its API for games with a checkpoint of this configuration."""
    referee = Referee(rules, config) if rules else None
    app = page_app(files("flows.web") / "play_page", UPLOADS)
    app.state.games = games
    words = config.model_dump(include={"characters", "motions", "places", "together", "about"})
    info = {
        **words,
        "drawn": how_drawn(games.settings, config.sampling),
        "continues": config.shot_decoder.continues != "no",
        "start": asdict(Values()),
        "kept": {"most_bytes": MOST_BYTES, "gif_turns": GIF_TURNS},
        "rules": {"turns": rules.turns, "casting": rules.casting} if rules else None,
        "times": TIMES,
        "manners": list(ADVERBS.values()),
    }

    @app.get("/api/info")
    def read_info() -> dict[str, Any]:
        return info

    reader = Reader(config)

    @app.post("/api/readings")
    def read_draft(draft: Draft) -> ReadDraft:
        reading = reader.read(draft.instruction, first=draft.first)
        with _mistakes_of_players():
            return ReadDraft(**asdict(reading), tokens=len(games.check(reading.instruction)))

    _add_errors(app)
    _add_games(app, games, reader, referee)
    if referee:
        _add_standings(app, referee)
    add_media(app, games)
    add_keeping(app, games, config.size)
    return app


def how_drawn(settings: GameSettings, own: Sampling) -> str:
    """Return sentences on how the shots are drawn, and on the checkpoint's own sampling if it differs."""
    asked = Sampling.model_validate(settings.model_dump(include=set(Sampling.model_fields)))
    how = f"in {settings.precision}{', compiled' * settings.compile}"
    said = f"Each shot takes {_in_words(asked)}, {how}."
    return said if asked == own else f"{said} The checkpoint's own are {_in_words(own)}."


def _in_words(sampling: Sampling) -> str:
    first, last = sampling.guided
    part = "" if (first, last) == Sampling().guided else f" from timestep {last} to {first}"
    return f"{counted(sampling.steps, 'step')} ({sampling.sampler}) with guidance {sampling.guidance:g}{part}"


def _add_errors(app: FastAPI) -> None:
    """Add handlers that turn errors into JSON replies with a sentence to show."""

    def fail(_: Request, error: Exception) -> JSONResponse:
        report(f"{type(error).__name__}: {error}")
        unwritten = 500 if isinstance(error, DiskError) else 409
        return error_reply(507 if is_disk_full(error) else unwritten, reason(error))

    app.add_exception_handler(UnplayableError, lambda _, error: error_reply(409, str(error)))
    for failure in (UserError, RecordError):
        app.add_exception_handler(failure, fail)


@contextmanager
def _mistakes_of_players() -> Iterator[None]:
    """Turn a mistake in an instruction into a reply with its message."""
    try:
        yield
    except (DiskError, GameError, UnplayableError):
        raise
    except UserError as error:
        raise HTTPException(422, str(error)) from error


def _add_standings(app: FastAPI, referee: Referee) -> None:
    @app.get("/api/standing")
    def read_opening() -> StandingNow:
        return referee.opening()

    @app.get("/api/games/{game_id}/turns/{turn_id}/standing")
    def read_standing(folder: Folder, turn: PathTurn) -> StandingNow:
        return referee.now(folder, turn)


def _add_games(app: FastAPI, games: Games, reader: Reader, referee: Referee | None) -> None:
    @app.post("/api/games", status_code=201)
    def make_game() -> dict[str, str]:
        return {"id": games.make()}

    @app.get("/api/games/{game_id}")
    def read_game(game_id: str, folder: Folder) -> dict[str, Any]:
        drawing = games.drawing(game_id)
        under_way = _step(games, drawing) if drawing and drawing.is_under_way else None
        shown = {"id", "parent", "instruction", "level", "values", "first_frame_seconds", "continues"}
        turns = [turn.model_dump(include=shown) | {"stays": folder.stays(turn)} for turn in folder.turns]
        fulfilled = {"fulfilled": referee.fulfilled(folder)} if referee else {}
        return {"turns": turns, "drawing": under_way, "waited": waited(folder.turns), **fulfilled}

    @app.post("/api/games/{game_id}/turns", status_code=202)
    def ask_for_turn(game_id: str, folder: Folder, move: Move) -> Step:
        with _mistakes_of_players():
            check_line(move.instruction)
            instruction, note = reader.read(move.instruction, first=move.after is None).instruction, ""
            if referee:
                instruction, note = referee.ruling(folder, move.after, instruction)
            drawing = games.draw(game_id, move.after, instruction, new_shot=move.new_shot)
            return _step(games, drawing).model_copy(update={"note": note})

    @app.delete("/api/games/{game_id}/drawing")
    def cancel(game_id: str, folder: Folder) -> dict[str, str]:  # noqa: ARG001 - an unknown game has no folder
        games.cancel(game_id)
        return {}

    @app.get("/api/games/{game_id}/drawing", response_class=EventSourceResponse)
    async def watch(game_id: str, folder: Folder) -> AsyncIterator[Step]:  # noqa: ARG001
        drawing, sent = games.drawing(game_id), None
        while drawing and not games.closing:
            step = _step(games, drawing)
            if step != sent:
                yield step
                sent = step
            if step.status not in ("waiting", "drawing"):
                return
            await asyncio.sleep(POLL_SECONDS)
        if not drawing:
            yield Step(status="none")


def _step(games: Games, drawing: Drawing) -> Step:
    left = games.pace.left_seconds(drawing)
    return Step(
        status=drawing.status,
        before=games.before(drawing),
        part=drawing.part,
        share=round(drawing.share, 3),
        left_seconds=None if left is None else round(left),
        stays=drawing.stays,
        early=drawing.early is not None,
        message=drawing.message,
        turn=drawing.turn,
    )
