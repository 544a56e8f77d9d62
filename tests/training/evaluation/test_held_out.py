"""Held-out games: real turns with their truth, spread over films, and a clear error without captions."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from training.data.shards import open_shards
from training.data.turns import Catalog
from training.evaluation.benchmark import read_benchmark
from training.evaluation.held_out import write_held_out


def published(root: Path, captioner: str) -> str:
    write_shards(make_dataset(root, scenes=6, clips=3, captioner=captioner), ShardSettings(val_share=0.9))
    return str(root)


def test_games_are_real_turns_in_a_row_with_their_truth(tmp_path: Path) -> None:
    source = published(tmp_path / "data", MODEL)
    games = write_held_out(source, tmp_path / "games.jsonl", turns=2, games=None)
    assert read_benchmark(tmp_path / "games.jsonl").games == games
    known = Catalog.read(open_shards(source, "val")).by_id
    panels = [panel for game in games for panel in game.panels]
    truth = [known[panel.clip_id or ""] for panel in panels]
    assert len({panel.clip_id for panel in panels}) == len(panels)
    for game in games:
        one, other = (known[panel.clip_id or ""].sample for panel in game.panels)
        assert one.film_id == other.film_id
        assert one.index < other.index
    assert [panel.instruction for panel in panels] == [turn.instruction for turn in truth]
    assert [panel.level for panel in panels] == [turn.sample.motion.level for turn in truth]
    states = [(turn.sample.caption.SC, turn.sample.caption.ET, turn.sample.caption.ST) for turn in truth]
    assert [(panel.SC, panel.ET, panel.ST) for panel in panels] == states


def test_an_edited_file_is_kept(tmp_path: Path) -> None:
    source, out = published(tmp_path / "data", MODEL), tmp_path / "games.jsonl"
    assert write_held_out(source, out, turns=2, games=2) == write_held_out(source, out, turns=2, games=2)
    edited = out.read_text().replace('"turn":1', '"words":"Ponyo swims","turn":1', 1)
    out.write_text(edited)
    with pytest.raises(UserError, match="or was edited; rename or delete it"):
        write_held_out(source, out, turns=2, games=2)
    assert out.read_text() == edited


def test_data_without_captions_or_without_such_a_stretch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="captions by rules only"):
        write_held_out(published(tmp_path / "rules", "rules"), tmp_path / "games.jsonl", turns=2, games=None)
    with pytest.raises(UserError, match="has no 400 turns in a row in its split val"):
        write_held_out(published(tmp_path / "model", MODEL), tmp_path / "games.jsonl", turns=400, games=None)
    assert not (tmp_path / "games.jsonl").exists()
