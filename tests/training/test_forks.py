"""Forks and snapshots of a run: exact where nothing is changed, independent of the run, refused where they cannot be.

Called as a user does, on a dataset of a dozen clips.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

from flows.cli import app
from models.checkpoint import Checkpoint
from models.engine_options import EngineOptions
from models.game import Game
from pipeline.core.errors import UserError
from pipeline.core.toml import as_toml
from tests.support.networks.small_run import small_dataset, small_recipe
from tests.support.networks.tiny_models import change_image_encoder, copy_of_tiny
from training.forks import Fork
from training.phase_folder import SavedState

BRIEF = {
    "model": {"shot_decoder": {"height": 64, "width": 96}},
    "shot": {"warm_up": {"steps": 1}},
    "game": {"loop": {"steps": 4}},
    "adapt": {"loop": {"steps": 2}},
}


def called(*words: str | Path) -> tuple[int, str]:
    """Exit code of a command, and all that it printed."""
    result = CliRunner().invoke(app, [*map(str, words)])
    return result.exit_code, result.output


def train(part: str, out: Path, *words: str | Path, data: Path | None = None) -> tuple[int, str]:
    return called("train", part, "--data", data or small_dataset(), "-o", str(out), *words)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run with phases a and b; states of steps 4 and 6 of the joint training, 2 and 4 of the game model."""
    folder = tmp_path_factory.mktemp("source")
    (folder / "small.toml").write_text(as_toml(small_recipe(**BRIEF)))
    words = ("--config", folder / "small.toml", "--from", copy_of_tiny(folder / "start"))
    for part in ("shot", "game"):
        code, said = train(part, folder / "run", *words)
        assert code == 0, said
    return folder / "run"


def weights(checkpoint: Path) -> dict[str, Tensor]:
    return {
        f"{path.relative_to(checkpoint)}:{name}": tensor
        for path in sorted(checkpoint.rglob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def same(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_a_fork_without_changes_ends_with_the_same_bytes_also_after_its_source_is_gone(
    source: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    shutil.copytree(source, gone)
    state = gone / "joint" / "states" / "step-00000004"
    code, said = train("shot", tmp_path / "fork", "--fork-from", state)
    assert code == 0, said
    assert "warm-up: done before the fork" in said
    assert "joint: resumes after step 4, 6 steps" in said
    result = tmp_path / "fork" / "joint" / "result"
    assert same(result, source / "joint" / "result")
    phases = json.loads((result / "trained.json").read_text())["phases"]
    assert phases == [
        {"phase": "warm-up", "step": 1, "steps": 1},
        {"phase": "joint", "step": 6, "steps": 6, "forked_from": "gone/joint/states/step-00000004"},
    ]
    shutil.rmtree(gone)
    for words in (("--fork-from", state), ()):
        code, said = train("game", tmp_path / "fork", *words)
        assert code == 0, said
    assert same(tmp_path / "fork" / "game" / "result", source / "game" / "result")
    code, said = train("shot", tmp_path / "fork", "--fork-from", source / "joint")
    assert code == 1
    assert "was forked from" in said


@pytest.mark.nightly
def test_a_fork_with_changes_takes_them_and_keeps_the_rest_of_the_state(source: Path, tmp_path: Path) -> None:
    other = shutil.copytree(small_dataset(), tmp_path / "data")
    index = json.loads((other / "shards" / "index.json").read_text())
    (other / "shards" / "index.json").write_text(json.dumps({**index, "shards": index["shards"][:-1]}))
    (tmp_path / "changed.toml").write_text(
        "[game.loop]\nsteps = 8\nlearning_rate = 5e-4\nema_decay = 0.9\nbetas = [0.8, 0.9]\nweight_decay = 0.0\n"
    )
    words = ("--fork-from", source / "game", "--config", tmp_path / "changed.toml")
    code, said = train("game", tmp_path / "whole", *words, data=other)
    assert code == 0, said
    assert "game: resumes after step 4, 8 steps" in said
    state = SavedState.at(tmp_path / "whole" / "game")
    assert state.step == 8
    assert not same(tmp_path / "whole" / "game" / "result", source / "game" / "result")
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "game" / "result")
    shutil.rmtree(tmp_path / "killed" / "game" / "states" / "step-00000008")  # resumes from the fork's own state
    code, said = train("game", tmp_path / "killed", *words, data=other)
    assert "game: resumes after step 6" in said
    assert same(tmp_path / "killed" / "game" / "result", tmp_path / "whole" / "game" / "result")
    code, said = train("adapt", tmp_path / "whole", "--config", tmp_path / "changed.toml", data=other)
    assert code == 0, said
    assert Checkpoint.open(tmp_path / "whole" / "adapt" / "result").config.size == "tiny"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "changes", "said"),
    [
        ("joint", "[shot.joint]\nsteps = 6", "has done 6 steps: give joint more than these, not 6"),
        ("joint/states/step-00000002", "", "no saved state of step 2: "),
        ("joint", "[model.shot_encoder]\nvariant = 'linear'\n[shot.joint]\nsteps = 9", "do not change model"),
        ("joint", "[shot]\ntrained = 'adapters'\n[shot.joint]\nsteps = 9", "do not change shot.trained"),
        ("game", "[game.loop]\noptimizer = 'muon'\nsteps = 9", "do not change optimizer"),
        ("features", "", "has no saved states: name the folder of a phase"),
        ("game", "[game.loop]\nstep = 9", "did you mean game.loop.steps?"),
    ],
)
def test_what_cannot_be_forked_is_refused_at_launch(
    source: Path, tmp_path: Path, state: str, changes: str, said: str
) -> None:
    (tmp_path / "changed.toml").write_text(changes)
    words = ("--fork-from", source / state, "--config", tmp_path / "changed.toml")
    code, told = train(state.split("/")[0].replace("joint", "shot"), tmp_path / "new", *words)
    assert code == 1
    assert said in told.replace("\n", " ")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_fork_goes_into_a_new_folder_with_its_sources_recipe(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a run already: name a new folder"):
        Fork.of(source / "joint", source)
    shutil.copytree(source / "warm-up" / "result", tmp_path / "features" / "start")  # as `train features` leaves it
    with pytest.raises(UserError, match="start is another checkpoint: name a new folder"):
        Fork.of(source / "game", tmp_path / "features").make(tmp_path / "features")
    code, said = train("shot", tmp_path / "new", "--fork-from", source / "joint", "--recipe", "full")
    assert code == 1
    assert "leave out --recipe, --ablation and --from" in said


@pytest.mark.slow
def test_a_state_whose_start_has_another_encoder_now_is_not_forked(source: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(source, tmp_path / "run"))
    change_image_encoder(run / "warm-up" / "result")
    with pytest.raises(UserError, match=r"warm-up/result has changed since .* was begun from it"):
        Fork.of(run / "joint", tmp_path / "new").make(tmp_path / "new")


@pytest.mark.slow
def test_a_snapshot_of_a_state_has_the_bytes_of_a_result_after_so_many_steps(source: Path, tmp_path: Path) -> None:
    code, said = called("snapshot", source / "joint", "--step", "6")
    assert code == 0, said
    snapshot = source / "joint" / "snapshots" / "step-00000006"
    assert said.strip() == str(snapshot)
    assert same(snapshot, source / "joint" / "result")
    assert Checkpoint.open(snapshot).config == Checkpoint.open(source / "joint" / "result").config
    code, said = called("snapshot", source, "--step", "2")  # only the game model has such a state
    assert code == 0, said
    half = source / "game" / "snapshots" / "step-00000002"
    assert said.strip() == str(half)
    assert json.loads((half / "trained.json").read_text())["phases"][-1] == {"phase": "game", "step": 2, "steps": 4}
    (turn,) = Game.load(half, EngineOptions(steps=2)).play("Hana runs over the waves")
    assert turn.frames_THWC.shape == (16, 64, 96, 3)
    assert not list(half.parent.glob(".*"))
    for words, why in (
        (("--step", "5"), "no saved state of step 5: "),
        (("--step", "4"), "have saved states: name the folder of one phase"),
        ((), "have saved states: name the folder of one phase"),
    ):
        code, said = called("snapshot", source, *words)
        assert code == 1
        assert why in said.replace("\n", " ")
    assert "has 4, 6" in called("snapshot", source / "joint", "--step", "5")[1].replace("\n", " ")


@pytest.mark.nightly
def test_snapshots_written_in_training_and_afterwards_are_the_same_also_of_averages(
    source: Path, tmp_path: Path
) -> None:
    changed = "[adapt.loop]\nsteps = 4\nema_decay = 0.9\nsave_every = 2\nsnapshot_every = 2\n"
    shutil.copytree(source, tmp_path / "run")
    (tmp_path / "changed.toml").write_text((source.parent / "small.toml").read_text().split("[adapt]")[0] + changed)
    code, said = train("adapt", tmp_path / "run", "--config", tmp_path / "changed.toml")
    assert code == 0, said
    written = tmp_path / "run" / "adapt" / "snapshots" / "step-00000002"
    written.rename(tmp_path / "written")
    assert called("snapshot", tmp_path / "run" / "adapt", "--step", "2")[0] == 0
    assert same(written, tmp_path / "written")
    assert not same(written, tmp_path / "run" / "adapt" / "result")
