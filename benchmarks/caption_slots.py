"""Server of the caption benchmark: a number of slots, each busy for a fixed time, and a tally of their use.

It speaks OpenAI's chat protocol on loopback and runs in a process of its own. Requests beyond its slots wait, as they
do at a model server. It reads a request to its end and looks at no picture.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from prompts.tags import EXAMPLE, WhoReply, format_what, format_who

_WHO = format_who(WhoReply((), others=1))
_WHAT = format_what(EXAMPLE).replace("tulips", "roses").replace(EXAMPLE.S, "man").replace("morning ", "")


@dataclass
class Tally:
    """Use of the slots between the first request and the last answer."""

    slots: int
    requests: int = 0
    busy_seconds: float = 0
    first: float = 0
    last: float = 0

    @property
    def use(self) -> float:
        """Share of the slots' time that was spent on requests."""
        return self.busy_seconds / (self.slots * (self.last - self.first)) if self.last > self.first else 0


class SlotServer:
    """Server in another process."""

    def __init__(self, address: str, pipe: Connection) -> None:
        self.address = address
        self._pipe = pipe

    def tally(self) -> Tally:
        """Return the tally since the last call, and begin a new one."""
        self._pipe.send(None)
        tally: Tally = self._pipe.recv()
        return tally


@contextmanager
def slot_server(slots: int, seconds: float) -> Iterator[SlotServer]:
    """Run a server whose every request occupies one of `slots` for `seconds`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(slots, seconds, theirs), daemon=True)
    process.start()
    theirs.close()  # if the process ends early, `recv` raises instead of waiting
    try:
        yield SlotServer(f"http://127.0.0.1:{ours.recv()}/v1", ours)
    finally:
        process.terminate()
        process.join()


def _serve(slots: int, seconds: float, pipe: Connection) -> None:
    asyncio.run(_Slots(slots, seconds).serve(pipe))


class _Slots:
    def __init__(self, slots: int, seconds: float) -> None:
        self.free = asyncio.Semaphore(slots)
        self.seconds = seconds
        self.tally = Tally(slots)

    async def serve(self, pipe: Connection) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, limit=1 << 20, backlog=256)
        pipe.send(server.sockets[0].getsockname()[1])
        async with server:
            while True:
                await asyncio.to_thread(pipe.recv)
                pipe.send(self.tally)
                self.tally = Tally(self.tally.slots)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        body = await reader.readexactly(int(length[1])) if length else b""
        text = "" if head.startswith(b"GET") else await self._reply(body)
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        content = json.dumps({"choices": [choice]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
        await writer.drain()
        writer.close()

    async def _reply(self, body: bytes) -> str:
        tally = self.tally
        tally.first = tally.first or time.monotonic()
        async with self.free:
            await asyncio.sleep(self.seconds)
        tally.requests += 1
        tally.busy_seconds += self.seconds
        tally.last = time.monotonic()
        return _WHO if b'"Image-1' in body[:1000] else _WHAT
