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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import LlamaTokenizer

from models.checkpoint import ADAPTER, RESAMPLERS, SHOT_ENCODER, Checkpoint
from models.config import Component, ModelConfig
from models.engine import TILE
from models.frames import LATENT_CHANNELS, Moments, encode_frames
from models.progress import PartProgress, unwatched
from models.shot_decoder import SPATIAL_COMPRESSION
from models.tokens import PastTurn, TokenPrompt, write_prompt
from pipeline.core.errors import UserError
from training.config import Recipe
from training.data.feature_cache import Feature, FeatureCache, storage_dtype
from training.data.identities import Sha256, made_by_base, made_by_files, remembered
from training.data.shards import ShardFile
from training.data.turns import Catalog, PackedTurn, RecordedTurn
from training.data.windows import Window, Windows

Name = Literal["latents", "patches", "text", "shot_tokens", "predictions"]
FROZEN: tuple[Name, ...] = ("latents", "patches", "text")
TRAINED: tuple[Name, ...] = ("shot_tokens", "predictions")
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
    *,
    shared: bool = False,
) -> FeatureCache:
    """Open a cache of features, defined by the networks of a checkpoint; nothing is encoded yet."""
    with remembered(folder) as sha256:
        defined = _Definitions(catalog, checkpoint, recipe, sha256, shared)
        features = [defined.feature(name) for name in names]
    return FeatureCache(folder, catalog, features, shared=shared)


def bytes_per_clip(names: Sequence[Name], config: ModelConfig) -> int:
    """Return the disk space of features of one clip."""
    sizes = (torch.Size(_shape(name, config)).numel() for name in names)
    return sum(sizes) * storage_dtype(config).itemsize


class Encoder:
    """Encoder of features; it loads each network when it is needed, once for all caches, and frees it afterwards."""

    def __init__(self, checkpoint: Checkpoint, recipe: Recipe, device: torch.device | str = "cpu") -> None:
        """Store the checkpoint with the networks, the recipe and the device."""
        self.checkpoint, self.recipe, self.device = checkpoint, recipe, device

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
        """Teacher-forced predictions: each turn follows the recorded ones, in the longest window, as during play.

        A turn without an instruction cannot be predicted; it gets zeros, which are never read.
        """
        model, tokenizer = self.checkpoint.game_model(self.device), self.checkpoint.tokenizer()
        config, settings = self.checkpoint.config, self.recipe.game.windows

        @lru_cache(maxsize=1)
        def windows_of(cache: FeatureCache) -> tuple[Windows, dict[str, int]]:
            windows = Windows(cache.catalog.turns, settings)
            return windows, {turn.clip_id: item for item, turn in enumerate(windows.turns)}

        @torch.no_grad()
        def encode(cache: FeatureCache, turns: Sequence[RecordedTurn]) -> Tensor:
            windows, item_of = windows_of(cache)
            rows_BLD = torch.zeros(len(turns), *cache.features["predictions"].shape)
            rows = [row for row, turn in enumerate(turns) if turn.clip_id in item_of]
            past = [windows.longest(item_of[turns[row].clip_id]) for row in rows]
            tokens_of = partial(cache.get, "shot_tokens")
            if rows:
                prompts = [prompt_of(window, tokens_of, tokenizer, config) for window in past]
                rows_BLD[rows] = model(prompts).shot_tokens_BLD.float().cpu()
            return rows_BLD

        return encode


@dataclass(frozen=True)
class _Definitions:
    """Definitions of features by the networks of a checkpoint."""

    catalog: Catalog
    checkpoint: Checkpoint
    recipe: Recipe
    sha256: Sha256
    shared: bool

    def feature(self, name: Name) -> Feature:
        config = self.checkpoint.config
        return Feature(name, _shape(name, config), storage_dtype(config), self._ingredients(name))

    def _ingredients(self, name: Name) -> dict[str, str]:
        """Return the ingredients of a feature, including those of the features that it depends on."""
        checkpoint, recipe = self.checkpoint, self.recipe
        if name == "latents":
            tiles = {"tiles": f"{TILE['tile_sample_min_width']}x{TILE['tile_sample_min_height']}"}
            return self._base("autoencoder") | (tiles if recipe.features.tiled else {})
        if name == "patches":
            shot = checkpoint.config.shot_decoder
            seen = {"frames": f"{shot.frames} {shot.width}x{shot.height}"}  # equal for all features of one run
            return self._base("image_encoder") | {"frame": recipe.shot.frame} | (seen if self.shared else {})
        if name == "text":
            return self._base("text_encoder")
        inputs = self._ingredients("patches") | self._ingredients("text")
        shot_tokens = inputs | self._files("shot_encoder", SHOT_ENCODER)
        if name == "shot_tokens":
            return shot_tokens
        return {
            **shot_tokens,
            **self._base("language_model"),
            **self._files("game_model", ADAPTER, RESAMPLERS),
            "conventions": checkpoint.config.conventions.model_dump_json(),
            "windows": recipe.game.windows.model_dump_json(),
            "turns": self.catalog.fingerprint,
        }

    def _base(self, component: Component) -> dict[str, str]:
        return made_by_base(component, self.checkpoint.base(component), self.sha256)

    def _files(self, name: str, *files: str) -> dict[str, str]:
        return made_by_files(name, *(self.checkpoint.folder / file for file in files), sha256=self.sha256)


def _shape(name: Name, config: ModelConfig) -> tuple[int, ...]:
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
    return shapes[name]
