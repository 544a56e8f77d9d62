"""Benchmark of dialogue and sound: whole builds in turns, with and without both, and their shards written and read.

    make bench-sound                                          Big Buck Bunny, two rounds
    .venv/bin/python -m benchmarks.sound --end 150            its first 150 seconds

The film has its own sound, and gets a file of 100 subtitles. Each build and each reader runs in a process of its own.
The machine may be busy, so CPU seconds count, and the builds take turns.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from statistics import mean
from typing import Any

import av
from pysubs2 import SSAEvent, SSAFile
from rich.console import Console
from rich.table import Table

from benchmarks.build import build, cpu_recorded
from examples.bunny.film import ATTRIBUTION, FILM_SECONDS, fetch_bunny
from pipeline.publish.shards import read_index

WAYS = {"without": False, "with both": True}
"""Names of the two builds, and whether they keep the sound; that one finds subtitles beside the film too."""
LINES = 100


def read_with_project(data: Path) -> Iterator[object]:
    """Frames of every turn, as training reads them."""
    from training.data.shards import open_shards
    from training.data.turns import read_turns

    for split in {shard.split for shard in read_index(data).shards}:
        for turn in read_turns(open_shards(data, split)):
            yield turn.frames(480, 720)


def _samples(data: Path) -> Iterable[dict[str, Any]]:
    import webdataset as wds

    names = [f"{data}/shards/{shard.name}" for shard in read_index(data).shards]
    return wds.WebDataset(names, shardshuffle=False).decode()  # type: ignore[no-any-return]


def read_members(data: Path) -> Iterator[object]:
    """Samples of plain webdataset, with the mp4 as bytes."""
    yield from _samples(data)


def read_pictures(data: Path) -> Iterator[object]:
    """Frames of every sample of plain webdataset, as the example in `examples/stream_webdataset.py` decodes them."""
    from examples.stream_webdataset import decoded

    yield from map(decoded, _samples(data))


def read_sound(data: Path) -> Iterator[object]:
    """Audio of every sample of plain webdataset."""
    for sample in _samples(data):
        with av.open(BytesIO(sample["mp4"]), "r") as file:
            yield [frame.to_ndarray() for stream in file.streams.audio for frame in file.decode(stream)]


READERS: dict[str, Callable[[Path], Iterator[object]]] = {
    "project, pictures": read_with_project,
    "webdataset, bytes": read_members,
    "webdataset, pictures": read_pictures,
    "webdataset, sound": read_sound,
}


def read(reader: str, data: Path) -> dict[str, Any]:
    """Read the shards of a dataset once; return the number of samples, and CPU seconds without those of imports."""
    samples = READERS[reader](data)
    costs: dict[str, float] = {}
    first = next(samples)  # imports
    with cpu_recorded(costs, reader):
        count = sum(1 for _ in samples)
    return {"samples": count + (first is not None), "cpu_seconds": costs[reader]}


def compare(end_seconds: float, rounds: int) -> None:
    """Build in turns, read the shards in turns, and print both tables."""
    built: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {(reader, way): [] for reader in READERS for way in WAYS}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        films = {way: _film(Path(scratch, "films", way), way) for way in WAYS}
        for number in range(rounds):
            for way, film in films.items():
                started = time.monotonic()
                answer = _answer("build", str(film), f"{scratch}/{number} {way}", way, str(end_seconds))
                built[way].append(answer | {"wall": time.monotonic() - started})
                print(number, way, json.dumps(built[way][-1]), flush=True)
        for _ in range(rounds):
            for reader, way in found:
                data = Path(scratch, f"0 {way}")
                found[reader, way].append(_answer("read", reader, str(data)))
                sizes[way] = sum(shard.bytes for shard in read_index(data).shards)
    console = Console(width=120)
    console.print(ATTRIBUTION)
    console.print(_build_table(built))
    console.print(_shard_table(found, sizes))


def _answer(*arguments: str) -> dict[str, Any]:
    """Run a part of this module in a process of its own; return what it prints."""
    command = [sys.executable, "-m", "benchmarks.sound", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _film(folder: Path, way: str) -> Path:
    """Copy the film to a folder, with subtitles beside it if that build is to find them."""
    folder.mkdir(parents=True)
    film = Path(shutil.copy(fetch_bunny(), folder / "bunny.mp4"))
    if WAYS[way]:
        subtitles, every = SSAFile(), int(1000 * FILM_SECONDS / LINES)
        subtitles.events = [
            SSAEvent(start=number * every, end=number * every + 2400, text=f"Line {number} of the film.")
            for number in range(LINES)
        ]
        subtitles.save(str(film.with_suffix(".srt")))
    return film


def _build_table(built: Mapping[str, list[dict[str, Any]]]) -> Table:
    """CPU seconds of each stage, by round: without and with."""
    rounds = range(len(built["without"]))
    answers = [built[way][number] for number in rounds for way in built]
    table = Table("CPU s", *(f"{way}, {number + 1}" for number in rounds for way in built), box=None)
    for stage in built["with both"][0]["stages"]:
        table.add_row(stage, *(f"{answer['stages'].get(stage, 0):.2f}" for answer in answers))
    table.add_row("all stages", *(f"{sum(answer['stages'].values()):.1f}" for answer in answers))
    for fact in ("wall", "clips", "faults"):
        table.add_row(fact, *(f"{answer[fact]:.0f}" for answer in answers))
    return table


def _shard_table(found: Mapping[tuple[str, str], list[dict[str, Any]]], sizes: Mapping[str, int]) -> Table:
    table = Table("CPU ms a sample", *WAYS, box=None)
    table.add_row("bytes", *(str(sizes[way]) for way in WAYS))
    for reader in READERS:
        table.add_row(reader, *(_milliseconds(found[reader, way]) for way in WAYS))
    return table


def _milliseconds(rounds: list[dict[str, Any]]) -> str:
    each = [1000 * answer["cpu_seconds"] / (answer["samples"] - 1) for answer in rounds]
    return f"{mean(each):.2f} ({', '.join(f'{value:.2f}' for value in each)}), {rounds[0]['samples']} samples"


def main() -> None:
    """Run the comparison, or one of the parts that it measures."""
    if sys.argv[1:2] == ["build"]:
        film, out, way, end = sys.argv[2:]
        settings = {"film": {"end_seconds": float(end)}, "sound": {"keep": WAYS[way]}}
        print(json.dumps(build(Path(film), Path(out), settings)))
    elif sys.argv[1:2] == ["read"]:
        print(json.dumps(read(sys.argv[2], Path(sys.argv[3]))))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("--end", type=float, default=1e9, help="seconds of the film to build [default: all]")
        parser.add_argument("--rounds", type=int, default=2)
        options = parser.parse_args()
        compare(options.end, options.rounds)


if __name__ == "__main__":
    main()
