"""Hard server: a caption server in a process of its own that does everything wrong that a server can do.

It answers in any order, late, twice, with errors; it stalls once, dies at one picture, and about others it answers in
another language or as another model. It is started again when it dies, as `animegamer caption-server` does:

    with hard_server(root, Faults(deadly=17)) as address: ...

Clips are numbered by a barcode, and a good answer holds the number.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import numpy as np

from examples.world.barcode import paint_barcode, read_barcode
from examples.world.textures import Picture
from tests.support.servers.caption_server import Answer, CaptionServer, Request
from tests.support.servers.prefect_server import free_port, until


@dataclass(frozen=True)
class Faults:
    """Numbers of the clips with a fault of their own, and the faults that can befall any."""

    deadly: int
    foreign: int
    impostor: int
    stalls_after: int
    """Number of requests after which it stalls, once."""
    stall_seconds: float = 8
    late_share: float = 0.005
    late_seconds: float = 7
    twice_share: float = 0.1
    error_share: float = 0.02

    @property
    def clips(self) -> set[int]:
        return {self.deadly, self.foreign, self.impostor}


def paint_code(number: int, moment: int) -> Picture:
    """Paint a 96x64 BGR picture with a barcode on a grey that rises with the moment."""
    picture = np.full((64, 96, 3), 16 + 14 * moment, np.uint8)
    paint_barcode(picture, number)
    return picture


def subject_of(number: int) -> str:
    """One word for each number, without a digit."""
    return "z" + str(number).translate(str.maketrans("0123456789", "bcdfghjklm"))


@contextmanager
def hard_server(root: Path, faults: Faults) -> Iterator[str]:
    """Keep the server running; every start is a line of `root/starts`."""
    port = free_port()
    ended = threading.Event()
    processes: list[subprocess.Popen[bytes]] = []

    def keep_running() -> None:
        command = [sys.executable, "-m", "tests.support.servers.hard_server", str(root), str(port)]
        while not ended.is_set():
            processes.append(subprocess.Popen([*command, json.dumps(asdict(faults))]))
            processes[-1].wait()

    keeper = threading.Thread(target=keep_running)
    keeper.start()
    try:
        until("the server answers", lambda: _is_up(f"http://127.0.0.1:{port}/v1/models"))
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        ended.set()
        processes[-1].kill()
        keeper.join()


def _is_up(address: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(address, trust_env=False).is_success
    return False


class _Trouble:
    """Answers of one life of the server."""

    def __init__(self, root: Path, faults: Faults) -> None:
        self.faults = faults
        self.root = root
        self.random = random.Random(len((root / "starts").read_text(encoding="utf-8").splitlines()))
        self.lock = threading.Lock()
        self.count = 0
        self.stalls_until = 0.0

    def answer(self, request: Request) -> Answer:
        faults, number = self.faults, request.number
        if number == faults.deadly:
            time.sleep(0.1)  # others are in flight
            os._exit(1)
        with self.lock:
            self.count += 1
            if self.count == faults.stalls_after and not (self.root / "stalled").exists():
                (self.root / "stalled").touch()
                self.stalls_until = time.monotonic() + faults.stall_seconds
            luck, delay = self.random.random(), self.random.random() / 20
        time.sleep(max(0.0, self.stalls_until - time.monotonic()))
        if number == faults.foreign:
            return Answer("<S>\u72d0\u72f8</S>", delay_seconds=delay)
        if luck < faults.error_share:
            return Answer(status=500, raw=b"CUDA error", delay_seconds=delay)
        if luck < faults.error_share + faults.late_share:
            delay = faults.late_seconds
        model = "some-other-model" if number == faults.impostor else "test-model"
        twice = luck > 1 - faults.twice_share
        return Answer(_good(number), model=model, delay_seconds=delay, twice=twice)


class _Forgetful(CaptionServer):
    """Server that keeps no request: ten thousand with their pictures fill a machine's memory."""

    def handle(self, request: Request) -> Answer:
        answer = self.answer(request)
        time.sleep(answer.delay_seconds)
        return answer


def _good(number: int) -> str:
    name = subject_of(number)
    tags = f"<S>{name}</S><MD>fall</MD><EV>room</EV><MA>slowly</MA><SC>0</SC><ET>0</ET><ST>-1</ST>"
    return f"{tags}<SE>The {name} falls slowly in a room.</SE>"


def main() -> None:
    """Serve until killed: ROOT PORT FAULTS."""
    root, port, faults = Path(sys.argv[1]), int(sys.argv[2]), Faults(**json.loads(sys.argv[3]))
    with (root / "starts").open("a", encoding="utf-8") as starts:
        starts.write("started\n")
    trouble = _Trouble(root, faults)
    with _Forgetful(trouble.answer, port=port, read=read_barcode):
        threading.Event().wait()


if __name__ == "__main__":
    main()
