"""Cast page: its API as an application of the page server, for `animegamer cast`.

    serve_cast(dataset, CastTask(reviewer="anna", review_file=..., cast_folder=...))

GET  /                        the page, from the package
GET  /api/info                dataset, figures in time order, what a picture stands for, remarks
GET  /api/rows                rows of figures, names in use, version of the file of names
POST /api/actions             an action about rows or figures; the reply comes when it is on the disk, with all rows
POST /api/written             write characters to the review file and pictures to the cast folder
GET  /api/figures/PLACE.jpg   a figure, cut out of its clip
"""

from __future__ import annotations

import secrets
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import cv2
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from flows.console.terminal import say
from flows.web.page_server import (
    PageServer,
    address_of,
    error_reply,
    has_display,
    listening,
    page_app,
    until_stopped,
)
from pipeline.core.errors import UserError
from pipeline.core.records import RecordError
from pipeline.core.store import Dataset
from pipeline.reviews.casting.characters import write_characters, write_references
from pipeline.reviews.casting.figures import Figures, cut_out, read_figures, reference_vectors
from pipeline.reviews.casting.rows import Casting, InvalidActionError

PORT = 8733
THUMB_HEIGHT = 128
_RUN = secrets.token_hex(4)
"""Mark of the pictures of this run in their addresses: a place means another figure in the next run."""
_CLIPS_KEPT = 512
"""Clips whose cut out figures stay in memory."""


class Action(BaseModel):
    """Action of a person: about figures, or about whole rows by their first figures."""

    model_config = ConfigDict(extra="forbid", strict=True)

    does: Literal["name", "discard", "group", "split", "accept", "undo"]
    version: int
    """Version of the rows that the person sees."""
    rows: Annotated[list[int], Field(max_length=1000)] = []
    figures: Annotated[list[int], Field(max_length=5000)] = []
    names: Annotated[list[str], Field(max_length=16)] = []


@dataclass(frozen=True)
class CastTask:
    """Task of a person: whose names these are, and where they go."""

    reviewer: str
    review_file: Path
    cast_folder: Path
    films: tuple[str, ...] = ()
    """Ids of the films to show; empty: all."""


@dataclass(frozen=True)
class CastPage:
    """Everything that the page shows."""

    dataset: Dataset
    task: CastTask
    figures: Figures
    casting: Casting
    remarks: tuple[str, ...]

    @classmethod
    def of(cls, dataset: Dataset, task: CastTask) -> CastPage:
        """Read the figures of a dataset and find its rows. Raises UserError if it has no vectors."""
        figures = read_figures(dataset, task.films)
        remarks = [] if figures.by_detector else ["No detector is named: each picture stands for its one figure."]
        references = {}
        if task.cast_folder.is_dir() and any(task.cast_folder.iterdir()):
            try:
                references = reference_vectors(dataset, figures, task.cast_folder)
            except UserError as error:
                remarks.append(f"The cast folder is not compared: {error}.")
        casting = Casting(dataset, figures, task.reviewer, references)
        if casting.faults:
            remarks.append(f"{casting.file.name}: {casting.faults} lines cannot be read and do not count.")
        return cls(dataset, task, figures, casting, tuple(remarks))

    def rows(self) -> dict[str, Any]:
        """Return the rows as the page takes them."""
        version = self.casting.version
        rows = [{**vars(row), "open": row.is_open} for row in self.casting.rows()]
        return {"version": version, "rows": rows, "names": self.casting.names()}

    def act(self, action: Action) -> dict[str, Any]:
        """Store an action and return all rows. Raises HTTPException if the person saw other rows."""
        if action.version != self.casting.version:
            raise HTTPException(409, "Somebody else has changed the rows meanwhile. They are shown again.")
        everything = {row.figures[0]: row.figures for row in self.casting.rows()} if action.rows else {}
        if not set(action.rows) <= everything.keys() or not set(action.figures) <= set(range(len(self.figures.items))):
            raise HTTPException(422, "There is no such row or figure.")
        places = [*action.figures, *(place for row in action.rows for place in everything[row])]
        done = "1 picture" if len(places) == 1 else f"{len(places)} pictures"
        if action.does == "undo":
            done = "undone" if self.casting.undo() else "nothing to undo"
        elif action.does == "accept":
            done = f"{self.casting.accept()} near proposals accepted"
        elif action.does == "split":
            self.casting.split(sorted(places))
        elif places:
            self.casting.act(action.does, places, action.names)
        return {**self.rows(), "done": done}

    def write(self) -> dict[str, Any]:
        """Write characters of clips, and pictures of characters, and say what was written."""
        written = write_characters(self.dataset, self.task.review_file, self.casting)
        try:
            pictures = write_references(self.dataset, self.task.cast_folder, self.casting)
        except RecordError as error:
            said = f"The characters are written, but the pictures are not: {error}; build again"
            raise HTTPException(422, said) from error
        waiting = f", {written.waiting} wait for the names of other figures" if written.waiting else ""
        return {
            "done": f"{written.clips} clips have their characters ({written.lines} lines written to "
            f"{self.task.review_file.name}){waiting}. {pictures} pictures are in {self.task.cast_folder.name}/. "
            f"Build with --cast {self.task.cast_folder} to publish."
        }


def serve_cast(dataset: Dataset, task: CastTask, port: int = PORT, *, browse: bool = False) -> None:
    """Serve the cast page on this machine until Ctrl-C or SIGTERM.

    Raises:
        UserError: the dataset has no vectors, a file cannot be read, or the port is in use.
    """
    with until_stopped(), listening(port, "the cast page") as listener:
        say("comparing figures")
        page = CastPage.of(dataset, task)
        for remark in page.remarks:
            say(remark, "yellow")
        say(f"{len(page.figures.items)} pictures; names go to {page.casting.file}")
        say(f"cast as {task.reviewer} at {address_of(listener)}   Ctrl-C stops")
        if browse and has_display():
            webbrowser.open(address_of(listener))
        PageServer(make_app(page), lambda: None).run(sockets=[listener])
    say("stopped; every name shown as saved is in the file")


def make_app(page: CastPage) -> FastAPI:
    """Return the application of the cast page and its API."""
    app = page_app(files("flows.web") / "cast_page")
    thumbs = _thumbs(page)

    @app.get("/api/info")
    def read_info() -> dict[str, Any]:
        return _info(page)

    @app.get("/api/rows")
    def read_rows() -> dict[str, Any]:
        return page.rows()

    @app.post("/api/actions")
    def act(action: Action) -> dict[str, Any]:
        return page.act(action)

    @app.post("/api/written")
    def write() -> dict[str, Any]:
        return page.write()

    @app.get("/api/figures/{place}.jpg")
    def read_figure(place: int) -> Response:
        if not 0 <= place < len(page.figures.items):
            raise HTTPException(404, "There is no such figure.")
        try:
            content = thumbs(page.figures.items[place].clip.clip_id)[place]
        except RecordError as error:
            raise HTTPException(404, "The file of this clip is gone or damaged; build again.") from error
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=600"})

    app.add_exception_handler(UserError, _fail)
    return app


def _thumbs(page: CastPage) -> Callable[[str], Mapping[int, bytes]]:
    """Function from the id of a clip to small JPEG pictures of its figures, by their places."""
    of_clip: dict[str, list[int]] = {}
    for place, figure in enumerate(page.figures.items):
        of_clip.setdefault(figure.clip.clip_id, []).append(place)

    one_at_a_time = threading.Lock()  # a browser asks for the figures of a clip at once, and names must not wait

    @lru_cache(_CLIPS_KEPT)
    def of_one(clip_id: str) -> Mapping[int, bytes]:
        places, found = of_clip[clip_id], {}
        for number, picture_HWC in cut_out(page.dataset, [page.figures.items[place] for place in places]):
            scale = min(1.0, THUMB_HEIGHT / picture_HWC.shape[0])
            height, width = (max(1, round(side * scale)) for side in picture_HWC.shape[:2])
            small_HWC = cv2.resize(picture_HWC, (width, height), interpolation=cv2.INTER_AREA)
            found[places[number]] = cv2.imencode(".jpg", small_HWC)[1].tobytes()
        return found

    def thumbs(clip_id: str) -> Mapping[int, bytes]:
        with one_at_a_time:
            return of_one(clip_id)

    return thumbs


def _info(page: CastPage) -> dict[str, Any]:
    items, names = page.figures.items, {film.film_id: film.name for film in page.dataset.record.films}
    return {
        "name": page.dataset.root.resolve().name,
        "reviewer": page.task.reviewer,
        "what": "figure" if page.figures.by_detector else "picture",
        "films": names,
        "figures": [[figure.clip.film_id, round(figure.seconds, 2), _shape(figure.pixels)] for figure in items],
        "mark": _RUN,
        "remarks": page.remarks,
    }


def _shape(pixels: Sequence[int]) -> float:
    """Width of a box for each pixel of its height."""
    left, top, right, bottom = pixels
    return round((right - left) / max(1, bottom - top), 3)


def _fail(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, InvalidActionError):
        return error_reply(422, str(error))
    say(str(error))
    return error_reply(500, f"It could not be saved: {error}")
