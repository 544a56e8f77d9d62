"""Recorder of tests: a pytest plugin that tells coverage which test runs, and writes down its seconds and fixtures.

Child processes of a test inherit its name through the environment and coverage's configuration. What a fixture of a
wider scope runs belongs to every test that uses the fixture, not only to the first; what makes a folder of
`tests/support/shared_folders.py` belongs to every test that asks for the folder.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

CONTEXT = "MUTATIONS_CONTEXT"
RECORD = "MUTATIONS_RECORD"

_SharedFolder = Callable[[str, Callable[[Path], object]], Path]

_shared: set[tuple[str, str]] = set()
_set_up_now: set[tuple[str, str]] = set()
_seconds: dict[str, float] = {}
_unpassed: set[str] = set()
_folders: defaultdict[str, set[str]] = defaultdict(set)
"""Contexts of the shared folders that each context asked for."""
_SHARED_FOLDERS = "tests.support.shared_folders"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Watch shared folders, before anything imports the function, in trees that have them."""
    with suppress(ModuleNotFoundError):
        module = import_module(_SHARED_FOLDERS)
        module.shared_folder = _recording(module.shared_folder)


def pytest_configure(config: pytest.Config) -> None:
    """Let an expression name the marker in trees from before it."""
    config.addinivalue_line("markers", "nightly: not in the gate")


def _recording(shared_folder: _SharedFolder) -> _SharedFolder:
    """Make folders in contexts of their own; each keeps beside it which others its maker asked for."""

    def recording(name: str, make: Callable[[Path], object]) -> Path:
        context = f"folder {name}"

        def make_in_context(folder: Path) -> None:
            with _context(context):
                make(folder)
            _asked_beside(folder).write_text(json.dumps([context, *_folders[context]]))

        folder = shared_folder(name, make_in_context)
        _folders[os.environ.get(CONTEXT, "")].update(json.loads(_asked_beside(folder).read_text()))
        return folder

    return recording


def _asked_beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.asked")


@contextmanager
def _context(name: str) -> Generator[None]:
    before = os.environ.get(CONTEXT, "")
    os.environ[CONTEXT] = name
    _measuring().switch_context(name)
    try:
        yield
    finally:
        os.environ[CONTEXT] = before
        _measuring().switch_context(before)


def _measuring() -> Coverage:
    coverage = Coverage.current()
    assert coverage is not None
    return coverage


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Function) -> Generator[None, Any, Any]:
    """Run the test in its own context and record it."""
    _set_up_now.clear()
    with _context(item.nodeid):
        result = yield
    used = {pair for pair in _shared if pair[1] in item.fixturenames and item.nodeid.startswith(pair[0])}
    fixtures = {_fixture_context(*pair) for pair in used | _set_up_now}
    folders = set().union(*(_folders[context] for context in (item.nodeid, *fixtures)))
    passed = item.nodeid not in _unpassed
    shared = sorted(fixtures | folders)
    record = {"test": item.nodeid, "seconds": _seconds[item.nodeid], "passed": passed, "shared": shared}
    with Path(os.environ[RECORD]).open("a") as file:
        file.write(json.dumps(record) + "\n")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Set up a shared fixture in a context of its own."""
    if fixturedef.scope == "function":
        return (yield)
    fixture = (request.node.nodeid, fixturedef.argname)
    _shared.add(fixture)
    _set_up_now.add(fixture)
    with _context(_fixture_context(*fixture)):
        return (yield)


def _fixture_context(owner: str, name: str) -> str:
    return f"fixture {owner}::{name}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Sum the seconds of setup, call and teardown."""
    report = yield
    _seconds[item.nodeid] = _seconds.get(item.nodeid, 0.0) + report.duration
    if not report.passed:
        _unpassed.add(item.nodeid)
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Save here: a worker of pytest-xdist may end without running its exit handlers."""
    _measuring().save()
