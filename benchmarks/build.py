"""Benchmark of the data half: film to verified shards, compared with a bare decode and a naive baseline, in one run.

    make bench                                  the first 125 s of Big Buck Bunny
    .venv/bin/python -m benchmarks.build --full      all of it

Machines differ and are noisy, so quote the ratios: each command is compared with the bare decodes of the same frames
right before and after it. CPU seconds are the sum over all processes, read every 20 ms from the start of Python to its
end; so is memory, every 100 ms, with pages that processes share counted once. The stages are measured once more by
plain calls, each by itself. The captioner is `rules`, since the time of a server depends on the server.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.bunny.film import ATTRIBUTION, fetch_bunny, short_films
from pipeline.core.config import checked
from pipeline.core.progress import silent
from pipeline.core.records import Clip
from pipeline.core.stage import perform
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.publish import publish_stages
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.publish.verify import verify
from pipeline.video.film_reader import FilmReader

SHORT_FILMS = 26, 8.0
"""Number of short films in one build, and the seconds of each: they cost mostly what every film costs to begin."""


@dataclass(frozen=True)
class CommandCost:
    """Cost and output of one command."""

    wall_seconds: float
    cpu_seconds: float
    peak_mib: float
    """Peak memory of the command and its children together."""
    answer: dict[str, Any]
    """Last line of its output, parsed as JSON; empty without output."""


def measure(*arguments: str) -> CommandCost:
    """Run a Python module in a separate process and measure the cost of it and its children."""
    started = time.monotonic()
    spent: dict[int, float] = {}
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # else every process compiles our modules again
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=output, stderr=subprocess.DEVNULL, env=environment
        )
        peak = 0.0
        for number in count():
            if process.poll() is not None:
                break
            if number % 5 == 0:
                peak = max(peak, _memory_mib(process.pid))
            spent.update(_own_seconds(process.pid))
            time.sleep(0.02)
        if process.returncode:
            raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
        output.seek(0)
        lines = output.read().splitlines()
        answer = json.loads(lines[-1]) if lines else {}
    return CommandCost(time.monotonic() - started, sum(spent.values()), peak, answer)


def _own_seconds(pid: int) -> dict[int, float]:
    """CPU seconds of a process and each of its descendants, without its ended children.

    The server that forks child processes is not waited for, so `getrusage` would miss it and all its children.
    """
    try:
        user, system, *_ = _times(pid)
        own = {pid: user + system}
        for child in _children(pid):
            own |= _own_seconds(child)
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return own


def _times(pid: int) -> list[float]:
    """CPU seconds of a process and of its ended children: user, system, children's user, children's system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:15]]


def _children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def _memory_mib(pid: int) -> float:
    """Memory of a process and its descendants (PSS: a page that several share is counted once); 0 if just ended."""
    try:
        (kilobytes,) = re.findall(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        children = _children(pid)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return 0.0
    return int(kilobytes) / 2**10 + sum(map(_memory_mib, children))


def decode(film: Path, end_seconds: float | None) -> dict[str, Any]:
    """Decode the film and discard the frames: the lower bound that the other rows are compared with."""
    with FilmReader(film) as reader:
        return {"frames": sum(1 for _ in reader.frames(end_seconds=end_seconds))}


def build(film: Path, out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Build verified shards from a film by plain calls; return counts and the CPU seconds of each stage."""
    config = checked(settings, "bench")
    costs: dict[str, float] = {}
    with cpu_recorded(costs, "probe"):
        plan = make_plan(BuildRequest(films=(film,), out=out, config=config), Workspace(str(out)))
    folder = plan.dataset.folder(*plan.films)
    for stage in plan.stages:
        with cpu_recorded(costs, stage.name):
            perform(stage, folder)
    for publish_stage in publish_stages(config):
        with cpu_recorded(costs, publish_stage.name):
            publish_stage.run(plan.dataset, silent)
    with cpu_recorded(costs, "verify"):
        faults = verify(plan.dataset)
    clips = folder.read("clips", Clip)
    return {"clips": len(clips), "faults": len(faults), "stages": costs}


@contextmanager
def cpu_recorded(costs: dict[str, float], name: str) -> Iterator[None]:
    """Add the CPU seconds of the block, in this process and its children, to `costs`."""
    before = _cpu_seconds()
    yield
    costs[name] = costs.get(name, 0.0) + _cpu_seconds() - before


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its children, ended ones included."""
    return sum(sum(_times(pid)) for pid in (os.getpid(), *_children(os.getpid())))


def compare(film: Path, end_seconds: float | None) -> None:
    """Run all measurements, each in a separate process, and print the tables."""
    end = str(end_seconds or 1e9)
    with tempfile.TemporaryDirectory() as scratch:
        without_text = Path(scratch, "without_text.toml")
        without_text.write_text("[looks]\ntext = false\n")
        command = ("-m", "flows.cli", "build", str(film), "--end", end, "--out")
        commands = {
            "animegamer build": (*command, f"{scratch}/ours"),
            "the same again": (*command, f"{scratch}/ours"),
            "without text detection": (*command, f"{scratch}/other", "--config", str(without_text)),
            "its stages, by plain calls": ("-m", "benchmarks.build", "build", str(film), f"{scratch}/calls", end),
            "naive baseline": ("-m", "benchmarks.naive_baseline", str(film), f"{scratch}/naive", end),
        }
        bare = [_bare_decode(film, end)]
        costs: dict[str, CommandCost] = {}
        for name, arguments in commands.items():
            costs[name] = measure(*arguments)
            bare.append(_bare_decode(film, end))
        clips = len(Dataset(Path(scratch, "ours")).folders()[0].read("clips", Clip))
        shorts = measure("-m", "flows.cli", "build", *map(str, short_films(*SHORT_FILMS)), "--out", f"{scratch}/shorts")
    console = Console()
    console.print(f"{ATTRIBUTION}; {bare[0].answer['frames']} frames, {clips} clips, {os.cpu_count()} cores")
    console.print(_command_table(costs, bare))
    films, seconds = SHORT_FILMS
    console.print(f"{films} films of {seconds:g} s in one build: {shorts.cpu_seconds / films:.2f} CPU s a film,")
    console.print(f"{shorts.cpu_seconds:.1f} together, in {shorts.wall_seconds:.1f} s and {shorts.peak_mib:.0f} MiB\n")
    console.print(_stage_table(costs["its stages, by plain calls"]))


def _bare_decode(film: Path, end: str) -> CommandCost:
    return measure("-m", "benchmarks.build", "decode", str(film), end)


def _command_table(costs: Mapping[str, CommandCost], bare: Sequence[CommandCost]) -> Table:
    """Table of the commands; number n ran between the bare decodes n and n + 1."""
    table = Table("", "CPU s", "x bare decode", "wall s", "peak MiB", box=None)
    rows = [("bare decode", min(bare, key=lambda cost: cost.cpu_seconds), 1.0)]
    for number, (name, cost) in enumerate(costs.items()):
        beside = (bare[number].cpu_seconds + bare[number + 1].cpu_seconds) / 2
        rows.append((name, cost, cost.cpu_seconds / beside))
    for name, cost, ratio in rows:
        table.add_row(
            name, f"{cost.cpu_seconds:.1f}", f"{ratio:.2f}", f"{cost.wall_seconds:.1f}", f"{cost.peak_mib:.0f}"
        )
    return table


def _stage_table(cost: CommandCost) -> Table:
    table = Table("stage", "CPU s", "share", box=None)
    spent = cost.answer["stages"]
    spent["starting Python"] = cost.cpu_seconds - sum(spent.values())
    for name, seconds in spent.items():
        table.add_row(name, f"{seconds:.1f}", f"{seconds / cost.cpu_seconds:.0%}")
    return table


def main() -> None:
    """Run the comparison, or one of the parts that it measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the whole film instead of its first 125 seconds")
    parser.add_argument("--film", type=Path, help="film to use instead of Big Buck Bunny")
    if sys.argv[1:2] == ["decode"]:
        print(json.dumps(decode(Path(sys.argv[2]), float(sys.argv[3]))))
    elif sys.argv[1:2] == ["build"]:
        settings = {"film": {"end_seconds": float(sys.argv[4])}}
        print(json.dumps(build(Path(sys.argv[2]), Path(sys.argv[3]), settings)))
    else:
        options = parser.parse_args()
        compare(options.film or fetch_bunny(), None if options.full else 125.0)


if __name__ == "__main__":
    main()
