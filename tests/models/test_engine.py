"""Engine: inputs, precision and device of each network."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.checkpoint import Checkpoint
from models.checkpoint_writer import save_config, save_shot_decoder
from models.config import CONFIG, PUBLISHED_VALUES, Sampling
from models.diffusion import Guidance
from models.engine import Engine
from models.engine_options import EngineOptions
from models.turns import GameState, Turn
from pipeline.core.errors import UserError
from tests.support.networks.tiny_models import brief_checkpoint, shake


def engine_of(checkpoint: Checkpoint, guidance: float = 6.0, seed: int = 0) -> Engine:
    """Engine of the unmerged networks of the checkpoint; `seed` changes the shot encoder at random."""
    encoder = checkpoint.shot_encoder()
    shake(encoder, seed, by=0.3)
    networks = checkpoint.game_model(), encoder, checkpoint.shot_decoder(), checkpoint.autoencoder()
    return Engine(
        checkpoint.config, checkpoint.tokenizer(), *networks, EngineOptions("cpu", steps=2, guidance=guidance)
    )


def play(engine: Engine) -> Turn:
    return engine.next_turn(GameState(), "Qiqi runs", seed=3)[0]


@pytest.mark.slow
def test_merged_adapters_draw_the_same_shot(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(shutil.copytree(brief_checkpoint(), tmp_path / "checkpoint"))
    decoder = checkpoint.shot_decoder()
    shake(decoder, by=0.1)
    save_shot_decoder(checkpoint.folder, decoder)
    options = EngineOptions("cpu", steps=2, guidance=2.0, precision="float32")
    merged = Engine.load(checkpoint.folder, options)
    apart = engine_of(checkpoint, guidance=2.0)
    apart._unconditional_BLD = merged._unconditional_BLD
    assert all(module.merged for name, module in merged.shot_decoder.named_modules() if name.endswith("attn1.to_q"))
    frames, expected = play(merged).frames_THWC.astype(int), play(apart).frames_THWC.astype(int)
    assert np.abs(frames - expected).max() <= 2
    untouched = play(Engine.load(brief_checkpoint(), options)).frames_THWC
    assert np.abs(frames - untouched).max() > 20


def test_a_checkpoint_is_sampled_as_it_says_unless_asked_otherwise(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(brief_checkpoint(), tmp_path / "checkpoint"))
    identity, path = Checkpoint.open(folder).identity(), folder / CONFIG
    said = path.read_text()
    assert json.loads(said)["sampling"] == {"sampler": "sde", "steps": 50, "guidance": 6.0, "guided": [0, 999]}
    path.write_text(re.sub(r'  "sampling": \{.*?\n  \},\n', "", said, flags=re.DOTALL))  # as before there was one
    before = Checkpoint.open(folder)
    assert "sampling" not in before.config.model_fields_set
    assert (before.config.sampling, before.identity()) == (Sampling(sampler="sde", steps=50, guidance=6.0), identity)
    own = Sampling(sampler="ode", steps=2, guidance=2.0, guided=(0, 600))
    save_config(folder, before.config.replaced(sampling=own))
    assert Checkpoint.open(folder).identity() == identity  # a game records its sampling beside it
    engine = Engine.load(folder, EngineOptions("cpu"))
    assert (engine.sampling, engine.guidance) == (own, Guidance("constant", 2.0, (0, 600)))
    assert len(play(engine).frames_THWC) == 9
    asked = EngineOptions("cpu", steps=4, guidance=1.0, sampler="sde").sampling_of(engine.config)
    assert asked == Sampling(sampler="sde", steps=4, guidance=1.0, guided=(0, 600))


@pytest.mark.parametrize(
    ("sampling", "fault"),
    [
        ({"sampler": "euler"}, "sampling.sampler: Input should be 'sde', 'ode' or 'renoise'"),
        ({"steps": 30}, "steps must divide 1000"),
        ({"guided": (700, 300)}, "guided must be two rising timesteps"),
    ],
)
def test_a_sampling_that_nobody_can_do_is_named_with_its_file(
    tmp_path: Path, sampling: dict[str, Any], fault: str
) -> None:
    text = json.loads((brief_checkpoint() / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**text, "sampling": sampling}))
    with pytest.raises(UserError, match=rf"{tmp_path}/config.json is not valid.*{fault}"):
        Checkpoint.open(tmp_path)


def test_a_last_frame_that_only_repeats_is_left_out_if_the_checkpoint_notes_it() -> None:
    engine = engine_of(Checkpoint.open(brief_checkpoint()))
    whole = play(engine).frames_THWC
    engine.config = engine.config.replaced(still_last_frame=True)
    assert (len(whole), engine.config.shown_frames) == (9, 8)
    np.testing.assert_array_equal(play(engine).frames_THWC, whole[:8])


def test_a_turn_shows_its_own_first_frames_and_times_them() -> None:
    seen: list[Any] = []
    turn, _ = engine_of(Checkpoint.open(brief_checkpoint())).next_turn(GameState(), "Qiqi runs", 3, show=seen.append)
    np.testing.assert_array_equal(seen[0], turn.frames_THWC[: len(seen[0])])
    assert turn.seconds["denoising"] < (turn.first_frame_seconds or 0) < sum(turn.seconds.values()) + 0.1
    assert "CPU threads" in turn.device


@pytest.mark.slow
def test_guidance_uses_the_unconditional_tokens_of_the_shot_encoder() -> None:
    checkpoint = Checkpoint.open(brief_checkpoint())
    guided, otherwise = (play(engine_of(checkpoint, 6.0, seed)) for seed in (1, 2))
    assert (guided.frames_THWC != otherwise.frames_THWC).any()
    plain, same = (play(engine_of(checkpoint, 1.0, seed)) for seed in (1, 2))
    np.testing.assert_array_equal(plain.frames_THWC, same.frames_THWC)
    assert (plain.frames_THWC != guided.frames_THWC).any()


@pytest.mark.slow
def test_the_precisions_of_a_gpu_play_together_and_leave_the_positions_exact() -> None:
    checkpoint = Checkpoint.open(brief_checkpoint())
    full = checkpoint.game_model()
    half = checkpoint.game_model(dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    places = [name for name, _ in half.named_buffers() if name.endswith("inv_freq")]
    assert places
    for name in places:  # in bf16 the error would exceed a radian at the end of a window
        assert torch.equal(half.get_buffer(name), full.get_buffer(name))
    engine = Engine(
        checkpoint.config,
        checkpoint.tokenizer(),
        half,
        checkpoint.shot_encoder(dtype=torch.float16),
        checkpoint.shot_decoder(dtype=torch.float16),
        checkpoint.autoencoder(dtype=torch.float16),
        EngineOptions("cpu", steps=2),
    )
    state = GameState()
    for number in range(2):  # the second turn has the first in its window
        turn, state = engine.next_turn(state, "Qiqi runs", seed=number)
        assert turn.frames_THWC.std() > 1
        assert turn.shot_tokens_LD.isfinite().all()


def test_the_released_profile_uses_its_own_conventions() -> None:
    checkpoint = Checkpoint.open(brief_checkpoint())
    released = Checkpoint(checkpoint.folder, checkpoint.config.as_released(PUBLISHED_VALUES["app"]))
    engine = engine_of(released)
    turn, state = engine.next_turn(GameState(), "Qiqi runs", seed=3)
    assert (engine.window_turns, state.window) == (1, ())
    assert engine.game_model.readout_shift == 3
    assert engine.guidance.kind == "published"
    assert turn.scope_px == PUBLISHED_VALUES["app"][turn.state.level - 1]
    assert engine.shot_decoder.norm_out.norm.eps == 1e-6


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "nonsense:1"])
def test_a_missing_device_is_an_error_before_loading(device: str) -> None:
    with pytest.raises(UserError, match=f"no device '{device}' here"):
        Engine.load("there-is-no-checkpoint", EngineOptions(device))
