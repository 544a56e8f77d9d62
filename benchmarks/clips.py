"""Benchmark of reading a large dataset: CPU seconds and memory of a notebook and of `animegamer clips`.

    make bench-clips                                                 100,000 clips in 28 films
    .venv/bin/python -m benchmarks.clips --clips 20000

Each is a process of its own that starts, reads all tables and ends. The clip files are hard links to a few.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.review_dataset import write_dataset

FILMS = 28
NOTEBOOK = "import sys; from pipeline.notebook import open_dataset; data = open_dataset(sys.argv[1]); data.clips.size"


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description="Seconds to read the tables of a large dataset.")
    parser.add_argument("--clips", type=int, default=100_000)
    count = parser.parse_args().clips
    with tempfile.TemporaryDirectory(prefix="bench-clips-") as folder:
        root = Path(folder) / "data"
        write_dataset(root, count, films=FILMS, size=(64, 96))
        measured = {
            "open_dataset, clips": _measured([sys.executable, "-c", NOTEBOOK, str(root)]),
            "animegamer clips --csv": _measured([sys.executable, "-m", "flows.cli", "clips", str(root), "--csv"]),
        }
    table = Table("", "CPU s", "wall s", "peak MiB", title=f"{count:,} clips", box=None)
    for name, (cpu_seconds, wall_seconds, peak_bytes) in measured.items():
        table.add_row(name, f"{cpu_seconds:.1f}", f"{wall_seconds:.1f}", f"{peak_bytes / 2**20:,.0f}")
    Console().print(table)


def _measured(command: list[str]) -> tuple[float, float, int]:
    """CPU seconds, wall seconds and peak bytes of a command, whose output is discarded."""
    start = time.perf_counter()
    with Path(os.devnull).open("w") as nowhere:
        output = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
        process = os.posix_spawn(command[0], command, os.environ, file_actions=output)
        _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start, usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
