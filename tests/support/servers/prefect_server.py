"""Prefect server with workers on loopback, as a studio runs them, for the tests of deployments.

    with PrefectServer(tmp_path) as server:
        server.run("animegamer", "deploy")
        with server.worker("first"):
            run = server.start("build-dataset/animegamer", {"request": {...}})
            server.wait_for(run)

Every part is a separate process with the same PREFECT_HOME. At the end all processes with it are found and killed,
flow processes in other process groups included.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import psutil

from tests.support.builds.real_builds import users_of, wait_until_gone

_CLIENT = httpx.Client(timeout=60)  # a server whose workers are just starting may be slow

BIN = Path(sys.executable).parent
WAIT_SECONDS = 300
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
T = TypeVar("T")


class PrefectServer:
    """`prefect server start` and its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.port = folder, folder / "prefect", free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        leases = "prefect.server.concurrency.lease_storage.filesystem"
        changes = {
            "PREFECT_HOME": str(self.home),
            "PREFECT_API_URL": f"{self.address}/api",
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": leases,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "DO_NOT_TRACK": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        self.environment = {**inherited, **changes}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.popen("server", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self.port))
        try:
            until("the server answers", self._is_up)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in users_of(self.home):
            with suppress(psutil.Error):
                process.kill()
        wait_until_gone("of the Prefect server", lambda: users_of(self.home))

    def _is_up(self) -> bool:
        with suppress(httpx.TransportError):
            return _CLIENT.get(f"{self.address}/api/health").is_success
        return False

    def popen(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a command of the environment in an empty folder; its output goes to `name`.log."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [BIN / command[0], *command[1:]], cwd=folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def run(self, *command: str, changes: Mapping[str, str] | None = None, seconds: float = WAIT_SECONDS) -> str:
        """Run a command of the environment to its end and return its output; failure is an error."""
        done = subprocess.run(
            [BIN / command[0], *command[1:]], cwd=self.folder, env={**self.environment, **(changes or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
        if done.returncode:
            raise CommandFailedError(done.stdout)
        return done.stdout

    def start(self, deployment: str, parameters: Mapping[str, Any], *options: str) -> str:
        """Run `prefect deployment run` with these parameters and return the id of the flow run."""
        said = self.run("prefect", "deployment", "run", deployment, "--params", json.dumps(parameters), *options)
        found = re.search(r"UUID: ([0-9a-f-]{36})", said)
        assert found, said
        return found[1]

    def refusal(self, deployment: str, parameters: Mapping[str, Any]) -> str:
        """Return the server's answer to a form of its pages with invalid values."""
        known = _CLIENT.get(f"{self.address}/api/deployments/name/{deployment}").raise_for_status().json()
        path = f"deployments/{known['id']}/create_flow_run"
        answer = _CLIENT.post(f"{self.address}/api/{path}", json={"parameters": parameters})
        assert answer.is_client_error, answer.text
        return answer.text

    def post(self, path: str, **body: Any) -> Any:
        """Return the server's answer to a query about runs, artifacts or limits."""
        answer = _CLIENT.post(f"{self.address}/api/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def flow_run(self, run: str) -> dict[str, Any]:
        """Return the server's record of a run."""
        answer: dict[str, Any] = _CLIENT.get(f"{self.address}/api/flow_runs/{run}").raise_for_status().json()
        return answer

    def wait_for(self, run: str, state: str = "COMPLETED") -> dict[str, Any]:
        """Wait for the end of a run, check its state and return its record."""

        def ended() -> dict[str, Any] | None:
            found = self.flow_run(run)
            return found if found["state_type"] in FINAL else None

        found = until(f"run {run} ends", ended)
        assert found["state_type"] == state, f"{found['state']['message']}\n{self.logs()}"
        return found

    @contextmanager
    def worker(self, name: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker of the pool `animegamer` in an empty folder; after the block its flow processes are gone."""
        process = self.popen(name, "prefect", "worker", "start", "--pool", "animegamer", "--name", name, *options)
        try:
            yield process
        finally:
            self.kill(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Send SIGKILL to a worker and all its descendants at once, as if the machine were gone."""
        with suppress(psutil.NoSuchProcess):
            below = psutil.Process(process.pid).children(recursive=True)
            for child in (psutil.Process(process.pid), *below):
                with suppress(psutil.NoSuchProcess):
                    child.send_signal(signal.SIGKILL)
            wait_until_gone("of the worker", lambda: [child for child in below if child.is_running()])
        process.wait()

    def logs(self) -> str:
        """Return the end of the output of server and workers."""
        return "\n".join(f"{log.name}: {log.read_text()[-3000:]}" for log in sorted(self.folder.glob("*.log")))


class CommandFailedError(Exception):
    """Exit code other than 0 of a command; the message is its output."""


def until(what: str, true: Callable[[], T | None], seconds: float = WAIT_SECONDS) -> T:
    """Poll twice a second and return the first true answer."""
    deadline = time.monotonic() + seconds
    while not (answer := true()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {what}"
        time.sleep(0.5)
    return answer


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
