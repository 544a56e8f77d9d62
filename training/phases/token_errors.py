"""Error of predicted shot tokens, rolled out: games of 5 and 10 recorded turns, each after the model's own predictions.

The error of turn n of such a game, beside that of teacher-forced predictions, shows the drift of play. With s the
recorded and s' the predicted shot tokens of the last turn:

    error = mean_{l,d} (s'_ld - s_ld)^2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import LlamaTokenizer

from models.config import ModelConfig
from models.game_model import GameModel
from training.config import WindowSettings
from training.data.order import epoch_order
from training.data.rollout import rolled_out
from training.data.turns import RecordedTurn
from training.data.windows import Windows

GAME_TURNS = (5, 10)
"""Lengths of the games of validation."""
_SEED = 0
"""Seed of the drawn games: the same in every validation of every run."""

Game = tuple[RecordedTurn, ...]


def drawn_games(turns: Sequence[RecordedTurn], settings: WindowSettings, length: int, most: int) -> list[Game]:
    """Return games of consecutive turns, drawn from all that the window settings allow; few in a broken split.

    Args:
        turns: turns of a catalog.
        settings: rules for consecutive turns; their number is `length` instead.
        length: turns of a game.
        most: games to return if there are as many.
    """
    windows = Windows(turns, settings.model_copy(update={"most_turns": length}))
    ends = [item for item in range(len(windows)) if len(windows.longest(item).turns) == length]
    return [windows.longest(ends[place]).turns for place in epoch_order(_SEED, 0, len(ends))[:most]]


@torch.no_grad()
def last_error(
    model: GameModel,
    tokenizer: LlamaTokenizer,
    config: ModelConfig,
    game: Game,
    tokens_of: Callable[[str], Tensor],
) -> Tensor:
    """Return the error of the last turn of a game.

    Args:
        model: the game model, in `eval()`.
        tokenizer: its tokenizer.
        config: configuration of the checkpoint.
        game: one of `drawn_games`.
        tokens_of: function from clip id to recorded shot tokens [L, D].
    """
    *_, last = rolled_out(model, tokenizer, config, game)
    return (last.shot_tokens_LD - tokens_of(game[-1].clip_id).to(last.shot_tokens_LD)).square().mean()
