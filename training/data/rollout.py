"""Rollout of the game model over recorded turns: each turn is predicted after its own predictions, as in play."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from transformers import LlamaTokenizer

from models.config import ModelConfig
from models.game_model import GameModel, Prediction
from models.tokens import PastTurn, write_prompt
from models.turns import GameState
from training.data.turns import RecordedTurn


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
        tokenizer: its tokenizer.
        config: configuration of the checkpoint; its `window_turns` limits the past, as in play.
        turns: the turns to predict, in time order.
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
