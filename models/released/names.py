"""Name mapping of the released weights: tensors of the two published files to tensors of a checkpoint.

Everything here works on names and shapes, so a file is checked before its data is read. The language half
(`pytorch_model.bin`) holds a peft-wrapped Mistral and the resamplers. The decoder half (`mp_rank_00_model_states.pt`)
holds a SwissArmyTransformer network. One matrix holds query, key and value, another the twelve modulations of a layer,
and the patch embedding contains the shot encoder.

The published files have exactly the default sizes. In a small file, as in the tests, a few tensors determine the shapes
of all others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.checkpoint import ADAPTER, DECODER_LORA, DECODER_OWN, RESAMPLERS, SHOT_ENCODER
from models.config import inside_id
from models.tokens import VOCABULARY
from pipeline.core.errors import UserError

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

LANGUAGE = "llm.base_model.model."
DIFFUSION = "model.diffusion_model."
POSITIONS = f"{DIFFUSION}mixins.pos_embed.pos_embedding"
TRANSFORMER = inside_id("transformer")
_WHOLE = ("weight", "bias")
_ALL = (0,)
# A layer has 12 modulations: shift, scale and gate before the attention and before the feed-forward, for the picture
# and then for the shot tokens. In diffusers, `norm1` has the six before the attention, `norm2` the others.
_AROUND_ATTENTION = (0, 1, 2, 6, 7, 8)
_AROUND_FEED_FORWARD = (3, 4, 5, 9, 10, 11)


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
    """Sizes of the decoder half; the defaults are the published ones. Rank 0 means that the file has no adapters."""

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
        """Infer the sizes from a file. UserError if a tensor that determines a size is missing."""
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
        raise UserError(f"{name} is missing, so this is not the published file; fetch it again")
    if len(shapes[name]) != dimensions:
        raise UserError(f"{name} has {len(shapes[name])} dimensions, not {dimensions}; fetch the file again")
    return shapes[name]


def _count(shapes: Shapes, pattern: str) -> int:
    """Number of distinct indices in the names that match."""
    return len({match[1] for name in shapes if (match := re.match(pattern, name))})


@dataclass(frozen=True)
class Entry:
    """One tensor to write, made of rows of a published one.

    Attributes:
        source: the published name.
        shape: the published shape.
        file: file of the checkpoint, or the folder of the transformer.
        name: name in that file.
        chunks: indices of the parts it takes, in this order.
        parts: number of equal parts the rows are divided into.
    """

    source: str
    shape: Shape
    file: str
    name: str
    chunks: tuple[int, ...] = _ALL
    parts: int = 1

    @property
    def target_shape(self) -> Shape:
        """Shape of the tensor to write."""
        return (self.shape[0] // self.parts * len(self.chunks), *self.shape[1:])


def language_plan(sizes: LanguageSizes) -> list[Entry]:
    """Entries of the language half: embeddings, norms, adapters, resamplers."""
    return [*_language_entries(sizes), *_resampler_entries(sizes)]


def decoder_plan(sizes: DecoderSizes) -> list[Entry]:
    """Entries of the decoder half: the transformer, its adapters, motion scope, the shot encoder."""
    entries = [*_shot_encoder_entries(sizes), *_outer_entries(sizes)]
    for layer in range(sizes.layers):
        entries += [*_block_entries(sizes, layer), *_attention_entries(sizes, layer), *_modulations(sizes, layer)]
    return entries


LANGUAGE_IGNORED = {
    r"llm\.base_model\.model\.model\.layers\.\d+\."
    r"(self_attn\.[qkvo]|mlp\.(gate|up|down))_proj(\.base_layer)?\.weight": "frozen Mistral, loaded from its hub id",
    r"llm\.base_model\.model\.model\.(layers\.\d+\.(input|post_attention)_layernorm|norm)"
    r"\.original_module\.weight": "norms before training",
    r"llm\.base_model\.model\.model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq": "fixed position table",
}
"""Unused tensors that the language half may hold: patterns of full names, with the reason."""

DECODER_IGNORED = {
    r"conditioner\.embedders\..+": "frozen T5, loaded from its hub id",
    r"clip_img_encoder\..+": "frozen CLIP, loaded from its hub id",
    r"first_stage_model\..+": "frozen autoencoder, loaded from its hub id",
    re.escape(POSITIONS): "fixed position table",
    re.escape(DIFFUSION) + r"mixins\.patch_embed\.output_mix_layer_norm\.(weight|bias)": "norm that is never applied",
}
"""Unused tensors that the decoder half may hold, in the same form."""


def check_tensors(plan: Sequence[Entry], shapes: Shapes, ignored: Mapping[str, str]) -> tuple[list[str], Counter[str]]:
    """Compare the tensors of a published file with its plan.

    Args:
        ignored: patterns of unused tensors, with the reasons.

    Returns:
        The faults (planned tensors that are missing or of another shape, and tensors that are neither planned nor
        ignored), and the number of ignored tensors by reason.
    """
    planned = {entry.source: entry.shape for entry in plan}
    faults = [f"missing: {name} {list(shape)}" for name, shape in planned.items() if name not in shapes]
    counts: Counter[str] = Counter()
    for name, shape in shapes.items():
        if name in planned:
            if shape != planned[name]:
                faults.append(f"wrong shape: {name} {list(shape)}, expected {list(planned[name])}")
        elif reason := next((reason for pattern, reason in ignored.items() if re.fullmatch(pattern, name)), None):
            counts[reason] += 1
        else:
            faults.append(f"unknown: {name} {list(shape)}")
    return faults, counts


def _language_entries(sizes: LanguageSizes) -> Iterator[Entry]:
    def entry(published: str, ours: str, *shape: int) -> Entry:
        return Entry(f"{LANGUAGE}{published}.weight", shape, ADAPTER, f"base_model.model.{ours}.weight")

    for embedding in ("model.embed_tokens", "lm_head"):
        yield entry(embedding, embedding, VOCABULARY, sizes.width)
    layers = [f"model.layers.{index}" for index in range(sizes.layers)]
    for norm in (
        *(f"{layer}.{side}_layernorm" for layer in layers for side in ("input", "post_attention")),
        "model.norm",
    ):
        yield entry(f"{norm}.modules_to_save.default", norm, sizes.width)
    for layer in layers:
        for name, (rows, columns) in _projections(sizes).items():
            projection = f"{layer}.{name}"
            yield entry(f"{projection}.lora_A.default", f"{projection}.lora_A", sizes.rank, columns)
            yield entry(f"{projection}.lora_B.default", f"{projection}.lora_B", rows, sizes.rank)


def _projections(sizes: LanguageSizes) -> dict[str, tuple[int, int]]:
    """Rows and columns of the seven projections of a layer."""
    return {
        "self_attn.q_proj": (sizes.query, sizes.width),
        "self_attn.k_proj": (sizes.key, sizes.width),
        "self_attn.v_proj": (sizes.key, sizes.width),
        "self_attn.o_proj": (sizes.width, sizes.query),
        "mlp.gate_proj": (sizes.feed_forward, sizes.width),
        "mlp.up_proj": (sizes.feed_forward, sizes.width),
        "mlp.down_proj": (sizes.width, sizes.feed_forward),
    }


def _resampler_entries(sizes: LanguageSizes) -> Iterator[Entry]:
    sides = (("input", sizes.width, sizes.shot_width), ("output", sizes.shot_width, sizes.width))
    for side, rows, columns in sides:
        published, ours = f"{side}_resampler.proj", f"{side}_resampler"
        yield from _linear(f"{published}.0", rows, columns, RESAMPLERS, f"{ours}.0")
        yield from _linear(f"{published}.2", rows, rows, RESAMPLERS, f"{ours}.2")


def _shot_encoder_entries(sizes: DecoderSizes) -> Iterator[Entry]:
    patch_embed = f"{DIFFUSION}mixins.patch_embed"
    for published, norm, ours, columns in (
        ("text_proj", "txt_mix_layer_norm", "text", sizes.text_width),
        ("ip_proj", "ip_mix_layer_norm", "image", sizes.image_width),
    ):
        yield from _linear(f"{patch_embed}.{published}.0", sizes.width, columns, SHOT_ENCODER, f"{ours}_proj.0")
        yield from _linear(f"{patch_embed}.{published}.2", sizes.width, sizes.width, SHOT_ENCODER, f"{ours}_proj.2")
        yield from _norm(f"{patch_embed}.{norm}", sizes.width, SHOT_ENCODER, f"{ours}_norm")


def _outer_entries(sizes: DecoderSizes) -> Iterator[Entry]:
    """Entries of the transformer outside its layers."""
    width, time, area = sizes.width, sizes.time_width, sizes.patch**2
    mixins = f"{DIFFUSION}mixins"
    patch = (width, sizes.channels, sizes.patch, sizes.patch)
    yield Entry(f"{mixins}.patch_embed.proj.weight", patch, TRANSFORMER, "patch_embed.proj.weight")
    yield Entry(f"{mixins}.patch_embed.proj.bias", (width,), TRANSFORMER, "patch_embed.proj.bias")
    yield from _linear(f"{DIFFUSION}time_embed.0", time, width, TRANSFORMER, "time_embedding.linear_1")
    yield from _linear(f"{DIFFUSION}time_embed.2", time, time, TRANSFORMER, "time_embedding.linear_2")
    yield from _linear(f"{DIFFUSION}flow_embed.0", time, width, DECODER_OWN, "time_embedding.motion.linear_1")
    yield from _linear(f"{DIFFUSION}flow_embed.2", time, time, DECODER_OWN, "time_embedding.motion.linear_2")
    yield from _norm(f"{DIFFUSION}transformer.final_layernorm", width, TRANSFORMER, "norm_final")
    yield from _norm(f"{mixins}.final_layer.norm_final", width, TRANSFORMER, "norm_out.norm")
    yield from _linear(f"{mixins}.final_layer.adaLN_modulation.1", 2 * width, time, TRANSFORMER, "norm_out.linear")
    yield from _linear(f"{mixins}.final_layer.linear", sizes.channels * area, width, TRANSFORMER, "proj_out")


def _block_entries(sizes: DecoderSizes, layer: int) -> Iterator[Entry]:
    published, ours = f"{DIFFUSION}transformer.layers.{layer}", f"transformer_blocks.{layer}"
    heads = f"{DIFFUSION}mixins.adaln_layer"
    width = sizes.width
    yield from _norm(f"{published}.input_layernorm", width, TRANSFORMER, f"{ours}.norm1.norm")
    yield from _norm(f"{published}.post_attention_layernorm", width, TRANSFORMER, f"{ours}.norm2.norm")
    yield from _linear(f"{published}.mlp.dense_h_to_4h", 4 * width, width, TRANSFORMER, f"{ours}.ff.net.0.proj")
    yield from _linear(f"{published}.mlp.dense_4h_to_h", width, 4 * width, TRANSFORMER, f"{ours}.ff.net.2")
    for role, name in (("query", "norm_q"), ("key", "norm_k")):
        source = f"{heads}.{role}_layernorm_list.{layer}"
        yield from _norm(source, sizes.head_width, TRANSFORMER, f"{ours}.attn1.{name}")


def _attention_entries(sizes: DecoderSizes, layer: int) -> Iterator[Entry]:
    """Entries of query, key, value and output with their adapters; a file without adapters has plain names."""
    published = f"{DIFFUSION}transformer.layers.{layer}.attention"
    base = ".original" if sizes.rank else ""
    for name, source, chunk, parts in (
        ("to_q", "query_key_value", 0, 3),
        ("to_k", "query_key_value", 1, 3),
        ("to_v", "query_key_value", 2, 3),
        ("to_out.0", "dense", 0, 1),
    ):
        rows, width, ours = parts * sizes.width, sizes.width, f"transformer_blocks.{layer}.attn1.{name}"
        yield from _linear(f"{published}.{source}{base}", rows, width, TRANSFORMER, ours, (chunk,), parts)
        if sizes.rank:
            down, up = (f"{published}.{source}.matrix_{side}.{chunk}" for side in "AB")
            yield Entry(down, (sizes.rank, width), DECODER_LORA, f"{ours}.lora_A.weight")
            yield Entry(up, (width, sizes.rank), DECODER_LORA, f"{ours}.lora_B.weight")


def _modulations(sizes: DecoderSizes, layer: int) -> Iterator[Entry]:
    """Entries of the modulations, twice: in the transformer's folder, which must be complete, and in `DECODER_OWN`."""
    source = f"{DIFFUSION}mixins.adaln_layer.adaLN_modulations.{layer}.1"
    for file in (TRANSFORMER, DECODER_OWN):
        for name, chunks in (("norm1", _AROUND_ATTENTION), ("norm2", _AROUND_FEED_FORWARD)):
            ours = f"transformer_blocks.{layer}.{name}.linear"
            yield from _linear(source, 12 * sizes.width, sizes.time_width, file, ours, chunks, 12)


def _linear(
    source: str, rows: int, columns: int, file: str, name: str, chunks: tuple[int, ...] = _ALL, parts: int = 1
) -> Iterator[Entry]:
    for leaf, shape in zip(_WHOLE, ((rows, columns), (rows,)), strict=True):
        yield Entry(f"{source}.{leaf}", shape, file, f"{name}.{leaf}", chunks, parts)


def _norm(source: str, width: int, file: str, name: str) -> Iterator[Entry]:
    for leaf in _WHOLE:
        yield Entry(f"{source}.{leaf}", (width,), file, f"{name}.{leaf}")
