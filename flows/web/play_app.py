"""The game page and what it asks for, as an application; `play_server.py` serves it.

GET    /                                  the page, from the package; it loads nothing from anywhere else
GET    /api/info                          characters to pick from, and where the values start
POST   /api/games                         a new game
GET    /api/games/ID                      its turns, and the drawing under way
POST   /api/games/ID/turns                ask for the next turn of any branch
GET    /api/games/ID/drawing              how it gets on, as server-sent events
DELETE /api/games/ID/drawing              cancel it
GET    /api/games/ID/turns/TURN.mp4|.jpg  a shot, and its first frame
GET    /api/games/ID/films/TURN.mp4       the film of the game from its start to that turn
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import cv2
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException as RoutingError

from flows.game.folder import GameFolder
from flows.game.records import GameError, TurnRecord
from flows.web.guard import Guard
from flows.web.play_games import Drawing, Games, Status, UnplayableError, is_disk_full, reason, report
from models.turns import Values
from pipeline.core.atomic import replacing
from pipeline.core.errors import DiskError, UserError
from pipeline.core.records import RecordError
from pipeline.video.clip_files import read_clip

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
NOT_ROUTED = {404: "There is no such page.", 405: "That cannot be done here."}
FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
"""Of what belongs to a turn: turns never change."""
LOOK_SECONDS = 0.1
"""How often the progress of a drawing is looked at, for the page."""


class Move(BaseModel):
    """What a player wants to happen."""

    model_config = ConfigDict(extra="forbid", strict=True)

    after: str | None
    """The turn it follows; None is the start of the game."""
    instruction: str


class Step(BaseModel):
    """How far a drawing is."""

    status: Status | Literal["none"]
    """`none`: nothing is known of a drawing; the server was started anew."""
    before: int = 0
    """Drawings that come before it."""
    part: str = ""
    share: float = 0.0
    left_seconds: float | None = None
    message: str = ""
    turn: str | None = None


def make_app(games: Games, characters: Iterable[str]) -> FastAPI:
    """The page and its API over the given games."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(games.close)

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.games = games
    app.add_middleware(Guard)
    _add_errors(app)
    _add_page(app, {"characters": list(characters), "start": asdict(Values())})
    _add_games(app, games)
    _add_media(app)
    return app


def _add_errors(app: FastAPI) -> None:
    """Every refusal reaches the page as a sentence."""

    def reply(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"message": message}, status, headers)

    def refuse(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RoutingError)
        unsaid = error.detail == HTTPStatus(error.status_code).phrase
        message = NOT_ROUTED.get(error.status_code, error.detail) if unsaid else error.detail
        return reply(error.status_code, message, error.headers)

    def fail(_: Request, error: Exception) -> JSONResponse:
        report(f"{type(error).__name__}: {error}")
        unwritten = 500 if isinstance(error, DiskError) else 409
        return reply(507 if is_disk_full(error) else unwritten, reason(error))

    app.add_exception_handler(RoutingError, refuse)
    app.add_exception_handler(UnplayableError, lambda _, error: reply(409, str(error)))
    for failure in (UserError, RecordError):
        app.add_exception_handler(failure, fail)
    app.add_exception_handler(
        RequestValidationError,
        lambda _, error: reply(422, "; ".join(_fault(fault) for fault in error.errors())),
    )


def _fault(fault: dict[str, Any]) -> str:
    """What is wrong with a request, and with which field of it: the name may be any text of the sender's."""
    name = ".".join(map(str, fault["loc"])).encode(errors="replace").decode()
    return f"{name}: {fault['msg']}"


def _add_page(app: FastAPI, info: dict[str, Any]) -> None:
    folder = files("flows.web") / "play_page"
    page = {file.name: file.read_bytes() for file in folder.iterdir() if _ending(file.name) in MEDIA_TYPES}

    @app.get("/api/info")
    def read_info() -> dict[str, Any]:
        return info

    @app.api_route("/", methods=["GET", "HEAD"])
    @app.api_route("/{name}", methods=["GET", "HEAD"])
    def read_page(name: str = "index.html") -> Response:
        if name not in page:
            raise HTTPException(404, "There is no such page.")
        return Response(page[name], media_type=MEDIA_TYPES[_ending(name)])


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


def _folder(game_id: str, request: Request) -> GameFolder:
    games: Games = request.app.state.games
    try:
        return games.open(game_id)
    except KeyError as error:
        raise HTTPException(404, "There is no such game here.") from error


def _turn(turn_id: str, folder: Annotated[GameFolder, Depends(_folder)]) -> TurnRecord:
    try:
        return folder.turn(turn_id)
    except GameError as error:
        raise HTTPException(404, "This game has no such turn.") from error


Folder = Annotated[GameFolder, Depends(_folder)]
Turn = Annotated[TurnRecord, Depends(_turn)]


def _add_games(app: FastAPI, games: Games) -> None:
    @app.post("/api/games", status_code=201)
    def make_game() -> dict[str, str]:
        return {"id": games.make()}

    @app.get("/api/games/{game_id}")
    def read_game(game_id: str, folder: Folder) -> dict[str, Any]:
        drawing = games.drawing(game_id)
        under_way = _step(games, drawing) if drawing and drawing.is_under_way else None
        shown = {"id", "parent", "instruction", "level", "values"}
        return {"turns": [turn.model_dump(include=shown) for turn in folder.turns], "drawing": under_way}

    @app.post("/api/games/{game_id}/turns", status_code=202)
    def ask_for_turn(game_id: str, folder: Folder, move: Move) -> Step:  # noqa: ARG001
        try:
            drawing = games.draw(game_id, move.after, move.instruction)
        except (DiskError, GameError, UnplayableError):
            raise
        except UserError as error:
            raise HTTPException(422, str(error)) from error
        return _step(games, drawing)

    @app.delete("/api/games/{game_id}/drawing")
    def cancel(game_id: str, folder: Folder) -> dict[str, str]:  # noqa: ARG001 - a game that is not there is told
        games.cancel(game_id)
        return {}

    @app.get("/api/games/{game_id}/drawing", response_class=EventSourceResponse)
    async def watch(game_id: str, folder: Folder) -> AsyncIterator[Step]:  # noqa: ARG001
        drawing, told = games.drawing(game_id), None
        while drawing and not games.closing:
            step = _step(games, drawing)
            if step != told:
                yield step
                told = step
            if step.status not in ("waiting", "drawing"):
                return
            await asyncio.sleep(LOOK_SECONDS)
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
        message=drawing.message,
        turn=drawing.turn,
    )


def _add_media(app: FastAPI) -> None:
    @app.get("/api/games/{game_id}/turns/{turn_id}.mp4")
    def read_shot(folder: Folder, turn: Turn) -> FileResponse:
        return FileResponse(_shot(folder, turn.id), media_type="video/mp4", headers=FOREVER)

    @app.get("/api/games/{game_id}/turns/{turn_id}.jpg")
    def read_poster(folder: Folder, turn: Turn) -> FileResponse:
        return FileResponse(_poster(folder, turn.id), media_type="image/jpeg", headers=FOREVER)

    @app.get("/api/games/{game_id}/films/{turn_id}.mp4")
    def read_film(folder: Folder, turn: Turn) -> FileResponse:
        name = f"animegamer-{turn.number}-turns.mp4"
        return FileResponse(folder.film(turn.id), media_type="video/mp4", filename=name, headers=FOREVER)


def _shot(folder: GameFolder, turn_id: str) -> Path:
    path = folder.clip_path(turn_id)
    if not path.is_file():
        raise HTTPException(404, "The shot of this turn is gone from the server.")
    return path


def _poster(folder: GameFolder, turn_id: str) -> Path:
    """The first frame of a shot as a picture, made when it is first asked for."""
    path = folder.path / f"{turn_id}.jpg"
    if not path.exists():
        with replacing(path) as temporary:
            cv2.imwrite(str(temporary), read_clip(_shot(folder, turn_id))[0])
    return path
