"""Review benchmark: seconds until the first grid, a clip and a filter of the review page, in a real Chromium.

    make bench-review                                                         20,000 clips, median of 20
    .venv/bin/python -m benchmarks.review --clips 200000 --repeats 5

The clips are hard links to a few real ones. The server is that of `animegamer review` in a process of its own, the
browser runs without a screen and without a GPU, on the same cores. A time ends when the result is drawn: all clips in
view with captions and pictures, the open clip with its first frame, the filtered grid with its captions.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.review_dataset import write_dataset

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZE = {"width": 1280, "height": 800}
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
LIMITS = {
    "first grid, captions": 2000,
    "first grid, pictures": 2000,
    "a clip": 200,
    "a filter": 100,
    "a search": 100,
    "a decision on disk": 200,
}
"""Most milliseconds of each measure, as a median."""

DRAWN = "await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
GRID = """() => {
  const view = document.getElementById('grid')?.getBoundingClientRect();
  if (!view) return [0, false, false];
  const tiles = [...document.querySelectorAll('.tile')].filter((tile) => {
    const box = tile.getBoundingClientRect();
    return !tile.hidden && box.height && box.top < view.bottom && box.bottom > view.top;
  });
  const captions = tiles.length > 0 && tiles.every((tile) => tile.querySelector('.line').textContent);
  const pictures = captions && tiles.every((tile) => tile.querySelector('video').readyState >= 2);
  return [performance.now(), captions, pictures];
}"""
CLIP = f"""async () => {{
  const start = performance.now();
  document.getElementById('grid').dispatchEvent(new KeyboardEvent('keydown', {{ key: 'ArrowRight', bubbles: true }}));
  const video = document.getElementById('clip');
  await new Promise((done) => video.addEventListener('loadeddata', done, {{ once: true }}));
  {DRAWN}
  return performance.now() - start;
}}"""
CHOOSE = f"""async ([id, value, event]) => {{
  const start = performance.now();
  const field = document.getElementById(id);
  field.value = value;
  field.dispatchEvent(new Event(event, {{ bubbles: true }}));
  {DRAWN}
  return performance.now() - start;
}}"""
DECIDE = """async () => {
  const start = performance.now();
  document.getElementById('grid').dispatchEvent(new KeyboardEvent('keydown', { key: 'i', bubbles: true }));
  while (document.getElementById('saved').textContent !== 'saved') await new Promise((done) => setTimeout(done, 1));
  return performance.now() - start;
}"""


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Run `animegamer review` on a dataset, and yield its address."""
    command = [sys.executable, "-m", "flows.cli", "review", str(root), "--port", "0", "--reviewer", "bench"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        for line in server.stderr:
            if found := re.search(r"http://\S+", line):
                yield found[0]
                return
        raise RuntimeError("the server has ended")
    finally:
        server.terminate()
        server.wait()


@contextmanager
def browsing() -> Iterator[Browser]:
    """Run the Chromium of this machine."""
    from playwright.sync_api import sync_playwright  # a package for developers

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


def first_grid(browser: Browser, address: str) -> tuple[float, float]:
    """Open the page in a fresh browser; return the milliseconds until the captions and the pictures are there."""
    context = browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address, wait_until="commit")
    captions_ms = None
    while True:
        now, captions, pictures = page.evaluate(GRID)
        captions_ms = now if captions and captions_ms is None else captions_ms
        if pictures:
            context.close()
            assert captions_ms is not None
            return captions_ms, now
        time.sleep(0.01)


def work(page: Page, repeats: int) -> dict[str, list[float]]:
    """Open clips, filter, search and decide in one page; return the milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in ("a clip", "a filter", "a search", "a decision on disk")}
    for _ in range(repeats):
        times["a clip"].append(page.evaluate(CLIP))
        times["a decision on disk"].append(page.evaluate(DECIDE))
        page.wait_for_timeout(100)
    for turn in range(repeats):
        filtered: list[Any] = ["level", str(turn % 5 + 1), "change"]
        times["a filter"].append(page.evaluate(CHOOSE, filtered))
        times["a search"].append(page.evaluate(CHOOSE, ["text", ("sea", "slowly run", "lisa")[turn % 3], "input"]))
        for field, event in (("text", "input"), ("level", "change")):
            page.evaluate(CHOOSE, [field, "", event])
        page.wait_for_timeout(300)  # the videos of the grid load again
    return times


def measure(root: Path, clips: int, repeats: int) -> dict[str, list[float]]:
    """Measure the page over a dataset of this many clips."""
    write_dataset(root, clips)
    with serving(root) as address, browsing() as browser:
        grids = [first_grid(browser, address) for _ in range(repeats)]
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        page.goto(address)
        page.wait_for_timeout(2000)
        times = work(page, repeats)
    captions, pictures = zip(*grids, strict=True)
    return {"first grid, captions": list(captions), "first grid, pictures": list(pictures), **times}


def table_of(times: Mapping[str, Sequence[float]], clips: int) -> Table:
    """Table of the medians beside their limits."""
    table = Table("", "median ms", "slowest ms", "limit ms", "")
    table.title = f"{clips:,} clips, median of {len(next(iter(times.values())))}"
    for name, limit in LIMITS.items():
        median = statistics.median(times[name])
        held = "held" if median <= limit else "[red]over[/red]"
        table.add_row(name, f"{median:.0f}", f"{max(times[name]):.0f}", str(limit), held)
    return table


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=20_000, help="number of clips")
    parser.add_argument("--repeats", type=int, default=20, help="number of times each is measured")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        times = measure(Path(root), given.clips, given.repeats)
    Console(width=110).print(table_of(times, given.clips))


if __name__ == "__main__":
    main()
