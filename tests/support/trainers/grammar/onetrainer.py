"""Configuration of OneTrainer, from modules/util/config/TrainConfig.py and ConceptConfig.py."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tests.support.trainers.grammar.exact import Exact


class OnePart(Exact):
    """`TrainModelPartConfig`."""

    train: bool
    weight_dtype: Literal["FLOAT_8", "BFLOAT_16", "NFLOAT_4", "INT_8"]
    offload_fraction: float = 0.0


class OneImage(Exact):
    """`ConceptImageConfig`: both are on unless they are turned off."""

    enable_crop_jitter: Literal[False]
    enable_random_flip: Literal[False]


class OneText(Exact):
    """`ConceptTextConfig`; `sample` is the text file beside the video."""

    prompt_source: Literal["sample"]
    enable_tag_shuffling: bool


class OneConcept(Exact):
    """`ConceptConfig`."""

    name: str
    path: str
    enabled: bool
    include_subdirectories: bool
    seed: int
    image: OneImage
    text: OneText


class OneTrainer(Exact):
    """`TrainConfig`: without a version of 11 at least, migrations meant for old files fail on this one."""

    version: Annotated[int, Field(alias="__version", ge=11)]
    model_type: Literal["HUNYUAN_VIDEO"]
    base_model_name: str
    training_method: Literal["LORA"]
    workspace_dir: str
    cache_dir: str
    output_model_destination: str
    output_model_format: Literal["COMFY_LORA"]
    batch_size: int
    learning_rate: float
    resolution: Annotated[str, Field(pattern=r"^\d+$")]
    frames: Annotated[str, Field(pattern=r"^\d+$")]
    aspect_ratio_bucketing: bool
    timestep_distribution: Literal["LOGIT_NORMAL", "UNIFORM", "SIGMOID"]
    train_dtype: Literal["BFLOAT_16"]
    transformer: OnePart
    text_encoder: OnePart
    text_encoder_2: OnePart
    layer_filter: str
    layer_filter_preset: str
    samples: list[None]
    concepts: Annotated[list[OneConcept], Field(min_length=1)]
