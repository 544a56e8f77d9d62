"""Benchmark of the data half: film to verified shards, beside a bare decode and a naive baseline, in one run.

    make bench                                  the first 125 s of Big Buck Bunny
    .venv/bin/python -m flows.benchmarks.build --full      all of it

Machines differ and are noisy, so quote the ratios. CPU seconds are the sum over all processes. Text detection is
measured separately, as the cost of one option; captions are not measured, since they depend on a server.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.demos.bunny import ATTRIBUTION, fetch_bunny
from pipeline.core.config import LooksSettings, checked
from pipeline.core.progress import silent
from pipeline.core.records import Clip
from pipeline.core.stage import perform
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.publish import publish_stages
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.publish.verify import verify
from pipeline.stages.text import find_text
from pipeline.video.clip_files import read_clip
from pipeline.video.film_reader import FilmReader


@dataclass(frozen=True)
class CommandCost:
    """Cost and output of one command."""

    wall_seconds: float
    cpu_seconds: float
    peak_mib: float
    """Peak resident memory of the command and its children together."""
    answer: dict[str, Any]
    """Output of the command, parsed as JSON."""


def measure(*arguments: str) -> CommandCost:
    """Run a Python module in a separate process and measure the cost of it and its children."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, *arguments], stdout=output)
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, _resident_mib(process.pid))
            time.sleep(0.05)
        if process.returncode:
            raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
        output.seek(0)
        answer = json.loads(output.read().splitlines()[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return CommandCost(time.monotonic() - started, cpu, peak, answer)


def _resident_mib(pid: int) -> float:
    """Memory of a process and its descendants; 0 for one that has just ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = [
            child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20 + sum(_resident_mib(int(child)) for child in children)


def decode(film: Path, end_seconds: float | None) -> dict[str, Any]:
    """Decode the film and discard the frames: the lower bound that the other rows are compared with."""
    with FilmReader(film) as reader:
        return {"frames": sum(1 for _ in reader.frames(end_seconds=end_seconds))}


def build(film: Path, out: Path, end_seconds: float | None) -> dict[str, Any]:
    """Build verified shards from a film by plain calls; return counts and the CPU seconds of each stage."""
    config = checked({"film": {"end_seconds": end_seconds}, "looks": {"text": False}}, "bench")
    costs: dict[str, float] = {}
    with _cpu_recorded(costs, "probe"):
        plan = make_plan(BuildRequest(films=(film,), out=out, config=config), Workspace(str(out)))
    folder = plan.dataset.folder(*plan.films)
    for stage in plan.stages:
        with _cpu_recorded(costs, stage.name):
            perform(stage, folder)
    for publish_stage in publish_stages(config):
        with _cpu_recorded(costs, publish_stage.name):
            publish_stage.run(plan.dataset, silent)
    with _cpu_recorded(costs, "verify"):
        faults = verify(plan.dataset)
    clips = folder.read("clips", Clip)
    return {"clips": len(clips), "faults": len(faults), "stages": costs}


def text(out: Path) -> dict[str, Any]:
    """Detect text in the clips of a data set made by `build`, reading included."""
    (folder,) = Dataset(out).folders()
    clips = folder.read("clips", Clip)
    for clip in clips:
        find_text(read_clip(folder.clip_path(clip.clip_id)), LooksSettings().text_frames)
    return {"clips": len(clips)}


@contextmanager
def _cpu_recorded(costs: dict[str, float], name: str) -> Iterator[None]:
    """Add the CPU seconds of the block, in this process and in children that end inside it, to `costs`."""
    before = _cpu_seconds()
    yield
    costs[name] = costs.get(name, 0.0) + _cpu_seconds() - before


def _cpu_seconds() -> float:
    both = [resource.getrusage(target) for target in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def compare(film: Path, end_seconds: float | None) -> None:
    """Run all measurements, each in a separate process, and print the tables."""
    end = str(end_seconds or 1e9)
    with tempfile.TemporaryDirectory() as scratch:
        bare = measure("-m", "flows.benchmarks.build", "decode", str(film), end)
        ours = measure("-m", "flows.benchmarks.build", "build", str(film), f"{scratch}/ours", end)
        lettering = measure("-m", "flows.benchmarks.build", "text", f"{scratch}/ours")
        naive = measure("-m", "flows.benchmarks.naive_baseline", str(film), f"{scratch}/naive", end)
    console = Console()
    console.print(f"{ATTRIBUTION}; {bare.answer['frames']} frames, {os.cpu_count()} cores", highlight=False)
    table = Table("", "clips", "CPU s", "x bare decode", "clips / CPU s", "wall s", "peak MiB", box=None)
    rows = {"bare decode": bare, "film to verified shards": ours, "naive baseline": naive}
    for name, cost in rows.items():
        clips = cost.answer.get("clips", 0)
        figures = [cost.cpu_seconds, cost.cpu_seconds / bare.cpu_seconds, clips / cost.cpu_seconds, cost.wall_seconds]
        table.add_row(name, str(clips or ""), *(f"{figure:.1f}" for figure in figures), f"{cost.peak_mib:.0f}")
    console.print(table)
    stages = Table("stage", "CPU s", "share", box=None)
    spent = ours.answer["stages"]
    spent["starting Python"] = ours.cpu_seconds - sum(spent.values())
    for name, seconds in spent.items():
        stages.add_row(name, f"{seconds:.1f}", f"{seconds / ours.cpu_seconds:.0%}")
    stages.add_row("text, apart", f"{lettering.cpu_seconds:.1f}", "")
    console.print(stages)
    console.print("captions above are by rules; the cost of a model server is not included", highlight=False)


def main() -> None:
    """Run the comparison, or one of the parts that it measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the whole film instead of its first 125 seconds")
    parser.add_argument("--film", type=Path, help="film to use instead of Big Buck Bunny")
    if sys.argv[1:2] == ["decode"]:
        print(json.dumps(decode(Path(sys.argv[2]), float(sys.argv[3]))))
    elif sys.argv[1:2] == ["build"]:
        print(json.dumps(build(Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))))
    elif sys.argv[1:2] == ["text"]:
        print(json.dumps(text(Path(sys.argv[2]))))
    else:
        options = parser.parse_args()
        compare(options.film or fetch_bunny(), None if options.full else 125.0)


if __name__ == "__main__":
    main()
