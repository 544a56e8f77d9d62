"""Checkpoints in the published format, made by rule, and a restatement of the published networks.

Names and shapes are those of the hub repository TencentARC/AnimeGamer; the arithmetic is restated here over the
published names, apart from everything in `models/`: one matrix for query, key and value, adapters times 1 / rank, one
vector of twelve modulations a layer, the shot encoder inside the patch embedding.

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels, L tokens, D width, N heads.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

DIT = "model.diffusion_model."
PATCH = f"{DIT}mixins.patch_embed."
ADALN = f"{DIT}mixins.adaln_layer."
FINAL = f"{DIT}mixins.final_layer."
LLM = "llm.base_model.model."
State = Mapping[str, Tensor]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the networks, by default the published ones."""

    layers: int = 30
    width: int = 1920
    heads: int = 30
    head: int = 64
    channels: int = 16
    time: int = 512
    text: int = 4096
    image: int = 768
    tokens: int = 226
    grid: tuple[int, int, int] = (5, 30, 45)
    rank: int = 64
    language_layers: int = 32
    language: int = 4096
    key: int = 1024
    feed_forward: int = 14336
    language_rank: int = 32
    vocabulary: int = 32284


TINY = Sizes(
    layers=3,
    width=128,
    heads=2,
    channels=16,
    time=96,
    text=64,
    image=64,
    tokens=80,
    grid=(5, 4, 6),
    rank=8,
    language_layers=2,
    language=32,
    key=16,
    feed_forward=48,
    language_rank=4,
)


def decoder_shapes(sizes: Sizes, adapters: bool = True) -> dict[str, Shape]:
    """Shapes of the 813 tensors of the decoder half's own network."""
    d, t, h = sizes.width, sizes.time, sizes.head
    positions = sizes.tokens + math.prod(sizes.grid)
    shapes: dict[str, Shape] = {f"{DIT}mixins.pos_embed.pos_embedding": (1, positions, d)}
    pairs: dict[str, Shape] = {
        f"{PATCH}proj": (d, sizes.channels, 2, 2),
        f"{PATCH}text_proj.0": (d, sizes.text),
        f"{PATCH}text_proj.2": (d, d),
        f"{PATCH}ip_proj.0": (d, sizes.image),
        f"{PATCH}ip_proj.2": (d, d),
        **{f"{PATCH}{side}_mix_layer_norm": (d,) for side in ("txt", "ip", "output")},
        f"{DIT}time_embed.0": (t, d),
        f"{DIT}time_embed.2": (t, t),
        f"{DIT}flow_embed.0": (t, d),
        f"{DIT}flow_embed.2": (t, t),
        f"{DIT}transformer.final_layernorm": (d,),
        f"{FINAL}norm_final": (d,),
        f"{FINAL}linear": (4 * sizes.channels, d),
        f"{FINAL}adaLN_modulation.1": (2 * d, t),
    }
    for i in range(sizes.layers):
        layer = f"{DIT}transformer.layers.{i}."
        original = ".original" if adapters else ""
        pairs |= {
            f"{ADALN}adaLN_modulations.{i}.1": (12 * d, t),
            f"{ADALN}query_layernorm_list.{i}": (h,),
            f"{ADALN}key_layernorm_list.{i}": (h,),
            f"{layer}input_layernorm": (d,),
            f"{layer}post_attention_layernorm": (d,),
            f"{layer}attention.query_key_value{original}": (3 * d, d),
            f"{layer}attention.dense{original}": (d, d),
            f"{layer}mlp.dense_h_to_4h": (4 * d, d),
            f"{layer}mlp.dense_4h_to_h": (d, 4 * d),
        }
        for name, parts in (("query_key_value", 3), ("dense", 1)):
            for part in range(parts if adapters else 0):
                shapes[f"{layer}attention.{name}.matrix_A.{part}"] = (sizes.rank, d)
                shapes[f"{layer}attention.{name}.matrix_B.{part}"] = (d, sizes.rank)
    for name, shape in pairs.items():
        shapes[f"{name}.weight"] = shape
        shapes[f"{name}.bias"] = shape[:1]
    return shapes


def sibling_shapes() -> dict[str, Shape]:
    """Shapes of some tensors of the frozen networks in the same file."""
    return {
        "conditioner.embedders.0.transformer.shared.weight": (16, 8),
        "conditioner.embedders.0.transformer.encoder.final_layer_norm.weight": (8,),
        "clip_img_encoder.model.visual.conv1.weight": (8, 3, 4, 4),
        "first_stage_model.encoder.conv_in.conv.weight": (8, 3, 3, 3, 3),
    }


def language_shapes(sizes: Sizes, spelling: str = "base_layer") -> dict[str, Shape]:
    """Language half; `spelling` is peft's name of the weights under an adapter: `base_layer` or `plain` (0.4)."""
    d, r = sizes.language, sizes.language_rank
    under = ".base_layer" if spelling == "base_layer" else ""
    shapes: dict[str, Shape] = {
        f"{LLM}model.embed_tokens.weight": (sizes.vocabulary, d),
        f"{LLM}lm_head.weight": (sizes.vocabulary, d),
        "input_resampler.proj.0.weight": (d, sizes.width),
        "input_resampler.proj.0.bias": (d,),
        "input_resampler.proj.2.weight": (d, d),
        "input_resampler.proj.2.bias": (d,),
        "output_resampler.proj.0.weight": (sizes.width, d),
        "output_resampler.proj.0.bias": (sizes.width,),
        "output_resampler.proj.2.weight": (sizes.width, sizes.width),
        "output_resampler.proj.2.bias": (sizes.width,),
    }
    norms = [f"{LLM}model.norm"]
    for i in range(sizes.language_layers):
        layer = f"{LLM}model.layers.{i}."
        norms += [f"{layer}input_layernorm", f"{layer}post_attention_layernorm"]
        for name, rows, columns in (
            ("self_attn.q_proj", d, d),
            ("self_attn.k_proj", sizes.key, d),
            ("self_attn.v_proj", sizes.key, d),
            ("self_attn.o_proj", d, d),
            ("mlp.gate_proj", sizes.feed_forward, d),
            ("mlp.up_proj", sizes.feed_forward, d),
            ("mlp.down_proj", d, sizes.feed_forward),
        ):
            shapes[f"{layer}{name}{under}.weight"] = (rows, columns)
            shapes[f"{layer}{name}.lora_A.default.weight"] = (r, columns)
            shapes[f"{layer}{name}.lora_B.default.weight"] = (rows, r)
    for norm in norms:
        shapes[f"{norm}.original_module.weight"] = (d,)
        shapes[f"{norm}.modules_to_save.default.weight"] = (d,)
    return shapes


def random_state(shapes: Mapping[str, Shape], seed: int) -> dict[str, Tensor]:
    """Random tensors, norms and biases included, at a scale at which every part changes the output measurably."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        fan = math.prod(shape[1:]) if len(shape) > 1 else 4
        state[name] = torch.randn(shape, generator=generator) / math.sqrt(fan)
        if "norm" in name and name.endswith("weight"):
            state[name] = 1 + state[name]
    return state


def decoder_state(sizes: Sizes, seed: int, adapters: bool = True) -> dict[str, Tensor]:
    """Tensors of a whole decoder half."""
    state = random_state({**decoder_shapes(sizes, adapters), **sibling_shapes()}, seed)
    state[f"{DIT}mixins.pos_embed.pos_embedding"] = positions(sizes)
    return state


def positions(sizes: Sizes) -> Tensor:
    """Position table: zeros for the shot tokens, then sines and cosines: one quarter frame, the rest place."""
    frames, height, width = sizes.grid
    t, y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in sizes.grid), indexing="ij")
    quarter = sizes.width // 4
    half = 3 * sizes.width // 8
    waves = [_waves(t, quarter), _waves(x / 1.875, half), _waves(y / 1.875, half)]
    table = torch.cat(waves, dim=-1).reshape(frames * height * width, sizes.width)
    return torch.cat([torch.zeros(sizes.tokens, sizes.width), table.float()])[None]


def write_release(
    folder: Path, language: Mapping[str, Tensor], decoder: Mapping[str, Tensor], character: str = "Qiqi"
) -> Path:
    """Save both halves as in the hub repository; the file of the second holds more than tensors."""
    half = folder / f"MLLM-{character}"
    half.mkdir(parents=True)
    torch.save(dict(language), half / "pytorch_model.bin")
    step = folder / f"VDM_Decoder-{character}" / "10000"
    step.mkdir(parents=True)
    (step.parent / "latest").write_text("10000")
    content = {
        "module": dict(decoder),
        "optimizer": None,
        "sparse_tensor_module_names": set(),
        "iteration": 10000,
        "random_rng_state": random.getstate(),
        "np_rng_state": np.random.get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "ds_config": {"train_micro_batch_size_per_gpu": 1},
    }
    torch.save(content, step / "mp_rank_00_model_states.pt")
    return folder


def shot_tokens(state: State, text_BLD: Tensor, image_BLD: Tensor) -> Tensor:
    """Shot encoder: text first, then the picture."""
    sides = []
    for name, norm, inputs in (("text_proj", "txt", text_BLD), ("ip_proj", "ip", image_BLD)):
        hidden = _linear(state, f"{PATCH}{name}.2", functional.gelu(_linear(state, f"{PATCH}{name}.0", inputs)))
        sides.append(_norm(state, f"{PATCH}{norm}_mix_layer_norm", hidden, 1e-5))
    return torch.cat(sides, dim=1)


def velocity(
    sizes: Sizes, state: State, latents_BTCHW: Tensor, shot_BLD: Tensor, t_B: Tensor, flow_B: Tensor
) -> Tensor:
    """Whole shot decoder, [B, T, C, H, W]."""
    batch, frames, channels, height, width = latents_BTCHW.shape
    condition = _two_layers(state, "time_embed", t_B, sizes) + _two_layers(state, "flow_embed", flow_B, sizes)
    patches = functional.conv2d(latents_BTCHW.flatten(0, 1), *_pair(state, f"{PATCH}proj"), stride=2)
    patches = patches.reshape(batch, frames, sizes.width, -1).permute(0, 1, 3, 2).flatten(1, 2)
    x = torch.cat([shot_BLD, patches], dim=1) + state[f"{DIT}mixins.pos_embed.pos_embedding"]
    for i in range(sizes.layers):
        x = _block(sizes, state, i, x, functional.silu(condition))
    x = _norm(state, f"{DIT}transformer.final_layernorm", x, 1e-5)[:, sizes.tokens :]
    shift, scale = _linear(state, f"{FINAL}adaLN_modulation.1", functional.silu(condition))[:, None].chunk(2, dim=-1)
    x = _norm(state, f"{FINAL}norm_final", x, 1e-6) * (1 + scale) + shift
    x = _linear(state, f"{FINAL}linear", x)
    x = x.reshape(batch, frames, height // 2, width // 2, channels, 2, 2)
    return x.permute(0, 1, 4, 2, 5, 3, 6).reshape(batch, frames, channels, height, width)


def _block(sizes: Sizes, state: State, i: int, x: Tensor, condition: Tensor) -> Tensor:
    layer = f"{DIT}transformer.layers.{i}."
    modulation = _linear(state, f"{ADALN}adaLN_modulations.{i}.1", condition)[:, None].chunk(12, dim=-1)
    image, shot = modulation[:6], modulation[6:]

    def where(image_part: Tensor, shot_part: Tensor) -> Tensor:
        return torch.cat(
            [shot_part.expand(-1, sizes.tokens, -1), image_part.expand(-1, x.shape[1] - sizes.tokens, -1)], dim=1
        )

    shift, scale, gate, shift_2, scale_2, gate_2 = (where(*pair) for pair in zip(image, shot, strict=True))
    hidden = _norm(state, f"{layer}input_layernorm", x, 1e-5) * (1 + scale) + shift
    x = x + gate * _attention(sizes, state, i, hidden)
    hidden = _norm(state, f"{layer}post_attention_layernorm", x, 1e-5) * (1 + scale_2) + shift_2
    hidden = functional.gelu(_linear(state, f"{layer}mlp.dense_h_to_4h", hidden), approximate="tanh")
    return x + gate_2 * _linear(state, f"{layer}mlp.dense_4h_to_h", hidden)


def _attention(sizes: Sizes, state: State, i: int, x: Tensor) -> Tensor:
    name = f"{DIT}transformer.layers.{i}.attention."
    q, k, v = _adapted(state, f"{name}query_key_value", x, sizes.rank).chunk(3, dim=-1)
    q, k, v = (part.unflatten(-1, (sizes.heads, sizes.head)).transpose(1, 2) for part in (q, k, v))
    q = _norm(state, f"{ADALN}query_layernorm_list.{i}", q, 1e-6)
    k = _norm(state, f"{ADALN}key_layernorm_list.{i}", k, 1e-6)
    weights = (q @ k.transpose(-1, -2) / math.sqrt(sizes.head)).softmax(dim=-1)
    return _adapted(state, f"{name}dense", (weights @ v).transpose(1, 2).flatten(2), sizes.rank)


def _adapted(state: State, name: str, x: Tensor, rank: int) -> Tensor:
    """Linear layer with its adapters, one for each part of its rows, times 1 / rank."""
    if f"{name}.original.weight" not in state:
        return _linear(state, name, x)
    pairs = [
        (state[f"{name}.matrix_A.{i}"], state[f"{name}.matrix_B.{i}"])
        for i in range(3)
        if f"{name}.matrix_A.{i}" in state
    ]
    return _linear(state, f"{name}.original", x) + torch.cat([x @ a.T @ b.T for a, b in pairs], dim=-1) / rank


def _two_layers(state: State, name: str, value_B: Tensor, sizes: Sizes) -> Tensor:
    """Cosines and sines of a number through two layers."""
    half = sizes.width // 2
    angle = value_B[:, None].float() * torch.exp(-math.log(10_000) * torch.arange(half) / half)
    waves = torch.cat([angle.cos(), angle.sin()], dim=-1)
    return _linear(state, f"{DIT}{name}.2", functional.silu(_linear(state, f"{DIT}{name}.0", waves)))


def _waves(place: Tensor, width: int) -> Tensor:
    half = width // 2
    angle = place[..., None] / 10_000 ** (torch.arange(half, dtype=torch.float64) / half)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def _pair(state: State, name: str) -> tuple[Tensor, Tensor]:
    return state[f"{name}.weight"], state[f"{name}.bias"]


def _linear(state: State, name: str, x: Tensor) -> Tensor:
    return functional.linear(x, *_pair(state, name))


def _norm(state: State, name: str, x: Tensor, eps: float) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], *_pair(state, name), eps)
