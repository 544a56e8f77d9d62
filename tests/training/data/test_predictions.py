"""Predictions of recorded turns: what phase c trains on, and how many are kept in memory."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.tokens import TokenPrompt
from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.small_game_model import STATE, mistral_tokenizer
from tests.support.networks.small_run import small_recipe
from tests.support.networks.tiny_models import brief_checkpoint
from training.config import WindowSettings
from training.data.feature_cache import FeatureCache
from training.data.predictions import after_own
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn
from training.data.windows import Windows
from training.phases.assembly import SplitData, adapt_phase

CONFIG = tiny_config()
SHAPE = (CONFIG.shot_encoder.shot_tokens, CONFIG.shot_encoder.width)


class Predicts:
    """Game model that predicts noise, and knows which of its predictions are still in memory."""

    def __init__(self) -> None:
        self.made: weakref.WeakSet[Tensor] = weakref.WeakSet()

    def predict(self, _prompt: TokenPrompt) -> SimpleNamespace:
        tokens_LD = torch.randn(SHAPE)
        self.made.add(tokens_LD)
        return SimpleNamespace(shot_tokens_LD=tokens_LD, state=STATE)


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordedTurn, ...]:
    """One shard of a film of twelve clips."""
    root = tmp_path_factory.mktemp("dataset")
    write_shards(make_dataset(root, films=1, scenes=4, clips=3, captioner=MODEL), ShardSettings(val_share=0))
    return Catalog.read(open_shards(root, "train")).turns


def test_only_predictions_that_a_window_can_reach_are_kept(turns: tuple[RecordedTurn, ...]) -> None:
    windows, model = Windows(turns, WindowSettings()), Predicts()
    predict = after_own(model, mistral_tokenizer(), CONFIG, lambda _: torch.zeros(SHAPE))  # type: ignore[arg-type]
    for item in range(len(windows)):
        predict([windows.longest(item)])
    gc.collect()
    assert len(windows) > CONFIG.game_model.window_turns >= len(model.made)


def test_turns_that_are_in_no_window_are_not_adapted_to(turns: tuple[RecordedTurn, ...], tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(brief_checkpoint())

    def examples(turns: tuple[RecordedTurn, ...]) -> int:
        catalog = Catalog("", turns, ())
        data = SplitData(catalog, FeatureCache(tmp_path, catalog, ()))
        return len(adapt_phase(small_recipe(), checkpoint, checkpoint.config, data, None).examples)

    shared = turns[3].model_copy(update={"sample": turns[3].sample.model_copy(update={"overlap_seconds": 0.5})})
    assert examples((*turns[:3], shared, *turns[4:])) == examples(turns) - 1
