"""Configuration of finetrainers 0.2.0.

From finetrainers/trainer/sft_trainer/trainer.py and finetrainers/data/dataset.py.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tests.support.trainers.grammar.exact import Exact, Triple


class FinetrainersData(Exact):
    """An element of `datasets`; buckets are (frames, height, width)."""

    data_root: str
    dataset_type: Literal["video"]
    video_resolution_buckets: list[Triple]
    reshape_mode: Literal["bicubic", "center_crop", "random_crop"]
    remove_common_llm_caption_prefixes: Literal[False]


class Finetrainers(Exact):
    """training.json."""

    datasets: Annotated[list[FinetrainersData], Field(min_length=1)]
