"""Dataset configuration of musubi-tuner.

From src/musubi_tuner/dataset/config_utils.py: `ConfigSanitizer`, a voluptuous schema without extras.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tests.support.trainers.grammar.exact import Exact, Pair


class MusubiGeneral(Exact):
    """`DATASET_ASCENDABLE_SCHEMA`."""

    caption_extension: str | None = None
    batch_size: int = 1
    num_repeats: int = 1
    resolution: int | Pair = Field([960, 544])
    enable_bucket: bool = False
    bucket_no_upscale: bool = False
    skip_corrupted_cache: bool = False


class MusubiVideos(MusubiGeneral):
    """`VIDEO_DATASET_DISTINCT_SCHEMA`; `source_fps` would resample, so it must not be there."""

    video_directory: str
    control_directory: str | None = None
    target_frames: list[int]
    frame_extraction: Literal["head", "chunk", "slide", "uniform", "full"]
    frame_stride: int = 1
    frame_sample: int = 1
    max_frames: int = 129
    cache_directory: str
    source_fps: None = None
    fp_latent_window_size: int = 9


class Musubi(Exact):
    """dataset.toml."""

    general: MusubiGeneral
    datasets: Annotated[list[MusubiVideos], Field(min_length=1)]
