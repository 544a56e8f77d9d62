"""Mutations: does the gate notice as much as an earlier gate did?

Mutants are small seeded changes of the product, drawn from all rooms in proportion to their lines. Each is run against
the tests that execute its line: those of the gate first; if it survives, those of `nightly`; if it survives that too,
those of an earlier commit (`old`), with the same change at the same place there. What only the old suite catches has
escaped, and the command ends with 1.

    python -m tests.mutations collect gate                      which test executes what, at HEAD
    python -m tests.mutations collect nightly
    python -m tests.mutations collect old --commit abc1234
    python -m tests.mutations run                               the mutants; writes docs/mutations.md
    python -m tests.mutations coverage                          coverage by package and room, from the same data

Commits are what counts: the working tree is neither read nor changed. Everything is kept in .mutations/, so an
interrupted run goes on where it stopped; `collect` skips what it has of a commit, and `--tests` adds folder by folder.

Out of sight: lines run only in processes killed from outside, and those that a cache carried from one test to another.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from tests.mutations.mutants import Mutant, find_counterpart, read_sources, sample
from tests.mutations.suites import HOME, Suite, check_out, collect, coverage_table, load_suite, resolve, tree_of
from tests.mutations.trials import Verdict, try_mutant

_EXPRESSIONS = {"gate": "not nightly", "nightly": "nightly", "old": ""}
_REPORT = Path("docs/mutations.md")
_RESULTS = HOME / "results.json"


class Bench:
    """Trials side by side, each suite in as many checkouts; verdicts are kept as they come."""

    def __init__(self, suites: list[Suite], jobs: int) -> None:
        self._suites = suites
        self._sources = {suite.commit: read_sources(check_out(suite.commit)) for suite in suites}
        self._numbers: SimpleQueue[int] = SimpleQueue()
        for number in range(1, jobs + 1):
            for commit in self._sources:
                check_out(commit, number)
            self._numbers.put(number)
        self._lock = Lock()
        self._known: dict[str, dict[str, Any]] = json.loads(_RESULTS.read_text()) if _RESULTS.exists() else {}

    def judge(self, mutant: Mutant) -> dict[str, Verdict]:
        """Return the verdict of each suite, up to the first that catches the mutant."""
        verdicts: dict[str, Verdict] = {}
        number = self._numbers.get()
        try:
            for suite in self._suites:
                verdicts[suite.name] = self._verdict(mutant, suite, number)
                if verdicts[suite.name].outcome == "caught":
                    break
        finally:
            self._numbers.put(number)
        print(mutant, *(f"{name}: {verdict}" for name, verdict in verdicts.items()), sep="\n    ", flush=True)
        return verdicts

    def _verdict(self, mutant: Mutant, suite: Suite, number: int) -> Verdict:
        key = f"{self._suites[0].commit} {mutant} | {suite.name} {suite.commit}"
        if key not in self._known:
            verdict = self._try(mutant, suite, number)
            with self._lock:
                self._known[key] = asdict(verdict)
                _replace(_RESULTS, json.dumps(self._known, indent=1))
        return Verdict(**self._known[key])

    def _try(self, mutant: Mutant, suite: Suite, number: int) -> Verdict:
        there: Mutant | None = mutant
        if suite.commit != self._suites[0].commit:
            source = self._sources[self._suites[0].commit][mutant.path]
            there = find_counterpart(mutant, source, self._sources[suite.commit])
        return try_mutant(there, suite, tree_of(suite.commit, number)) if there else Verdict("new code")


def run(count: int, seed: int, rooms: list[str], jobs: int) -> bool:
    """Judge the sample, write the report; false if a mutant escaped."""
    suites = [suite for name in _EXPRESSIONS if (suite := load_suite(name))]
    if not suites or suites[0].name != "gate":
        raise SystemExit("nothing is known of the gate: `python -m tests.mutations collect gate` first")
    here = {suite.name: suite.commit[:12] for suite in suites if suite.name != "old"}
    if len(set(here.values())) > 1:
        raise SystemExit(f"gate and nightly are of different commits, {here}: collect one of them again")
    bench = Bench(suites, jobs)
    sources = read_sources(tree_of(suites[0].commit))
    mutants = sample({path: text for path, text in sources.items() if _is_in(path, rooms)}, count, seed)
    with ThreadPoolExecutor(jobs) as pool:
        judged = list(zip(mutants, pool.map(bench.judge, mutants), strict=True))
    _REPORT.parent.mkdir(exist_ok=True)
    _replace(_REPORT, _report(judged, suites, seed))
    return not any(_has_escaped(verdicts) for _, verdicts in judged)


def _report(judged: list[tuple[Mutant, dict[str, Verdict]]], suites: list[Suite], seed: int) -> str:
    names = [suite.name for suite in suites]
    caught = {name: sum(_is_caught(verdicts, name) for _, verdicts in judged) for name in names}
    escaped = sum(_has_escaped(verdicts) for _, verdicts in judged)
    rows = []
    for number, (mutant, verdicts) in enumerate(judged, 1):
        change = f"{mutant.kind} {mutant.change}".strip()
        cells = [str(number), f"`{mutant.path}:{mutant.lines[0]}`", change, f"`{_short(mutant.before)}`"]
        rows.append(f"| {' | '.join([*cells, *(str(verdicts.get(name, '')) for name in names)])} |")
    commits = ", ".join(f"{suite.name} at {suite.commit[:12]} ({len(suite.tests)} tests)" for suite in suites)
    return "\n".join([
        "# Mutations", "",
        "    make mutations OLD=<commit>", "",
        f"{len(judged)} mutants, seed {seed}; {commits}.", "",
        "Each suite is asked about what the ones before it let through, with the tests that execute the line.",
        "Caught: " + ", ".join(f"{name} {number}" for name, number in caught.items())
        + f". Escaped, caught by the old suite alone: {escaped}.", "",
        "| | place | mutation | of | " + " | ".join(names) + " |", "|---|---|---|---|" + "---|" * len(names), *rows, "",
        "## Coverage", "", "Percent of statements executed, in child processes too.", "", _coverage(), "",
    ])  # fmt: skip


def _coverage() -> str:
    old, gate, nightly = load_suite("old"), load_suite("gate"), load_suite("nightly")
    columns = {"old": [old], "gate": [gate], "gate and nightly": [gate, nightly]}
    return coverage_table({name: [one for one in suites if one] for name, suites in columns.items() if all(suites)})


def _is_caught(verdicts: dict[str, Verdict], name: str) -> bool:
    return name in verdicts and verdicts[name].outcome == "caught"


def _has_escaped(verdicts: dict[str, Verdict]) -> bool:
    return _is_caught(verdicts, "old")


def _is_in(path: str, rooms: list[str]) -> bool:
    return not rooms or any(path.startswith(f"{room.rstrip('/')}/") for room in rooms)


def _short(code: str) -> str:
    line = " ".join(code.split()).replace("|", "\\|").replace("`", "'")
    return line if len(line) <= 60 else f"{line[:57]}..."


def _replace(file: Path, text: str) -> None:
    new = file.with_name(f".{file.name}.new")
    new.write_text(text)
    new.replace(file)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="run a suite under coverage, once per commit")
    collecting.add_argument("suite", choices=_EXPRESSIONS)
    collecting.add_argument("--tests", nargs="*", default=["tests"], help="folders or files of tests")
    collecting.add_argument("--commit", default="HEAD")
    collecting.add_argument("-m", dest="expression", help=f"marker expression; by default {_EXPRESSIONS}")
    collecting.add_argument("-n", dest="processes", type=int, default=os.cpu_count())
    running = commands.add_parser("run", help="try the mutants and write docs/mutations.md")
    running.add_argument("--count", type=int, default=60, help="mutants; every room gets at least one")
    running.add_argument("--seed", type=int, default=11)
    running.add_argument("--rooms", nargs="*", default=[], help="folders, such as pipeline/core; all if none is named")
    running.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
    commands.add_parser("coverage", help="print coverage by package and room")
    given = parser.parse_args()
    if given.command == "collect":
        expression = _EXPRESSIONS[given.suite] if given.expression is None else given.expression
        suite = collect(given.suite, resolve(given.commit), expression, given.tests, given.processes)
        print(f"{suite.name} at {suite.commit[:12]}: {len(suite.tests)} tests recorded")
    elif given.command == "coverage":
        print(_coverage())
    elif not run(given.count, given.seed, given.rooms, given.jobs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
