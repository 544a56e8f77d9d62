"""Phase b: the game model on windows of turns.

From past turns and an instruction it learns motion level and state changes (cross-entropy at their four slots) and the
shot tokens that the trained shot encoder gives the recorded clip (squared error, and in an ablation cosine distance).
What nobody measured of a state is left out of the loss; each turn counts the same, however much of it is known.

Letters of the shapes: B batch, L shot tokens, D their width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from training.config import LookSettings
from training.data.encoding import prompt_of
from training.data.feature_cache import FeatureCache
from training.data.order import Position
from training.data.windows import Window, Windows


@dataclass(frozen=True, eq=False)
class GameExample:
    """A window as the game model reads it, and what it should say."""

    prompt: TokenPrompt
    shot_tokens_LD: Tensor
    measured: tuple[bool, bool, bool, bool]
    """Of level, social, entertainment and stamina."""


@dataclass(frozen=True, eq=False)
class GameBatch:
    """Examples put together; the prompts are padded by the game model."""

    prompts: tuple[TokenPrompt, ...]
    shot_tokens_BLD: Tensor
    state_ids_B4: Tensor
    measured_B4: Tensor

    def to(self, device: torch.device) -> Self:
        """The batch on a device; the game model moves the prompts."""
        tensors = (self.shot_tokens_BLD, self.state_ids_B4, self.measured_B4)
        return type(self)(self.prompts, *(each.to(device) for each in tensors))


class GameExamples:
    """All windows of a split, with shot tokens from a feature cache."""

    def __init__(self, windows: Windows, cache: FeatureCache, tokenizer: LlamaTokenizer, config: ModelConfig) -> None:
        self.windows, self.cache, self.tokenizer, self.config = windows, cache, tokenizer, config

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, place: Position) -> GameExample:
        """An example of training: the window's length is drawn."""
        return self._example(self.windows.at(place))

    def longest(self, item: int) -> GameExample:
        """An example of validation: as far back as play would look."""
        return self._example(self.windows.longest(item))

    def _example(self, window: Window) -> GameExample:
        prompt = prompt_of(window, self._tokens_of, self.tokenizer, self.config)
        return GameExample(prompt, self._tokens_of(window.target.clip_id), window.target.measured)

    def _tokens_of(self, clip_id: str) -> Tensor:
        return self.cache.get("shot_tokens", clip_id).float()


class GameTraining(nn.Module):
    """The game model with its objective."""

    def __init__(self, game_model: GameModel, alpha: float, beta: float) -> None:
        super().__init__()
        self.game_model, self.alpha, self.beta = game_model, alpha, beta

    def forward(self, batch: GameBatch) -> dict[str, Tensor]:
        """For each example [B] the loss and its terms, whether the level is right, and which share of the state."""
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
    """The ids [B, 4] that play would choose: at each slot the likeliest of the legal ones."""
    columns = []
    for slot, legal in enumerate(LEGAL_IDS):
        ids = torch.tensor(legal, device=logits_B4V.device)
        columns.append(ids[logits_B4V[:, slot][:, ids].argmax(dim=-1)])
    return torch.stack(columns, dim=1)


@dataclass(eq=False)
class GamePhase:
    """Phase b; `training/phases/assembly.py` makes it."""

    name: str
    network: GameTraining
    examples: GameExamples
    held_out: GameExamples
    """Of the split `val`; may be empty."""
    looks: LookSettings
    checkpoint: Checkpoint
    """Where the run started."""
    config: ModelConfig
    """Of the checkpoint that comes out."""
    units: Sequence[str] = ("MistralDecoderLayer",)

    def collate(self, examples: Sequence[GameExample]) -> GameBatch:
        """Put examples together."""
        targets = [example.prompt.target for example in examples]
        return GameBatch(
            tuple(example.prompt for example in examples),
            torch.stack([example.shot_tokens_LD for example in examples]),
            torch.tensor([target.ids for target in targets if target]),
            torch.tensor([example.measured for example in examples]),
        )

    def validate(self, network: nn.Module, device: torch.device, looks: Path | None) -> dict[str, float]:  # noqa: ARG002
        """The terms of the loss on held-out windows, and the loss without their past; there is nothing to draw."""
        if not len(self.held_out):
            return {}
        found = self._means(network, device, self.held_out)
        return {**found, "loss_without_past": self._means(network, device, without_past(self.held_out))["loss"]}

    def _means(self, network: nn.Module, device: torch.device, examples: GameExamples) -> dict[str, float]:
        items = range(min(self.looks.clips, len(examples)))
        rows = [network(self.collate([examples.longest(item)]).to(device)) for item in items]
        return {name: float(torch.stack([row[name] for row in rows]).mean()) for name in rows[0]}

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a whole checkpoint: what was trained, and the rest of the one before."""
        save_config(folder, self.config)
        save_game_model(folder, self.network.game_model, within(state, "game_model."))
        copy_rest(self.checkpoint, folder, {"game_model"})


def without_past(examples: GameExamples) -> GameExamples:
    """The same turns, each alone: what is lost then is what the past was good for."""
    settings = examples.windows.settings.model_copy(update={"most_turns": 1})
    windows = Windows(examples.windows.turns, settings, examples.windows.seed)
    return GameExamples(windows, examples.cache, examples.tokenizer, examples.config)


def _mean_of(values_B4: Tensor, weights_B4: Tensor) -> Tensor:
    """Mean over what was measured; the level always is."""
    return (values_B4 * weights_B4).sum(dim=1) / weights_B4.sum(dim=1)
