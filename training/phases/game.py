"""Phase b: training of the game model on windows of turns.

From past turns and an instruction the game model learns motion level and state changes (cross-entropy at their four
slots) and the shot tokens that the trained shot encoder gives for the recorded clip (squared error, and in an ablation
cosine distance). The loss of a window is

    L     = L_CE + alpha L_MSE + beta L_cos
    L_CE  = sum_k m_k (-log softmax(z_k)[y_k]) / sum_k m_k,    k in {level, social, entertainment, stamina}
    L_MSE = mean_{l,d} (s'_ld - s_ld)^2
    L_cos = 1 - mean_l <s'_l, s_l> / (||s'_l|| ||s_l||)

with z_k the logits over the whole vocabulary at slot k and y_k the recorded token; m_k = 1 if the value was measured,
else 0 (the level always is); s' the predicted shot tokens and s those of the shot encoder. alpha = 1, beta = 0 by
default; the ablation has alpha = beta = 0.5. Division by sum_k m_k gives every turn the same weight, however many of
its values are known.

Letters of the shapes: B batch, L shot tokens, D their width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaTokenizer

from models.checkpoint import Checkpoint, copy_rest, save_config, save_game_model, within
from models.config import ModelConfig
from models.game_model import GameModel, GameOutput
from models.tokens import LEGAL_IDS, TokenPrompt
from training.config import PreviewSettings
from training.data.encoding import prompt_of
from training.data.feature_cache import FeatureCache
from training.data.order import Examples, Position
from training.data.phrasing import as_typed, rephrased
from training.data.spread import spread
from training.data.windows import Window, Windows


@dataclass(frozen=True, eq=False)
class GameExample:
    """Example: prompt of a window, and the target shot tokens."""

    prompt: TokenPrompt
    shot_tokens_LD: Tensor
    measured: tuple[bool, bool, bool, bool]
    """True for each measured value: level, social, entertainment, stamina."""


@dataclass(frozen=True, eq=False)
class GameBatch:
    """Collated examples; the game model pads the prompts."""

    prompts: tuple[TokenPrompt, ...]
    shot_tokens_BLD: Tensor
    state_ids_B4: Tensor
    measured_B4: Tensor

    def to(self, device: torch.device) -> Self:
        """Return the batch on a device; the game model moves the prompts."""
        tensors = (self.shot_tokens_BLD, self.state_ids_B4, self.measured_B4)
        return type(self)(self.prompts, *(each.to(device) for each in tensors))


class GameExamples:
    """Examples of a split's windows, with shot tokens from a feature cache."""

    def __init__(
        self,
        windows: Windows,
        cache: FeatureCache,
        tokenizer: LlamaTokenizer,
        config: ModelConfig,
        free_text: float = 0.0,
    ) -> None:
        self.windows, self.cache, self.tokenizer, self.config = windows, cache, tokenizer, config
        self.free_text = free_text

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, place: Position) -> GameExample:
        """Return a training example with a random window length and random phrasings."""
        return self._example(rephrased(self.windows.at(place), self.free_text, self.windows.seed, place))

    def longest(self, item: int) -> GameExample:
        """Return a validation example with the longest window, as during play."""
        return self._example(self.windows.longest(item))

    def typed(self, item: int, number: int = 0) -> GameExample:
        """Return the example of `longest` with free text that is never trained on; there are several, by number."""
        return self._example(as_typed(self.windows.longest(item), number))

    def _example(self, window: Window) -> GameExample:
        prompt = prompt_of(window, self._tokens_of, self.tokenizer, self.config)
        return GameExample(prompt, self._tokens_of(window.target.clip_id), window.target.measured)

    def _tokens_of(self, clip_id: str) -> Tensor:
        return self.cache.get("shot_tokens", clip_id).float()


class GameTraining(nn.Module):
    """Game model with its loss."""

    def __init__(self, game_model: GameModel, alpha: float, beta: float) -> None:
        super().__init__()
        self.game_model, self.alpha, self.beta = game_model, alpha, beta

    def forward(self, batch: GameBatch) -> dict[str, Tensor]:
        """Return for each example [B] the loss, its terms, and the accuracy of the level and of the measured state."""
        output: GameOutput = self.game_model(batch.prompts)
        measured_B4 = batch.measured_B4.float()
        logits_BV4 = output.state_logits_B4V.float().transpose(1, 2)
        entropy_B4 = functional.cross_entropy(logits_BV4, batch.state_ids_B4, reduction="none")
        predicted_BLD, wanted_BLD = output.shot_tokens_BLD.float(), batch.shot_tokens_BLD
        state_B = _mean_of(entropy_B4, measured_B4)
        squares_B = (predicted_BLD - wanted_BLD).square().mean(dim=(1, 2))
        cosine_B = 1 - functional.cosine_similarity(predicted_BLD, wanted_BLD, dim=-1).mean(dim=1)
        right_B4 = (chosen_ids(output.state_logits_B4V) == batch.state_ids_B4).float()
        return {
            "loss": state_B + self.alpha * squares_B + self.beta * cosine_B,
            "state": state_B,
            "shot_tokens": squares_B,
            "cosine": cosine_B,
            "level_right": right_B4[:, 0],
            "state_right": _mean_of(right_B4, measured_B4),
        }


def chosen_ids(logits_B4V: Tensor) -> Tensor:
    """Return the token ids [B, 4] that play would choose: the most likely legal one at each slot."""
    columns = []
    for slot, legal in enumerate(LEGAL_IDS):
        ids = torch.tensor(legal, device=logits_B4V.device)
        columns.append(ids[logits_B4V[:, slot][:, ids].argmax(dim=-1)])
    return torch.stack(columns, dim=1)


@dataclass(eq=False)
class GamePhase:
    """Phase b, as built by `training/phases/assembly.py`."""

    name: str
    network: GameTraining
    examples: Examples
    shown: GameExamples
    """All training windows, as examples of one data set."""
    held_out: GameExamples
    """Windows of the split `val`; may be empty."""
    looks: PreviewSettings
    checkpoint: Checkpoint
    """Starting checkpoint."""
    config: ModelConfig
    """Configuration of the resulting checkpoint."""
    units: Sequence[str] = ("MistralDecoderLayer",)

    def size_of(self, example: GameExample) -> int:
        """Return the length of the prompt."""
        return len(example.prompt.ids_L)

    def collate(self, examples: Sequence[GameExample]) -> GameBatch:
        """Collate examples."""
        targets = [example.prompt.target for example in examples]
        return GameBatch(
            tuple(example.prompt for example in examples),
            torch.stack([example.shot_tokens_LD for example in examples]),
            torch.tensor([target.ids for target in targets if target]),
            torch.tensor([example.measured for example in examples]),
        )

    def validate(self, network: nn.Module, device: torch.device, looks: Path | None) -> dict[str, float]:  # noqa: ARG002
        """Return the terms of the loss on held-out windows, and the loss without past turns and on free text."""
        if not len(self.held_out):
            return {}
        items = spread(len(self.held_out), self.looks.clips)
        found = self._means(network, device, map(self.held_out.longest, items))
        others = {
            "loss_without_past": map(without_past(self.held_out).longest, items),
            "loss_free_text": map(self.held_out.typed, items, items),
        }
        return found | {name: self._means(network, device, each)["loss"] for name, each in others.items()}

    def _means(self, network: nn.Module, device: torch.device, examples: Iterable[GameExample]) -> dict[str, float]:
        rows = [network(self.collate([example]).to(device)) for example in examples]
        return {name: float(torch.stack([row[name] for row in rows]).mean()) for name in rows[0]}

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a complete checkpoint: the game model, and the rest of the starting checkpoint."""
        save_config(folder, self.config)
        save_game_model(folder, self.network.game_model, within(state, "game_model."))
        copy_rest(self.checkpoint, folder, {"game_model"})


def without_past(examples: GameExamples) -> GameExamples:
    """Return the same turns in windows of one: the increase in loss is the value of past turns."""
    settings = examples.windows.settings.model_copy(update={"most_turns": 1})
    windows = Windows(examples.windows.turns, settings, examples.windows.seed)
    return GameExamples(windows, examples.cache, examples.tokenizer, examples.config)


def _mean_of(values_B4: Tensor, weights_B4: Tensor) -> Tensor:
    """Return the mean over measured values; the level is always measured."""
    return (values_B4 * weights_B4).sum(dim=1) / weights_B4.sum(dim=1)
