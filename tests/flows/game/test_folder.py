"""Games on disk: a tree of turns that survives kills, cancels and whatever a player types."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from flows.game.folder import GameFolder
from flows.game.play_file import play_turn
from flows.game.records import GameError, GameSettings
from models.game import Game
from pipeline.core.errors import UserError
from pipeline.video.clip_files import read_clip
from tests.support.networks.painted_engine import PaintedEngine
from tests.support.servers.played_page import GradientEngine

SETTINGS = GameSettings(seed=7, checkpoint="painted", window_turns=4, fps=8)
STORY = [f"Qiqi does thing {number}" for number in range(1, 9)]


def begun(path: Path, turns: int = 0) -> GameFolder:
    """A game of so many turns in a row."""
    folder = GameFolder.create(path / "game", SETTINGS)
    for number, instruction in enumerate(STORY[:turns]):
        play_turn(folder, PaintedEngine(), instruction, f"{number:04d}" if number else None)
    return folder


def contents(folder: GameFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir()}


def test_a_turn_is_kept_with_its_shot_and_its_tokens(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    record = play_turn(folder, PaintedEngine(), STORY[0], None)
    (turn,) = Game(PaintedEngine(), seed=7).play(STORY[0])
    assert (record.id, record.parent, record.number, record.instruction) == ("0001", None, 1, STORY[0])
    assert (record.state, record.scope_px) == (turn.state, turn.scope_px)
    assert record.values.model_dump() == vars(turn.values)
    assert record.changes.model_dump() == {
        "stamina": turn.state.stamina,
        "social": turn.state.social,
        "entertainment": turn.state.entertainment,
    }
    shown_THWC = read_clip(folder.clip_path("0001"))[..., ::-1].astype(int)
    assert shown_THWC.shape == (17, 32, 48, 3)
    assert np.abs(shown_THWC.mean((1, 2)) - turn.frames_THWC.mean((1, 2))).max() < 12  # colours in their places
    tokens_LD = load_file(folder.path / "0001.safetensors")["shot_tokens_LD"]
    assert torch.equal(tokens_LD, turn.shot_tokens_LD)
    assert set(contents(folder)) == {"game.json", "turns.jsonl", "0001.mp4", "0001.safetensors"}
    for turn_id in ("0009", "../game/0001", ""):
        for read in (folder.turn, folder.path_to, folder.state_at, folder.clip_path):
            with pytest.raises(GameError, match="has no turn"):
                read(turn_id)
    assert len(contents(folder)) == 4


def test_the_end_of_a_shot_is_kept_and_a_new_shot_does_without(tmp_path: Path) -> None:
    engine = GradientEngine(continues=True)
    folder = GameFolder.create(tmp_path / "game", SETTINGS)
    for parent in (None, "0001"):
        play_turn(folder, engine, "walk", parent)
    play_turn(folder, engine, "walk", "0001", new_shot=True)
    again = GameFolder.open(folder.path)
    assert [turn.continues for turn in again.turns] == [False, True, False]
    assert [state.last and state.last.ending_CHW.flatten().tolist() for state, _ in engine.seen] == [None, [1, 1], None]
    last = again.state_at("0002").last
    assert last is not None
    assert (last.instruction, last.ending_CHW.flatten().tolist()) == ("walk", [2, 2])


def test_the_state_on_disk_is_the_state_in_memory(tmp_path: Path) -> None:
    folder = GameFolder.create(tmp_path / "game", SETTINGS.model_copy(update={"window_turns": 2}))
    game = Game(PaintedEngine(2), seed=7)
    parent = None
    for turn in game.play(STORY[:4]):
        record = play_turn(folder, PaintedEngine(2), turn.instruction, parent)
        kept, played = GameFolder.open(folder.path).state_at(record.id), game.state
        assert (kept.turns, kept.values, len(kept.window)) == (played.turns, played.values, len(played.window))
        for past, expected in zip(kept.window, played.window, strict=True):
            assert (past.instruction, past.state) == (expected.instruction, expected.state)
            assert torch.equal(past.shot_tokens_LD, expected.shot_tokens_LD)
            assert past.shot_tokens_LD.dtype == torch.bfloat16
        parent = record.id


def test_a_player_goes_back_and_plays_on_from_there(tmp_path: Path) -> None:
    folder, engine = begun(tmp_path, turns=3), PaintedEngine()
    again = play_turn(folder, engine, STORY[2], "0002")
    further = play_turn(folder, engine, "Qiqi sleeps", again.id)
    other_start = play_turn(folder, engine, STORY[0], None)
    assert [again.id, further.id, other_start.id] == ["0003-1", "0004", "0001-1"]
    assert [record.id for record in folder.path_to("0004")] == ["0001", "0002", "0003-1", "0004"]
    assert [past.instruction for past in engine.seen[1][0].window] == STORY[:3]
    shots = contents(folder)
    assert shots["0003.mp4"] != shots["0003-1.mp4"]  # tried again is drawn anew
    assert shots["0001.safetensors"] != shots["0001-1.safetensors"]
    assert [record.id for record in folder.path_to("0003")] == ["0001", "0002", "0003"]


def test_only_the_window_is_ever_read(tmp_path: Path) -> None:
    folder = begun(tmp_path, turns=6)
    for number in (1, 2, 3):
        (folder.path / f"{number:04d}.safetensors").unlink()
    assert len(folder.state_at("0006").window) == 3
    with pytest.raises(GameError, match=r"0003\.safetensors cannot be read"):
        folder.state_at("0005")


def test_nothing_a_player_types_leaves_the_log(tmp_path: Path) -> None:
    folder, engine, parent = begun(tmp_path), PaintedEngine(), None
    for instruction in ("Qiqi \ud83d", "\x1b[31mQiqi", "Qiqi\0", "Qiqi\nruns", "Qiqi\u2028runs", "Qiqi\u202e"):
        with pytest.raises(UserError, match="control characters or several lines"):
            play_turn(folder, engine, instruction, None)
    assert engine.seen == [], "refused before anything is drawn"
    hostile = ["../../evil", "x" * 600, "\u3000風\xa0👩\u200d🚀", '"}, {"id": "0009"', "</TURN>"]
    for instruction in hostile:
        parent = play_turn(folder, engine, instruction, parent).id
    assert len(contents(folder)) == 2 + 2 * len(hostile)
    assert [path.name for path in tmp_path.iterdir()] == ["game"]
    assert [record.instruction for record in GameFolder.open(folder.path).turns] == hostile


def test_a_line_torn_by_a_kill_does_not_count_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    folder = begun(tmp_path, turns=3)
    whole, log = contents(folder), folder.path / "turns.jsonl"
    lines = whole["turns.jsonl"].decode().splitlines(keepends=True)
    log.write_text("\n".join(lines))
    assert GameFolder.open(folder.path).turns == folder.turns, "blank lines do no harm"
    orphan = lines[2].replace('"parent":"0002"', '"parent":"0007"')
    skipped = lines[1].replace('"number":2', '"number":9')
    for number, damaged in (
        (2, [lines[0], "{}\n", lines[2]]),
        (2, [lines[0], lines[0]]),
        (2, [lines[0], skipped]),
        (3, [*lines[:2], orphan]),
    ):
        log.write_text("".join(damaged))
        with pytest.raises(GameError, match=rf"turns\.jsonl, line {number} is damaged"):
            GameFolder.open(folder.path)
    for torn in (b'{"id": "0003", "par', bytes(200)):
        log.write_bytes("".join(lines[:2]).encode() + torn)
        (folder.path / ".0003.mp4.k1ll3d.mp4").write_bytes(b"half a shot")
        opened = GameFolder.open(folder.path)
        assert [record.id for record in opened.turns] == ["0001", "0002"]
        play_turn(opened, PaintedEngine(), STORY[2], "0002")
        assert contents(opened) == whole


class StoppedError(Exception):
    """What a progress raises to stop a turn."""


def test_a_stopped_turn_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = begun(tmp_path, turns=2)
    before = contents(folder)

    def stop(part: str, done: int, total: int) -> None:
        if part == "frames":
            raise StoppedError

    with pytest.raises(StoppedError):
        play_turn(folder, PaintedEngine(), STORY[2], "0002", stop)
    assert contents(folder) == before
    assert play_turn(folder, PaintedEngine(), STORY[2], "0002").id == "0003"


def test_a_turn_whose_files_cannot_be_written_is_not_in_the_log(tmp_path: Path) -> None:
    folder = begun(tmp_path, turns=1)
    log = (folder.path / "turns.jsonl").read_bytes()
    (folder.path / "0002.safetensors").mkdir()
    with pytest.raises(UserError, match=r"0002\.safetensors"):
        play_turn(folder, PaintedEngine(), STORY[1], "0001")
    assert (folder.path / "turns.jsonl").read_bytes() == log
    assert [record.id for record in folder.turns] == ["0001"]


def test_two_players_of_one_game_do_not_write_over_each_other(tmp_path: Path) -> None:
    folder, other = begun(tmp_path, turns=1), GameFolder.open(tmp_path / "game")
    play_turn(other, PaintedEngine(), "theirs", "0001")
    before = contents(folder)
    with pytest.raises(GameError, match="open the game again"):
        play_turn(folder, PaintedEngine(), "ours", "0001")
    held = os.open(folder.path / "turns.jsonl", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(GameError, match="another process is playing"):
        play_turn(other, PaintedEngine(), "theirs", "0002")
    os.close(held)
    assert contents(folder) == before
    assert play_turn(GameFolder.open(folder.path), PaintedEngine(), "ours", "0001").id == "0002-1"


def test_a_turn_played_again_after_its_line_was_deleted_has_no_earlier_pictures(tmp_path: Path) -> None:
    folder = begun(tmp_path, turns=2)
    earlier = [folder.path / name for name in ("0002.jpg", "film-0002.plain.mp4", "film-0002.captions.gif")]
    for path in earlier:
        path.write_bytes(b"of the earlier shot")
    log = folder.path / "turns.jsonl"
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    again = GameFolder.open(folder.path)
    assert play_turn(again, PaintedEngine(), "another second turn", "0001").id == "0002"
    assert not any(path.exists() for path in earlier)


def test_a_start_that_came_to_nothing_does_not_hold_the_place(tmp_path: Path) -> None:
    """However far the first turn was: its files are written before its line."""
    expected = contents(begun(tmp_path, turns=1))
    files = ["0001.mp4", "0001.safetensors", ".0001.mp4.k.mp4"]
    for left, log in (([], None), (files[:1], b""), (files[:2], b'{"id":"0001","par'), (files, None)):
        started = GameFolder.create(tmp_path / "started", SETTINGS.model_copy(update={"seed": 9}))
        for name in left:
            (started.path / name).write_bytes(b"of another seed")
        if log is not None:
            (started.path / "turns.jsonl").write_bytes(log)
        again = GameFolder.create(started.path, SETTINGS)
        assert again.settings == SETTINGS
        play_turn(again, PaintedEngine(), STORY[0], None)
        assert contents(again) == expected
        shutil.rmtree(started.path)


def test_a_folder_that_is_no_game_or_of_another_version_is_left_alone(tmp_path: Path) -> None:
    for number, theirs in enumerate((["0001.mp4"], ["0001.mp4", "0002.mp4"], ["holiday.jpg"], ["turns.jsonl"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in theirs:
            (folder / name).write_bytes(b"")
        with pytest.raises(GameError, match=r"not empty.*another --out"):
            GameFolder.create(folder, SETTINGS)
        assert sorted(path.name for path in folder.iterdir()) == theirs
    with pytest.raises(GameError, match="not empty"):
        GameFolder.create(folder / "turns.jsonl", SETTINGS)
    with pytest.raises(GameError, match="holds no game"):
        GameFolder.open(folder)
    path = begun(tmp_path).path / "game.json"
    for name, value in (("speed", 2), ("seed", -1), ("schema_version", 2)):
        path.write_text(json.dumps({**SETTINGS.model_dump(), name: value}))
        with pytest.raises(GameError, match=rf"game\.json is damaged, or of another version.*{name}"):
            GameFolder.open(path.parent)
