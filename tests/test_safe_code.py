"""Unsafe calls, forbidden in the product: found by ruff's rules or by a search of its syntax trees.

* Nothing unpickles data from outside. Allowed are pickles between our own processes (`multiprocessing`, which
  `pipeline/core/child_process.py` and the data loaders use) and `torch.load(weights_only=True)`, which runs no code,
  in the importer of the published weights (`tests/models/released/test_files.py` gives it a file with code;
  `tests/models/test_hub.py` gives bases that are pickles).
* No command is run by a shell.
* Servers listen on this machine only; the server of the pages is tested in `tests/flows/web/test_play_app.py`,
  servers of a build in `tests/test_hostile_input.py`.

Ruff finds imported names (rules S and TID251 in pyproject.toml). The search below finds the rest: methods of values of
any type, arguments, and a few builtins.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builds.real_builds import ROOT

PACKAGES = ("pipeline", "flows", "prompts", "models", "training", "examples", "benchmarks")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]

RUNS_CODE = ("compile", "__import__")
UNPACKS = ("extract", "extractall")
LISTENS = ("bind", "create_server", "start_server", "start_unix_server", "serve_forever")
STARTS_A_PROGRAM = ("run", "Popen", "call", "check_call", "check_output")
UNSAFE_ARGUMENTS = {"allow_pickle": (True,), "trust_remote_code": (True,), "weights_only": (False, None)}
ALL_INTERFACES = ("0.0.0.0", "::", "[::]")  # noqa: S104 - names to search for


def findings(source: str) -> list[tuple[int, str]]:
    """Line and reason of everything unsafe in a module's text."""
    return sorted((node.lineno, why) for node in ast.walk(ast.parse(source)) if (why := unsafe(node)))


def unsafe(node: ast.AST) -> str:
    """Reason why a node is unsafe, empty if it is safe."""
    if isinstance(node, ast.Constant) and node.value in ALL_INTERFACES:
        return "every interface"
    if not isinstance(node, ast.Call):
        return ""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    arguments = {keyword.arg: getattr(keyword.value, "value", keyword) for keyword in node.keywords if keyword.arg}
    if name in UNPACKS or (name in RUNS_CODE and isinstance(node.func, ast.Name)):
        return "foreign code"
    if any(arguments.get(argument, ...) in values for argument, values in UNSAFE_ARGUMENTS.items()):
        return "foreign code"
    if "shell" in arguments or name.endswith("subprocess_shell"):
        return "a shell"
    if name in STARTS_A_PROGRAM and node.args and is_text(node.args[0]):
        return "a shell"
    return "a listener" if name in LISTENS else ""


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_the_product_has_one_listener_beside_that_of_a_benchmark_and_no_other_unsafe_call() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), why)
        for path in SOURCES
        for _, why in findings(path.read_text(encoding="utf-8"))
    }
    assert found == {(f"{module}.py", "a listener") for module in ("flows/web/page_server", "benchmarks/caption_slots")}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import numpy as np\nnp.load(path, allow_pickle=True)", "foreign code"),
        ("tar.extractall(folder)", "foreign code"),
        ("with zipfile.ZipFile(path) as archive:\n    archive.extract(name)", "foreign code"),
        ("AutoModel.from_pretrained(name, trust_remote_code=True)", "foreign code"),
        ("import torch\ntorch.load(path, weights_only=False)", "foreign code"),
        ("compile(text, name, 'exec')", "foreign code"),
        ("__import__(text)", "foreign code"),
        ("from subprocess import run\nrun(text, shell=chosen)", "a shell"),
        ("import subprocess\nsubprocess.run(f'rm {path}')", "a shell"),
        ("loop.subprocess_shell(protocol, text)", "a shell"),
        ("listener.bind(('', 80))", "a listener"),
        ("loop.create_server(protocol, host, 80)", "a listener"),
        ("listen('::', 80)", "every interface"),
    ],
)
def test_the_search_finds_unsafe_calls(source: str, why: str) -> None:
    assert findings(source) == [(source.count("\n") + 1, why)]


def test_the_search_accepts_safe_calls() -> None:
    safe = "torch.load(path, weights_only=True)\nre.compile(text)\nnetwork.eval()\njson.loads(text)\nrun(['rm', path])"
    assert findings(safe) == []


UNSAFE_BY_RUFF = {
    "S102": "exec(text)",
    "S104": "listen('0.0.0.0', 80)",
    "S202": "import tarfile\ntarfile.open(path).extractall(folder)",
    "S301": "from pickle import Unpickler as U\nU(file).load()\nimport pandas as pd\npd.read_pickle(path)",
    "S302": "import marshal\nmarshal.loads(data)",
    "S307": "eval(text)",
    "S501": "import httpx\nhttpx.get(address, verify=False)",
    "S506": "import yaml\nyaml.load(text, Loader=yaml.Loader)",
    "S602": "from subprocess import run\nrun(text, shell=True)",
    "S605": "import os\nos.system(text)\nos.popen(text)",
    "S701": "import jinja2\njinja2.Environment()",
}
BANNED = (
    "from torch import load\nload(path, map_location='cpu')",
    "import torch.hub",
    "import torch\ntorch.jit.load(path)",
    "from joblib import load",
    "import cloudpickle",
    "import shutil\nshutil.unpack_archive(path)",
    "import yaml\nyaml.unsafe_load(text)",
    "from asyncio import create_subprocess_shell as s",
    "import pty\npty.spawn(text)",
    "import uvicorn",
    "from http.server import ThreadingHTTPServer as S",
)


def test_ruff_as_configured_finds_the_other_unsafe_calls(tmp_path: Path) -> None:
    snippets = [*UNSAFE_BY_RUFF.items(), *(("TID251", source) for source in BANNED)]
    for number, (code, source) in enumerate(snippets):
        (tmp_path / f"{number:02}_{code}.py").write_text(f"{source}\n", encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--config", ROOT / "pyproject.toml", tmp_path]
    done = subprocess.run([*command, "--output-format", "json"], capture_output=True, check=False)
    found = {(Path(finding["filename"]).name, finding["code"]) for finding in json.loads(done.stdout)}
    missed = [path.name for path in sorted(tmp_path.iterdir()) if (path.name, path.stem[3:]) not in found]
    assert missed == []
