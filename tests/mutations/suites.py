"""Suites of tests with what each test executes: trees of commits, collecting, and coverage by room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from coverage import Coverage, CoverageData

from tests.mutations import recorder
from tests.mutations.mutants import Mutant, read_sources

HOME = Path(".mutations").absolute()
BUDGET_SECONDS = 60.0

_ENDS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)

_COVERAGERC = """
[run]
data_file = {home}/coverage
include =
    {tree}/flows/*
    {tree}/models/*
    {tree}/pipeline/*
    {tree}/prompts/*
    {tree}/training/*
context = ${{{context}-}}
core = ctrace
parallel = true
patch = _exit
sigterm = true
"""


@dataclass(frozen=True)
class Recorded:
    """A test that passed without mutations."""

    name: str
    seconds: float
    contexts: tuple[str, ...]
    """Its own and those of its shared fixtures and folders."""

    @property
    def file(self) -> str:
        return self.name.split("::", 1)[0]


@dataclass(frozen=True)
class Suite:
    """Collected tests of one commit."""

    name: str
    commit: str

    @cached_property
    def tests(self) -> list[Recorded]:
        """Those that passed, the quickest first."""
        lines = map(json.loads, (HOME / self.name / "tests.jsonl").read_text().splitlines())
        last = {one["test"]: one for one in lines}
        found = [Recorded(name, one["seconds"], (name, *one["shared"])) for name, one in last.items() if one["passed"]]
        return sorted(found, key=lambda test: test.seconds)

    @cached_property
    def _executed(self) -> CoverageData:
        data = CoverageData(str(HOME / self.name / "coverage"))
        data.read()
        return data

    def tests_of(self, mutant: Mutant) -> list[Recorded]:
        """Return the tests that execute the line, the likeliest first, as many as were run in a minute.

        Likeliest are those of the module's own test file, then the quick ones; the order keeps files together, for the
        sake of their shared fixtures. A line that runs only at import belongs to all tests that execute its file.
        """
        by_line = self._executed.contexts_by_lineno(str(tree_of(self.commit) / mutant.path))
        first, last = mutant.lines
        contexts = {context for line in range(first, last + 1) for context in by_line.get(line, [])}
        if contexts == {""}:
            contexts = {context for line in by_line.values() for context in line}
        own_file = f"test_{PurePosixPath(mutant.path).name}"
        found = [test for test in self.tests if contexts.intersection(test.contexts)]
        found.sort(key=lambda test: not test.file.endswith(own_file))
        chosen: list[Recorded] = []
        spent = 0.0
        for test in found:
            if not chosen or spent + test.seconds <= BUDGET_SECONDS:
                chosen.append(test)
                spent += test.seconds
        files = list(dict.fromkeys(test.file for test in chosen))
        return sorted(chosen, key=lambda test: files.index(test.file))

    def coverage_by_room(self) -> dict[str, tuple[int, set[tuple[str, int]]]]:
        """Return the statements of each room and package, and the lines executed in it."""
        tree = tree_of(self.commit)
        measuring = Coverage(data_file=str(HOME / self.name / "coverage"), config_file=False)
        measuring.load()
        rooms: dict[str, tuple[int, set[tuple[str, int]]]] = {}
        for path in read_sources(tree):
            _, statements, _, missing, _ = measuring.analysis2(str(tree / path))
            executed = {(path, line) for line in set(statements) - set(missing)}
            for room in (str(PurePosixPath(path).parent) + "/", f"**{PurePosixPath(path).parts[0]}**"):
                count, lines = rooms.get(room, (0, set()))
                rooms[room] = count + len(statements), lines | executed
        return rooms


def load_suite(name: str) -> Suite | None:
    """Return a suite collected before."""
    state = _state_of(name)
    return Suite(name, state["commit"]) if state["tests"] else None


def tree_of(commit: str, number: int = 0) -> Path:
    """Return a checkout of a commit, unmodified; several may be had at once."""
    return HOME / "trees" / f"{commit[:12]}-{number}"


def check_out(commit: str, number: int = 0) -> Path:
    """Make the checkout, or undo what an interrupted run left in it; compile once, for its runs write no bytecode."""
    tree = tree_of(commit, number)
    if tree.exists():
        _git("-C", str(tree), "reset", "--quiet", "--hard")
    else:
        _git("worktree", "prune")
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        subprocess.run([sys.executable, "-m", "compileall", "-q", "."], cwd=tree, check=True)
    return tree


def resolve(commit: str) -> str:
    """Return the full hash of a commit."""
    return _git("rev-parse", "--verify", f"{commit}^{{commit}}")


def collect(name: str, commit: str, expression: str, paths: list[str], processes: int) -> Suite:
    """Run what is not yet recorded of a commit's suite under coverage and keep which test executes what."""
    folder, state = HOME / name, _state_of(name)
    if state["commit"] != commit:
        shutil.rmtree(folder, ignore_errors=True)
        state = {"commit": commit, "tests": []}
    missing = [path for path in paths if path not in state["tests"]]
    if missing:
        _write_state(name, state)  # what an interrupted run leaves is of this commit
        tree = check_out(commit)
        if strangers := [path for path in missing if not (tree / path).exists()]:
            raise SystemExit(f"{commit[:12]} has no {' and no '.join(strangers)}")
        _record(folder, tree, ["-m", expression, "-n", str(processes), *missing])
        _write_state(name, {"commit": commit, "tests": [*state["tests"], *missing]})
    return Suite(name, commit)


def _record(folder: Path, tree: Path, options: list[str]) -> None:
    settings, record = folder / "coveragerc", folder / "tests.jsonl"
    settings.write_text(_COVERAGERC.format(home=folder, tree=tree, context=recorder.CONTEXT))
    record.touch()
    recording = {recorder.RECORD: str(record), "COVERAGE_PROCESS_START": str(settings)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "recorder", "--dist", "loadfile", "--timeout", "1200"]
    done = subprocess.run([*command, *options], cwd=tree, env=environment_of(tree) | recording, check=False)
    if done.returncode not in _ENDS:
        raise SystemExit(f"{folder.name}: pytest ended with {done.returncode}; what it printed says why")
    measuring = Coverage(config_file=str(settings))
    measuring.load()
    measuring.combine()
    measuring.save()


def _state_of(name: str) -> dict[str, Any]:
    """Commit, and the paths of tests recorded whole."""
    file = HOME / name / "suite.json"
    return json.loads(file.read_text()) if file.exists() else {"commit": "", "tests": []}


def _write_state(name: str, state: dict[str, Any]) -> None:
    (HOME / name).mkdir(parents=True, exist_ok=True)
    (HOME / name / "suite.json").write_text(json.dumps(state))


def environment_of(tree: Path) -> dict[str, str]:
    """Return variables for programs that import a tree, and the recorder beside it, wherever they run."""
    folders = os.pathsep.join([str(tree), str(Path(__file__).parent)])
    return {**os.environ, "PYTHONPATH": folders, "PYTHONDONTWRITEBYTECODE": "1"}


def coverage_table(columns: dict[str, list[Suite]]) -> str:
    """Return percent of statements executed, by package and room, as Markdown; suites of a column count together."""
    by_suite = {suite.name: suite.coverage_by_room() for together in columns.values() for suite in together}
    rooms = sorted({room for found in by_suite.values() for room in found})
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for room in rooms:
        cells = []
        for together in columns.values():
            found = [by_suite[suite.name][room] for suite in together if room in by_suite[suite.name]]
            executed = set().union(*(lines for _, lines in found))
            cells.append(f"{100 * len(executed) / (found[0][0] or 1):.1f}" if found else "")
        lines.append(f"| {room} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()
