"""Memory of a build: constant in the number of films.

ANIMEGAMER_FILMS sets the number of films; the default is 12, as each takes seconds. Two hundred give the same result.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import psutil
import pytest

from tests.support.builds.real_builds import Commands, write_config
from tests.support.media.films import make_film

FILMS = int(os.environ.get("ANIMEGAMER_FILMS", "12"))
LEAST_FILMS = 4
"""Films until everything is imported and every cache of fixed size is full."""
GROWTH_MIB = 0.1
"""Allowed growth per film: Prefect keeps its state, and the plan its name."""
SLACK_MIB = 10

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300 + 20 * FILMS)]


def many_films(folder: Path, count: int) -> list[Path]:
    """Films of a second that differ only in the length of an empty box at the end of the file."""
    folder.mkdir()
    whole = make_film(folder / "film-000.mp4", frames=24, size=(128, 96)).read_bytes()
    films = [folder / f"film-{number:03d}.mp4" for number in range(count)]
    for number, film in enumerate(films):
        film.write_bytes(whole + struct.pack(">I4s", 8 + number, b"free") + bytes(number))
    return films


def test_memory_does_not_grow_with_the_number_of_films(tmp_path: Path) -> None:
    films = many_films(tmp_path / "films", FILMS)
    clips = {"width": 64, "height": 64, "frames": 4, "seconds": 0.5}
    config = write_config(tmp_path / "config.toml", clips=clips)
    data = tmp_path / "data"
    build = Commands(tmp_path / "prefect").start(*films, "--out", data, "--config", config)
    process, memory = psutil.Process(build.pid), dict[int, float]()
    while build.wait(0.1) is None:
        memory.setdefault(len(list(data.glob("films/*/captions.json"))), process.memory_info().rss / 2**20)
        time.sleep(0.1)
    assert build.wait() == 0, build.log.read_text()
    seen = sorted(number for number in memory if LEAST_FILMS <= number < FILMS)  # after the last the shards begin
    print({number: round(memory[number]) for number in seen[:: max(1, len(seen) // 12)]})
    first, last = seen[0], seen[-1]
    assert last >= FILMS - 3, "the end of the last films was missed"
    assert memory[last] - memory[first] < SLACK_MIB + GROWTH_MIB * (last - first)
