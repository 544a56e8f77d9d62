"""`play --game`: a file of instructions becomes a game, stops clean, and goes on where it stopped."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flows.game.folder import GameFolder, game_lock
from flows.game.play_file import play_file, play_on, play_turn
from flows.game.records import GameError, GameSettings
from models.checkpoint import Checkpoint
from models.checkpoint_writer import save_config
from models.engine_options import EngineOptions
from models.tokens import MOST_INSTRUCTION_TOKENS
from pipeline.core.atomic import LOCK
from pipeline.core.errors import UserError
from pipeline.core.progress import Progress as Report
from pipeline.core.progress import watcher
from pipeline.video.clip_files import read_clip
from tests.support.networks.painted_engine import PaintedEngine
from tests.support.networks.tiny_models import brief_checkpoint

SETTINGS = GameSettings(seed=7, checkpoint="painted", window_turns=4, fps=8)
STORY = [f"Qiqi does thing {number}" for number in range(1, 6)]
ENDLESS = 10**9
ONE_STEP = EngineOptions("cpu", steps=1)


class Impatient:
    """A watcher that stops the game, as Ctrl-C does, once it is so many turns far."""

    def __init__(self, turns: float = ENDLESS) -> None:
        self.turns = turns
        self.told: list[tuple[float, float]] = []

    def begin(self, subject: str, stage: str) -> Report:  # noqa: ARG002
        def report(done: float, total: float) -> None:
            self.told.append((done, total))
            if done >= self.turns:
                raise KeyboardInterrupt

        return report

    def end(self, subject: str, stage: str, outcome: str) -> None:
        """The outcome is not looked at."""


@contextmanager
def watched_by(impatient: Impatient) -> Iterator[None]:
    token = watcher.set(impatient)
    try:
        yield
    finally:
        watcher.reset(token)


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


def shots(folder: Path) -> dict[str, bytes]:
    """The files that do not tell how long something took, or who held the folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ("turns.jsonl", LOCK)}


def test_a_stopped_game_goes_on_to_the_same_files(tmp_path: Path) -> None:
    whole = GameFolder.create(tmp_path / "whole", SETTINGS)
    play_on(whole, PaintedEngine(), STORY)
    stopped = GameFolder.create(tmp_path / "stopped", SETTINGS)
    for turns in (0.05, 0.5, 1.95, 3.2):
        with watched_by(Impatient(turns)), pytest.raises(KeyboardInterrupt):
            play_on(GameFolder.open(stopped.path), PaintedEngine(), STORY)
        assert len(GameFolder.open(stopped.path).turns) == int(turns)
    engine = PaintedEngine()
    play_on(GameFolder.open(stopped.path), engine, STORY)
    assert len(engine.seen) == 2
    assert shots(stopped.path) == shots(whole.path)
    assert GameFolder.open(stopped.path).turns == whole.turns


def test_the_bar_counts_turns_and_only_rises_and_each_turn_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watching, folder = Impatient(), GameFolder.create(tmp_path / "game", SETTINGS)
    with watched_by(watching):
        play_on(folder, PaintedEngine(), ["Qiqi [bold]runs[/]", "Qiqi rests"])
    done = [done for done, _ in watching.told]
    assert all(later > earlier - 1e-9 for earlier, later in pairwise(done))
    assert (done[0], done[-1], {total for _, total in watching.told}) == (0, 2, {2})
    told = [line for line in capsys.readouterr().err.splitlines() if "|" in line]
    assert len(told) == 2
    assert told[0].startswith("   1  Qiqi [bold]runs[/]  |  level ")
    values, changes = folder.turns[0].values, folder.turns[0].changes
    assert f"stamina {values.stamina} ({5 * changes.stamina:+d})  social {values.social} (" in told[0]


@pytest.mark.slow
def test_a_last_frame_that_only_repeats_is_left_out_and_unknown_characters_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = Path(shutil.copytree(brief_checkpoint(), tmp_path / "checkpoint"))
    config = Checkpoint.open(checkpoint).config
    save_config(checkpoint, config.replaced(still_last_frame=True, characters=("Haru", "Mika")))
    film = play_file(written(tmp_path / "game.txt", "haru runs", "Qiqi runs"), checkpoint, tmp_path / "out", ONE_STEP)
    assert len(read_clip(tmp_path / "out" / "0002.mp4")) == 8
    assert len(read_clip(film)) == 16
    assert "1 of 2 instructions name no character of the training data (Haru, Mika)" in capsys.readouterr().err


@pytest.mark.slow
def test_a_game_file_becomes_a_game_and_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With real networks; then the same again, and then with a line more."""
    game, out = written(tmp_path / "game.txt", "# a game", STORY[0]), tmp_path / "out"

    def play() -> str:
        film = play_file(game, brief_checkpoint(), out, ONE_STEP, seed=3)
        assert film == out / "film.mp4"
        return capsys.readouterr().err

    assert "loading the networks" in play()
    assert "nothing to play: all 1 turns" in (again := play())
    assert "loading" not in again
    written(game, *STORY[:2])
    assert "resuming after turn 1 of 2" in play()
    assert len(read_clip(out / "film.mp4")) == 18
    assert [record.instruction for record in GameFolder.open(out).turns] == STORY[:2]


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """A folder where the first two turns of the story were played with the tiny checkpoint's settings."""
    settings = GameSettings.of(Checkpoint.open(brief_checkpoint()), ONE_STEP, seed=3)
    play_on(GameFolder.create(tmp_path / "out", settings), PaintedEngine(settings.window_turns), STORY[:2])
    return tmp_path / "out"


@pytest.mark.slow
def test_another_game_is_not_mixed_in(tmp_path: Path, played: Path) -> None:
    before = shots(played)
    refused: list[tuple[dict[str, Any], list[str], str]] = [
        ({"seed": 4}, STORY, "begun with seed 3, and this game has 4"),
        ({"guidance": 3.0}, STORY, "begun with guidance 6.0, and this game has 3.0"),
        ({"sampler": "ode"}, STORY, "begun with sampler sde, and this game has ode"),
        ({"compile": True}, STORY, "begun with compile False, and this game has True"),
        ({}, [STORY[0], "something else"], "turn 2 there is .Qiqi does thing 2., in the game file it is .something"),
        ({}, STORY[:1], "more turns than the game file"),
    ]
    for changed, lines, expected in refused:
        seed = changed.pop("seed", 3)
        options = replace(ONE_STEP, **changed)
        game = written(tmp_path / "game.txt", *lines)
        with pytest.raises(GameError, match=rf"(?s){expected}.*--out"):
            play_file(game, brief_checkpoint(), played, options, seed)
    assert shots(played) == before
    play_turn(GameFolder.open(played), PaintedEngine(), "went back", "0001")
    with pytest.raises(GameError, match=r"branches at turn 0002-1.*--out"):
        play_file(written(tmp_path / "game.txt", *STORY), brief_checkpoint(), played, ONE_STEP, seed=3)


def test_a_game_of_an_older_release_goes_on_and_one_of_another_precision_does_not(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(brief_checkpoint())
    now = GameSettings.of(checkpoint, replace(ONE_STEP, precision="float32"), seed=3)
    assert now.precision == "float32"
    old = GameSettings.model_validate(now.model_dump(exclude={"sampler", "guided", "precision", "compile"}))
    assert old.unlike(now) is None
    assert now.model_copy(update={"precision": "bfloat16, float16"}).unlike(now) == "precision"


@pytest.mark.slow
def test_one_process_at_a_time_plays_in_a_folder_and_the_second_changes_nothing(tmp_path: Path) -> None:
    game, out = written(tmp_path / "game.txt", STORY[0]), tmp_path / "out"
    with game_lock(out):
        begun = GameFolder.create(out, SETTINGS)
        with pytest.raises(GameError, match=r"held by `animegamer play`, process .*--out"):
            play_file(game, brief_checkpoint(), out, ONE_STEP, seed=9)
    assert GameFolder.open(out).settings == begun.settings
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"is a file; name another --out"):
        play_file(game, brief_checkpoint(), tmp_path / "file", ONE_STEP)


@pytest.mark.slow
def test_another_checkpoint_is_not_mixed_in(tmp_path: Path, played: Path) -> None:
    """Even one of the same shape: what counts is what the weights are."""
    other = Path(shutil.copytree(brief_checkpoint(), tmp_path / "other"))
    weights = bytearray((other / "shot_encoder.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "shot_encoder.safetensors").write_bytes(weights)
    with pytest.raises(GameError, match=r"begun with checkpoint .*--out"):
        play_file(written(tmp_path / "game.txt", *STORY), other, played, ONE_STEP, seed=3)


@pytest.mark.slow
def test_what_cannot_be_played_is_told_before_anything_is_written(tmp_path: Path) -> None:
    game, out = written(tmp_path / "game.txt", STORY[0], "", "very " * 300), tmp_path / "out"
    with pytest.raises(UserError, match=rf"game\.txt, line 3: .*at most {MOST_INSTRUCTION_TOKENS}"):
        play_file(game, brief_checkpoint(), out, ONE_STEP)
    with pytest.raises(UserError, match="is not a checkpoint"):
        play_file(game, tmp_path / "nowhere", out, ONE_STEP)
    with pytest.raises(UserError, match="steps must divide 1000"):
        play_file(written(game, *STORY), brief_checkpoint(), out, EngineOptions("cpu", steps=30))
    assert not out.exists()


PLAYING = """
    import os, signal, sys
    from pathlib import Path

    from flows.game import folder as game_folder
    from flows.game.play_file import play_file
    from models.engine_options import EngineOptions

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def die_in_the_second_shot(path, *arguments):
        if path.name.startswith(".0002."):
            path.write_bytes(b"half a shot")
            die()
        write_clip(path, *arguments)

    write_clip = game_folder.write_clip
    if sys.argv[1] == "between the files of a turn and its line":
        game_folder.sync = die
    else:
        game_folder.write_clip = die_in_the_second_shot
    play_file(*map(Path, sys.argv[2:]), EngineOptions("cpu", steps=2), seed=3)
"""


MOMENTS = {
    "between the files of a turn and its line": (0, "0001.safetensors"),
    "in the middle of a shot": (1, ".0002.mp4.*"),
}
"""With the turns that are done then, and what is left of the next."""


@pytest.mark.nightly
def test_a_killed_game_goes_on_to_the_same_files(tmp_path: Path) -> None:
    """kill -9 with real networks, at moments of a few milliseconds: so the process kills itself."""
    game = written(tmp_path / "game.txt", *STORY[:3])
    play_file(game, brief_checkpoint(), tmp_path / "whole", EngineOptions("cpu", steps=2), seed=3)
    out = tmp_path / "killed"
    for moment, (turns, left) in MOMENTS.items():
        arguments = [moment, str(game), str(brief_checkpoint()), str(out)]
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(PLAYING), *arguments], check=False)
        assert done.returncode == -signal.SIGKILL
        assert len(GameFolder.open(out).turns) == turns
        assert list(out.glob(left))
    play_file(game, brief_checkpoint(), out, EngineOptions("cpu", steps=2), seed=3)
    assert shots(out) == shots(tmp_path / "whole")
