"""Configurations of SimpleTuner, from documentation/DATALOADER.md and simpletuner/helpers/data_backend/config."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from tests.support.trainers.grammar.exact import Exact


class TunerVideo(Exact):
    """`video` of a backend."""

    num_frames: int
    min_frames: int


class TunerVideos(Exact):
    """`ImageBackendConfig` of `dataset_type` video."""

    id: str
    type: Literal["local"]
    dataset_type: Literal["video"]
    instance_data_dir: str
    caption_strategy: Literal["textfile"]
    metadata_backend: Literal["discovery"]
    crop: Literal[False]
    resolution: int
    resolution_type: Literal["pixel_area"]
    cache_dir_vae: str
    repeats: int
    video: TunerVideo


class TunerTexts(Exact):
    """`TextEmbedBackendConfig`; one must be the default."""

    id: str
    type: Literal["local"]
    dataset_type: Literal["text_embeds"]
    default: Literal[True]
    cache_dir: str
    write_batch_size: int


TunerData = TypeAdapter(list[Annotated[TunerVideos | TunerTexts, Field(discriminator="dataset_type")]])


class Tuner(Exact):
    """config/clips/config.json: the options of simpletuner/helpers/configuration/cmd_args.py without dashes."""

    data_backend_config: str
    output_dir: str
    model_family: Literal["wan", "hunyuanvideo", "ltxvideo"]
    model_flavour: Literal["t2v-480p", "0.9.5"] | None = None
    pretrained_model_name_or_path: str
    model_type: Literal["lora"]
    lora_type: Literal["standard"]
    lora_rank: int
    base_model_precision: Literal["int8-torchao"]
    mixed_precision: Literal["bf16"]
    gradient_checkpointing: bool
    optimizer: Literal["adamw_bf16"]
    learning_rate: float
    lr_scheduler: Literal["constant_with_warmup"]
    lr_warmup_steps: int
    max_grad_norm: float
    max_train_steps: int
    num_train_epochs: int
    train_batch_size: int
    vae_batch_size: int
    minimum_image_size: int
    resolution: int
    resolution_type: Literal["pixel_area"]
    checkpoint_step_interval: int
    validation_disable: bool
    report_to: Literal["none"]
    seed: int
