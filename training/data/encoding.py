"""Cached features of the training phases: their table, and the encoders that compute them.

| feature | content for one clip | network | phases |
|---|---|---|---|
| `latents` | moments of the latents [2, T, C, H, W] | autoencoder | shot, adapt |
| `patches` | patch states of the first frame [P, D] | CLIP | shot |
| `text` | states of the motion text [N, D] | T5 | shot |
| `shot_tokens` | shot tokens [L, D] | the trained shot encoder | game |
| `predictions` | shot tokens as the game model predicts them [L, D] | the trained game model | adapt |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import LlamaTokenizer

from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.engine import TILE
from models.engine_options import PartProgress, unwatched
from models.frames import Moments, encode_frames
from models.game_model import GameModel
from models.prompt_batch import PromptBatch
from models.tokens import PastTurn, TokenPrompt, write_prompt
from pipeline.core.errors import UserError
from training.config import Recipe
from training.data.definitions import Name
from training.data.feature_cache import FeatureCache
from training.data.predictions import Predict, after_own, by_windows
from training.data.shards import ShardFile
from training.data.turns import PackedTurn, RecordedTurn
from training.data.windows import Window, Windows

_FROM_VIDEOS: tuple[Name, ...] = ("latents", "patches")
_BATCH_SIZES: dict[Name, int] = {"latents": 2, "patches": 16, "text": 16, "shot_tokens": 16, "predictions": 4}
"""Clips encoded at once. Two for latents: a single clip takes torch's slow path for 3-D convolutions on a CPU."""


def motion_text(turn: RecordedTurn) -> str:
    """Return the shot encoder's text: adverb and motion of the caption; empty if the motion has no caption."""
    caption = turn.sample.caption
    return " ".join(part for part in (caption.MA, caption.MD) if part) if caption.MD else ""


def frame_to_see(clip_id: str, frames: int, which: Literal["first", "random"]) -> int:
    """Return the frame number for the shot encoder: 0, or a random one that is a function of the clip's id."""
    if which == "first":
        return 0
    return int.from_bytes(hashlib.sha256(clip_id.encode()).digest()[:8], "big") % frames


def moments_of(stored_2TCHW: Tensor) -> Moments:
    """Return the feature `latents` of one clip as a batch of size 1."""
    mean_BTCHW, logvar_BTCHW = stored_2TCHW.float()[:, None]
    return Moments(mean_BTCHW, logvar_BTCHW)


def prompt_of(
    window: Window, tokens_of: Callable[[str], Tensor], tokenizer: LlamaTokenizer, config: ModelConfig
) -> TokenPrompt:
    """Return the training prompt of a window.

    Args:
        tokens_of: function from clip id to shot tokens [L, D].
    """
    past = [
        PastTurn(turn.instruction, tokens_of(turn.clip_id).float(), turn.state, turn.measured) for turn in window.past
    ]
    target, tokens = window.target, config.shot_encoder.shot_tokens
    return write_prompt(tokenizer, past, target.instruction, tokens, config.conventions, target.state, target.measured)


class Encoder:
    """Encoder of features; it loads each network when it is needed, once for all caches, and frees it afterwards."""

    def __init__(
        self, checkpoint: Checkpoint, recipe: Recipe, device: torch.device | str = "cpu", *, rollout: bool = False
    ) -> None:
        """Store the checkpoint with the networks, the recipe, the device, and whether predictions follow others."""
        self.checkpoint, self.recipe, self.device = checkpoint, recipe, device
        self.rollout = rollout

    def make(
        self, name: Name, wanted: Mapping[FeatureCache, Sequence[ShardFile]], progress: PartProgress = unwatched
    ) -> None:
        """Encode one feature for the shards of each cache whose file is missing or stale.

        A feature may depend on all shards of another one: synchronize the processes between two calls.

        Raises:
            UserError: a shard, a clip or a network cannot be read, the result is not finite or has another shape, or
                the GPU's memory does not suffice.
        """
        if not any(wanted.values()):
            return
        make: Mapping[Name, Callable[[], Callable[[FeatureCache, Sequence[Any]], Tensor]]] = {
            "latents": self._latents,
            "patches": self._patches,
            "text": self._text,
            "shot_tokens": self._shot_tokens,
            "predictions": self._predictions,
        }
        encode = make[name]()
        for cache, shards in wanted.items():
            fill = cache.fill_from_videos if name in _FROM_VIDEOS else cache.fill_from_turns
            options: dict[str, Any] = {"shards": shards, "progress": partial(progress, name)}
            try:
                fill(name, partial(encode, cache), batch_size=_BATCH_SIZES[name], **options)
            except torch.OutOfMemoryError as error:
                remedy = "set features.tiled in the recipe" if name == "latents" else "encode on a GPU with more memory"
                raise UserError(f"{name} cannot be encoded: {str(error).splitlines()[0]} {remedy}") from error

    def _latents(self) -> Callable[[FeatureCache, Sequence[PackedTurn]], Tensor]:
        autoencoder, shot = self.checkpoint.autoencoder(self.device), self.checkpoint.config.shot_decoder
        if self.recipe.features.tiled:
            autoencoder.enable_tiling(**TILE)
            autoencoder.enable_slicing()

        def encode(_: FeatureCache, turns: Sequence[PackedTurn]) -> Tensor:
            frames_BTHWC = torch.stack([turn.frames(shot.height, shot.width, shot.frames) for turn in turns])
            moments = encode_frames(autoencoder, frames_BTHWC)
            return torch.stack([moments.mean_BTCHW, moments.logvar_BTCHW], dim=1)

        return encode

    def _patches(self) -> Callable[[FeatureCache, Sequence[PackedTurn]], Tensor]:
        encoder, shot = self.checkpoint.image_encoder(self.device), self.checkpoint.config.shot_decoder
        which = self.recipe.shot.frame

        def encode(_: FeatureCache, turns: Sequence[PackedTurn]) -> Tensor:
            frames_HWC = [
                turn.frames(shot.height, shot.width, shot.frames)[frame_to_see(turn.clip_id, shot.frames, which)]
                for turn in turns
            ]
            return encoder.patches(torch.stack(frames_HWC))

        return encode

    def _text(self) -> Callable[[FeatureCache, Sequence[RecordedTurn]], Tensor]:
        encoder = self.checkpoint.text_encoder(self.device)
        return lambda _, turns: encoder.states([motion_text(turn) for turn in turns])

    def _shot_tokens(self) -> Callable[[FeatureCache, Sequence[RecordedTurn]], Tensor]:
        encoder = self.checkpoint.shot_encoder(self.device, torch.float32)

        @torch.no_grad()
        def encode(cache: FeatureCache, turns: Sequence[RecordedTurn]) -> Tensor:
            text_BND, patches_BPD = (
                torch.stack([cache.get(name, turn.clip_id) for turn in turns]).float().to(self.device)
                for name in ("text", "patches")
            )
            tokens_BLD: Tensor = encoder(text_BND, patches_BPD)
            return tokens_BLD

        return encode

    def _predictions(self) -> Callable[[FeatureCache, Sequence[RecordedTurn]], Tensor]:
        """Return the encoder of predictions, after the recorded past or after earlier predictions."""

        @lru_cache(maxsize=1)
        def own() -> GameModel:
            return self.checkpoint.game_model(self.device)

        @lru_cache(maxsize=1)
        def encoder_of(features: FeatureCache) -> Callable[[Sequence[RecordedTurn]], Tensor]:
            windows = Windows(features.catalog.turns, self.recipe.game.windows)
            return by_windows(windows, self._predict(features, own), features.features["predictions"].shape)

        return lambda features, turns: encoder_of(features)(turns)

    def _predict(self, features: FeatureCache, own: Callable[[], GameModel]) -> Predict:
        """Return the maker of the predictions of a cache; `own` loads the checkpoint's game model."""
        tokenizer, config = self.checkpoint.tokenizer(), self.checkpoint.config
        tokens_of, model = partial(features.get, "shot_tokens"), own()
        if self.rollout:
            return after_own(model, tokenizer, config, tokens_of)

        @torch.no_grad()
        def predict(asked: Sequence[Window]) -> Tensor:
            prompts = [prompt_of(window, tokens_of, tokenizer, config) for window in asked]
            tokens_BLD: Tensor = model(PromptBatch.of(prompts).to(torch.device(self.device))).shot_tokens_NLD
            return tokens_BLD.float().cpu()

        return predict
