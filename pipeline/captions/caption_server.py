"""Caption server: lmdeploy, with the model for a kind of GPU, kept serving until it is stopped.

    program = lmdeploy_program(environment, SERVED["48gb"], Listening(port=23333), log)
    keep_serving(program, Limits(), stop, watcher)

The command line fits lmdeploy 0.18, which `make lmdeploy-env` installs into a separate environment. InternVL's
repositories hold code that runs while they are loaded (`--trust-remote-code`), so we or the user pin the revision. Its
vision part runs inside the engine, which ignores `--vision-max-batch-size`; prefix caching lets all clips share the
prompt and the cast sheet. Not tested: a GPU.

If the program does not start, it is an error at once, because a second start would fail too. If it dies after it has
served, it is started again, after a pause that doubles, up to a number of restarts in a row. It runs under a guard, a
process that starts it in a new process group and ends the whole group when the guard's input closes. We keep the other
end of that input open. The system closes it when this process ends, even by SIGKILL, so neither the program nor its
children outlive it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn, Protocol

import httpx

from pipeline.captions.endpoint import read_key
from pipeline.core.errors import UserError, disk_errors

LMDEPLOY = "0.18.0"
SESSION_TOKENS = 16_384
"""Longest request and reply: three cast sheets, 36 long names and the repairs take 16,090 tokens at most."""
_MIB_OF_CARD = {"80gb": 75_000, "48gb": 44_000, "24gb": 22_000}
_WITH_KEY = (
    "import os, sys; from lmdeploy.cli import run; sys.argv += ['--api-keys', os.environ[{name!r}].strip()]; run()"
)
"""Start of lmdeploy that reads the key from the environment: arguments are visible to every user of the machine."""
POLL_SECONDS = 0.2
PROBE_SECONDS = 10.0
STOP_SECONDS = 20.0
"""Time between SIGTERM and SIGKILL."""
LOG_LINES, LOG_BYTES = 20, 16_384
"""Most lines and bytes of the end of the log that are shown."""


@dataclass(frozen=True)
class ServedModel:
    """Model for a kind of GPU, with the engine's options."""

    repository: str
    revision: str | None
    """Commit; None: the user must name one, because the repository's code runs."""
    gpus: int = 1
    flags: tuple[str, ...] = ()


_INTERNVL_26B = "OpenGVLab/InternVL2-26B"
_REVISION_26B = "46f37972e05604cc44a59f72334df220fa197a7b"
SERVED = {
    # 52 GB of weights; the cache gets half of the memory that they leave
    "80gb": ServedModel(_INTERNVL_26B, _REVISION_26B),
    "2x48gb": ServedModel(_INTERNVL_26B, _REVISION_26B, gpus=2),
    # 4-bit weights, 16 GB; no published work names a commit
    "48gb": ServedModel("OpenGVLab/InternVL2-26B-AWQ", None, flags=("--model-format", "awq")),
    # 16 GB of weights
    "24gb": ServedModel("OpenGVLab/InternVL2-8B", "6fb9ad6924f69424e57fab2ab061d707688f0296"),
}
"""Models by the names of `--card`. The revisions come from published evaluations of the models."""


@dataclass(frozen=True)
class Listening:
    """Address of the server, and the environment variable with its key; no name, no key."""

    host: str = "127.0.0.1"
    port: int = 23333
    key_env: str = ""

    @property
    def base(self) -> str:
        """Base address for clients on this machine, with the version."""
        host = _reachable(self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"


class Watcher(Protocol):
    """Interface of the display of a server's life."""

    def starting(self, seconds: float, last_line: str) -> None:
        """Show that the server has been starting for so long, and the last line of its log."""
        ...

    def serving(self) -> None:
        """Show that the server answers now."""
        ...

    def say(self, line: str) -> None:
        """Show a line that stays."""
        ...


@dataclass(frozen=True)
class ServerProgram:
    """Program that serves an address, and the file that takes its output."""

    words: tuple[str, ...]
    address: str
    """Address that answers a GET with success as soon as the server can be used."""
    log: Path
    key: str = ""
    """Key sent as bearer token with that GET."""


@dataclass(frozen=True)
class Limits:
    """Bounds of starts and restarts."""

    start_seconds: float = 7200
    """Longest start; the first one may download tens of gigabytes."""
    restarts: int = 5
    """Most restarts in a row."""
    first_pause_seconds: float = 5
    longest_pause_seconds: float = 300
    steady_seconds: float = 600
    """Time of service after which the count of restarts begins again."""


@dataclass(frozen=True)
class _Life:
    """One start of the program: its time of service, and its end, which is None if we stopped it."""

    served_seconds: float
    end: str | None

    @property
    def has_served(self) -> bool:
        return self.served_seconds > 0


def _reachable(host: str) -> str:
    """Return the address at which this machine reaches a server that listens at `host`, or at every address."""
    with suppress(ValueError):  # a name
        address = ip_address(host)
        if address.is_unspecified:
            return "::1" if address.version == 6 else "127.0.0.1"
    return host


def lmdeploy_program(environment: Path, model: ServedModel, listening: Listening, log: Path) -> ServerProgram:
    """Return the program that serves a model from lmdeploy's environment.

    Raises:
        UserError: the environment is missing, the revision is unknown, or the server could be used by other machines
            without a key.
    """
    if model.revision is None:
        raise UserError(
            f"{model.repository} holds code that runs here, and no commit is known to be good: name one from the "
            "model's page with --revision, or serve the 8B model with --card 24gb"
        )
    python = environment / "bin" / "python"
    if not python.exists():
        raise UserError(f"{environment}: no lmdeploy there; run `make lmdeploy-env`, or name its --environment")
    key = read_key(listening.key_env)
    if not key and listening.host not in ("127.0.0.1", "localhost", "::1"):
        raise UserError(
            f"--host {listening.host} lets other machines use the server: put a key into the environment variable "
            f"{listening.key_env or 'ANIMEGAMER_API_KEY'}"
        )
    start = ("-c", _WITH_KEY.format(name=listening.key_env)) if key else ("-m", "lmdeploy")
    words = (str(python), *start, *arguments(model, listening))
    return ServerProgram(words, f"{listening.base}/models", log, key)


def arguments(model: ServedModel, listening: Listening) -> tuple[str, ...]:
    """Return the arguments of lmdeploy; the model has a revision."""
    return (
        *("serve", "api_server", model.repository, "--revision", str(model.revision), "--trust-remote-code"),
        *("--model-name", model.repository, "--server-name", listening.host, "--server-port", str(listening.port)),
        *("--tp", str(model.gpus), "--session-len", str(SESSION_TOKENS), "--cache-max-entry-count", "0.5"),
        *("--enable-prefix-caching", *model.flags),
    )


def card_of(mebibytes: Sequence[int]) -> str:
    """Return the card for GPUs with this much memory, the one with the best model.

    Raises:
        UserError: none of them is large enough.
    """
    largest = max(mebibytes, default=0)
    if largest >= _MIB_OF_CARD["80gb"]:
        return "80gb"
    if sum(each >= _MIB_OF_CARD["48gb"] for each in mebibytes) >= 2:
        return "2x48gb"
    for card in ("48gb", "24gb"):
        if largest >= _MIB_OF_CARD[card]:
            return card
    raise UserError(f"the largest GPU here has {largest / 1024:.0f} GB; the smallest model needs one of 24 GB")


def gpu_memory() -> list[int]:
    """Return the memory of each GPU of this machine in MiB, as the driver reports it.

    Raises:
        UserError: there is no NVIDIA driver, or it fails.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        raise UserError("no NVIDIA GPU found (no nvidia-smi); name its memory with --card to start the server anyway")
    query = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    asked = subprocess.run(query, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise UserError(f"nvidia-smi fails: {asked.stdout.strip() or asked.stderr.strip()}; name the GPU with --card")
    return [int(number) for number in re.findall(r"^\d+", asked.stdout, re.M)]


def resolved_revision(repository: str, revision: str) -> str:
    """Return the commit that a revision named when it was last downloaded; the revision itself if unknown."""
    home = os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    reference = hub / f"models--{repository.replace('/', '--')}" / "refs" / revision
    return reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision


def keep_serving(program: ServerProgram, limits: Limits, stop: threading.Event, watcher: Watcher) -> None:
    """Keep the program serving until a signal handler or another thread sets `stop`, then end it. Replaces its log.

    Raises:
        UserError: the program does not start, or died more often in a row than it may be restarted.
    """
    with disk_errors(program.log):
        program.log.parent.mkdir(parents=True, exist_ok=True)
        program.log.write_bytes(b"")
    has_served, deaths = False, 0
    while (life := _live(program, limits, stop, watcher)).end:
        has_served = has_served or life.has_served
        deaths = 1 if life.served_seconds >= limits.steady_seconds else deaths + 1
        for line in log_end(program.log):
            watcher.say(f"  | {line}")
        if not has_served:
            raise UserError(f"the server did not start: it {life.end}; the end of its log {program.log} is above")
        if deaths > limits.restarts:
            raise UserError(f"the server was started again {limits.restarts} times, and {life.end}; see {program.log}")
        pause_seconds = min(limits.first_pause_seconds * 2.0 ** (deaths - 1), limits.longest_pause_seconds)
        watcher.say(f"the server {life.end}; restart {deaths} of {limits.restarts} in {pause_seconds:g} s")
        if stop.wait(pause_seconds):
            return


def check_port(host: str, port: int) -> None:
    """Raise a UserError if a server already listens there, before the model is loaded."""
    with suppress(OSError), socket.create_connection((host, port), timeout=PROBE_SECONDS):
        raise UserError(f"a server listens at {host} port {port} already: stop it, or give another port with --port")


def log_end(log: Path) -> list[str]:
    """Return the last lines of a log, without terminal codes; a progress bar counts with its last state."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
        text = file.read().decode(errors="replace")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in plain.split("\n")]
    return [line for line in lines if line][-LOG_LINES:]


def _live(program: ServerProgram, limits: Limits, stop: threading.Event, watcher: Watcher) -> _Life:
    """Run the program once, until it ends, does not answer in time, or is stopped."""
    started = time.monotonic()
    with _running(program) as process:
        while not _answers(program):
            seconds = time.monotonic() - started
            if process.poll() is not None:
                return _Life(0, _end_of(process))
            if seconds > limits.start_seconds:
                return _Life(0, f"did not answer at {program.address} within {limits.start_seconds:g} s")
            watcher.starting(seconds, "".join(log_end(program.log)[-1:]))
            if stop.wait(POLL_SECONDS):
                return _Life(0, None)
        served = time.monotonic()
        watcher.serving()
        while process.poll() is None:
            if stop.wait(POLL_SECONDS):
                return _Life(time.monotonic() - served, None)
        return _Life(time.monotonic() - served, _end_of(process))


@contextmanager
def _running(program: ServerProgram) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program under its guard; end both after the block."""
    guard = [sys.executable, "-I", "-c", f"from {__name__} import guard; guard()"]
    with program.log.open("ab") as log:
        process = subprocess.Popen(
            [*guard, *program.words], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait()


def _answers(program: ServerProgram) -> bool:
    headers = {"Authorization": f"Bearer {program.key}"} if program.key else {}
    try:
        return httpx.get(program.address, headers=headers, timeout=PROBE_SECONDS, trust_env=False).is_success
    except httpx.TransportError:
        return False


def _end_of(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    if code - 128 not in {int(each) for each in signal.Signals}:
        return f"ended with exit code {code}"
    name = signal.Signals(code - 128).name
    return f"ended by signal {name}{'; out of memory?' if name == 'SIGKILL' else ''}"


def guard() -> NoReturn:
    """Run the program in the arguments to its end, or until the input closes; exit with its code."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_stop_at_end_of_input, args=(child,), daemon=True).start()
    code = child.wait()
    _signal_group(child, signal.SIGKILL)  # processes that it has left behind
    sys.exit(code if code >= 0 else 128 - code)


def _stop_at_end_of_input(child: subprocess.Popen[bytes]) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    _signal_group(child, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(STOP_SECONDS)
    _signal_group(child, signal.SIGKILL)


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
