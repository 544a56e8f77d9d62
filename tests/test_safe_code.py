"""What no line of the product may do, looked for in its syntax trees: run code it read, ask a shell, open a door.

* Nothing unpickles what comes from outside. Allowed are pickles between our own processes (`multiprocessing`, which
  `pipeline/core/child_process.py` and the data loaders use) and `torch.load(weights_only=True)`, which runs no code,
  in the importer of the published weights (`tests/models/released/test_files.py` gives it a file with code;
  `tests/models/test_hub.py` gives bases that are pickles).
* No shell ever reads a command of ours.
* Servers listen on this machine only; that of the pages in `tests/flows/web/test_server.py`, those that a build starts
  in `tests/test_hostile_input.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from tests.support.real_builds import ROOT

PACKAGES = ("pipeline", "flows", "prompts", "models", "training")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]

Finder = Callable[[ast.Call, str], bool]
"""Whether a call, given the full dotted name of what is called, is one of those looked for."""


def calls(source: str, wanted: Finder) -> list[int]:
    """Lines of the calls that are wanted; imports under other names are seen through."""
    tree = ast.parse(source)
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}

    def full_name(node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{full_name(node.value)}.{node.attr}"
        return names.get(node.id, node.id) if isinstance(node, ast.Name) else ""

    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and wanted(node, full_name(node.func))]


def says(call: ast.Call, keyword: str, value: object) -> bool:
    return any(
        given.arg == keyword and isinstance(given.value, ast.Constant) and given.value.value is value
        for given in call.keywords
    )


def runs_foreign_code(call: ast.Call, name: str) -> bool:
    """Reading a format, or a text, that can hold code."""
    module, _, function = name.rpartition(".")
    if name in ("eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec"):
        return True
    if module.split(".")[0] in ("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"):
        return function not in ("dumps", "dump", "UnpicklingError", "PicklingError")
    if module.split(".")[0] == "yaml":
        return not function.startswith("safe_")
    if function == "load" and module == "torch":
        return not says(call, "weights_only", True)
    if name.startswith(("torch.hub.", "torch.jit.load", "runpy.")) or function in ("read_pickle", "unpack_archive"):
        return True
    if function in ("extract", "extractall"):
        return True
    return says(call, "allow_pickle", True) or says(call, "trust_remote_code", True)


def asks_a_shell(call: ast.Call, name: str) -> bool:
    """Handing a text to a shell, or a program as one text."""
    if name in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"):
        return True
    if name.endswith("create_subprocess_shell") or any(given.arg == "shell" for given in call.keywords):
        return True
    first = call.args[0] if call.args else None
    return name.startswith("subprocess.") and isinstance(first, ast.JoinedStr | ast.Constant)


def opens_a_door(call: ast.Call, name: str) -> bool:
    """Starting a server, or making a socket that can be one."""
    starts = ("bind", "create_server", "start_server", "serve_forever", "start_unix_server")
    return name.split(".")[-1] in starts or name in ("uvicorn.run", "uvicorn.Config") or name.endswith("HTTPServer")


def found(wanted: Finder) -> list[str]:
    """Where in the product it is called."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in SOURCES}
    return [f"{name}:{line}" for name, text in texts.items() for line in calls(text, wanted)]


def test_nothing_reads_a_format_that_can_hold_code() -> None:
    assert found(runs_foreign_code) == []


def test_no_command_goes_through_a_shell() -> None:
    assert found(asks_a_shell) == []


def test_one_module_opens_a_door_and_it_leads_to_this_machine() -> None:
    assert {place.split(":")[0] for place in found(opens_a_door)} == {"flows/web/page_server.py"}
    everywhere = ("0.0.0.0", "::", "[::]")
    texts = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in everywhere
    ]
    assert texts == []


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("import pickle as p\np.load(file)", runs_foreign_code),
        ("from pickle import loads\nloads(data)", runs_foreign_code),
        ("from pickle import Unpickler as U\nU(file).load()", runs_foreign_code),
        ("import torch\ntorch.load(path)", runs_foreign_code),
        ("import torch\ntorch.load(path, weights_only=False)", runs_foreign_code),
        ("from torch import load\nload(path, map_location='cpu')", runs_foreign_code),
        ("import numpy as np\nnp.load(path, allow_pickle=True)", runs_foreign_code),
        ("import yaml\nyaml.load(text, Loader=yaml.Loader)", runs_foreign_code),
        ("import joblib\njoblib.load(path)", runs_foreign_code),
        ("import pandas as pd\npd.read_pickle(path)", runs_foreign_code),
        ("tar.extractall(folder)", runs_foreign_code),
        ("eval(text)", runs_foreign_code),
        ("AutoModel.from_pretrained(name, trust_remote_code=True)", runs_foreign_code),
        ("import os\nos.system(text)", asks_a_shell),
        ("from subprocess import run\nrun(text, shell=True)", asks_a_shell),
        ("import subprocess\nsubprocess.run(f'rm {path}')", asks_a_shell),
        ("from asyncio import create_subprocess_shell as s\ns(text)", asks_a_shell),
        ("import uvicorn\nuvicorn.run(app)", opens_a_door),
        ("listener.bind(('', 80))", opens_a_door),
        ("from http.server import ThreadingHTTPServer as S\nS(place, handler)", opens_a_door),
    ],
)
def test_the_search_finds_what_it_is_for(source: str, wanted: Finder) -> None:
    assert calls(source, wanted) == [source.count("\n") + 1]


def test_the_search_lets_pass_what_is_safe() -> None:
    safe = "import torch, re\ntorch.load(path, weights_only=True)\nre.compile(text)\nnetwork.eval()\njson.loads(text)"
    assert calls(safe, runs_foreign_code) == []
    assert calls("import subprocess\nsubprocess.run(['rm', path])", asks_a_shell) == []
