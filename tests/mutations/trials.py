"""Trials: one mutant against the tests of a suite that execute its line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutations.mutants import Mutant
from tests.mutations.suites import Recorded, Suite, environment_of

_TEST_SECONDS = 60.0
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """Outcome of a trial."""

    outcome: str
    """caught, survived, not covered, or new code (an earlier tree does not have the line)."""
    by: str = ""
    """The test that failed, or what happened instead."""
    tests: int = 0

    def __str__(self) -> str:
        return f"{self.outcome} by `{self.by}`" if self.by else f"{self.outcome} ({self.tests} tests)"


def try_mutant(mutant: Mutant, suite: Suite, tree: Path) -> Verdict:
    """Run the tests of the line until one fails that passes without the mutant; a test that hangs has failed."""
    tests = suite.tests_of(mutant)
    if not tests:
        return Verdict("not covered")
    while tests:
        with _mutated(tree / mutant.path, mutant):
            failed = _first_failure(tests, tree)
        if failed is None:
            return Verdict("survived", tests=len(tests))
        named = [test for test in tests if test.name == failed]
        if not named or _first_failure(named, tree) is None:
            return Verdict("caught", by=failed, tests=len(tests))
        tests = [test for test in tests if test.name != failed]
    return Verdict("survived")


@contextmanager
def _mutated(file: Path, mutant: Mutant) -> Iterator[None]:
    """The file with the mutant in it; afterwards as before, with its time, by which its bytecode is known."""
    source, times = file.read_text("utf-8"), file.stat()
    file.write_text(mutant.apply(source), "utf-8")
    try:
        yield
    finally:
        file.write_text(source, "utf-8")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _first_failure(tests: list[Recorded], tree: Path) -> str | None:
    """Name of the test that failed, or of what stopped the run; None if all passed."""
    slowest, together = max(test.seconds for test in tests), sum(test.seconds for test in tests)
    listed = tree.with_name(f"{tree.name}.txt")
    listed.write_text("".join(f"{test.name}\n" for test in tests))
    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=line", "-rfE", "-m", ""]
    limit = f"--timeout={max(_TEST_SECONDS, 3 * slowest):.0f}"
    command = [sys.executable, "-m", "pytest", *options, limit, f"@{listed}"]
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        subprocess.Popen(
            command, cwd=tree, env=environment_of(tree), stdout=output, stderr=output, start_new_session=True
        ) as process,
    ):
        try:
            process.wait(2 * _TEST_SECONDS + 3 * together)
        except subprocess.TimeoutExpired:  # the limit of each test has not helped
            output.write("ERROR time ran out")
        finally:
            _end(process)
        output.seek(0)
        printed = output.read()
    if process.returncode == pytest.ExitCode.OK:
        return None
    failures = _FAILURE.findall(printed)
    named = [test.name for test in tests for line in failures if f"{line} ".startswith(f"{test.name} ")]
    return max(named, key=len) if named else [*printed.strip().splitlines(), *failures][-1]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the run and the children that it may have left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
