"""Review page: its API as an application of the page server, for `animegamer review` and `animegamer audit`.

    serve_review(dataset, ReviewTask(file=Path("review.jsonl"), reviewer="anna"))

GET  /                        the page, from the package
GET  /api/info                dataset, reviewer, cast, forms of the values, faults of the review file
GET  /api/clips               all clips with the machine's captions and verdicts
GET  /api/alike               likeness of all clips to a clip, or to words
GET  /api/reviews             standings of all reviewed fields
POST /api/decisions           append decisions; the reply comes when they are on the disk
GET  /api/clips/CLIP_ID.mp4   a clip; its id is looked up, and never part of a path
GET  /api/heard/CLIP_ID.mp4   the clip with its sound
"""

from __future__ import annotations

import hashlib
import json
import os
from importlib.resources import files
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.background import BackgroundTask

from flows.console.terminal import say
from flows.web.page_server import PageServer, address_of, error_reply, listening, page_app, until_stopped
from flows.web.review_clips import Change, InvalidDecisionError, ReviewedClips, ReviewTask
from pipeline.core.config import recorded
from pipeline.core.errors import DiskError, NoRoomError, UserError
from pipeline.core.records import RecordError
from pipeline.core.store import Dataset, FilmEntry
from pipeline.publish.similar_clips import search
from pipeline.reviews.decisions import FIELDS, MOST_SENTENCE, MOST_WORD_CHARACTERS
from pipeline.video.sound_files import with_sound
from prompts.tags import MOST_OTHERS, MOST_WORDS, NUMBERS, words_pattern

PORT = 8732
MOST_CHANGES = 1000
"""Most decisions of one request; the page sends more in several."""
CLIP_HEADERS = {"Cache-Control": "private, max-age=600"}
"""Cache headers of clips: a build may replace them."""
MOST_FAULTS = 5


class Changes(BaseModel):
    """Request to store decisions."""

    model_config = ConfigDict(extra="forbid", strict=True)

    changes: Annotated[list[Change], Field(min_length=1, max_length=MOST_CHANGES)]


def serve_review(dataset: Dataset, task: ReviewTask, port: int = PORT) -> None:
    """Serve the review page on this machine until Ctrl-C or SIGTERM.

    Args:
        port: port on 127.0.0.1; 0 is any free port.

    Raises:
        UserError: the dataset or the review file cannot be read, or the port is in use.
    """
    with until_stopped(), listening(port, "the review") as listener:
        clips = ReviewedClips(dataset, task)
        app = make_app(clips)
        say(f"{clips.summary}; decisions go to {task.file}")
        say(f"review as {task.reviewer} at {address_of(listener)}   Ctrl-C stops")
        PageServer(app, lambda: None).run(sockets=[listener])
    say("stopped; every decision shown as saved is in the file")


def make_app(clips: ReviewedClips) -> FastAPI:
    """Return the application of the review page and its API."""
    app = page_app(files("flows.web") / "review_page")
    rows = json.dumps({"clips": clips.rows()}, separators=(",", ":")).encode()

    @app.get("/api/info")
    def read_info() -> dict[str, Any]:
        return _info(clips)

    @app.get("/api/clips")
    def read_clips() -> Response:
        return Response(rows, media_type="application/json")

    @app.get("/api/reviews")
    def read_reviews() -> Response:
        body = json.dumps({"reviews": clips.standings()}, separators=(",", ":"))
        return Response(body, media_type="application/json")

    @app.get("/api/alike")
    def read_alike(clip: str = "", words: str = "") -> dict[str, Any]:
        if clip and not clips.has(clip):
            raise HTTPException(404, "There is no such clip here.")
        try:
            return {"likeness": search(clips.dataset, None if words else clip, words or None)}
        except UserError as error:
            raise HTTPException(422, f"{error}.") from error

    @app.post("/api/decisions")
    def save(body: Changes) -> dict[str, Any]:
        return {"reviews": clips.save(body.changes)}

    @app.get("/api/clips/{clip_id}.mp4")
    def read_clip(clip_id: str) -> FileResponse:
        try:
            path = clips.path(clip_id)
        except KeyError as error:
            raise HTTPException(404, "There is no such clip here.") from error
        if not path.is_file():
            raise HTTPException(404, "The file of this clip is gone; `animegamer build` makes it again.")
        return FileResponse(path, media_type="video/mp4", headers=CLIP_HEADERS)

    @app.get("/api/heard/{clip_id}.mp4")
    def read_heard(clip_id: str) -> FileResponse:
        silent = read_clip(clip_id)
        sound = clips.sound(clip_id)
        if sound is None or not sound.is_file():
            return silent
        try:
            content = with_sound(Path(silent.path), sound)
        except RecordError as error:  # cut again or damaged meanwhile: the pictures still play
            say(str(error))
            return silent
        handle, muxed = mkstemp(suffix=".mp4")  # a file, because browsers seek in clips to play them in a loop
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        done = BackgroundTask(Path(muxed).unlink, missing_ok=True)
        return FileResponse(muxed, media_type="video/mp4", headers=CLIP_HEADERS, background=done)

    app.add_exception_handler(UserError, _fail)
    return app


def _fail(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, InvalidDecisionError):
        return error_reply(422, str(error))
    say(str(error))
    if isinstance(error, NoRoomError):
        return error_reply(507, "The disk is full: make room there, then save again.")
    wrong = "written" if isinstance(error, DiskError) else "read"
    return error_reply(500, f"The review file could not be {wrong}; the server's terminal says why.")


def _title(entry: FilmEntry, dataset: Dataset) -> str:
    film = dataset.folder(entry.film_id).film_if_made
    return f"{entry.name} ({film.episode_name})" if film and film.episode_name else entry.name


def _info(clips: ReviewedClips) -> dict[str, Any]:
    record, task, reviews = clips.dataset.record, clips.task, clips.reviews
    networks = recorded(record.config, clips.dataset.root).embed.named()
    return {
        "name": clips.dataset.root.resolve().name,
        "key": hashlib.sha256(str(task.file.resolve()).encode(errors="replace")).hexdigest()[:12],
        "reviewer": task.reviewer,
        "blind": task.blind,
        "alike": [role for role in ("pictures", "words") if task.clip_ids is None and role in networks],
        "sample": task.clip_ids is not None,
        "cast": record.cast,
        "films": {entry.film_id: _title(entry, clips.dataset) for entry in record.films},
        "fields": FIELDS,
        "patterns": {tag: words_pattern(tag) for tag in MOST_WORDS},
        "numbers": NUMBERS,
        "most": {"words": MOST_WORDS, "others": MOST_OTHERS, "sentence": MOST_SENTENCE, "name": MOST_WORD_CHARACTERS},
        "last": clips.last_clip(),
        "file": task.file.name,
        "faults": [f"line {fault.line}: {fault.reason}" for fault in reviews.faults[:MOST_FAULTS]],
        "counts": {
            "malformed": len(reviews.faults),
            "unmatched": len(reviews.unmatched),
            "of other films": len(reviews.foreign),
            "outside the cast": len(reviews.outside_cast),
        },
    }
