"""Caption benchmark: use of a model server's slots, and the client's CPU time and memory, on composed clips.

    make bench-captions                                                       16 slots, 2 s a request, 400 clips
    .venv/bin/python -m benchmarks.captions --seconds 0 --clips 5000    memory at the 500th and the last clip

The server is real and runs in another process, where only the model is missing (`caption_slots.py`). Clips are
composed, encoded and read as in a build, and asked about as a build asks, batch by batch. Machines differ and are
noisy: compare two versions of the client in one run, and quote the ratio.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.caption_slots import Tally, slot_server
from benchmarks.review_dataset import write_clips
from examples.world.textures import detailed
from pipeline.captions.cast import Cast, load_cast
from pipeline.captions.server_captioner import ServerCaptioner
from pipeline.core.config import CaptionSettings
from pipeline.core.records import Clip
from pipeline.core.store import FilmFolder

EARLY = 500
"""Clip at which memory is read for the first time."""
FILM = "bench-01234567"


@dataclass
class Use:
    """Cost of captioning, to the client and at the server."""

    clips: int
    wall_seconds: float = 0
    cpu_seconds: float = 0
    tallies: list[Tally] = field(default_factory=list)
    early_mib: float = 0
    last_mib: float = 0


def paint_cast(folder: Path) -> Cast:
    """Paint a cast of eight."""
    for number in range(8):
        home = folder / f"Name {number}"
        home.mkdir(parents=True)
        Image.fromarray(detailed((600, 800), 100 + number)).save(home / "front.png")
    return load_cast(folder)


def measure(root: Path, count: int, slots: int, seconds: float) -> Use:
    """Caption clips with a server of `slots` slots, batch by batch."""
    folder, cast = FilmFolder(root / "films" / FILM), paint_cast(root / "cast")
    clips = write_clips(folder, count)
    use = Use(count)
    with slot_server(slots, seconds) as server:
        settings = CaptionSettings(captioner="server", endpoint=server.address, concurrency=slots, timeout_seconds=600)
        captioner = ServerCaptioner(settings, cast)
        started, cpu_started = time.monotonic(), time.process_time()
        for batch in batches(clips, settings.batch):
            ended = clips.index(batch[0])

            def watch(done: float, total: float, ended: int = ended) -> None:  # noqa: ARG001
                use.last_mib = resident_mib()
                if not use.early_mib and ended + done >= EARLY:
                    use.early_mib = use.last_mib

            failures: dict[str, str] = {}
            captioner.ask(folder, batch, dict.fromkeys([clip.clip_id for clip in batch], 3), watch, failures)
            assert not failures, failures
        use.wall_seconds, use.cpu_seconds = time.monotonic() - started, time.process_time() - cpu_started
        use.tallies.append(server.tally())
    return use


def batches(clips: Sequence[Clip], size: int) -> list[Sequence[Clip]]:
    """Return the clips in batches of a task."""
    return [clips[start : start + size] for start in range(0, len(clips), size)]


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def table_of(use: Use, slots: int, seconds: float) -> Table:
    """Table of the costs."""
    [tally] = use.tallies
    table = Table("clips", "requests", "slots used", "wall s", "CPU ms a clip", f"MiB at {EARLY}", "MiB at the end")
    table.title = f"{slots} slots, {seconds:g} s a request"
    cpu_ms = f"{1000 * use.cpu_seconds / use.clips:.1f}"
    early = f"{use.early_mib:.0f}" if use.early_mib else "-"
    values = (f"{tally.use:.1%}", f"{use.wall_seconds:.1f}", cpu_ms, early, f"{use.last_mib:.0f}")
    table.add_row(str(use.clips), str(tally.requests), *values)
    return table


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=400, help="number of clips")
    parser.add_argument("--slots", type=int, default=16, help="requests that the server answers at once")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of one request")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        use = measure(Path(root), given.clips, given.slots, given.seconds)
    Console(width=110).print(table_of(use, given.slots, given.seconds))


if __name__ == "__main__":
    main()
