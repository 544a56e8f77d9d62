"""`play --agent`: baselines play a file of instructions into a game folder, with real tiny pipelines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flows.game.folder import GameFolder
from flows.game.play_baseline import play_baseline
from flows.game.records import GameError
from pipeline.video.clip_files import read_clip
from tests.support.networks.tiny_baselines import FRAMES, brief_baseline
from training.baselines.agents import load_baseline

STORY = ["Qiqi runs over the waves", "Qiqi meets Ponyo", "Qiqi falls asleep"]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_a_file_becomes_the_game_that_the_agent_plays_and_no_other_is_mixed_in(tmp_path: Path) -> None:
    out, game = tmp_path / "out", written(tmp_path / "game.txt", STORY[:2])
    film = play_baseline("gc", game, brief_baseline("gc"), out, seed=3, device="cpu")
    assert len(read_clip(film)) == 2 * FRAMES
    folder = GameFolder.open(out)
    expected = list(load_baseline(brief_baseline("gc"), seed=3, device="cpu").play(STORY[:2]))
    assert [record.instruction for record in folder.turns] == STORY[:2]
    assert [record.values.stamina for record in folder.turns] == [turn.values.stamina for turn in expected]
    for record, turn in zip(folder.turns, expected, strict=True):
        drawn = read_clip(folder.clip_path(record.id))[..., ::-1].astype(int)
        assert np.abs(drawn - turn.frames_THWC).mean() < 12, "the shot, but for its encoding"
    with pytest.raises(GameError, match=r"begun with checkpoint .*--out"):
        play_baseline("gfc", game, brief_baseline("gfc"), out, seed=3, device="cpu")


@pytest.mark.slow
def test_a_longer_game_goes_on_to_the_same_shots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    game, folder = tmp_path / "game.txt", brief_baseline("gc")

    def play(out: str, turns: int) -> str:
        play_baseline("gc", written(game, STORY[:turns]), folder, tmp_path / out, seed=3, device="cpu")
        return capsys.readouterr().err

    play("at once", 2)
    play("in two", 1)
    assert "resuming after turn 1 of 2" in play("in two", 2)
    assert "nothing to play" in play("in two", 2)
    for name in ("0001.mp4", "0002.mp4", "film.mp4"):
        assert (tmp_path / "in two" / name).read_bytes() == (tmp_path / "at once" / name).read_bytes()
    last = [GameFolder.open(tmp_path / out).turns[-1].values for out in ("in two", "at once")]
    assert last[0] == last[1]


@pytest.mark.slow
def test_a_story_drawn_at_once_is_not_gone_on_with(tmp_path: Path) -> None:
    game, out = tmp_path / "game.txt", tmp_path / "out"
    play_baseline("gsc", written(game, STORY[:1]), brief_baseline("gsc"), out, device="cpu")
    with pytest.raises(GameError, match=r"gsc draws a whole story at once.*--out"):
        play_baseline("gsc", written(game, STORY[:2]), brief_baseline("gsc"), out, device="cpu")
