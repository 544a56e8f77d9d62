"""Cached features of the training phases: definitions, ingredients and encoders.

| feature | content for one clip | network | phases |
|---|---|---|---|
| `latents` | moments of the latents [2, T, C, H, W] | autoencoder | shot, adapt |
| `patches` | patch states of the first frame [P, D] | CLIP | shot |
| `text` | states of the motion text [N, D] | T5 | shot |
| `shot_tokens` | shot tokens [L, D] | the trained shot encoder | game |
| `predictions` | shot tokens as the game model predicts them [L, D] | the trained game model | adapt |

The first three come from frozen networks and are shared by all runs on the same data; the other two depend on a trained
network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import LlamaTokenizer

from models.checkpoint import ADAPTER, RESAMPLERS, SHOT_ENCODER, Checkpoint
from models.config import ModelConfig
from models.frames import LATENT_CHANNELS, Moments, encode_frames
from models.progress import PartProgress, unwatched
from models.shot_decoder import SPATIAL_COMPRESSION
from models.tokens import PastTurn, TokenPrompt, write_prompt
from training.config import Recipe
from training.data.feature_cache import Feature, FeatureCache, made_by_base, made_by_files, storage_dtype
from training.data.predictions import Predict, PredictedBy, after_own, by_fold, by_windows, folds_of
from training.data.turns import Catalog, PackedTurn, RecordedTurn
from training.data.windows import Window, Windows

Name = Literal["latents", "patches", "text", "shot_tokens", "predictions"]
FROZEN: tuple[Name, ...] = ("latents", "patches", "text")
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
    """Return the feature `latents` of one clip as a batch of one."""
    mean_BTCHW, logvar_BTCHW = stored_2TCHW.float()[:, None]
    return Moments(mean_BTCHW, logvar_BTCHW)


def prompt_of(
    window: Window, tokens_of: Callable[[str], Tensor], tokenizer: LlamaTokenizer, config: ModelConfig
) -> TokenPrompt:
    """Return the training prompt of a window.

    Args:
        window: the turns.
        tokens_of: function from clip id to shot tokens [L, D].
        tokenizer: tokenizer of the game model.
        config: configuration of the checkpoint.
    """
    past = [
        PastTurn(turn.instruction, tokens_of(turn.clip_id).float(), turn.state, turn.measured) for turn in window.past
    ]
    target, tokens = window.target, config.shot_encoder.shot_tokens
    return write_prompt(tokenizer, past, target.instruction, tokens, config.conventions, target.state, target.measured)


def open_cache(
    folder: Path,
    catalog: Catalog,
    checkpoint: Checkpoint,
    recipe: Recipe,
    names: Sequence[Name],
    predicted_by: PredictedBy = PredictedBy(),
) -> FeatureCache:
    """Open a cache of features, defined by the networks of a checkpoint; nothing is encoded yet."""
    features = [_feature(name, catalog, checkpoint, recipe) for name in names]
    extra = _predicting(predicted_by)
    return FeatureCache(
        folder,
        catalog,
        [
            replace(feature, ingredients={**feature.ingredients, **extra}) if feature.name == "predictions" else feature
            for feature in features
        ],
    )


class Encoder:
    """Encoder of the features of a cache; it loads a network only when needed, and frees it afterwards."""

    def __init__(
        self,
        cache: FeatureCache,
        checkpoint: Checkpoint,
        recipe: Recipe,
        device: torch.device | str = "cpu",
        predicted_by: PredictedBy = PredictedBy(),
    ) -> None:
        """Store the cache from `open_cache`, the checkpoint with the networks, the recipe and the device."""
        self.cache, self.checkpoint, self.recipe, self.device = cache, checkpoint, recipe, device
        self.predicted_by = predicted_by

    def make(self, name: Name, progress: PartProgress = unwatched, process: int = 0, processes: int = 1) -> None:
        """Encode one feature for all shards whose file is missing or stale.

        Each of n processes takes every n-th shard. A feature may depend on all shards of another one: synchronize the
        processes between two calls.

        Raises:
            UserError: a shard, a clip or a network cannot be read, or the result is not finite or has another shape.
        """
        shards = self.cache.catalog.shards[process::processes]
        faults = self.cache.faults(name)
        if not any(shard.name in faults for shard in shards):
            return
        options: dict[str, Any] = {
            "batch_size": _BATCH_SIZES[name],
            "shards": shards,
            "progress": partial(progress, name),
        }
        if name == "latents":
            self.cache.fill_from_videos(name, self._latents(), **options)
        elif name == "patches":
            self.cache.fill_from_videos(name, self._patches(), **options)
        else:
            encode = {"text": self._text, "shot_tokens": self._shot_tokens, "predictions": self._predictions}[name]()
            self.cache.fill_from_turns(name, encode, **options)

    def _latents(self) -> Callable[[Sequence[PackedTurn]], Tensor]:
        autoencoder, shot = self.checkpoint.autoencoder(self.device), self.checkpoint.config.shot_decoder

        def encode(turns: Sequence[PackedTurn]) -> Tensor:
            frames_BTHWC = torch.stack([turn.frames(shot.height, shot.width, shot.frames) for turn in turns])
            moments = encode_frames(autoencoder, frames_BTHWC)
            return torch.stack([moments.mean_BTCHW, moments.logvar_BTCHW], dim=1)

        return encode

    def _patches(self) -> Callable[[Sequence[PackedTurn]], Tensor]:
        conditions, shot = self.checkpoint.conditions(self.device), self.checkpoint.config.shot_decoder
        which = self.recipe.shot.frame

        def encode(turns: Sequence[PackedTurn]) -> Tensor:
            frames_HWC = [
                turn.frames(shot.height, shot.width, shot.frames)[frame_to_see(turn.clip_id, shot.frames, which)]
                for turn in turns
            ]
            return conditions.image_patches(torch.stack(frames_HWC))

        return encode

    def _text(self) -> Callable[[Sequence[RecordedTurn]], Tensor]:
        conditions = self.checkpoint.conditions(self.device)
        return lambda turns: conditions.text_states([motion_text(turn) for turn in turns])

    def _shot_tokens(self) -> Callable[[Sequence[RecordedTurn]], Tensor]:
        encoder = self.checkpoint.shot_encoder(self.device, torch.float32)

        @torch.no_grad()
        def encode(turns: Sequence[RecordedTurn]) -> Tensor:
            text_BND, patches_BPD = (
                torch.stack([self.cache.get(name, turn.clip_id) for turn in turns]).float().to(self.device)
                for name in ("text", "patches")
            )
            tokens_BLD: Tensor = encoder(text_BND, patches_BPD)
            return tokens_BLD

        return encode

    def _predictions(self) -> Callable[[Sequence[RecordedTurn]], Tensor]:
        """Predictions after the recorded past, or as `predicted_by` says."""
        windows = Windows(self.cache.catalog.turns, self.recipe.game.windows)
        tokenizer, config = self.checkpoint.tokenizer(), self.checkpoint.config
        tokens_of = partial(self.cache.get, "shot_tokens")

        def after_recorded(checkpoint: Checkpoint) -> Predict:
            model = checkpoint.game_model(self.device)

            @torch.no_grad()
            def predict(asked: Sequence[Window]) -> Tensor:
                prompts = [prompt_of(window, tokens_of, tokenizer, config) for window in asked]
                tokens_BLD: Tensor = model(prompts).shot_tokens_BLD
                return tokens_BLD.float().cpu()

            return predict

        if folds := self.predicted_by.folds:
            fold_of = folds_of(self.cache.catalog.turns, len(folds))
            predict = by_fold([after_recorded(fold) for fold in folds], fold_of)
        elif self.predicted_by.rollout:
            predict = after_own(self.checkpoint.game_model(self.device), tokenizer, config, tokens_of)
        else:
            predict = after_recorded(self.checkpoint)
        return by_windows(windows, predict, self.cache.features["predictions"].shape)


def _predicting(by: PredictedBy) -> dict[str, str]:
    """Return the maker of predictions as ingredients; none for the checkpoint's game model after the recorded past."""
    files = (fold.folder / file for fold in by.folds for file in (ADAPTER, RESAMPLERS))
    folds = made_by_files("folds", *files) if by.folds else {}
    return folds | ({"past": "predicted"} if by.rollout else {})


def _feature(name: Name, catalog: Catalog, checkpoint: Checkpoint, recipe: Recipe) -> Feature:
    config = checkpoint.config
    shot, encoder = config.shot_decoder, config.shot_encoder
    height, width = shot.height // SPATIAL_COMPRESSION, shot.width // SPATIAL_COMPRESSION
    tokens = (encoder.shot_tokens, encoder.width)
    shapes: dict[Name, tuple[int, ...]] = {
        "latents": (2, shot.latent_frames, LATENT_CHANNELS, height, width),
        "patches": (encoder.image_tokens, encoder.image_width),
        "text": (encoder.text_tokens, encoder.text_width),
        "shot_tokens": tokens,
        "predictions": tokens,
    }
    return Feature(name, shapes[name], storage_dtype(config), _ingredients(name, catalog, checkpoint, recipe))


def _ingredients(name: Name, catalog: Catalog, checkpoint: Checkpoint, recipe: Recipe) -> dict[str, str]:
    """Return the ingredients of a feature, including those of the features that it depends on."""
    folder, base = checkpoint.folder, checkpoint.base
    if name == "latents":
        return made_by_base("autoencoder", base("autoencoder"))
    if name == "patches":
        return {**made_by_base("image_encoder", base("image_encoder")), "frame": recipe.shot.frame}
    if name == "text":
        return made_by_base("text_encoder", base("text_encoder"))
    inputs = [_ingredients(each, catalog, checkpoint, recipe) for each in ("patches", "text")]
    shot_tokens = {**inputs[0], **inputs[1], **made_by_files("shot_encoder", folder / SHOT_ENCODER)}
    if name == "shot_tokens":
        return shot_tokens
    return {
        **shot_tokens,
        **made_by_base("language_model", base("language_model")),
        **made_by_files("game_model", folder / ADAPTER, folder / RESAMPLERS),
        "conventions": checkpoint.config.conventions.model_dump_json(),
        "windows": recipe.game.windows.model_dump_json(),
        "turns": catalog.fingerprint,
    }
