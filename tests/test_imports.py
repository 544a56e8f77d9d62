"""Imports of the packages: no module changes the environment, and the data half needs no torch."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.datasets.made_dataset import make_dataset

IMPORT_ALL = """
import importlib, os, sys
import cv2  # sets variables of its own, for Qt
before = dict(os.environ)
for module in sys.argv[1:]:
    importlib.import_module(module)
ours = ("PREFECT", "DO_NOT_TRACK", "OMP", "ANIMEGAMER")
print(sorted(name for name in os.environ.keys() - before.keys() if name.startswith(ours)))
print(sorted({"torch", "prefect", "pandas"} & sys.modules.keys()))
"""


def imported(*packages: str) -> tuple[str, str]:
    """Our environment variables set by importing every module, and the heavy packages loaded."""
    modules = [
        found.name for package in packages for found in pkgutil.walk_packages([package], f"{package}.") if found.name
    ]
    assert len(modules) > 3
    light = [name for name in modules if name not in ("pipeline.notebook", "pipeline.stages.optical_flow_network")]
    command = [sys.executable, "-c", IMPORT_ALL, *light]
    changed, heavy = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return changed, heavy


def test_the_data_half_sets_nothing_and_needs_neither_torch_nor_prefect() -> None:
    assert imported("pipeline", "prompts") == ("[]", "[]")


@pytest.mark.nightly
def test_importing_all_of_flows_sets_nothing() -> None:
    assert imported("flows")[0] == "[]"


def test_a_waiting_thread_of_torch_hardly_spins() -> None:
    command, shown = [sys.executable, "-c", "import flows.commands.play, torch"], {"OMP_DISPLAY_ENV": "VERBOSE"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **shown})
    assert "GOMP_SPINCOUNT = '1000'" in done.stderr


def test_help_and_status_need_no_client_of_a_model_server() -> None:
    code = "import sys, flows.cli, pipeline.plan.status; print({'openai', 'tenacity', 'httpx2'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def loaded_by(*words: str) -> list[str]:
    """Modules of ours that a command has loaded at its end."""
    script = "import sys; from flows.cli import app; app(sys.argv[1:], standalone_mode=False); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True).stdout
    names = said.splitlines()[-1].split()
    ours = [name for name in names if name.split(".")[0] in ("pipeline", "flows", "prompts", "models", "training")]
    assert "flows.commands" in ours
    return ours


@pytest.mark.parametrize(
    ("words", "most"), [(["build", "--help"], 25), (["status", "--help"], 25), (["play", "--help"], 30)]
)
def test_a_command_imports_few_modules_before_it_works(words: list[str], most: int) -> None:
    assert len(ours := loaded_by(*words)) <= most, ours


def test_status_loads_no_pages_and_few_modules(tmp_path: Path) -> None:
    ours = loaded_by("status", str(make_dataset(tmp_path / "data").root))
    assert "pipeline.pages.report" not in ours
    assert len(ours) <= 90, ours
