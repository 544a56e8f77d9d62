"""Clips drawn again from their own shot tokens: the tokens of training, and a drawing that depends on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.checkpoint import Checkpoint
from models.engine_options import EngineOptions
from models.turns import GameState, Values
from tests.support.networks.small_run import small_dataset, small_recipe
from tests.support.networks.tiny_models import tiny_checkpoint
from training.data.definitions import open_cache
from training.data.encoding import Encoder
from training.data.shards import open_shards
from training.data.turns import Catalog, PackedTurn
from training.evaluation.benchmark import Panel
from training.evaluation.reconstruction import Reconstructor, real_clips

OPTIONS = EngineOptions(device="cpu", steps=2, guidance=1.0)


def clips() -> list[PackedTurn]:
    """Return the held-out clips of the small dataset, in order."""
    known = Catalog.read(open_shards(small_dataset(), "val")).by_id
    panels = [Panel(game="a", turn=turn, words="x", clip_id=one) for turn, one in enumerate(known, start=1)]
    found = real_clips(str(small_dataset()), panels)
    assert found.keys() == known.keys()
    return list(found.values())


@pytest.mark.parametrize("frame", ["first", "random"])
def test_the_tokens_of_a_clip_are_those_of_training(tmp_path: Path, frame: Any) -> None:
    opened = Checkpoint.open(tiny_checkpoint())
    checkpoint = Checkpoint(opened.folder, opened.config.replaced(encoded_frame=frame))
    recipe, shards = small_recipe(shot={"frame": frame}), open_shards(small_dataset(), "val")
    names: Any = ("patches", "text", "shot_tokens")
    cache = open_cache(tmp_path, Catalog.read(shards), checkpoint, recipe, names)
    encoder = Encoder(checkpoint, recipe)
    for name in names:
        encoder.make(name, {cache: shards})
    reconstructor = Reconstructor(checkpoint, OPTIONS)
    for clip in clips():
        torch.testing.assert_close(reconstructor.tokens(clip), cache.get("shot_tokens", clip.clip_id).float())


@pytest.mark.slow
def test_a_drawing_depends_on_tokens_and_scope_and_has_the_clips_own_state() -> None:
    reconstructor = Reconstructor.load(tiny_checkpoint(), OPTIONS)
    one, other = clips()[:2]
    turn, again = (reconstructor.turn(GameState(2, Values(stamina=40)), "They run", one, seed=3) for _ in range(2))
    assert np.array_equal(turn.frames_THWC, again.frames_THWC)
    assert (turn.number, turn.instruction, turn.state) == (3, "They run", one.turn.state)
    assert turn.values == Values(stamina=40).after(one.turn.state)
    assert turn.scope_px == one.turn.sample.motion.scope_px
    assert set(turn.seconds) == {"tokens", "denoising", "frames"}
    of_other = replace(one, video=other.video)
    assert not np.array_equal(reconstructor.turn(GameState(), "They run", of_other, 3).frames_THWC, turn.frames_THWC)
