"""Configurations of diffusion-pipe.

From utils/dataset.py, examples/dataset.toml, examples/main_example.toml and docs/supported_models.md.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tests.support.trainers.grammar.exact import Exact, Triple


class PipeDirectory(Exact):
    """`[[directory]]`."""

    path: str
    num_repeats: int = 1
    mask_path: str | None = None
    cache_shuffle_num: int = 0
    skip_empty_caption: bool = True


class PipeData(Exact):
    """dataset.toml; with `size_buckets` (width, height, frames) no other sizes are needed."""

    size_buckets: list[Triple]
    directory: Annotated[list[PipeDirectory], Field(min_length=1)]


class PipeWan(Exact):
    """`[model]` of Wan."""

    type: Literal["wan"]
    ckpt_path: str
    transformer_path: str | None = None
    llm_path: str | None = None
    dtype: Literal["bfloat16"]
    transformer_dtype: Literal["float8"] | None = None
    timestep_sample_method: Literal["logit_normal", "uniform"]


class PipeHunyuan(Exact):
    """`[model]` of HunyuanVideo."""

    type: Literal["hunyuan-video"]
    ckpt_path: str
    dtype: Literal["bfloat16"]
    transformer_dtype: Literal["float8"] | None = None
    timestep_sample_method: Literal["logit_normal", "uniform"]


class PipeAdapter(Exact):
    """`[adapter]`."""

    type: Literal["lora"]
    rank: int
    dtype: Literal["bfloat16"]
    init_from_existing: str | None = None


class PipeOptimizer(Exact):
    """`[optimizer]`."""

    type: Literal["adamw_optimi", "AdamW8bitKahan", "Prodigy", "automagic"]
    lr: float
    betas: list[float]
    weight_decay: float
    eps: float


class Pipe(Exact):
    """config.toml."""

    output_dir: str
    dataset: str
    epochs: int
    max_steps: int | None = None
    micro_batch_size_per_gpu: int
    pipeline_stages: int
    gradient_accumulation_steps: int
    gradient_clipping: float
    warmup_steps: int
    blocks_to_swap: int | None = None
    save_every_n_epochs: int
    checkpoint_every_n_minutes: int
    activation_checkpointing: bool
    partition_method: Literal["parameters", "manual"]
    save_dtype: Literal["bfloat16"]
    caching_batch_size: int
    map_num_proc: int | None = None
    steps_per_print: int
    video_clip_mode: Literal["single_beginning", "single_middle", "multiple_overlapping"]
    model: Annotated[PipeWan | PipeHunyuan, Field(discriminator="type")]
    adapter: PipeAdapter
    optimizer: PipeOptimizer
