"""Cached features for training the adapters of `gc` and `gfc`, encoded once into the feature cache.

| feature | content for one clip | baseline |
|---|---|---|
| `latents` | moments of the latents [2, T, C, H, W]; equal to the shot decoder's if the autoencoder is the same | gc |
| `prompts` | T5 states of the instruction [N, D] | gc |
| `flux_pictures` | moments of the first frame's latents [2, C, H, W] | gfc |
| `flux_prompts` | T5 states of the instruction [N, D] | gfc |
| `flux_pooled` | CLIP's state of the instruction [D] | gfc |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.config import Base
from models.engine import TILE
from models.engine_options import PartProgress, unwatched
from models.frames import LATENT_CHANNELS, encode_frames
from pipeline.core.errors import UserError
from training.baselines.folder import BaselineFolder, Device
from training.baselines.pipelines import inside, sizes_of
from training.data.definitions import Sha256, made_by_base, made_in_tiles, remembered
from training.data.feature_cache import Feature, FeatureCache, Work
from training.data.turns import Catalog, PackedTurn, RecordedTurn

_FROM_VIDEOS = ("latents", "flux_pictures")
_BATCH_SIZES = {"latents": 2}
"""Clips encoded at once; a single clip takes torch's slow path for 3-D convolutions on a CPU."""
_BATCH_SIZE = 16
"""Clips encoded at once for the other features."""


def open_features(
    baseline: BaselineFolder, folder: Path, catalog: Catalog, *, tiled: bool = False, shared: bool = False
) -> FeatureCache:
    """Open the feature cache of a baseline's training data; nothing is encoded yet.

    Raises:
        UserError: the baseline has no adapters, or a pipeline is not available.
    """
    kind = baseline.config.kind
    if kind not in ("gc", "gfc"):
        raise UserError(f"{kind} has no adapters to train; take gc or gfc")
    with remembered(folder) as sha256:
        defined = _of_gc(baseline, sha256, tiled) if kind == "gc" else _of_gfc(baseline, sha256)
        features = [_renamed(feature, catalog) for feature in defined]
    return FeatureCache(folder, catalog, features, shared=shared)


@torch.no_grad()
def fill_features(
    baseline: BaselineFolder,
    work: Mapping[str, Work],
    device: Device = "cpu",
    progress: PartProgress = unwatched,
    *,
    tiled: bool = False,
) -> None:
    """Encode missing and stale features; the encoders are loaded only if there are any, and once.

    Args:
        work: shards to encode, by feature, from `training/data/feature_cache.py:share_out`.
        tiled: encode latents of gc clip by clip and in tiles, for which the cache must be defined.
    """
    if not any(shards for share in work.values() for shards in share.values()):
        return
    encoders = baseline.encoders("video" if baseline.config.kind == "gc" else "picture", device)
    if tiled and baseline.config.kind == "gc":
        encoders.vae.enable_tiling(**TILE)
        encoders.vae.enable_slicing()
    encode: dict[str, Callable[[FeatureCache, Any], Tensor]] = {
        "latents": lambda _, turns: _latents(baseline, encoders, turns),
        "prompts": lambda cache, turns: text_states(encoders, _texts(turns), cache.features["prompts"].shape[0]),
        "flux_pictures": lambda _, turns: _flux_pictures(baseline, encoders, turns),
        "flux_prompts": lambda _, turns: _flux_texts(baseline, encoders, turns)[0],
        "flux_pooled": lambda _, turns: _flux_texts(baseline, encoders, turns)[1],
    }
    for name, share in work.items():
        for cache, shards in share.items():
            fill: Callable[..., int] = cache.fill_from_videos if name in _FROM_VIDEOS else cache.fill_from_turns
            fill(
                name,
                partial(encode[name], cache),
                batch_size=_BATCH_SIZES.get(name, _BATCH_SIZE),
                shards=shards,
                progress=partial(progress, name),
            )


def text_states(encoders: Any, texts: Sequence[str], tokens: int) -> Tensor:
    """Return T5 states [B, N, D] of texts, padded or truncated to N tokens like CogVideoX's pipeline."""
    with torch.no_grad():
        states_BND: Tensor = encoders.encode_prompt(
            list(texts), do_classifier_free_guidance=False, max_sequence_length=tokens
        )[0]
    return states_BND


def _latents(baseline: BaselineFolder, encoders: Any, turns: Sequence[PackedTurn]) -> Tensor:
    video = baseline.config.video
    frames_BTHWC = torch.stack([turn.frames(video.height, video.width, video.frames) for turn in turns])
    moments = encode_frames(encoders.vae, frames_BTHWC)
    return torch.stack([moments.mean_BTCHW, moments.logvar_BTCHW], dim=1)


def _flux_pictures(baseline: BaselineFolder, encoders: Any, turns: Sequence[PackedTurn]) -> Tensor:
    picture, frames = baseline.config.picture, baseline.config.video.frames
    assert picture is not None
    first_BHWC = torch.stack([turn.frames(picture.height, picture.width, frames)[0] for turn in turns])
    pixels_BCHW = first_BHWC.to(encoders.vae.device).permute(0, 3, 1, 2).float() / 127.5 - 1
    found = encoders.vae.encode(pixels_BCHW.to(encoders.vae.dtype)).latent_dist
    return torch.stack([found.mean.float(), found.logvar.float()], dim=1).contiguous()


def _flux_texts(baseline: BaselineFolder, encoders: Any, turns: Sequence[RecordedTurn]) -> tuple[Tensor, Tensor]:
    """Return T5 states [B, N, D] and CLIP states [B, D] from FLUX's pipeline."""
    picture = baseline.config.picture
    assert picture is not None
    states_BND, pooled_BD, _ = encoders.encode_prompt(_texts(turns), max_sequence_length=picture.text_tokens)
    return states_BND, pooled_BD


def _texts(turns: Sequence[RecordedTurn]) -> list[str]:
    return [turn.instruction for turn in turns]


def _of_gc(baseline: BaselineFolder, sha256: Sha256, tiled: bool) -> list[Feature]:
    video, base, dtype = baseline.config.video, baseline.base("video"), _storage(baseline)
    tokens = sizes_of(base, "transformer")["max_text_seq_length"]
    height, width, frames = video.height // 8, video.width // 8, (video.frames - 1) // 4 + 1
    shape = (2, frames, LATENT_CHANNELS, height, width)
    prompts = (tokens, sizes_of(base, "text_encoder")["d_model"])
    text = made_by_base("text_encoder", _with_tokenizer(base, "text_encoder", "tokenizer"), sha256)
    latents = made_by_base("autoencoder", inside(base, "vae"), sha256) | made_in_tiles(tiled)
    return [Feature("latents", shape, dtype, latents), Feature("prompts", prompts, dtype, text)]


def _of_gfc(baseline: BaselineFolder, sha256: Sha256) -> list[Feature]:
    picture, base, dtype = baseline.config.picture, baseline.base("picture"), _storage(baseline)
    assert picture is not None
    channels = sizes_of(base, "vae")["latent_channels"]
    prompts = (picture.text_tokens, sizes_of(base, "text_encoder_2")["d_model"])
    pooled = (sizes_of(base, "text_encoder")["hidden_size"],)
    picture_shape = (2, channels, picture.height // 8, picture.width // 8)
    long, short = (
        made_by_base("text_encoder", _with_tokenizer(base, f"text_encoder{suffix}", f"tokenizer{suffix}"), sha256)
        for suffix in ("_2", "")
    )
    return [
        Feature("flux_pictures", picture_shape, dtype, made_by_base("autoencoder", inside(base, "vae"), sha256)),
        Feature("flux_prompts", prompts, dtype, long),
        Feature("flux_pooled", pooled, dtype, short),
    ]


def _renamed(feature: Feature, catalog: Catalog) -> Feature:
    """Return a feature of instructions with the characters' other names of a mixture as an ingredient."""
    if not catalog.renamed or feature.name in _FROM_VIDEOS:
        return feature
    return replace(feature, ingredients={**feature.ingredients, "names": catalog.renamed})


def _with_tokenizer(base: Base, encoder: str, tokenizer: str) -> Base:
    return inside(base, encoder).model_copy(update={"tokenizer_subfolder": inside(base, tokenizer).subfolder})


def _storage(baseline: BaselineFolder) -> torch.dtype:
    return torch.float16 if baseline.config.size == "full" else torch.float32
