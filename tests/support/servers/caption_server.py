"""Caption server for tests: real HTTP on loopback, OpenAI's chat protocol, with faults on request.

Clips are painted with their number (`painted_clips.py`), and the server reads the number from the JPEG in the request,
so that an answer depends on the pictures, not on the order of the requests.

    with CaptionServer(answer=good_answer) as server:
        settings = CaptionSettings(captioner="server", endpoint=server.address)
"""

from __future__ import annotations

import base64
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: TID251 - the server of the tests
from typing import Any, Self

import cv2
import numpy as np
from numpy.typing import NDArray

from examples.world.barcode import read_stripes
from pipeline.core.records import Caption
from tests.support.media.painted_clips import WORDS


@dataclass(frozen=True)
class Request:
    """Request as parsed by the server."""

    kind: str
    """Kind of question: `who`, `what`, or `talk` for one without pictures."""
    number: int
    """Number of the clip in the pictures; -1 without pictures."""
    turn: int
    """Number of repairs before this request in the conversation."""
    text: str
    """Last message of the client."""
    body: dict[str, Any]
    headers: dict[str, str]

    @cached_property
    def pictures(self) -> tuple[NDArray[np.uint8], ...]:
        """Pictures of the first message."""
        return tuple(map(_picture, _urls(self.body)))

    @property
    def found(self) -> tuple[str, ...]:
        """Names of the characters that the question names as found."""
        parts = self.body["messages"][0]["content"]
        named = re.search(r"found in the clip: ([^.]+)\.", parts[-1]["text"])
        return tuple(named[1].split(", ")) if named else ()


@dataclass(frozen=True)
class Answer:
    """Reply to a request: a text, or misbehaviour."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """Body sent instead of a chat completion."""
    delay_seconds: float = 0
    finish_reason: str = "stop"
    cut_off: bool = False
    """Flag to announce a body and close the connection after half of it."""
    twice: bool = False
    """Flag to send the whole response two times."""
    model: str | None = None
    """Name under which the model answers; None: none is given."""


class CaptionServer:
    """Threaded server that records every request and the largest number open at once."""

    def __init__(
        self,
        answer: Callable[[Request], Answer],
        models_status: int = 200,
        *,
        port: int = 0,
        read: Callable[[NDArray[np.uint8]], int] = read_stripes,
    ) -> None:
        self.answer = answer
        self.read = read
        self.models_status = models_status
        self.requests: list[Request] = []
        self.most_open = 0
        self._open = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked(self, kind: str) -> list[int]:
        """Numbers of the clips in the requests, in the order of arrival."""
        return [request.number for request in self.requests if request.kind == kind]

    def handle(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            self._open += 1
            self.most_open = max(self.most_open, self._open)
        try:
            answer = self.answer(request)
            time.sleep(answer.delay_seconds)
            return answer
        finally:
            with self._lock:
                self._open -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: CaptionServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the client has closed the connection
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._send(self.server.owner.models_status, b'{"object": "list", "data": []}', {})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if len(content) < int(self.headers["Content-Length"]):
            return  # the client has closed the connection
        body = json.loads(content)
        assert self.path == "/v1/chat/completions"
        owner = self.server.owner
        answer = owner.handle(
            _understand(body, {name.lower(): value for name, value in self.headers.items()}, owner.read)
        )
        content = _completion(answer.text, answer.finish_reason, answer.model) if answer.raw is None else answer.raw
        for _ in range(1 + answer.twice):
            self._send(answer.status, content, answer.headers, cut_off=answer.cut_off)

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, cut_off: bool = False) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut_off else content)
            if cut_off:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has closed the connection

    def log_message(self, *_: object) -> None:
        pass


def _completion(text: str, finish_reason: str = "stop", model: str | None = None) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    named = {"model": model} if model else {}
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010}
    whole = {"id": "1", "object": "chat.completion", **named, "choices": [choice], "usage": usage}
    return json.dumps(whole).encode()


def _understand(body: dict[str, Any], headers: dict[str, str], read: Callable[[NDArray[np.uint8]], int]) -> Request:
    messages = body["messages"]
    last = messages[-1]["content"]
    text = last if isinstance(last, str) else last[-1]["text"]
    parts, turn = messages[0]["content"], len(messages) // 2
    if isinstance(parts, str):
        return Request("talk", -1, turn, text, body, headers)
    urls = _urls(body)
    if parts[0]["text"].startswith("Image"):
        grid = _picture(urls[-1])
        height, width = grid.shape[:2]
        return Request("who", read(grid[: height // 2, : width // 2]), turn, text, body, headers)
    return Request("what", read(_picture(urls[0])), turn, text, body, headers)


def _urls(body: dict[str, Any]) -> list[str]:
    parts = body["messages"][0]["content"]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def _picture(url: str) -> NDArray[np.uint8]:
    prefix = "data:image/jpeg;base64,"
    assert url.startswith(prefix)
    picture = cv2.imdecode(np.frombuffer(base64.b64decode(url.removeprefix(prefix)), np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    return np.asarray(picture, np.uint8)


def good_answer(request: Request) -> Answer:
    """Correct answer about the painted number."""
    return Answer(good_who(request.number) if request.kind == "who" else good_what(request.number, request.found))


def good_who(number: int) -> str:
    return f"[Number]1[Index]{number % 2 + 1}[Others]{number % 3}"


def good_what(number: int, found: Sequence[str] = ()) -> str:
    """Answer about a painted number: every third clip's subject is the first character found."""
    tags = f"<S>{WORDS[number]}</S><MD>fall</MD><EV>room</EV><MA>slowly</MA><SC>0</SC><ET>{number % 2}</ET><ST>-1</ST>"
    actor = f"<AC>{'none' if number % 3 else found[0]}</AC>" if found else ""
    return f"{tags}{actor}<SE>{sentence(number)}</SE>"


def sentence(number: int) -> str:
    return f"The {WORDS[number]} falls slowly in a room."


def expect_good(caption: Caption, number: int) -> None:
    """Check a caption against the server's answer about the clip with this number."""
    assert caption.fault is None
    words = (caption.S, caption.MD, caption.EV, caption.MA)
    assert words == (WORDS[number], "fall", "room", "slowly")
    numbers = (caption.SC, caption.ET, caption.ST)
    assert numbers == (0, number % 2, -1)
    name = ("Ponyo", "Sosuke")[number % 2]
    assert (caption.characters, caption.others) == ((name,), number % 3)
    assert caption.actor == (WORDS[number] if number % 3 else name)
    assert (caption.sentence, caption.raw_sentence) == (sentence(number), sentence(number))
    assert caption.source == "test-model"
    assert (caption.raw_who, caption.raw_what) == (good_who(number), good_what(number, (name,)))
