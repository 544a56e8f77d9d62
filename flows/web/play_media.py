"""Files of a game on its page: shots and their first frames, films to take away, and saved games."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Annotated

import cv2
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, StreamingResponse
from fastapi.sse import EventSourceResponse
from PIL import Image
from pydantic import BaseModel

from flows.game.film import Film, Kind
from flows.game.folder import GameFolder
from flows.game.records import GameError, TurnRecord
from flows.game.saved_game import MOST_BYTES, SUFFIX, SavedGameError, saved_parts
from flows.web.play_games import Games, reason, report
from models.turns import Frames
from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.plain_text import counted
from pipeline.video.clip_files import read_clip

IMMUTABLE = {"Cache-Control": "private, max-age=31536000, immutable"}
"""Cache headers of the files of a turn, which never change."""
POLL_SECONDS = 0.1
"""Interval between two polls of the progress of a drawing or a film."""
UPLOADS = {"/api/games/saved": MOST_BYTES}
"""Most bytes of the requests that carry a file."""
_TYPES: dict[Kind, str] = {"mp4": "video/mp4", "gif": "image/gif"}


class Making(BaseModel):
    """Progress of a film."""

    share: float = 0.0
    done: bool = False
    message: str = ""


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
PathTurn = Annotated[TurnRecord, Depends(_turn)]


def add_media(app: FastAPI, games: Games) -> None:
    """Add the routes of shots, and of the first frames of a drawing."""

    @app.get("/api/games/{game_id}/drawing.png")
    def read_early(game_id: str, folder: Folder) -> Response:
        drawing = games.drawing(game_id)
        if drawing is None or (frames_THWC := drawing.early) is None:
            raise HTTPException(404, "No frames of a shot wait to be shown.")
        animation = _animation(frames_THWC, 1000 / folder.settings.fps)
        return Response(animation, media_type="image/png", headers={"Cache-Control": "no-store"})

    @app.get("/api/games/{game_id}/turns/{turn_id}.mp4")
    def read_shot(folder: Folder, turn: PathTurn) -> FileResponse:
        return FileResponse(_shot(folder, turn.id), media_type="video/mp4", headers=IMMUTABLE)

    @app.get("/api/games/{game_id}/turns/{turn_id}.jpg")
    def read_poster(folder: Folder, turn: PathTurn) -> FileResponse:
        return FileResponse(_poster(folder, turn.id), media_type="image/jpeg", headers=IMMUTABLE)


def add_keeping(app: FastAPI, games: Games, model: str) -> None:
    """Add the routes of films and of saved games.

    Args:
        model: size of the checkpoint, by which a saved game names its model.
    """

    @app.get("/api/games/{game_id}/films/{turn_id}.{kind}")
    def read_film(folder: Folder, turn: PathTurn, kind: Kind, captions: bool = False) -> FileResponse:
        work = _Work(games, Film(folder, turn.id, kind, captions))
        try:
            path = work.film.make(work.watch)
        except _StoppedError as error:
            raise HTTPException(503, "The game's server has stopped.") from error
        name = f"animegamer-{counted(turn.number, 'turn').replace(' ', '-')}.{kind}"
        return FileResponse(path, media_type=_TYPES[kind], filename=name)

    makers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="films")

    @app.get("/api/games/{game_id}/films/{turn_id}", response_class=EventSourceResponse)
    async def make_film(
        folder: Folder, turn: PathTurn, kind: Kind = "mp4", captions: bool = False
    ) -> AsyncIterator[Making]:
        """Make a film while a page waits for it; one that goes away ends the work."""
        work = _Work(games, Film(folder, turn.id, kind, captions))
        future = makers.submit(work.make)
        try:
            while not future.done():
                yield Making(share=work.share)
                await asyncio.sleep(POLL_SECONDS)
            yield await asyncio.wrap_future(future)
        finally:
            work.stopped = True

    @app.get("/api/games/{game_id}/savable")
    def check_saving(folder: Folder) -> dict[str, str]:
        _parts(folder, model)
        return {}

    @app.get("/api/games/{game_id}/saved")
    def save(folder: Folder) -> StreamingResponse:
        parts = _parts(folder, model)
        name = f"animegamer-{counted(len(folder.turns), 'turn').replace(' ', '-')}{SUFFIX}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(parts, media_type="application/zip", headers=headers)

    @app.post("/api/games/saved", status_code=201)
    async def open_file(request: Request) -> dict[str, str]:
        with disk_errors(games.folder):
            games.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=games.folder) as file:
                async for part in request.stream():
                    await run_in_threadpool(file.write, part)
                try:
                    return {"id": await run_in_threadpool(games.open_saved, file, model)}
                except SavedGameError as error:
                    raise HTTPException(422, str(error)) from error


def _parts(folder: GameFolder, model: str) -> Iterator[bytes]:
    try:
        return saved_parts(folder, model)
    except SavedGameError as error:
        raise HTTPException(409, str(error)) from error


class _StoppedError(Exception):
    """Raised inside the making of a film to end it."""


class _Work:
    """Making of a film. Written by the maker, read by the request, which may stop it."""

    def __init__(self, games: Games, film: Film) -> None:
        self._games, self.film = games, film
        self.share = 0.0
        self.stopped = False

    def make(self) -> Making:
        """Make the film, and return the last message for the page."""
        try:
            self.film.make(self.watch)
        except _StoppedError:
            return Making()
        except (UserError, OSError) as error:
            report(f"{type(error).__name__}: {error}")
            return Making(message=reason(error))
        return Making(share=1.0, done=True)

    def watch(self, done: int, total: int) -> None:
        """Store the progress, and end the work if nobody waits for it."""
        if self.stopped or self._games.closing:
            raise _StoppedError
        self.share = round(done / max(total, 1), 3)


def _animation(frames_THWC: Frames, milliseconds: float) -> bytes:
    """Return frames as an animated PNG, without loss, that plays once and keeps its last frame."""
    first, *others = map(Image.fromarray, frames_THWC)
    file = BytesIO()
    first.save(file, "PNG", save_all=True, append_images=others, duration=milliseconds, loop=1, compress_level=1)
    return file.getvalue()


def _shot(folder: GameFolder, turn_id: str) -> Path:
    path = folder.clip_path(turn_id)
    if not path.is_file():
        raise HTTPException(404, "The shot of this turn is gone from the server.")
    return path


def _poster(folder: GameFolder, turn_id: str) -> Path:
    """Return the path of a shot's first frame as JPEG, written at the first request."""
    path = folder.path / f"{turn_id}.jpg"
    if not path.exists():
        with replacing(path) as temporary:
            cv2.imwrite(str(temporary), read_clip(_shot(folder, turn_id))[0])
    return path
