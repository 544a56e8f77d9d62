"""Sizes of the published networks, and their inference from the shapes in a smaller file of the same format.

The published files have exactly these sizes, so no size is inferred from them. In a small file, as in the tests, a few
tensors determine the shapes of all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.core.errors import UserError

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

LANGUAGE = "llm.base_model.model."
DIFFUSION = "model.diffusion_model."
POSITIONS = f"{DIFFUSION}mixins.pos_embed.pos_embedding"


@dataclass(frozen=True)
class LanguageSizes:
    """Sizes of the language half; the defaults are the published ones."""

    width: int = 4096
    query: int = 4096
    key: int = 1024
    feed_forward: int = 14336
    layers: int = 32
    rank: int = 32
    shot_width: int = 1920

    @classmethod
    def of(cls, shapes: Shapes, shot_width: int) -> LanguageSizes:
        """Infer the sizes from a file, except the width of a shot token, which is known from the decoder half.

        Raises:
            UserError: a tensor that determines a size is missing.
        """
        layer = f"{LANGUAGE}model.layers.0."
        query, rank = _shape(shapes, f"{layer}self_attn.q_proj.lora_B.default.weight", 2)
        return cls(
            width=_shape(shapes, f"{LANGUAGE}model.embed_tokens.weight", 2)[1],
            query=query,
            key=_shape(shapes, f"{layer}self_attn.k_proj.lora_B.default.weight", 2)[0],
            feed_forward=_shape(shapes, f"{layer}mlp.gate_proj.lora_B.default.weight", 2)[0],
            layers=_count(shapes, re.escape(LANGUAGE) + r"model\.layers\.(\d+)\."),
            rank=rank,
            shot_width=shot_width,
        )


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of the decoder half; the defaults are the published ones. Rank 0: the file has no adapters."""

    width: int = 1920
    head_width: int = 64
    layers: int = 30
    channels: int = 16
    patch: int = 2
    time_width: int = 512
    text_width: int = 4096
    image_width: int = 768
    rank: int = 64

    @classmethod
    def of(cls, shapes: Shapes) -> DecoderSizes:
        """Infer the sizes from a file.

        Raises:
            UserError: a tensor that determines a size is missing.
        """
        width, channels, patch, _ = _shape(shapes, f"{DIFFUSION}mixins.patch_embed.proj.weight", 4)
        dense = f"{DIFFUSION}transformer.layers.0.attention.dense"
        return cls(
            width=width,
            head_width=_shape(shapes, f"{DIFFUSION}mixins.adaln_layer.query_layernorm_list.0.weight", 1)[0],
            layers=_count(shapes, re.escape(DIFFUSION) + r"transformer\.layers\.(\d+)\."),
            channels=channels,
            patch=patch,
            time_width=_shape(shapes, f"{DIFFUSION}time_embed.0.weight", 2)[0],
            text_width=_shape(shapes, f"{DIFFUSION}mixins.patch_embed.text_proj.0.weight", 2)[1],
            image_width=_shape(shapes, f"{DIFFUSION}mixins.patch_embed.ip_proj.0.weight", 2)[1],
            rank=_shape(shapes, f"{dense}.matrix_A.0", 2)[0] if has_adapters(shapes) else 0,
        )


def has_adapters(shapes: Shapes) -> bool:
    """Return whether the decoder half holds separate adapters; otherwise they are merged, or there are none."""
    return f"{DIFFUSION}transformer.layers.0.attention.dense.original.weight" in shapes


def _shape(shapes: Shapes, name: str, dimensions: int) -> Shape:
    if name not in shapes:
        raise UserError(f"{name} is missing: this is not the published file; fetch it again")
    if len(shapes[name]) != dimensions:
        raise UserError(f"{name} has {len(shapes[name])} dimensions, not {dimensions}; fetch the file again")
    return shapes[name]


def _count(shapes: Shapes, pattern: str) -> int:
    """Number of distinct indices in the names that match."""
    return len({match[1] for name in shapes if (match := re.match(pattern, name))})
