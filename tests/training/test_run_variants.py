"""Runs of other recipes: ablations, networks without adapters, a predicted past."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from models.checkpoint import Checkpoint, precision_of
from models.checkpoint_writer import save_game_model, save_shot_decoder
from models.config import ModelConfig, mini_config, tiny_config
from models.engine_options import EngineOptions
from models.game import Game
from models.untrained import new_checkpoint
from pipeline.core.errors import UserError
from tests.support.networks.small_run import small_recipe, small_run, train_through_kills, weights
from tests.support.networks.tiny_models import shake, tiny_checkpoint
from tests.support.shared_folders import shared_folder
from training.config import Recipe
from training.recipes import ABLATIONS, ablation

WITHOUT = {"shot_decoder": {"lora_rank": 0}, "game_model": {"lora_rank": 0}}
IN_THE_GATE = "random-frame"
"""The one that changes what the networks read; `no-history` and `no-warm-up` leave something out, the others change a
setting of a network or a loss."""
SHORT = {"steps": 1, "validate_every": 1}


def _config() -> ModelConfig:
    tiny = tiny_config()
    shot = {**tiny.shot_decoder.model_dump(), **WITHOUT["shot_decoder"], "height": 32, "width": 48}
    return tiny.replaced(shot_decoder=shot, game_model={**tiny.game_model.model_dump(), **WITHOUT["game_model"]})


def _recipe() -> Recipe:
    shot_decoder = {**WITHOUT["shot_decoder"], "height": 32, "width": 48}
    return small_recipe(
        model={**WITHOUT, "shot_decoder": shot_decoder},
        shot={"joint": {"ema_decay": 0.9, "save_every": 3}},
        game={"loop": {"ema_decay": 0.9}},
    )


def _checkpoint() -> Checkpoint:
    return Checkpoint.open(shared_folder("without-adapters", lambda folder: new_checkpoint(folder, _config(), seed=1)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("without")
    training = small_run(folder, _recipe())
    training.shot()
    training.game()
    training.adapt()
    return folder


def _base(folder: Path, name: str) -> dict[str, Tensor]:
    (path,) = (folder / "bases" / name).glob("*.safetensors")
    return load_file(path)


def test_a_base_outside_the_checkpoint_is_not_trained_itself() -> None:
    bases = {**mini_config().bases, "transformer": {"id": "zai-org/CogVideoX-2b"}}
    with pytest.raises(ValueError, match="without adapters transformer is trained itself"):
        mini_config().replaced(bases=bases)


def test_a_language_model_without_the_tokens_of_the_game_is_refused() -> None:
    checkpoint = Checkpoint(tiny_checkpoint(), _config())
    with pytest.raises(UserError, match="without adapters has 32284 tokens, not 32000"):
        checkpoint.game_model()


@pytest.mark.slow
def test_saved_weights_are_loaded_to_the_bit_and_change_the_identity(tmp_path: Path) -> None:
    checkpoint = new_checkpoint(tmp_path / "checkpoint", _config(), seed=1)
    assert not list(checkpoint.folder.rglob("*adapter*"))
    assert not (checkpoint.folder / "shot_decoder").exists()
    assert checkpoint.identity() == _checkpoint().identity()
    assert checkpoint.untrained() == ["game model", "shot decoder"]
    game_model, decoder = checkpoint.game_model(), checkpoint.shot_decoder()
    shake(game_model)
    save_game_model(checkpoint.folder, game_model)
    assert checkpoint.untrained() == ["shot decoder"]
    assert checkpoint.identity() != _checkpoint().identity()
    shake(decoder)
    save_shot_decoder(checkpoint.folder, decoder)
    assert checkpoint.untrained() == []
    for saved, loaded in ((game_model, checkpoint.game_model()), (decoder, checkpoint.shot_decoder())):
        wanted = saved.state_dict()
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in loaded.state_dict().items())
        assert loaded.state_dict().keys() == wanted.keys()


@pytest.mark.parametrize("load", [Checkpoint.game_model, Checkpoint.shot_decoder])
def test_weights_to_train_stay_in_full_precision(load: Callable[..., torch.nn.Module]) -> None:
    frozen, trained = (load(_checkpoint(), "cpu", torch.bfloat16, each) for each in (None, torch.float32))
    assert {parameter.dtype for parameter in frozen.parameters() if parameter.ndim > 1} == {torch.bfloat16}
    exact = load(_checkpoint(), "cpu", precision_of("transformer", "cpu")).state_dict()
    assert all(torch.equal(tensor, exact[name]) for name, tensor in trained.state_dict().items())


@pytest.mark.slow
def test_every_phase_trains_all_weights_of_its_network(run: Path) -> None:
    start, warm, joint, game, adapt = (
        run / name for name in ("start", "warm-up/result", "joint/result", "game/result", "adapt/result")
    )
    motion = {name for name in _base(start, "transformer") if name.startswith("time_embedding.motion.")}
    assert len(motion) == 4
    assert _changed(start, warm, "transformer") <= motion
    for before, after in ((warm, joint), (game, adapt)):
        unchanged = _base(after, "transformer").keys() - _changed(before, after, "transformer")
        assert not unchanged - {"patch_embed.pos_embedding"}
    assert not _changed(joint, game, "transformer")
    embeddings = {"model.embed_tokens.weight", "lm_head.weight"}
    assert not _base(game, "language_model").keys() - _changed(joint, game, "language_model") - embeddings
    assert not _changed(start, joint, "language_model") | _changed(game, adapt, "language_model")
    assert not list(adapt.rglob("*adapter*"))
    (turn,) = Game.load(adapt, EngineOptions(steps=2)).play("Hana runs over the waves")
    assert turn.frames_THWC.shape == (16, 32, 48, 3)


@pytest.mark.slow
def test_a_result_names_no_folder_of_the_machine_that_trained_it(run: Path) -> None:
    written = [path for path in (run / "adapt" / "result").rglob("*.json") if "tokenizer" not in path.name]
    assert len(written) >= 5
    assert [path for path in written if str(run) in path.read_text(encoding="utf-8")] == []


def _changed(before: Path, after: Path, name: str) -> set[str]:
    old, new = _base(before, name), _base(after, name)
    assert old.keys() == new.keys()
    return {key for key in new if not torch.equal(old[key], new[key])}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == IN_THE_GATE else pytest.param(name, marks=pytest.mark.nightly) for name in ABLATIONS]
)
def test_an_ablation_trains_and_plays(tmp_path: Path, name: str) -> None:
    short = small_recipe(
        shot={"warm_up": SHORT, "joint": SHORT}, game={"loop": SHORT}, adapt={"loop": SHORT}, validation={"clips": 1}
    )
    run = small_run(tmp_path, ablation(name, short))
    run.shot()
    run.game()
    checkpoint = run.adapt()
    (turn,) = Game.load(checkpoint, EngineOptions(steps=1)).play("Hana runs over the waves")
    assert turn.frames_THWC.shape == (16, 32, 48, 3)
    left_out = {"no-warm-up": "warm-up", "no-adaptation": "adapt"}.get(name)
    assert [phase for phase in ("warm-up", "joint", "game", "adapt") if not (tmp_path / phase).exists()] == (
        [left_out] if left_out else []
    )


@pytest.mark.nightly
def test_a_run_on_packed_windows_and_rollouts_killed_in_a_phase_ends_with_the_same_bytes(tmp_path: Path) -> None:
    short = {"warm_up": {"steps": 0}, "joint": {"steps": 1}}
    game = {"windows": {"packed": True}}
    described = small_recipe(shot=short, game=game, adapt={"predictions": "rollout"})
    run = small_run(tmp_path / "whole", described)
    run.shot()
    run.game()
    run.adapt()
    train_through_kills(tmp_path / "killed", described, (("game", 5),))
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert expected.keys() == found.keys()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []


@pytest.mark.nightly
def test_rolled_out_predictions_differ_from_the_models_own(tmp_path: Path) -> None:
    made = {}
    for mode in ("own", "rollout"):
        described = small_recipe(
            shot={"warm_up": {"steps": 0}, "joint": {"steps": 1}},
            game={"precision": "bf16"},
            adapt={"predictions": mode, "loop": {"steps": 1}},
        )
        folder = tmp_path / mode
        if mode != "own":
            shutil.copytree(tmp_path / "own", folder, ignore=shutil.ignore_patterns("adapt", "predictions"))
        run = small_run(folder, described)
        run.shot()
        run.game()
        run.adapt()
        made[mode] = {
            path.name: load_file(path) for path in (folder / "features" / "predictions").rglob("*.safetensors")
        }
    assert made["rollout"].keys() == made["own"].keys()
    same = [
        torch.equal(made["rollout"][file][clip], made["own"][file][clip])
        for file in made["own"]
        for clip in made["own"][file]
    ]
    assert not all(same)
