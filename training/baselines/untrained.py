"""Small random pipelines with the architectures of the published ones, saved in the hub's format.

The calls that load the published pipelines load them too. Untrained, they generate noise. At `mini`, the
pipeline has the fitted bases of a checkpoint, and a transformer as large as its shot decoder.
"""

from __future__ import annotations

import shutil
from inspect import signature
from pathlib import Path

from diffusers import (
    AutoencoderKL,
    AutoencoderKLCogVideoX,
    CogVideoXDPMScheduler,
    CogVideoXImageToVideoPipeline,
    CogVideoXPipeline,
    CogVideoXTransformer3DModel,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
)

from models.checkpoint import Checkpoint
from models.diffusion import make_scheduler
from models.frames import LATENT_CHANNELS
from models.hub import quietly
from models.shot_decoder import ShotDecoder
from models.tokens import VOCABULARY, shipped_tokenizer
from training.baselines.config import VideoSettings

_WIDTH = 32
"""Width of all text states."""
_HEAD_WIDTH = 16
_VIDEO_TEXT_TOKENS = 32


def save_random_text_to_video(folder: Path, settings: VideoSettings) -> None:
    """Save a tiny CogVideoX 2B: positions from sines and cosines, zero-SNR schedule shifted by 3."""
    parts = _video_parts(settings, LATENT_CHANNELS, learned=False)
    with quietly():
        CogVideoXPipeline(**parts, scheduler=make_scheduler()).save_pretrained(str(folder))


def save_text_to_video_of(folder: Path, checkpoint: Checkpoint) -> None:
    """Save a CogVideoX 2B with text encoder and autoencoder of a checkpoint, and a random transformer like its own."""
    decoder = ShotDecoder.load_config(checkpoint.base("transformer").id)
    text_encoder = T5EncoderModel.from_pretrained(checkpoint.base("text_encoder").id)
    sizes = {key: value for key, value in decoder.items() if key in signature(CogVideoXTransformer3DModel).parameters}
    sizes |= {"text_embed_dim": text_encoder.config.d_model, "max_text_seq_length": _VIDEO_TEXT_TOKENS}
    with quietly():
        CogVideoXPipeline(
            tokenizer=shipped_tokenizer(),
            text_encoder=text_encoder,
            vae=checkpoint.autoencoder(),
            transformer=CogVideoXTransformer3DModel(**sizes),
            scheduler=make_scheduler(),
        ).save_pretrained(str(folder))
    # byte for byte, so that this pipeline finds the encoded clips of the checkpoint's own training
    shutil.copytree(checkpoint.base("autoencoder").id, folder / "vae", dirs_exist_ok=True)


def save_random_image_to_video(folder: Path, settings: VideoSettings) -> None:
    """Save a tiny CogVideoX 5B image-to-video, with first frame's latents, and rotary and learned positions.

    As in the published pipeline, there are learned positions for 49 frames.
    """
    parts = _video_parts(settings, 2 * LATENT_CHANNELS, learned=True)
    scheduler = CogVideoXDPMScheduler.from_config(make_scheduler().config, snr_shift_scale=1.0)
    with quietly():
        CogVideoXImageToVideoPipeline(**parts, scheduler=scheduler).save_pretrained(str(folder))


def save_random_flux(folder: Path) -> None:
    """Save a tiny FLUX.1 dev: double and single blocks, with guidance as an input."""
    transformer = FluxTransformer2DModel(
        in_channels=4 * 4,
        num_layers=1,
        num_single_layers=2,
        attention_head_dim=_HEAD_WIDTH,
        num_attention_heads=2,
        joint_attention_dim=_WIDTH,
        pooled_projection_dim=_WIDTH,
        guidance_embeds=True,
        axes_dims_rope=(4, 6, 6),
    )
    with quietly():
        FluxPipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
            vae=_autoencoder(
                shift_factor=0.1159, scaling_factor=0.3611, use_quant_conv=False, use_post_quant_conv=False
            ),
            text_encoder=CLIPTextModel(clip_config("gelu")),
            tokenizer=clip_tokenizer(),
            text_encoder_2=_t5(),
            tokenizer_2=shipped_tokenizer(),
            transformer=transformer,
        ).save_pretrained(str(folder))


def save_random_sdxl(folder: Path) -> None:
    """Save a tiny Stable Diffusion XL: two text encoders, attention only in the lower levels of the U-Net."""
    unet = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=6 * 8 + _WIDTH,
        cross_attention_dim=2 * _WIDTH,
    )
    with quietly():
        StableDiffusionXLPipeline(
            vae=_autoencoder(scaling_factor=0.13025),
            text_encoder=CLIPTextModel(clip_config("quick_gelu")),
            text_encoder_2=CLIPTextModelWithProjection(clip_config("gelu")),
            tokenizer=clip_tokenizer(),
            tokenizer_2=clip_tokenizer(),
            unet=unet,
            scheduler=EulerDiscreteScheduler(
                beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1
            ),
            add_watermarker=False,
        ).save_pretrained(str(folder))


def _video_parts(settings: VideoSettings, in_channels: int, *, learned: bool) -> dict[str, object]:
    height, width = settings.height // 8, settings.width // 8
    return {
        "tokenizer": shipped_tokenizer(),
        "text_encoder": _t5(),
        "vae": AutoencoderKLCogVideoX(
            block_out_channels=(8, 16, 16, 32),
            layers_per_block=1,
            norm_num_groups=4,
            sample_height=settings.height,
            sample_width=settings.width,
        ),
        "transformer": CogVideoXTransformer3DModel(
            num_attention_heads=2,
            attention_head_dim=_HEAD_WIDTH,
            in_channels=in_channels,
            out_channels=LATENT_CHANNELS,
            num_layers=2,
            time_embed_dim=_WIDTH,
            text_embed_dim=_WIDTH,
            max_text_seq_length=_VIDEO_TEXT_TOKENS,
            sample_height=height,
            sample_width=width,
            use_rotary_positional_embeddings=learned,
            use_learned_positional_embeddings=learned,
        ),
    }


def _t5() -> T5EncoderModel:
    """Return a T5 encoder with Mistral's vocabulary: it ships with this package, T5's is only on the hub."""
    return T5EncoderModel(
        T5Config(
            vocab_size=VOCABULARY,
            d_model=_WIDTH,
            d_kv=8,
            d_ff=2 * _WIDTH,
            num_layers=2,
            num_heads=4,
            feed_forward_proj="gated-gelu",
        )
    )


def _autoencoder(**options: object) -> AutoencoderKL:
    """Return an image autoencoder as in FLUX and SDXL: one latent per 8 x 8 pixels."""
    return AutoencoderKL(
        block_out_channels=(8, 16, 16, 32),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
        **options,
    )


def clip_config(activation: str) -> CLIPTextConfig:
    """Return the configuration of a tiny text encoder of CLIP."""
    tokenizer = clip_tokenizer()
    return CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=_WIDTH,
        intermediate_size=2 * _WIDTH,
        projection_dim=_WIDTH,
        num_hidden_layers=3,
        num_attention_heads=4,
        hidden_act=activation,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def clip_tokenizer() -> CLIPTokenizer:
    """Return a CLIP tokenizer without merges: every byte of a text is a token."""
    letters = sorted(ByteLevel.alphabet())
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)
