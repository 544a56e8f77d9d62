"""The demo of drift: its games. `make demo-drift` is all of it."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from flows.demos.drift import TURNS, game_of
from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from training.data.shards import open_shards
from training.data.turns import read_texts
from training.evaluation.benchmark import read_benchmark, write_benchmark


def test_a_game_plays_scene_after_scene_of_the_training_and_comes_back_to_them(tmp_path: Path) -> None:
    data = make_dataset(tmp_path / "data", films=1, captioner=MODEL)
    write_shards(data, ShardSettings(block_seconds=2.5))
    turns = list(read_texts(open_shards(data.root, "train")))
    games = [game_of(turns, number, TURNS) for number in (1, 2)]
    write_benchmark(tmp_path / "games.jsonl", [panel for game in games for panel in game])
    assert [len(game.panels) for game in read_benchmark(tmp_path / "games.jsonl").games] == [50, 50]
    assert [panel.clip_id for panel in games[0]] != [panel.clip_id for panel in games[1]]
    recorded = {turn.clip_id: turn for turn in turns}
    for game in games:
        played = [recorded[panel.clip_id or ""] for panel in game]
        assert [panel.instruction for panel in game] == [turn.instruction for turn in played]
        visits = [list(group) for _, group in groupby(played, key=lambda turn: turn.sample.scene)]
        assert all(visit == sorted(visit, key=lambda turn: turn.clip_id) for visit in visits)
        assert len(visits) > len({visit[0].sample.scene for visit in visits}) > 1, "scenes are returned to"
