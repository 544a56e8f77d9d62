"""Predictions of recorded turns by the game model: what phase c trains the shot decoder on.

| `adapt.predictions` | past of a turn |
|---|---|
| `own` | recorded |
| `rollout` | predicted, from the start of the shard |

Letters of the shapes: B batch, L shot tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import LlamaTokenizer

from models.config import ModelConfig
from models.game_model import GameModel
from models.tokens import PastTurn
from training.data.rollout import rolled_out
from training.data.turns import RecordedTurn
from training.data.windows import Window, Windows

Predict = Callable[[Sequence[Window]], Tensor]
"""Function from windows to the predicted shot tokens [B, L, D] of their last turns."""


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
