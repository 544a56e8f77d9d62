"""Configuration of ai-toolkit.

From toolkit/config_modules.py, where every class takes keywords and ignores those that it does not know.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tests.support.trainers.grammar.exact import Exact


class ToolkitNetwork(Exact):
    """`NetworkConfig`."""

    type: Literal["lora", "lokr"]
    linear: int
    linear_alpha: int


class ToolkitSave(Exact):
    """`SaveConfig`."""

    dtype: Literal["float16", "bf16"]
    save_every: int
    max_step_saves_to_keep: int


class ToolkitData(Exact):
    """`DatasetConfig`: evenly spaced frames over the whole video are all of them, if it has `num_frames`."""

    folder_path: str
    caption_ext: str
    caption_dropout_rate: float
    num_frames: int
    shrink_video_to_frames: Literal[True]
    fps: int
    resolution: list[int]


class ToolkitTrain(Exact):
    """`TrainConfig`."""

    batch_size: int
    steps: int
    gradient_accumulation: int
    train_unet: bool
    train_text_encoder: bool
    gradient_checkpointing: bool
    noise_scheduler: Literal["flowmatch"]
    timestep_type: Literal["sigmoid", "linear", "weighted"]
    optimizer: str
    lr: float
    optimizer_params: dict[str, float]
    disable_sampling: bool
    dtype: Literal["bf16"]


class ToolkitModel(Exact):
    """`ModelConfig`."""

    name_or_path: str
    arch: Literal["wan21"]
    quantize_te: bool


class ToolkitProcess(Exact):
    """An element of `process`."""

    type: Literal["sd_trainer"]
    training_folder: str
    device: str
    network: ToolkitNetwork
    save: ToolkitSave
    datasets: Annotated[list[ToolkitData], Field(min_length=1)]
    train: ToolkitTrain
    model: ToolkitModel


class ToolkitJob(Exact):
    """`config`."""

    name: str
    process: Annotated[list[ToolkitProcess], Field(min_length=1)]


class Toolkit(Exact):
    """config.yaml."""

    job: Literal["extension"]
    config: ToolkitJob
    meta: dict[str, str]
