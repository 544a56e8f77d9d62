"""Content hashes: files are read once, and the cache of hashes only saves time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.core.hashes import Hashes, film_hash
from pipeline.core.records import RecordError

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_hash_is_that_of_the_content_and_reused_by_later_runs(tmp_path: Path) -> None:
    path, cache = tmp_path / "film.mp4", tmp_path / "set" / "hashes.json"
    path.write_bytes(b"abc")
    first = Hashes(cache)
    reads: list[float] = []
    assert first.of(path, lambda done, _: reads.append(done)) == ABC
    first.save()
    second = Hashes(cache)
    assert second.of(path, lambda done, _: reads.append(done)) == ABC
    moved = path.rename(tmp_path / "renamed.mp4")
    assert second.of(moved, lambda done, _: reads.append(done)) == ABC
    assert reads == [3]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(b"abc")
    hashes = Hashes(tmp_path / "hashes.json")
    before = hashes.of(path)
    path.write_bytes(b"abd")
    os.utime(path, ns=(1, 1))
    assert hashes.of(path) != before


def test_unreadable_files_are_record_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing.mp4", tmp_path, tmp_path / "pipe", Path("null\0byte.mp4")):
        with pytest.raises(RecordError):
            film_hash(path, Hashes(tmp_path / "hashes.json"))
