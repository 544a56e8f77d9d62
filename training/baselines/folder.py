"""Baseline folder: the layout on disk, written by training and read by play.

BASELINE/
  baseline.json                         its configuration
  pytorch_lora_weights.safetensors      adapters, if it has any; stock diffusers loads them
  adaln.safetensors                     adaLN of the blocks, if it is trained
  bases/video/  bases/picture/          pipelines that are not on the model hub, in the hub's format; with a transformer
                                        that was trained whole
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    CogVideoXImageToVideoPipeline,
    CogVideoXPipeline,
    DiffusionPipeline,
    FluxPipeline,
    StableDiffusionXLPipeline,
)
from torch import Tensor, nn

from models.checkpoint import TRANSFORMER_FILE, Checkpoint, identity_of
from models.checkpoint_writer import writing
from models.config import Base
from models.diffusion import make_scheduler
from models.shot_decoder import SPATIAL_COMPRESSION, own_names
from models.weights import is_as_created, is_untrained, write_tensors
from pipeline.core.errors import UserError, refuse_special_files
from training.baselines.config import CONFIG, BaselineConfig, PipelinePart, inside_id, mini
from training.baselines.pipelines import (
    LORA,
    add_adapters,
    keep_positions,
    load_adapters,
    load_part,
    load_pipeline,
    save_adapters,
)
from training.baselines.untrained import (
    save_random_flux,
    save_random_image_to_video,
    save_random_sdxl,
    save_random_text_to_video,
    save_text_to_video_of,
)

Device = torch.device | str
_DRAWN = {"gfc": 2, "gsc": 2}
"""Versions of the drawing, raised when the same weights would draw a turn otherwise: a begun game is then refused."""


@dataclass(frozen=True)
class BaselineFolder:
    """Baseline folder with its configuration; pipelines are loaded on demand.

    Attributes:
        folder: path of the folder.
        config: content of `baseline.json`.
    """

    folder: Path
    config: BaselineConfig

    @classmethod
    def open(cls, folder: Path | str) -> BaselineFolder:
        """Read the configuration.

        Raises:
            UserError: the folder holds no baseline, an invalid configuration, or files that are devices or pipes.
        """
        refuse_special_files(Path(folder))
        return cls(Path(folder), BaselineConfig.read(Path(folder)))

    def identity(self) -> str:
        """Return a hash of configuration, adapters and the pipelines in the folder: all that a game depends on."""
        weights = sorted(self.folder.rglob("*.safetensors"))
        files = identity_of([self.folder / CONFIG, *weights])
        return f"{files}-{_DRAWN[self.config.kind]}" if self.config.kind in _DRAWN else files

    def untrained(self) -> list[str]:
        """Return the pipeline that is to be trained, if it never was."""
        part = self.config.trained_part
        if self.config.video.whole:
            never = is_as_created(self._transformer_file, "norm_final.weight")
        else:
            never = part is not None and is_untrained(self.folder / LORA)
        return [f"{part} pipeline"] if never else []

    def video(self, device: Device = "cpu") -> CogVideoXPipeline | CogVideoXImageToVideoPipeline:
        """Load the video pipeline with its adapters, in main memory, in the precision for a device."""
        pipeline = self._pipeline("video", device)
        keep_positions(pipeline.transformer, self.config.video.frames)
        if self.config.kind == "gc":
            pipeline.scheduler = make_scheduler()  # the shot decoder's scheduler, so that only the conditions differ
            pipeline.vae_scale_factor_spatial = SPATIAL_COMPRESSION  # the pipeline does not count patches as input
        return pipeline

    def picture(self, device: Device = "cpu") -> FluxPipeline | StableDiffusionXLPipeline:
        """Load the picture pipeline; otherwise as `video`. ValueError for `gc`, which has none."""
        return self._pipeline("picture", device)

    def transformer(self, device: Device = "cpu", dtype: torch.dtype | None = None) -> Any:
        """Load the transformer for training: what is trained, adapters or all of it, in float32, requiring a gradient.

        Frozen weights are in `dtype`, by default as in play on this device.
        """
        part = self.config.trained_part
        if part is None:
            raise UserError(f"{self.config.kind} has no adapters to train")
        if self.config.video.whole:
            whole = self.part(part, "transformer", device, torch.float32)
            keep_positions(whole, self.config.video.frames)
            return whole.requires_grad_(True)
        transformer = self.part(part, "transformer", device, dtype)
        if part == "video":
            keep_positions(transformer, self.config.video.frames)
        load_adapters(self.folder, transformer, self._rank, adaln=self.config.video.adaln)
        return transformer

    def part(self, part: PipelinePart, name: str, device: Device = "cpu", dtype: torch.dtype | None = None) -> Any:
        """Load one network of a pipeline, without adapters, in `dtype` or in the precision for a device."""
        chosen = dtype or precision_of(self._kind(part), device)
        return load_part(self._kind(part), name, self.base(part), chosen)

    def encoders(self, part: PipelinePart, device: Device = "cpu") -> Any:
        """Load a pipeline without its transformer on a device: the encoders of texts and frames."""
        kind = self._kind(part)
        return load_pipeline(kind, self.base(part), precision_of(kind, device), "transformer").to(device)

    def base(self, part: PipelinePart) -> Base:
        """Return the location of a pipeline; for one inside the baseline's folder, its absolute path."""
        base = self.config.base(part)
        inside = self.folder.absolute() / base.id
        return base.model_copy(update={"id": str(inside)}) if base.id == inside_id(part) else base

    def _pipeline(self, part: PipelinePart, device: Device) -> Any:
        kind = self._kind(part)
        pipeline = load_pipeline(kind, self.base(part), precision_of(kind, device))
        if part == self.config.trained_part and self._rank:
            transformer, adaln = pipeline.transformer, self.config.video.adaln
            load_adapters(self.folder, transformer, self._rank, adaln=adaln)
            transformer.fuse_lora()  # one matrix product per projection instead of three
            for name in own_names(transformer) if adaln else ():
                parameter = transformer.get_parameter(name)
                parameter.data = parameter.data.to(precision_of(kind, device))
        return pipeline

    def _kind(self, part: PipelinePart) -> Any:
        """Return the class of a pipeline."""
        if part == "video":
            return CogVideoXPipeline if self.config.kind == "gc" else CogVideoXImageToVideoPipeline
        return FluxPipeline if self.config.kind == "gfc" else StableDiffusionXLPipeline

    @property
    def _transformer_file(self) -> Path:
        """File of a transformer that is trained whole."""
        return self.folder / inside_id("video") / "transformer" / TRANSFORMER_FILE

    @property
    def _rank(self) -> int:
        picture = self.config.picture
        return self.config.video.lora_rank or (picture.lora_rank if picture else 0)


def precision_of(kind: type[DiffusionPipeline], device: Device) -> torch.dtype:
    """Return the precision for a device: the precision of the pipeline's training on a GPU, float32 on a CPU.

    CogVideoX 2B and SDXL were trained in float16, CogVideoX 5B and FLUX in bfloat16.
    """
    if torch.device(device).type != "cuda":
        return torch.float32
    return torch.float16 if kind in (CogVideoXPipeline, StableDiffusionXLPipeline) else torch.bfloat16


def new_baseline(folder: Path, config: BaselineConfig, seed: int = 0) -> BaselineFolder:
    """Write an untrained baseline: random pipelines for `tiny`, and adapters initialized to no effect.

    Args:
        folder: target folder; must not exist, or be empty.
        config: configuration; the transformer that gets adapters is loaded from its location.
        seed: seed of everything random; the same seed writes the same baseline.

    Raises:
        UserError: the folder is not empty, or a pipeline cannot be loaded.
    """
    with writing(folder) as part, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        _save_random_bases(part, config)
        _save_config(part, config)
        if trained := config.trained_part:
            made = BaselineFolder(part, config)
            transformer = made.part(trained, "transformer")
            add_adapters(transformer, made._rank, adaln=config.video.adaln)
            save_adapters(part, transformer, adaln=config.video.adaln)
    return BaselineFolder(folder, config)


def new_mini_gc(folder: Path, checkpoint: Checkpoint, seed: int = 0) -> BaselineFolder:
    """Write an untrained GC of size `mini`.

    Args:
        checkpoint: one of size `mini`, whose text encoder, autoencoder and motion scopes it has.

    Raises:
        UserError: the checkpoint is of another size, or the folder is not empty.
    """
    if checkpoint.config.size != "mini":
        raise UserError(f"{checkpoint.folder} is of size {checkpoint.config.size}: a GC of size mini needs one of mini")
    config = mini().model_copy(update={"level_values": checkpoint.config.level_values})
    with writing(folder) as part, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        save_text_to_video_of(part / inside_id("video"), checkpoint)
        _save_config(part, config)
    return BaselineFolder(folder, config)


def save_trained(folder: Path, start: BaselineFolder, transformer: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Write a baseline with trained adapters, or a transformer trained whole."""
    bases = start.folder / "bases"
    if bases.is_dir():
        shutil.copytree(bases, folder / "bases")
    _save_config(folder, start.config)
    if start.config.video.whole:
        write_tensors(state, BaselineFolder(folder, start.config)._transformer_file)
    else:
        save_adapters(folder, transformer, state, adaln=start.config.video.adaln)


def _save_config(folder: Path, config: BaselineConfig) -> None:
    text = config.model_dump_json(indent=2, exclude=config.unset_later_keys())
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")


def _save_random_bases(folder: Path, config: BaselineConfig) -> None:
    if config.video.base.id == inside_id("video"):
        save = save_random_text_to_video if config.kind == "gc" else save_random_image_to_video
        save(folder / inside_id("video"), config.video)
    if config.picture and config.picture.base.id == inside_id("picture"):
        (save_random_flux if config.kind == "gfc" else save_random_sdxl)(folder / inside_id("picture"))
