"""lmdeploy server: the model, revision and command line of the caption server for a kind of GPU.

    lmdeploy_program(environment, SERVED["48gb"], Listening(port=23333), log)

The command line fits lmdeploy 0.18, which `make lmdeploy-env` installs into an environment of its own. InternVL's
repositories hold code that runs while they are loaded (`--trust-remote-code`), so the revision is pinned, or named by
the user. Its vision part runs inside the engine, which ignores `--vision-max-batch-size`; prefix caching lets all clips
share the prompt and the cast sheet. None of this has been run on a GPU yet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from pipeline.captions.endpoint import read_key
from pipeline.captions.server_process import ServerProgram
from pipeline.core.errors import UserError

LMDEPLOY = "0.18.0"
SESSION_TOKENS = 16_384
"""Longest request and reply: three cast sheets, 36 long names and the repairs take 16,090 tokens at most."""
_MIB_OF_CARD = {"80gb": 75_000, "48gb": 44_000, "24gb": 22_000}
_WITH_KEY = (
    "import os, sys; from lmdeploy.cli import run; sys.argv += ['--api-keys', os.environ[{name!r}].strip()]; run()"
)
"""Start of lmdeploy that reads the key from the environment: arguments are visible to every user of the machine."""


@dataclass(frozen=True)
class ServedModel:
    """Model for a kind of GPU, and the engine's options for it."""

    repository: str
    revision: str | None
    """Commit; None: not known, so the user names it, since its code is run."""
    gpus: int = 1
    flags: tuple[str, ...] = ()


_INTERNVL_26B = "OpenGVLab/InternVL2-26B"
_REVISION_26B = "46f37972e05604cc44a59f72334df220fa197a7b"
SERVED = {
    # 52 GB of weights; the cache gets half of the memory that they leave
    "80gb": ServedModel(_INTERNVL_26B, _REVISION_26B),
    "2x48gb": ServedModel(_INTERNVL_26B, _REVISION_26B, gpus=2),
    # 4-bit weights, 16 GB; no published work names a commit of it
    "48gb": ServedModel("OpenGVLab/InternVL2-26B-AWQ", None, flags=("--model-format", "awq")),
    # 16 GB of weights
    "24gb": ServedModel("OpenGVLab/InternVL2-8B", "6fb9ad6924f69424e57fab2ab061d707688f0296"),
}
"""Models by card, the names of `--card`. The revisions are those that published evaluations of the models name."""


@dataclass(frozen=True)
class Listening:
    """Address of the server, and the environment variable with its key; no name, no key."""

    host: str = "127.0.0.1"
    port: int = 23333
    key_env: str = ""

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the server."""
        return self.host in ("127.0.0.1", "localhost", "::1")

    @property
    def base(self) -> str:
        """Base address for clients on this machine, with the version."""
        host = _reachable(self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1"


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
            f"{model.repository} holds code that is run, and no commit of it is known to be good: name the one to use "
            "with --revision, from the list of commits on the model's page, or serve the 8B model with --card 24gb"
        )
    python = environment / "bin" / "python"
    if not python.exists():
        raise UserError(
            f"{environment}: no environment with lmdeploy; `make lmdeploy-env` makes it, --environment names another"
        )
    key = read_key(listening.key_env)
    if not key and not listening.is_local:
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
