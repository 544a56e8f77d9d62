"""Stand-in for lmdeploy: a program with its command line that answers `/v1/models`, and misbehaves on request.

    environment = stand_in_environment(tmp_path, start_seconds=1, dies_after=[2, 2])

The environment has a `bin/python` as `make lmdeploy-env` makes one, which runs this file. Each start appends a line to
`starts` in it, with the process id, that of a child that ignores SIGTERM, and the arguments.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer  # noqa: TID251 - the server of the tests
from pathlib import Path
from typing import Any

_DEAF_CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def stand_in_environment(root: Path, **behaviour: Any) -> Path:
    """Make the environment.

    Args:
        root: folder to make it in.
        behaviour: `start_seconds` until it answers; `dies_after`: seconds from its first answer until it dies, one
            for each start; `exit_code` of an immediate end; `is_mute`: never answers; `key`: the key to be sent.
    """
    environment = root / "lmdeploy-env"
    (environment / "bin").mkdir(parents=True)
    (environment / "behaviour.json").write_text(json.dumps(behaviour))
    program = environment / "bin" / "python"
    program.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
    program.chmod(0o755)
    return environment


def starts_of(environment: Path) -> list[dict[str, Any]]:
    """Starts so far: `pid`, `child` and `arguments` of each."""
    file = environment / "starts"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class _Handler(BaseHTTPRequestHandler):
    key = ""
    seconds_left: float | None = None

    def do_GET(self) -> None:
        if self.seconds_left is not None:
            threading.Timer(self.seconds_left, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            _Handler.seconds_left = None
        wanted = f"Bearer {self.key}" if self.key else None
        self.send_response(200 if self.headers.get("Authorization") == wanted else 401)
        self.end_headers()
        self.wfile.write(b'{"data": []}')


def _serve() -> None:
    environment, arguments = Path(__file__).parents[1], sys.argv[1:]
    behaviour = json.loads((environment / "behaviour.json").read_text())
    child = subprocess.Popen([sys.executable, "-c", _DEAF_CHILD])
    with (environment / "starts").open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), "child": child.pid, "arguments": arguments}) + "\n")
    lives = behaviour.get("dies_after", [])
    number = len(starts_of(environment))
    print("\x1b[93mloading\x1b[0m: 10%\rloading: 100%", flush=True)
    if "exit_code" in behaviour:
        print("ValueError: no such model", file=sys.stderr, flush=True)
        sys.exit(behaviour["exit_code"])
    time.sleep(behaviour.get("start_seconds", 0))
    if behaviour.get("is_mute"):
        time.sleep(600)
    if number <= len(lives):
        _Handler.seconds_left = lives[number - 1]
    _Handler.key = behaviour.get("key", "")
    HTTPServer(("127.0.0.1", int(arguments[arguments.index("--server-port") + 1])), _Handler).serve_forever()


if __name__ == "__main__":
    _serve()
