"""The shot decoder: shot tokens and motion scope to the latents of an animation shot.

It is the CogVideoX transformer of diffusers with three changes (paper arXiv 2504.01014, section 3.2), and an option:

- shot tokens, already of the network's width, replace the text, so the text projection is dropped;
- the motion scope in pixels, not normalised, is embedded like the timestep and added to the timestep's embedding. Its
  last layer starts at zero: an untrained shot decoder computes the same function as its base transformer;
- the last norm's epsilon is a field of the configuration, because the released weights use another one;
- with `continues`, every latent frame also gets the last latent frame of the shot before, and a mask (`ending`). Their
  part of the first projection starts at zero, too.

Trained are adapters on attention (`add_lora`) and, in full, `own_names`: the modulation of every block by the
timestep (adaLN), the motion scope's embedding and the projection of the shot before. The rest is the frozen base and is
not stored in a checkpoint.
Without adapters (rank 0) everything is trained, and the checkpoint's base is the trained network itself.

At full size, training unfreezes 17,973,248 parameters of shot encoder and shot decoder in the warm-up, 402,050,048 in
joint training and 385,323,008 in adaptation. Most of them are adaLN. The published lists add an unused LayerNorm of
3,840 parameters to the first two.

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels, L shot tokens, D width.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import torch
from diffusers import CogVideoXTransformer3DModel
from diffusers.models.embeddings import TimestepEmbedding, Timesteps, get_3d_rotary_pos_embed
from diffusers.utils import logging
from peft import LoraConfig
from torch import Tensor, nn

from models.config import Base, ModelConfig, ShotDecoderConfig
from models.hub import load_base
from models.shot_encoder import ShotEncoder
from pipeline.core.errors import UserError

ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")
"""Projections with an adapter, in every block."""
SPATIAL_COMPRESSION = 8
"""Pixels per latent pixel along height and width, set by the CogVideoX autoencoder."""


class MotionTimestepEmbedding(TimestepEmbedding):  # type: ignore[misc]
    """Timestep embedding plus, when a motion scope is given, the scope's embedding by two further layers.

        embedding = MLP_time(sinusoids(t)) + MLP_motion(sinusoids(scope))

    The transformer passes its `timestep_cond` on as `condition`, so the scope arrives here without a change to
    diffusers' forward. A scope of 0 px is a valid scope; only None means no scope.
    """

    def __init__(self, in_channels: int, time_embed_dim: int, act_fn: str = "silu") -> None:
        super().__init__(in_channels, time_embed_dim, act_fn)
        self.scope_proj = Timesteps(in_channels, flip_sin_to_cos=True, downscale_freq_shift=0)
        self.motion = TimestepEmbedding(in_channels, time_embed_dim, act_fn)
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        for tensor in self.motion.linear_2.parameters():
            nn.init.zeros_(tensor)

    def init_motion(self) -> None:
        """Initialise the scope's embedding on the timestep's device; diffusers leaves missing tensors on `meta`."""
        like = self.linear_1.weight
        self.motion.to_empty(device=like.device).to(like.dtype)
        self.motion.linear_1.reset_parameters()
        self._start_at_zero()

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        """Embed the timesteps' sinusoids `sample` [B, inner width] and the motion scopes `condition` [B] in px."""
        embedded: Tensor = super().forward(sample)
        if condition is None:
            return embedded
        waves = self.scope_proj(condition.float())  # in float32: bfloat16 rounds 10.03 px to 10
        motion: Tensor = self.motion(waves.to(sample.dtype))
        return embedded + motion


class ContinuedProjection(nn.Conv2d):
    """Patch projection of latents [N, C, H, W] plus that of the shot before, over concatenated channels [N, 2C + 1].

    The latents' part has the names and shapes of the stock projection.
    """

    def __init__(self, stock: nn.Conv2d) -> None:
        width, kernel, stride = stock.out_channels, stock.kernel_size, stock.stride
        super().__init__(stock.in_channels, width, kernel, stride)  # type: ignore[arg-type]
        self.before = nn.Conv2d(stock.in_channels + 1, width, kernel, stride, bias=False)  # type: ignore[arg-type]
        self.init_before()

    def init_before(self) -> None:
        """Start at zero, on the device of the stock part; diffusers leaves missing tensors on `meta`."""
        nn.init.zeros_(self.before.to_empty(device=self.weight.device).to(self.weight.dtype).weight)

    def forward(self, both_NCHW: Tensor) -> Tensor:
        """Project patches to tokens."""
        latents_NCHW, before_NCHW = both_NCHW.tensor_split([self.in_channels], dim=1)
        before_NDHW: Tensor = self.before(before_NCHW)
        return super().forward(latents_NCHW) + before_NDHW


class ShotDecoder(CogVideoXTransformer3DModel):  # type: ignore[misc]
    """CogVideoX transformer conditioned on shot tokens and a motion scope; see the module's docstring.

    `from_pretrained` reads folders written by `save_pretrained` and any stock CogVideoX transformer, local or on the
    hub, with overrides from `decoder_options`. All arguments but `norm_out_eps` and `continues` are the stock
    transformer's.
    """

    _keys_to_ignore_on_load_unexpected: Any = (r"^patch_embed\.text_proj\.",)

    def __init__(self, *, norm_out_eps: float = 1e-5, continues: bool = False, **stock: Any) -> None:
        super().__init__(**stock)
        self.register_to_config(norm_out_eps=norm_out_eps, **({"continues": True} if continues else {}))
        config = self.config
        inner = config.num_attention_heads * config.attention_head_dim
        self.patch_embed.text_proj = nn.Identity()
        self.time_embedding = MotionTimestepEmbedding(inner, config.time_embed_dim, config.timestep_activation_fn)
        self.norm_out.norm.eps = norm_out_eps
        if continues:
            self.patch_embed.proj = ContinuedProjection(self.patch_embed.proj)

    # diffusers passes on the fields of a config.json that are in this signature.
    __init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *inspect.signature(CogVideoXTransformer3DModel.__init__).parameters.values(),
            inspect.Parameter("norm_out_eps", inspect.Parameter.KEYWORD_ONLY, default=1e-5, annotation=float),
            inspect.Parameter("continues", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool),
        ]
    )

    @property
    def continues(self) -> bool:
        """True if it is conditioned on the shot before."""
        return isinstance(self.patch_embed.proj, ContinuedProjection)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str] | None,
        *,
        output_loading_info: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Load as diffusers does; only what `is_new` may be missing, and is then initialised.

        Returns the shot decoder; with `output_loading_info` a pair of it and diffusers' report. ValueError when
        another tensor is missing in the weights, or a tensor other than the text projection is left over.
        """
        with _errors_only():  # diffusers warns of missing tensors; they are checked below
            decoder, report = super().from_pretrained(pretrained_model_name_or_path, output_loading_info=True, **kwargs)
        missing = {name for name in report["missing_keys"] if not is_new(name)}
        wrong = sorted(missing | set(report["unexpected_keys"]))
        if wrong:
            raise ValueError(
                f"{pretrained_model_name_or_path} is not a CogVideoX 2B transformer: "
                f"{len(wrong)} tensors are missing or too many, such as {wrong[0]}"
            )
        if any(map(is_motion, report["missing_keys"])):
            decoder.time_embedding.init_motion()
        if any(map(_is_before, report["missing_keys"])):
            decoder.patch_embed.proj.init_before()
        return (decoder, report) if output_loading_info else decoder


def load_transformer(config: ModelConfig, base: Base, dtype: torch.dtype) -> ShotDecoder:
    """Load the shot decoder's base, without adapters.

    Raises:
        UserError: it cannot be loaded, or its width differs from the width of the shot tokens.
    """
    decoder = load_base("transformer", ShotDecoder, base, dtype, **decoder_options(config))
    width, expected = _width(decoder), config.shot_encoder.width
    if width != expected:
        raise UserError(
            f"{base.id} is a transformer of width {width}, but shot_encoder.width is {expected}: "
            f"name a transformer of width {expected} as the base"
        )
    return decoder


def _width(decoder: ShotDecoder) -> int:
    """Width of the tokens in the transformer."""
    width: int = decoder.config.num_attention_heads * decoder.config.attention_head_dim
    return width


def decoder_options(config: ModelConfig) -> dict[str, Any]:
    """Fields of a stock transformer that a shot decoder overrides, for `from_pretrained` or `from_config`.

    The sizes fix the position table. Stock CogVideoX has the table of 49 frames, and computes a new one in every call
    for another number of frames.
    """
    shot = config.shot_decoder
    return {
        "sample_frames": shot.frames,
        "sample_height": shot.height // SPATIAL_COMPRESSION,
        "sample_width": shot.width // SPATIAL_COMPRESSION,
        "max_text_seq_length": config.shot_encoder.shot_tokens,
        "norm_out_eps": shot.norm_out_eps,
        **({"continues": True} if shot.continues != "no" else {}),
    }


def add_lora(decoder: ShotDecoder, config: ShotDecoderConfig, targets: Sequence[str] = ATTENTION) -> None:
    """Add LoRA adapters, by default to every attention projection; B starts at zero, so at first nothing changes.

        W' = W + (alpha / rank) B A

    The released weights have rank 64 and alpha 1; alpha 64 would scale their adapters by 64. Rank 0 adds no adapters.
    """
    if not config.lora_rank:
        return
    decoder.add_adapter(
        LoraConfig(r=config.lora_rank, lora_alpha=config.lora_alpha, target_modules=list(targets), lora_dropout=0.0)
    )


def merge_lora(decoder: ShotDecoder) -> None:
    """Merge the adapters, if there are any, into the weights, and remove them."""
    decoder.fuse_lora()
    decoder.unload_lora()


def own_names(decoder: CogVideoXTransformer3DModel) -> list[str]:
    """Names of the parameters a checkpoint stores besides the adapters: adaLN of the blocks, and what `is_new`."""
    return [name for name, _ in decoder.named_parameters() if is_own(name)]


def is_own(name: str) -> bool:
    """Return whether a parameter is trained in full; the adaLN of the last norm stays frozen, as published."""
    modulation = name.startswith("transformer_blocks.") and (".norm1.linear." in name or ".norm2.linear." in name)
    return modulation or is_new(name)


def is_new(name: str) -> bool:
    """Return whether a parameter is none of the stock transformer's."""
    return is_motion(name) or _is_before(name)


def _is_before(name: str) -> bool:
    return name.startswith("patch_embed.proj.before.")


def is_motion(name: str) -> bool:
    """Return whether a parameter belongs to the motion scope's embedding."""
    return name.startswith("time_embedding.motion.")


def ending(latents_BTCHW: Tensor) -> Tensor:
    """Condition for the shot after this one: its last latent frame and a mask of ones, [B, C + 1, H, W].

    All zeros stand for no shot before.
    """
    last_BCHW = latents_BTCHW[:, -1]
    return torch.cat([last_BCHW, torch.ones_like(last_BCHW[:, :1])], dim=1)


def denoise(
    decoder: ShotDecoder,
    latents_BTCHW: Tensor,
    shot_tokens_BLD: Tensor,
    timesteps_B: Tensor,
    scope_B: Tensor | None,
    before_BCHW: Tensor | None = None,
) -> Tensor:
    """Predict the velocity of noised latents: [B, T, C, H, W] in float32, for any precision of the network.

    Args:
        timesteps_B: integers in 0..999.
        scope_B: motion scopes in px, or None for the ablation without a scope.
        before_BCHW: the `ending` of the shots before, for a decoder that continues; None: there are none.

    Raises:
        ValueError: the shapes do not fit the position table.
    """
    _check_shapes(decoder, latents_BTCHW, shot_tokens_BLD)
    if decoder.continues:  # also without shots before: every process trains the same parameters
        size, frames, channels, height, width = latents_BTCHW.shape
        if before_BCHW is None:
            before_BCHW = latents_BTCHW.new_zeros(size, channels + 1, height, width)
        before_BTCHW = before_BCHW.to(latents_BTCHW)[:, None].expand(-1, frames, -1, -1, -1)
        latents_BTCHW = torch.cat([latents_BTCHW, before_BTCHW], dim=2)
    dtype = decoder.patch_embed.proj.weight.dtype
    velocity_BTCHW: Tensor = decoder(
        hidden_states=latents_BTCHW.to(dtype),
        encoder_hidden_states=shot_tokens_BLD.to(dtype),
        timestep=timesteps_B,
        timestep_cond=scope_B,
        image_rotary_emb=rotary_positions(decoder, latents_BTCHW.device),
        return_dict=False,
    )[0]
    return velocity_BTCHW.float()


def rotary_positions(transformer: CogVideoXTransformer3DModel, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """Cosines and sines of the rotary positions of the patches, each [T H W, head width]; None without such positions.

    The 5B transformers and `mini` have them, the 2B transformer adds a table of sines and cosines to the patches.
    """
    config = transformer.config
    if not config.use_rotary_positional_embeddings:
        return None
    frames, _, height, width = latent_shape(transformer)
    patches, head_width = (height // config.patch_size, width // config.patch_size), config.attention_head_dim
    cosines_PD, sines_PD = get_3d_rotary_pos_embed(head_width, ((0, 0), patches), patches, frames, device=device)
    return cosines_PD, sines_PD


def latent_shape(transformer: CogVideoXTransformer3DModel) -> tuple[int, int, int, int]:
    """Shape of the latents of one shot, (T, C, H, W), as fixed by its positions."""
    config = transformer.config
    frames = (config.sample_frames - 1) // config.temporal_compression_ratio + 1
    return frames, config.in_channels, config.sample_height, config.sample_width


def _check_shapes(decoder: ShotDecoder, latents_BTCHW: Tensor, shot_tokens_BLD: Tensor) -> None:
    config, latent = decoder.config, latent_shape(decoder)
    tokens = (config.max_text_seq_length, _width(decoder))
    if tuple(latents_BTCHW.shape[1:]) != latent:
        raise ValueError(f"latents must be [B, T, C, H, W] = [B, {latent}], not {tuple(latents_BTCHW.shape)}")
    if tuple(shot_tokens_BLD.shape[1:]) != tokens:
        raise ValueError(f"shot tokens must be [B, L, D] = [B, {tokens}], not {tuple(shot_tokens_BLD.shape)}")


@contextmanager
def _errors_only() -> Iterator[None]:
    """Set the log level of diffusers to errors inside the block."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def unfreeze_for_warm_up(
    encoder: ShotEncoder, decoder: ShotDecoder, *, motion_scope: bool = True
) -> list[nn.Parameter]:
    """Warm-up: the shot encoder and the shot decoder's motion scope embedding."""
    decoder.requires_grad_(False)
    motion = [parameter for name, parameter in decoder.named_parameters() if is_motion(name)]
    return _thaw([*encoder.parameters(), *(motion if motion_scope else [])])


def unfreeze_for_joint(
    encoder: ShotEncoder, decoder: ShotDecoder, *, whole: bool = False, motion_scope: bool = True
) -> list[nn.Parameter]:
    """Joint training: the shot encoder and the parameters of `unfreeze_for_adaptation`. Same ValueError."""
    return [
        *_thaw(list(encoder.parameters())),
        *unfreeze_for_adaptation(decoder, whole=whole, motion_scope=motion_scope),
    ]


def unfreeze_for_adaptation(
    decoder: CogVideoXTransformer3DModel, *, whole: bool = False, motion_scope: bool = True
) -> list[nn.Parameter]:
    """Adaptation: the shot decoder's adapters, the adaLN of its blocks, the motion scope's embedding.

    `whole` stands for all parameters of a small shot decoder with a random base, for which adapters are not enough. A
    CogVideoX transformer without motion scope works too. ValueError if it has no adapters and is not whole.
    """
    decoder.requires_grad_(False)
    if whole:
        return _thaw([p for name, p in decoder.named_parameters() if motion_scope or not is_motion(name)])
    adapters = [parameter for name, parameter in decoder.named_parameters() if ".lora_" in name]
    if not adapters:
        raise ValueError("the shot decoder has no adapters to train; call models.shot_decoder.add_lora first")
    own = [
        parameter
        for name, parameter in decoder.named_parameters()
        if is_own(name) and (motion_scope or not is_motion(name))
    ]
    return _thaw([*adapters, *own])


def _thaw(parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    for parameter in parameters:
        parameter.requires_grad_(True)
    return parameters
