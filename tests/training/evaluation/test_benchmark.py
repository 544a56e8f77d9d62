"""Benchmark file: read back as written, faults named with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.evaluation.benchmark import BenchmarkError, Panel, read_benchmark, write_benchmark
from training.evaluation.measures import Measure, all_measures, read_measures, write_measures


def test_a_benchmark_is_read_as_it_was_written(tmp_path: Path) -> None:
    panels = [
        Panel(game="ponyo-01", turn=1, characters=("Ponyo", "Sosuke"), MD="run", MA="quickly", EV="shore", level=4),
        Panel(game="ponyo-01", turn=2, words="They fall asleep", SC=0, ST=1),
        Panel(game="lisa-01", turn=1, characters=("Lisa",), MD="drive", clip_id="film-0123-000004000"),
    ]
    write_benchmark(tmp_path / "games.jsonl", panels)
    read = read_benchmark(tmp_path / "games.jsonl")
    assert [panel for game in read.games for panel in game.panels] == panels
    assert [game.character for game in read.games] == ["Ponyo", "Lisa"]
    assert read.characters == ("Ponyo", "Sosuke", "Lisa")
    assert panels[0].instruction == "Character: Ponyo, Sosuke; Motion: quickly run; Background: shore."
    assert panels[1].instruction == "They fall asleep"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "holds no game"),
        ('{"game": "a", "turn": 1, "MD": "run"}\n{"game": "a", "turn": 3, "MD": "run"}', "turns of game a are not"),
        ('{"game": "a", "turn": 1, "MD": "run"}\n\n{"game": "a", "turn": 2}', "line 3: .*no instruction"),
        ('{"game": "../a", "turn": 1, "MD": "run"}', "line 1: game"),
        ('{"game": "a", "turn": 1, "MD": "run", "level": 6}', "line 1: level"),
        ('{"game": "a", "turn": 1, "MD": "run", "ML": 3}', "line 1: ML"),
        ("a line", "line 1: "),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, lines: str, said: str) -> None:
    path = tmp_path / "games.jsonl"
    path.write_text(lines)
    with pytest.raises(BenchmarkError, match=said):
        read_benchmark(path)


def test_measures_are_read_as_they_were_written(tmp_path: Path) -> None:
    measures = [
        Measure(agent="ours", game="a", turn=1, metric="clip_i", value=0.5),
        Measure(agent="ours", game="a", turn=None, metric="judge_oa", value=7),
    ]
    write_measures(tmp_path / "turns.parquet", measures)
    assert list(read_measures(tmp_path / "turns.parquet")) == measures
    assert list(read_measures(tmp_path / "none.parquet")) == []
    (tmp_path / "turns.parquet").write_bytes(b"PAR1")
    with pytest.raises(Exception, match="damaged"):
        list(read_measures(tmp_path / "turns.parquet"))


def test_what_a_killed_command_had_not_finished_is_no_table(tmp_path: Path) -> None:
    measure = Measure(agent="ours", game="a", turn=1, metric="clip_t", value=0.5)
    write_measures(tmp_path / "measures" / "turns.parquet", [measure])
    (tmp_path / "measures" / ".judge.parquet.k3x.parquet").write_bytes(b"PAR1")
    assert list(all_measures(tmp_path)) == [measure]
