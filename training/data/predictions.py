"""Predictions of recorded turns by the game model: the input of phase c, and the error of games rolled out.

| `adapt.predictions` | past of a turn |
|---|---|
| `own` | recorded |
| `rollout` | predicted, from the start of the shard |

In validation, games of 5 and 10 recorded turns are rolled out, each turn after the model's own predictions. The error
of the last turn shows the drift of play, compared with teacher-forced predictions. With s the recorded and s' the
predicted shot tokens of the last turn:

    error = mean_{l,d} (s'_ld - s_ld)^2

Letters of the shapes: B batch, L shot tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor
from transformers import LlamaTokenizer

from models.config import ModelConfig
from models.game_model import GameModel, Prediction
from models.tokens import PastTurn, write_prompt
from models.turns import GameState
from training.config import WindowSettings
from training.data.order import epoch_order
from training.data.turns import RecordedTurn
from training.data.windows import Window, Windows

Predict = Callable[[Sequence[Window]], Tensor]
"""Function from windows to the predicted shot tokens [B, L, D] of their last turns."""
GAME_TURNS = (5, 10)
"""Lengths of the games of validation."""
_SEED = 0
"""Seed of the drawn games: the same in every validation of every run."""
Game = tuple[RecordedTurn, ...]


def by_windows(windows: Windows, predict: Predict, shape: Sequence[int]) -> Callable[[Sequence[RecordedTurn]], Tensor]:
    """Return an encoder of turns that predicts each in the longest window, as during play.

    A turn without an instruction is in no window, and neither is a turn that overlaps its predecessor. They get
    zeros, which are never read.
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

    Turns of earlier shards have their recorded shot tokens. So the predictions of a shard depend on no other shard, and
    processes can share the shards.
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


def rolled_out(
    model: GameModel,
    tokenizer: LlamaTokenizer,
    config: ModelConfig,
    turns: Iterable[RecordedTurn],
    past: Sequence[PastTurn] = (),
) -> Iterator[Prediction]:
    """Yield the predictions of consecutive turns from their instructions alone.

    Args:
        model: the game model, in `eval()`.
        config: configuration of the checkpoint; its `window_turns` limits the past, as in play.
        past: turns before the first one, oldest first; a new game has none.
    """
    window_turns = config.game_model.window_turns
    state = GameState(window=tuple(past[max(0, len(past) - (window_turns - 1)) :]))
    for turn in turns:
        tokens = config.shot_encoder.shot_tokens
        prompt = write_prompt(tokenizer, state.window, turn.instruction, tokens, config.conventions)
        prediction = model.predict(prompt)
        shot_tokens_LD = prediction.shot_tokens_LD.float().cpu()
        state = state.after(PastTurn(turn.instruction, shot_tokens_LD, prediction.state), window_turns)
        yield Prediction(shot_tokens_LD, prediction.state)


def drawn_games(turns: Sequence[RecordedTurn], settings: WindowSettings, length: int, most: int) -> list[Game]:
    """Return games of consecutive turns, drawn from all that the window settings allow; few in a broken split.

    Args:
        settings: rules for consecutive turns; their number is `length` instead.
        most: games to return if there are as many.
    """
    windows = Windows(turns, settings.model_copy(update={"most_turns": length}))
    ends = [item for item in range(len(windows)) if len(windows.longest(item).turns) == length]
    return [windows.longest(ends[number]).turns for number in epoch_order(_SEED, 0, len(ends))[:most]]


@torch.no_grad()
def last_error(
    model: GameModel, tokenizer: LlamaTokenizer, config: ModelConfig, tokens_of: Callable[[str], Tensor], game: Game
) -> Tensor:
    """Return the error of the last turn of a game.

    Args:
        model: the game model, in `eval()`.
        tokens_of: function from clip id to recorded shot tokens [L, D].
        game: one of `drawn_games`.
    """
    *_, last = rolled_out(model, tokenizer, config, game)
    return (last.shot_tokens_LD - tokens_of(game[-1].clip_id).to(last.shot_tokens_LD)).square().mean()
