"""Played games: logs of other programs, of killed processes, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.evaluation.benchmark import Panel
from training.evaluation.played import PlayedError, read_game

PANELS = [Panel(game="a", turn=turn, words=f"a {turn}") for turn in (1, 2, 3)]


def turns_of(folder: Path, log: bytes) -> list[int]:
    """Return the numbers of the turns that are read from a log."""
    (folder / "turns.jsonl").write_bytes(log)
    return [turn.panel.turn for turn in read_game("others", PANELS, folder)]


@pytest.mark.parametrize(
    ("log", "turns"),
    [
        (b"", []),
        (b'{"id": "0001"}', [1]),
        (b'{"id": "0001"}\n{"id": "0002"}', [1, 2]),
        (b'{"id": "0001"}\r\n{"id": "0002"}\r\n', [1, 2]),
        (b'\n{"id": "0001"}\n \n\n{"id": "0002"}\n\n', [1, 2]),
        (b'{"id": "0001"}\n{"id": "00', [1]),
        (b'{"id": "0001"}\n{"id": "0002", "instruction": "\xc3', [1]),
    ],
)
def test_every_complete_line_is_a_turn_and_a_torn_one_is_none(tmp_path: Path, log: bytes, turns: list[int]) -> None:
    assert turns_of(tmp_path, log) == turns


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (b'{"id": "0001"}\n{"id": "00\n', r"turns.jsonl, line 2 is damaged .* delete"),
        (b'{"id": "0001"}\n\n{"id": "00\n{"id": "0003"}', "line 3 is damaged"),
        (b'{"id": "0001", "level": 9}', "line 1 is damaged .*level"),
        (b'{"id": "0004"}', "line 1: the benchmark has no turn 4"),
    ],
)
def test_damaged_lines_are_named(tmp_path: Path, log: bytes, said: str) -> None:
    with pytest.raises(PlayedError, match=said):
        turns_of(tmp_path, log)
