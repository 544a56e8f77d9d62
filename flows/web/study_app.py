"""Study page: its API as an application of the page server, for `animegamer evaluate study`.

    serve_study(evaluation, participants=["anna", "ben"])

GET  /LINK/                       the page of a participant, from the package
GET  /LINK/api/study              criteria, and the participant's games with the answers so far
POST /LINK/api/answers            append an answer about a game, by its token; the reply comes when it is on the disk
GET  /LINK/api/films/NAME.mp4     a film; its name is looked up, and never part of a path

Every path begins with the link of a participant, a secret. No reply names an agent or another participant.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse

from flows.console.terminal import say
from flows.web.guard import LOOPBACK
from flows.web.page_server import (
    HOST,
    PageServer,
    address_of,
    error_reply,
    lan_address,
    listening,
    page_app,
    until_stopped,
)
from flows.web.study_games import Ranking, RefusedError, StudyGames, criteria_rows
from pipeline.core.atomic import held
from pipeline.core.errors import DiskError, NoRoomError, UserError
from training.evaluation.folder import EvaluationFolder
from training.evaluation.study import open_study

PORT = 8733
FILM_HEADERS = {"Cache-Control": "private, max-age=86400, immutable"}
"""Cache headers of films: another film has another name."""
LAN_WARNING = """\
--lan: everyone in the network of {host} can connect to this page.
  - A link is the only protection: its holder sees the films and answers as that participant. Send each to one person.
  - Nothing is encrypted: in a network that others can listen to, they can read links, films and answers.
  - Without a link nothing is shown. No page names agents or other participants. Ctrl-C ends it all."""

STRANGER = "This is no link of the study: open the one that was sent to you, in full."


class StrangerError(Exception):
    """A request without the link of a participant."""


def serve_study(
    evaluation: EvaluationFolder, participants: Sequence[str], port: int = PORT, *, lan: bool = False
) -> None:
    """Serve the study's page until Ctrl-C or SIGTERM.

    Args:
        evaluation: games to show.
        participants: names to add; those of the study stay.
        port: 0 is any free port.
        lan: listen on this machine's address in the local network, in place of the loopback address.

    Raises:
        UserError: the evaluation cannot be shown, the port is in use, or the study is being served already.
    """
    host = lan_address() if lan else HOST
    folder = evaluation.path / "study"
    with until_stopped(), held(folder, "animegamer evaluate study"), listening(port, "the study", host) as listener:
        study = open_study(folder, participants)
        say("preparing the films")
        games = StudyGames.of(evaluation, study)
        say(f"{len(games)} of {len(evaluation.benchmark.games)} games, played to the end by every agent, are shown")
        if lan:
            for line in LAN_WARNING.format(host=host).splitlines():
                say(line, "yellow")
        for number, person in enumerate(study.participants):
            say(f"{person.name}, {games.done(number)} games ranked: {address_of(listener)}{person.link}/")
        say("Ctrl-C stops")
        PageServer(make_app(games, {host} if lan else LOOPBACK), lambda: None).run(sockets=[listener])


def make_app(games: StudyGames, hosts: Collection[str] = LOOPBACK) -> FastAPI:
    """Return the application of the study's page and its API."""
    app = page_app(files("flows.web") / "study_page", hosts, "/{link}", _participant)
    app.state.numbers = {person.link: number for number, person in enumerate(games.study.participants)}
    app.include_router(_api(games))
    app.add_exception_handler(UserError, _fail)
    app.add_exception_handler(StrangerError, lambda *_: PlainTextResponse(STRANGER, 403))
    return app


def _participant(link: str, request: Request) -> int:
    number: int | None = request.app.state.numbers.get(link)
    if number is None:
        raise StrangerError
    return number


Number = Annotated[int, Depends(_participant)]


def _api(games: StudyGames) -> APIRouter:
    router = APIRouter(prefix="/{link}/api")

    @router.get("/study")
    def read_study(number: Number) -> dict[str, Any]:
        return {"criteria": criteria_rows(), "games": games.rows(number)}

    @router.post("/answers")
    def save(number: Number, body: Ranking) -> dict[str, Any]:
        return {"order": games.save(number, body)}

    @router.get("/films/{name}.mp4")
    def read_film(name: str) -> FileResponse:
        try:
            return FileResponse(games.film(name), media_type="video/mp4", headers=FILM_HEADERS)
        except KeyError as error:
            raise HTTPException(404, "There is no such film here.") from error

    return router


def _fail(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, RefusedError):
        return error_reply(422, str(error))
    say(str(error))
    if isinstance(error, NoRoomError):
        return error_reply(507, "The disk of the study is full: tell its organiser, then save again.")
    wrong = "written" if isinstance(error, DiskError) else "read"
    return error_reply(500, f"The answers could not be {wrong}: tell the organiser, then save again.")
