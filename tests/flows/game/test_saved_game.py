"""Saved games: the same game on another machine, or a clear error and nothing changed."""

from __future__ import annotations

import io
import json
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.game.folder import GameFolder, files_of
from flows.game.play_file import play_turn
from flows.game.records import GameSettings, id_of
from flows.game.saved_game import SavedGameError, open_saved, saved_parts
from tests.support.networks.painted_engine import PaintedEngine

SETTINGS = GameSettings(seed=7, checkpoint="painted", window_turns=4, fps=8, precision="float32")
Files = dict[str, bytes]
SHOT_BYTES = 50_000
LINES_BYTES = 10_000
"""Memory for a turn without its shot: its line, its record, and what the zip says of its two files."""


def branched(path: Path) -> GameFolder:
    """A game with a branch and two takes of a turn."""
    folder = GameFolder.create(path / "game", SETTINGS)
    for instruction, parent in (("one", None), ("two", "0001"), ("two", "0001"), ("three", "0002-1"), ("else", None)):
        play_turn(folder, PaintedEngine(), instruction, parent)
    return folder


def saved(folder: GameFolder) -> bytes:
    return b"".join(saved_parts(folder, "mini"))


def reopened(content: bytes, path: Path, ours: GameSettings = SETTINGS) -> GameFolder:
    return open_saved(io.BytesIO(content), path / "opened", ours, "mini")


def zipped(files: Files, compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def unzipped(content: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_game_opened_elsewhere_goes_on_as_it_would_have_here(tmp_path: Path) -> None:
    folder = branched(tmp_path)
    content = saved(folder)
    assert content == saved(GameFolder.open(folder.path)), "the same game gives the same bytes"
    there = SETTINGS.model_copy(update={"seed": 0, "precision": "bfloat16, float16"})
    opened = reopened(content, tmp_path, there)
    assert opened.turns == folder.turns
    assert opened.settings.unlike(there) == "seed"
    assert opened.settings.seed == folder.settings.seed
    for name in (path.name for path in folder.path.glob("0*")):
        assert (opened.path / name).read_bytes() == (folder.path / name).read_bytes(), name
    here, there_ = (play_turn(each, PaintedEngine(), "four", "0003") for each in (folder, opened))
    assert here == there_
    assert (folder.path / "0004.mp4").read_bytes() == (opened.path / "0004.mp4").read_bytes()


def test_a_game_without_turns_and_one_that_is_played_on_meanwhile(tmp_path: Path) -> None:
    empty = GameFolder.create(tmp_path / "empty", SETTINGS)
    assert reopened(saved(empty), tmp_path / "a").turns == []
    folder = branched(tmp_path)
    parts = saved_parts(folder, "mini")
    begun = next(parts)
    play_turn(folder, PaintedEngine(), "later", "0003")
    assert len(reopened(begun + b"".join(parts), tmp_path / "b").turns) == 5


def test_another_model_or_format_is_refused_with_both_names(tmp_path: Path) -> None:
    content = saved(branched(tmp_path))
    other = SETTINGS.model_copy(update={"checkpoint": "another"})
    with pytest.raises(SavedGameError, match=r"model mini painted .*this page plays mini another"):
        reopened(content, tmp_path, other)
    files = unzipped(content)
    later = json.dumps({"format": 2, "model": "mini", "saved_by": "9.0"}).encode()
    with pytest.raises(SavedGameError, match=r"AnimeGamer '9.0' in format 2, and AnimeGamer [\d.]+ reads format 1"):
        reopened(zipped({**files, "animegame.json": later}), tmp_path)
    assert not list(tmp_path.glob("*opened*")), "nothing is left"


def _changed(changed_name: str, content: bytes | None) -> Callable[[Files], bytes]:
    """Return a function that zips a game with a file changed, added, or left out."""

    def change(given: Files) -> bytes:
        return zipped({name: each for name, each in {**given, changed_name: content}.items() if each is not None})

    return change


def _log(change: Callable[[list[dict[str, object]]], object]) -> Callable[[Files], bytes]:
    """Return a function that zips a game with another log."""

    def make(given: Files) -> bytes:
        rows = [json.loads(line) for line in given["turns.jsonl"].splitlines()]
        change(rows)
        return zipped({**given, "turns.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows).encode()})

    return make


def _flipped(given: Files) -> bytes:
    """Zip a game, and change a byte in the middle of a shot."""
    content = bytearray(zipped(given))
    content[content.index(given["0002.mp4"][50:90])] ^= 1
    return bytes(content)


def _states_more(given: Files) -> bytes:
    """Zip a game with a list of files that states all entries as one and the same, again and again."""
    content = bytearray(zipped(given))
    start = content.index(b"PK\1\2")
    sizes = start + 20
    content[sizes : sizes + 8] = (2**31).to_bytes(4, "little") * 2
    return bytes(content)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda given: zipped(given)[:-9], "damaged, or no saved game"),
        (lambda given: zipped(given) + b"more", "damaged, or no saved game"),
        (lambda _: b"", "damaged, or no saved game"),
        (lambda _: b"\0" * 5000, "damaged, or no saved game"),
        (lambda given: zipped(given)[100:], "not written by AnimeGamer"),
        (_flipped, "damaged.*CRC"),
        (_states_more, "states more than it holds|damaged"),
        (lambda given: zipped(given, zipfile.ZIP_DEFLATED), "compressed or encrypted"),
        (lambda given: zipped({**given, "bomb": b"\0" * 10**6}, zipfile.ZIP_DEFLATED), "compressed or encrypted"),
        (_changed("/etc/passwd", b"x"), "beside the game, '/etc/passwd'"),
        (_changed("../evil.mp4", b"x"), "beside the game, "),
        (_changed("0002.mp4", None), "lacks '0002.mp4'"),
        (_changed("game.json", None), "lacks game.json"),
        (_changed("animegame.json", b"[" * 10_000), "animegame.json in this file is damaged"),
        (_changed("game.json", b"{}"), "whose settings"),
        (_changed("0002.mp4", b"no shot"), "shot of turn 0002 .* cannot be shown"),
        (_changed("turns.jsonl", b'{"id": "0001"}\n'), "turns.jsonl, line 1 in this file is damaged"),
        (_log(lambda rows: rows.append({**rows[-1], "id": "0002-9"})), "0002-9"),
        (_log(lambda rows: rows[0].update(id="0001-1")), "damaged|not one that a game writes"),
        (_log(lambda rows: rows[0].update(instruction="two\nlines")), "not one that a game writes"),
        (_log(lambda rows: rows[0].update(scope_px=float("nan"))), "line 1 in this file is damaged"),
        (_log(lambda rows: rows[0].update(changes={"stamina": 7, "social": 0, "entertainment": 0})), "not one"),
    ],
)  # fmt: skip
def test_damaged_and_hostile_files_are_refused_and_nothing_is_written(
    tmp_path: Path, spoil: Callable[[Files], bytes], why: str
) -> None:
    content = spoil(unzipped(saved(branched(tmp_path))))
    with pytest.raises(SavedGameError, match=why):
        reopened(content, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["game"]


def test_a_game_whose_shot_is_gone_cannot_be_saved(tmp_path: Path) -> None:
    folder = branched(tmp_path)
    folder.clip_path("0002").unlink()
    with pytest.raises(SavedGameError, match=r"0002\.mp4 of this game is gone"):
        saved_parts(folder, "mini")


def long_game(path: Path, turns: int) -> GameFolder:
    """A game of many turns that share one shot."""
    folder = GameFolder.create(path / "game", SETTINGS)
    first = play_turn(folder, PaintedEngine(), "one", None)
    with folder.clip_path(first.id).open("ab") as shot:
        shot.write(struct.pack(">I4s", SHOT_BYTES, b"free").ljust(SHOT_BYTES, b"\0"))  # a box that players skip
    records = [first, *(first.model_copy(update=_later(number)) for number in range(2, turns + 1))]
    for record in records[1:]:
        for name, shared in zip(files_of(record.id), files_of(first.id), strict=True):
            (folder.path / name).hardlink_to(folder.path / shared)
    lines = (f"{record.model_dump_json(exclude_defaults=True)}\n" for record in records)
    (folder.path / "turns.jsonl").write_text("".join(lines))
    return GameFolder.open(folder.path)


def _later(number: int) -> dict[str, object]:
    return {"id": id_of(number, 0), "parent": id_of(number - 1, 0), "number": number}


def measured(work: Callable[[], object]) -> tuple[float, float, int]:
    """Return the seconds that some work took, by the wall and by the CPU, and its peak of traced memory in bytes."""
    wall, cpu, before = time.perf_counter(), time.process_time(), tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu, tracemalloc.get_traced_memory()[1] - before


@pytest.mark.parametrize("turns", [200, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_a_long_game_is_saved_and_opened_shot_by_shot(
    tmp_path: Path, turns: int, request: pytest.FixtureRequest
) -> None:
    folder, file = long_game(tmp_path, turns), tmp_path / "game.animegame"
    tracemalloc.start()
    request.addfinalizer(tracemalloc.stop)
    with file.open("wb") as out:
        saving = measured(lambda: out.writelines(saved_parts(folder, "mini")))
    with file.open("rb") as saved_game:
        opening = measured(lambda: open_saved(saved_game, tmp_path / "opened", SETTINGS, "mini"))
    size = file.stat().st_size
    for name, (wall, cpu, peak) in {"saved": saving, "opened": opening}.items():
        said = f"{wall:.1f} s, {cpu:.1f} s of CPU, {peak / 1e6:.1f} MB of memory"
        print(f"{turns} turns of {size / 1e6:.0f} MB {name} in {said}")
        assert peak < 2**21 + turns * LINES_BYTES < turns * SHOT_BYTES
    assert GameFolder.open(tmp_path / "opened").turns == folder.turns
