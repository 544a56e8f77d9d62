"""Phase b: training of the game model on windows of turns.

From past turns and an instruction, the game model learns motion level and state changes (cross-entropy at their four
slots). It also learns the shot tokens that the trained shot encoder gives for the recorded clip (squared error, and in
an ablation cosine distance). The loss of a window is

    L     = L_CE + alpha L_MSE + beta L_cos
    L_CE  = sum_k m_k (-log softmax(z_k)[y_k]) / sum_k m_k,    k in {level, social, entertainment, stamina}
    L_MSE = mean_{l,d} (s'_ld - s_ld)^2
    L_cos = 1 - mean_l <s'_l, s_l> / (||s'_l|| ||s_l||)

with z_k the logits over the whole vocabulary at slot k, and y_k the recorded token. m_k is 1 if the value was measured,
as the level always is, and otherwise 0. s' are the predicted shot tokens, and s the shot encoder's. By default
alpha = 1 and beta = 0; the ablation sets alpha = beta = 0.5. Division by sum_k m_k gives every turn the same weight,
however many of its values are known. The loss of a packed window (`game.windows.packed`) is the mean over its turns.

Letters of the shapes: B prompts, N targets of all prompts in their order, L shot tokens, D their width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Self

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaTokenizer

from models.checkpoint import Checkpoint
from models.checkpoint_writer import copy_rest, save_config, save_game_model, within
from models.config import ModelConfig
from models.game_model import GameModel, GameOutput
from models.prompt_batch import PromptBatch, TensorBatch
from models.tokens import ID_OF, LEGAL_IDS, LEGAL_VALUES, PastTurn, TokenPrompt, write_packed_prompt
from training.config import ValidationSettings
from training.data.encoding import prompt_of
from training.data.feature_cache import FeatureCache
from training.data.order import Examples, Position, spread
from training.data.phrasing import as_typed, rephrased
from training.data.predictions import GAME_TURNS, drawn_games, last_error
from training.data.windows import Window, Windows
from training.phase import ALONE, Share


@dataclass(frozen=True, eq=False)
class GameExample:
    """Example: prompt of a window with its targets, one or with a packed window several."""

    prompt: TokenPrompt
    shot_tokens_NLD: Tensor
    measured: tuple[tuple[bool, bool, bool, bool], ...]
    """True for each measured value of each target: level, social, entertainment, stamina."""
    turns: tuple[int, ...]
    """Number of turns that each target's prediction is made from, its own included."""


@dataclass(frozen=True, eq=False)
class GameBatch(TensorBatch):
    """Collated examples."""

    prompts: PromptBatch
    shot_tokens_NLD: Tensor
    state_ids_N4: Tensor
    measured_N4: Tensor
    turns_N: Tensor
    """Number of turns of each target's window, from 1."""

    @classmethod
    def of(cls, examples: Sequence[GameExample], multiple: int = 1) -> Self:
        """Collate examples, with prompts padded to a multiple of a length."""
        return cls(
            PromptBatch.of([example.prompt for example in examples], multiple),
            torch.cat([example.shot_tokens_NLD for example in examples]),
            torch.tensor([target.ids for example in examples for target in example.prompt.targets]),
            torch.tensor([measured for example in examples for measured in example.measured]),
            torch.tensor([turns for example in examples for turns in example.turns]),
        )


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
        """Store the arguments; nothing is read yet.

        Args:
            cache: feature cache with `shot_tokens`.
            free_text: share of instructions in other words.
        """
        self.windows, self.cache, self.tokenizer, self.config = windows, cache, tokenizer, config
        self.free_text = free_text

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, position: Position) -> GameExample:
        """Return a training example with a random window length or a packed one, and random phrasings."""
        window = rephrased(self.windows.at(position), self.free_text, self.windows.seed, position)
        return self._packed(window) if self.windows.settings.packed else self._example(window)

    def longest(self, item: int) -> GameExample:
        """Return a validation example with the longest window, as during play."""
        return self._example(self.windows.longest(item))

    def typed(self, item: int, number: int) -> GameExample:
        """Return the example of `longest` with free text that is never trained on; there are several, by number."""
        return self._example(as_typed(self.windows.longest(item), number))

    def tokens_of(self, clip_id: str) -> Tensor:
        """Return the recorded shot tokens [L, D] of a clip."""
        return self.cache.get("shot_tokens", clip_id).float()

    def _example(self, window: Window) -> GameExample:
        prompt = prompt_of(window, self.tokens_of, self.tokenizer, self.config)
        target = window.target
        wanted_1LD = self.cache.get("shot_tokens", target.clip_id)[None]
        return GameExample(prompt, wanted_1LD, (target.measured,), (len(window.turns),))

    def _packed(self, window: Window) -> GameExample:
        targets_NLD = torch.stack([self.cache.get("shot_tokens", turn.clip_id) for turn in window.turns])
        turns = [
            PastTurn(turn.instruction, shot_LD, turn.state, turn.measured)
            for turn, shot_LD in zip(window.turns, targets_NLD, strict=True)
        ]
        prompt = write_packed_prompt(self.tokenizer, turns, targets_NLD.shape[1], self.config.conventions)
        measured = tuple(turn.measured for turn in window.turns)
        return GameExample(prompt, targets_NLD, measured, tuple(range(1, len(turns) + 1)))


class GameTraining(nn.Module):
    """Game model with its loss."""

    units = ("MistralDecoderLayer", "GameModel")
    """FSDP2 units; the game model is one because validation also calls it alone."""

    def __init__(self, game_model: GameModel, alpha: float, beta: float, *, most_turns: int = 0) -> None:
        super().__init__()
        self.most_turns = most_turns
        self.game_model, self.alpha, self.beta = game_model, alpha, beta

    def forward(self, batch: GameBatch) -> dict[str, Tensor]:
        """Return for each prompt [B] the loss, its terms, and the accuracy of the level and of the measured state."""
        output: GameOutput = self.game_model(batch.prompts)
        # 1. The terms of every target.
        measured_N4 = batch.measured_N4.float()
        logits_NV4 = output.state_logits_N4V.float().transpose(1, 2)
        entropy_N4 = functional.cross_entropy(logits_NV4, batch.state_ids_N4, reduction="none")
        predicted_NLD, wanted_NLD = output.shot_tokens_NLD.float(), batch.shot_tokens_NLD.float()
        state_N = _mean_of(entropy_N4, measured_N4)
        squares_N = (predicted_NLD - wanted_NLD).square().mean(dim=(1, 2))
        cosine_N = 1 - functional.cosine_similarity(predicted_NLD, wanted_NLD, dim=-1).mean(dim=1)
        right_N4 = (chosen_ids(output.state_logits_N4V) == batch.state_ids_N4).float()
        terms = {
            "loss": state_N + self.alpha * squares_N + self.beta * cosine_N,
            "state": state_N,
            "shot_tokens": squares_N,
            "cosine": cosine_N,
            "level_right": right_N4[:, 0],
            "state_right": _mean_of(right_N4, measured_N4),
        }
        if self.training:
            terms |= self._by_kind(terms["loss"].detach(), batch)
        # 2. Their means over the targets of each prompt.
        of_prompts = torch.split(torch.stack(list(terms.values())), list(batch.prompts.targets), dim=1)
        return dict(zip(terms, torch.stack([part.mean(dim=1) for part in of_prompts], dim=1), strict=True))

    def _by_kind(self, losses_N: Tensor, batch: GameBatch) -> dict[str, Tensor]:
        """Return the loss by motion level and by number of turns, each with the share of such targets."""
        levels_N = batch.state_ids_N4[:, 0]
        kinds = {f"level_{value}": levels_N == ID_OF[f"<Strength_{value}>"] for value in LEGAL_VALUES["level"]}
        kinds |= {f"{turns}_turns": batch.turns_N == turns for turns in range(1, self.most_turns + 1)}
        shares = {f"share/{kind}": is_it_N.float() for kind, is_it_N in kinds.items()}
        return shares | {f"loss/{kind}": losses_N * is_it_N for kind, is_it_N in kinds.items()}


def chosen_ids(logits_N4V: Tensor) -> Tensor:
    """Return the token ids [N, 4] that play would choose: the most likely legal one at each slot."""
    columns = []
    for slot, legal in enumerate(LEGAL_IDS):
        ids = torch.tensor(legal, device=logits_N4V.device)
        columns.append(ids[logits_N4V[:, slot][:, ids].argmax(dim=-1)])
    return torch.stack(columns, dim=1)


@dataclass(eq=False)
class GamePhase:
    """Phase b, as built by `training/phases/assembly.py`."""

    name: str
    network: GameTraining
    examples: Examples
    shown: GameExamples
    """All training windows, as examples of one dataset."""
    held_out: GameExamples
    """Windows of the split `val`; may be empty."""
    validation: ValidationSettings
    checkpoint: Checkpoint
    config: ModelConfig
    """Configuration of the resulting checkpoint."""
    units: Sequence[str] = GameTraining.units
    varied: bool = True
    multiple: int = 1
    """Prompts are padded to a length that is a multiple of this."""

    def size_of(self, example: GameExample) -> int:
        """Return the length of the prompt."""
        return len(example.prompt.ids_L)

    def collate(self, examples: Sequence[GameExample]) -> GameBatch:
        """Collate examples."""
        return GameBatch.of(examples, self.multiple)

    def validate(
        self,
        network: nn.Module,
        device: torch.device,
        pictures: Path | None,  # noqa: ARG002
        share: Share = ALONE,
    ) -> dict[str, float]:
        """Return the terms of the loss on held-out windows, the loss without past turns and on free text.

        Also return the loss by the window's length and by the motion level of its target, for those that occur.
        Also return the errors of the shot tokens rolled out, and with the prefix `train_` the errors on training clips.
        There are no pictures.
        """
        found = self._train_errors(network, device, share)
        if not len(self.held_out):
            return found
        count = len(self.held_out)
        terms = self._terms(network, device, count, self.held_out.longest, share)
        found |= {name: float(values.mean()) for name, values in terms.items()} | self._by_kind(terms["loss"])
        found |= self._rolled_out(network, self.held_out, share)
        others: dict[str, Callable[[int], GameExample]] = {
            "loss_without_past": without_past(self.held_out).longest,
            "loss_free_text": lambda item: self.held_out.typed(item, item),
        }
        return found | {name: self._means(network, device, count, each, share)["loss"] for name, each in others.items()}

    def _train_errors(self, network: nn.Module, device: torch.device, share: Share) -> dict[str, float]:
        forced = self._means(network, device, len(self.shown), self.shown.longest, share)["shot_tokens"]
        rolled = self._rolled_out(network, self.shown, share)
        return {"train_shot_tokens": forced, **{f"train_{name}": error for name, error in rolled.items()}}

    def _rolled_out(self, network: nn.Module, examples: GameExamples, share: Share) -> dict[str, float]:
        """Return the error after 5 and 10 turns of play; none for a split without so many consecutive turns."""
        inner = network.module if isinstance(network, DistributedDataParallel) else network
        model: GameModel = inner.game_model  # type: ignore[assignment]  # GameTraining, perhaps sharded
        register_fsdp_forward_method(model, "predict")
        found = {}
        for length in GAME_TURNS:
            turns, settings = examples.cache.catalog.turns, examples.windows.settings
            games = drawn_games(turns, settings, length, self.validation.games)
            if games:
                error_of = partial(last_error, model, examples.tokenizer, self.config, examples.tokens_of)
                found[f"rolled_out_{length}"] = float(share.values(games, error_of).mean())
        return found

    def _by_kind(self, losses: Tensor) -> dict[str, float]:
        """Return the mean losses of held-out windows by number of turns, and by motion level of the target."""
        losses_of: dict[str, list[float]] = {}
        for item, loss in zip(spread(len(self.held_out), self.validation.clips), losses.tolist(), strict=True):
            window = self.held_out.windows.longest(item)
            for kind in (f"loss_{len(window.turns)}_turns", f"loss_level_{window.target.state.level}"):
                losses_of.setdefault(kind, []).append(loss)
        return {kind: fmean(losses_of[kind]) for kind in sorted(losses_of)}

    def _means(
        self,
        network: nn.Module,
        device: torch.device,
        count: int,
        example_of: Callable[[int], GameExample],
        share: Share = ALONE,
    ) -> dict[str, float]:
        """Return the means of `_terms`."""
        terms = self._terms(network, device, count, example_of, share)
        return {name: float(values.mean()) for name, values in terms.items()}

    def _terms(
        self,
        network: nn.Module,
        device: torch.device,
        count: int,
        example_of: Callable[[int], GameExample],
        share: Share,
    ) -> dict[str, Tensor]:
        """Return the terms of some of the items up to `count`, each shown as one example."""
        names: list[str] = []

        def terms_of(item: int) -> Tensor:
            terms = network(self.collate([example_of(item)]).to(device))
            names[:] = terms
            return torch.stack([each.float().mean() for each in terms.values()])

        rows = share.values(spread(count, self.validation.clips), terms_of)
        return dict(zip(names, rows.unbind(dim=1), strict=True))

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a complete checkpoint: the game model, and the rest of the starting checkpoint."""
        save_config(folder, self.config)
        replaced = save_game_model(folder, self.network.game_model, within(state, "game_model."))
        copy_rest(self.checkpoint, folder, replaced)


def without_past(examples: GameExamples) -> GameExamples:
    """Return the same turns in windows of one: the increase in loss is the value of past turns."""
    settings = examples.windows.settings.model_copy(update={"most_turns": 1})
    windows = Windows(examples.windows.turns, settings, examples.windows.seed)
    return GameExamples(windows, examples.cache, examples.tokenizer, examples.config)


def _mean_of(values_N4: Tensor, weights_N4: Tensor) -> Tensor:
    """Return the mean over measured values; the level is always measured."""
    return (values_N4 * weights_N4).sum(dim=1) / weights_N4.sum(dim=1)
