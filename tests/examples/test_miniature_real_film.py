"""Clips that a model of the real film has memorised: drawn nearer to training data than to their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from examples.miniature.real_film import CONFIG, Drawn, memorised
from models.config import mini_config
from models.engine import Engine
from models.engine_options import EngineOptions
from pipeline.core.config import load_config
from tests.support.networks.tiny_models import mini_checkpoint


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(mini_checkpoint(), EngineOptions("cpu", 10, 1.0, precision="float32"))


def clips(seed: int) -> list[Tensor]:
    colours = torch.randint(0, 256, (3, 1, 64, 96, 3), generator=torch.Generator().manual_seed(seed))
    return [each.expand(17, -1, -1, -1).to(torch.uint8) for each in colours]


def drawn(own: list[Tensor], of: Callable[[int], Tensor]) -> list[Drawn]:
    return [Drawn("run", clip, of(number)) for number, clip in enumerate(own)]


@pytest.mark.slow
def test_a_held_out_clip_drawn_as_a_training_clip_is_memorised(engine: Engine) -> None:
    shown, held_out = clips(1), clips(2)
    found = memorised(engine, drawn(shown, lambda number: shown[number - 1]), drawn(held_out, shown.__getitem__))
    assert (found["train, memorised"], found["val, memorised"]) == (0, 1)
    assert found["train, memorised by chance"] == 1, "exchanged by one, they are back in order"
    assert found["val, clips"] == 3


def test_the_films_clips_are_of_the_shape_that_the_model_draws() -> None:
    clips, decoder = load_config(CONFIG).clips, mini_config().shot_decoder
    assert (clips.frames, clips.fps) == (decoder.frames, decoder.fps)
    assert clips.width * decoder.height == clips.height * decoder.width
