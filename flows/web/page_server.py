"""Page server: a local page and its API on the loopback address, for a browser on the same machine.

    with until_stopped(), listening(8731, "the game") as listener:
        app = page_app(files("flows.web") / "play_page")
        ...                                                     # the routes of the page
        PageServer(app, stop).run(sockets=[listener])

The page consists of static files in the package, in its folder and in `shared/`. It loads nothing from elsewhere.

Any web page in the user's browser can send requests to this server. A foreign page can resolve its host name to
127.0.0.1 (DNS rebinding), so `Guard` accepts only Host headers that name this machine. A foreign page can also send
cross-origin requests, so `Guard` accepts requests that change anything only from our own origin.

Uvicorn limits neither the time of a request nor the number of connections. Here, a connection must send its request
within `REQUEST_SECONDS`, one with a file at `SLOWEST_UPLOAD` or faster, and only `most_connections` stay open. Replies,
such as streams, may take any time.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import h11
import uvicorn  # noqa: TID251 - the only server
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as RoutingError
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: TID251

from flows.console.terminal import say
from pipeline.core.errors import UserError

HOST = "127.0.0.1"
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
NOT_ROUTED = {404: "There is no such page.", 405: "That cannot be done here."}
CLOSE_SECONDS = 5
"""Longest wait for open connections when the server stops."""
REQUEST_SECONDS = 10.0
"""Longest time from the opening of a connection, or its last reply, to the end of the next request."""
SLOWEST_UPLOAD = 10e6
"""Bytes a second that a request with a file must send, beyond `REQUEST_SECONDS`."""
MAX_BODY_BYTES = 64 * 1024
"""Most bytes of a request without a file."""
NO_UPLOADS: Mapping[str, int] = {}
SAFE_METHODS = {"GET", "HEAD"}
OWN_NAMES = {"127.0.0.1", "localhost", "[::1]"}

POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every reply: the page may load and talk to its own server only, and no other page may show or read it."""


def page_app(page: Traversable, uploads: Mapping[str, int] = NO_UPLOADS) -> FastAPI:
    """Return an application that serves the files of a page's folder; its API is added as routes under `/api/`.

    Every error is JSON with a `message`, a sentence to show.

    Args:
        uploads: most bytes of the requests that carry a file, by path.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, uploads)
    app.add_exception_handler(RoutingError, _not_routed)
    app.add_exception_handler(RequestValidationError, _not_valid)
    given = [file for folder in (files("flows.web") / "shared", page) for file in folder.iterdir()]
    contents = {file.name: file.read_bytes() for file in given if _ending(file.name) in MEDIA_TYPES}

    @app.api_route("/", methods=["GET", "HEAD"])
    @app.api_route("/{name}", methods=["GET", "HEAD"])
    def read_page(name: str = "index.html") -> Response:
        if name not in contents:
            raise HTTPException(404, NOT_ROUTED[404])
        return Response(contents[name], media_type=MEDIA_TYPES[_ending(name)])

    return app


def error_reply(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an error as JSON with a `message`."""
    return JSONResponse({"message": message}, status, headers)


def listening(port: int, name: str) -> socket.socket:
    """Return a socket that listens on the loopback address; opened before the slow loading of networks.

    Args:
        port: 0 is any free port.
        name: name of the page, for the error message.

    Raises:
        UserError: the port is in use or not permitted.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(
            f"port {port} cannot be used ({error.strerror}): is {name} open already? Give another with --port"
        ) from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of the page, for the browser."""
    host, port = listener.getsockname()
    return f"http://{host}:{port}/"


def has_display() -> bool:
    """Return whether a browser has a display; on a terminal alone it would take the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def until_stopped() -> Iterator[None]:
    """End the block without an error on Ctrl-C or SIGTERM, also while networks are loading."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def most_connections() -> int:
    """Return the number of connections kept open: a quarter of the files that this process may open, up to 256.

    A connection takes two files, its socket and the film that it sends; the rest is for the work of the page.
    """
    files_allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 256 if files_allowed == resource.RLIM_INFINITY else min(256, files_allowed // 4)


class Guard:
    """ASGI middleware that rejects foreign requests and adds the policy headers to every reply."""

    def __init__(self, app: ASGIApp, uploads: Mapping[str, int]) -> None:
        self.app = app
        self.uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with the fault."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(POLICY)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        fault = _foreign(scope["method"], Headers(scope=scope), self.uploads.get(scope["path"], MAX_BODY_BYTES))
        if fault is None:
            await self.app(scope, receive, send_with_policy)
        else:
            await error_reply(*fault)(scope, receive, send_with_policy)


class Connection(H11Protocol):
    """Connection of a page, closed if its request does not arrive in time, or to make room for a new connection."""

    _deadline: asyncio.TimerHandle | None = None
    """Closes the connection; None while a reply is made or sent."""
    _is_sized = False
    """True once the deadline counts the length of the request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, and close another connection if too many are open."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > most_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._cancel()

    def handle_events(self) -> None:
        """Take what has arrived, or what arrived during the last reply."""
        super().handle_events()
        self._watch()

    def _watch(self) -> None:
        """Set the deadline while a request is expected; a part of the request does not move it."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._cancel()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
        elif self.conn.their_state is h11.SEND_BODY and not self._is_sized:
            length = min(_length(Headers(raw=self.headers)) or 0, 2**32)
            self._deadline.cancel()
            self._deadline = self.loop.call_later(REQUEST_SECONDS + length / SLOWEST_UPLOAD, self.transport.abort)
            self._is_sized = True

    def _cancel(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._deadline, self._is_sized = None, False

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its request; this one if all others get replies."""
        waiting = [each for each in self.connections if isinstance(each, Connection) and each._deadline]
        oldest = min(waiting, key=lambda each: each._deadline.when() if each._deadline else 0.0)
        self.connections.discard(oldest)  # now: closing takes until the next turn of the loop
        oldest._cancel()
        oldest.transport.abort()


class PageServer(uvicorn.Server):
    """Uvicorn server that calls `stop` before it waits for open connections, so that streaming replies can end."""

    def __init__(self, app: FastAPI, stop: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=Connection,
                ws="none",
                log_level="error",  # warnings are about bad requests, as many as a stranger likes
                access_log=False,
                server_header=False,
                backlog=max(1, most_connections() // 16),  # accepted in one turn of the loop, before they are counted
                timeout_graceful_shutdown=CLOSE_SECONDS,
            )
        )
        self.stop = stop
        self._lacked_files = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; a connection that cannot be opened is reported once."""
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen()  # a longer queue than `backlog`: it costs none of our files

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report an error of the event loop, but only once that this process has too many open files.

        The loop itself then accepts no connection for a second.
        """
        error = context.get("exception")
        if not (isinstance(error, OSError) and "socket" in context):
            loop.default_exception_handler(context)
        elif not self._lacked_files:
            self._lacked_files = True
            say(f"no connection can be opened ({error.strerror}): raise `ulimit -n` and start again", "yellow")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the work of the page, then close its connections."""
        self.stop()
        await super().shutdown(sockets)


def _foreign(method: str, headers: Headers, most_bytes: int) -> tuple[int, str] | None:
    """Return status and message if a request is rejected, else None."""
    host = headers.get("host", "")
    if host.rpartition(":")[0] not in OWN_NAMES and host not in OWN_NAMES:
        return 421, "This page is for this machine only: open it as http://127.0.0.1 with its port."
    if method in SAFE_METHODS:
        return None
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    if origin not in (None, f"http://{host}") or site not in ("same-origin", "none"):
        return 403, "Another page may not do this."
    if "transfer-encoding" in headers:
        return 411, "The request must state its length."
    length = _length(headers)
    if length is None or length > most_bytes:
        return 413, "The request is too large."
    return None


def _length(headers: Headers) -> int | None:
    """Return the length of a request's body in bytes; None if it states none that is a number."""
    length = headers.get("content-length", "0")
    return int(length) if length.isdecimal() and len(length) < 20 else None


def _not_routed(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RoutingError)
    is_default_text = error.detail == HTTPStatus(error.status_code).phrase
    message = NOT_ROUTED.get(error.status_code, error.detail) if is_default_text else error.detail
    return error_reply(error.status_code, message, error.headers)


def _not_valid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return error_reply(422, "; ".join(_fault(fault) for fault in error.errors()))


def _fault(fault: dict[str, Any]) -> str:
    """Format a fault of a request with the name of its field, which may be arbitrary text from the client."""
    name = ".".join(map(str, fault["loc"])).encode(errors="replace").decode()
    return f"{name}: {fault['msg']}"


def _ending(name: str) -> str:
    return name.rpartition(".")[2]
