"""Predictions of recorded turns by the game model: what phase c trains the shot decoder on.

| `adapt.predictions` | past of a turn | model |
|---|---|---|
| `own` | recorded | the game model |
| `rollout` | predicted, from the start of the shard | the game model |
| `out-of-fold` | recorded | a game model that was trained without this turn's fold |

Folds are made of whole scenes, every k-th one, because clips of one scene are alike. In held-out splits no turn was
trained on, so there `out-of-fold` is `own`.

Letters of the shapes: B batch, L shot tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaTokenizer

from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.game_model import GameModel
from models.tokens import PastTurn
from training.data.rollout import rolled_out
from training.data.turns import RecordedTurn
from training.data.windows import Window, Windows

Predict = Callable[[Sequence[Window]], Tensor]
"""Function from windows to the predicted shot tokens [B, L, D] of their last turns."""


@dataclass(frozen=True)
class PredictedBy:
    """Maker of the predictions, besides the checkpoint's game model after the recorded past."""

    rollout: bool = False
    folds: tuple[Checkpoint, ...] = ()
    """Checkpoints of `out-of-fold`; the game model of each was trained without the fold of its place."""


def folds_of(turns: Iterable[RecordedTurn], folds: int) -> dict[str, int]:
    """Return the fold of each turn by clip id: its scene's number, counted over all films, modulo the folds."""
    scenes: dict[tuple[str, int], int] = {}
    return {
        turn.clip_id: scenes.setdefault((turn.sample.film_id, turn.sample.scene), len(scenes)) % folds for turn in turns
    }


def by_windows(windows: Windows, predict: Predict, shape: Sequence[int]) -> Callable[[Sequence[RecordedTurn]], Tensor]:
    """Return an encoder of turns that predicts each in the longest window, as during play.

    A turn without an instruction, or one that overlaps the turn before it, is in no window; it gets zeros, which are
    never read.
    """
    item_of = {turn.clip_id: item for item, turn in enumerate(windows.turns)}

    def encode(turns: Sequence[RecordedTurn]) -> Tensor:
        rows_BLD = torch.zeros(len(turns), *shape)
        rows = [row for row, turn in enumerate(turns) if turn.clip_id in item_of]
        if rows:
            rows_BLD[rows] = predict([windows.longest(item_of[turns[row].clip_id]) for row in rows])
        return rows_BLD

    return encode


def by_fold(predict: Sequence[Predict], fold_of: Mapping[str, int]) -> Predict:
    """Return a function that gives each window to the model of its turn's fold."""

    def predicted(windows: Sequence[Window]) -> Tensor:
        return torch.cat([predict[fold_of[window.target.clip_id]]([window]) for window in windows])

    return predicted


def after_own(
    model: GameModel, tokenizer: LlamaTokenizer, config: ModelConfig, tokens_of: Callable[[str], Tensor]
) -> Predict:
    """Return a function that predicts turns, given in time order, after its predictions for the turns before.

    Turns before the shard of a turn have their recorded shot tokens: so a shard's predictions depend on no other
    shard, and processes can share the shards.
    """
    made: dict[str, PastTurn] = {}

    def predicted(windows: Sequence[Window]) -> Tensor:
        rows = []
        for window in windows:
            target = window.target
            past = [
                made[turn.clip_id]
                if turn.shard == target.shard
                else PastTurn(turn.instruction, tokens_of(turn.clip_id).float(), turn.state, turn.measured)
                for turn in window.past
            ]
            (prediction,) = rolled_out(model, tokenizer, config, [target], past)
            while len(made) >= config.game_model.window_turns:
                del made[next(iter(made))]  # the oldest; no window reaches back so far
            made[target.clip_id] = PastTurn(target.instruction, prediction.shot_tokens_LD, prediction.state)
            rows.append(prediction.shot_tokens_LD)
        return torch.stack(rows)

    return predicted
