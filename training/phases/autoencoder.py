"""Fits the autoencoder of a tiny checkpoint to the clips of a data set, so that its latents mean something.

The published autoencoder knows pictures of every kind; a random one gives back grey whatever it is shown. This one
learns the clips at hand by heart, in two phases of the one training loop: crops of single frames, which are cheap and
teach it what things look like, then crops of stretches of clips, which teach it how they move. At the end the spread
of the latents is measured: with the scaling factor that follows, the shot decoder sees latents of unit variance.

    fitted = fit_autoencoder(Checkpoint.open("start"), "demo/dataset", Path("autoencoder"))

Letters of the shapes: N clips, B batch, T frames or latent frames, H W pixels or latent pixels, C channels (RGB).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import torch
from accelerate import Accelerator
from diffusers import AutoencoderKLCogVideoX
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from models.checkpoint import Checkpoint, copy_rest, save_config, within
from models.config import ModelConfig, inside_id
from models.frames import decode_latents, encode_frames, scaling_factor
from models.hub import quietly
from pipeline.core.errors import UserError
from pipeline.publish.samples import Split
from training.config import FitSettings
from training.data.order import Position, generator
from training.data.shards import open_index, open_shards
from training.data.turns import Catalog, read_turns
from training.folder_note import note, refuse_another
from training.pictures import Comparison, save_comparisons
from training.trainer import StepWatcher, Trainer

_PATCH = 8
"""Pixels, along each side, that become one latent pixel."""
_STRETCH = 9
"""Frames of a crop of a clip: the first alone and two times four, so that motion is learned at half the price."""
_TOGETHER = 2
"""Clips encoded at once: one alone takes torch's slow path for 3-D convolutions on a CPU."""


@dataclass(frozen=True, eq=False)
class Crops:
    """Some examples put together: crops of clips, and the noise that their latents are drawn with."""

    frames_BTHWC: Tensor
    """uint8 RGB."""
    noise_BCTHW: Tensor

    def to(self, device: torch.device) -> Self:
        """The batch on a device."""
        return type(self)(self.frames_BTHWC.to(device), self.noise_BCTHW.to(device))


class CropExamples:
    """Crops of half the height and half the width at random places of clips: stills, or stretches of nine frames."""

    def __init__(self, frames_NTHWC: Tensor, kind: Literal["stills", "clips"], channels: int, seed: int = 0) -> None:
        """Name the clips; `channels` are the latents'."""
        self.frames_NTHWC, self.kind, self.channels, self.seed = frames_NTHWC, kind, channels, seed

    def __len__(self) -> int:
        return len(self.frames_NTHWC)

    def __getitem__(self, place: Position) -> tuple[Tensor, Tensor]:
        """Frames THWC and noise CTHW."""
        drawn = generator(self.seed, place)
        clip_THWC = self.frames_NTHWC[place.item]
        frames, height, width, _ = clip_THWC.shape
        length = 1 if self.kind == "stills" else _STRETCH
        first = int(torch.randint(frames - length + 1, (), generator=drawn))
        clip_THWC = clip_THWC[first : first + length]
        rows, columns = (max(1, side // (2 * _PATCH)) * _PATCH for side in (height, width))
        top, left = (
            int(torch.randint(most + 1, (), generator=drawn)) for most in (height - rows, width - columns)
        )  # fmt: skip
        latent_frames = (length - 1) // 4 + 1
        shape = (self.channels, latent_frames, rows // _PATCH, columns // _PATCH)
        return clip_THWC[:, top : top + rows, left : left + columns], torch.randn(shape, generator=drawn)


class Reconstruction(nn.Module):
    """The autoencoder with its objective."""

    def __init__(self, autoencoder: AutoencoderKLCogVideoX, divergence: float) -> None:
        super().__init__()
        self.autoencoder, self.divergence = autoencoder, divergence

    def forward(self, batch: Crops) -> dict[str, Tensor]:
        """Loss, mean squared error (white less black is 2) and divergence a latent number, each [B]."""
        pictures_BCTHW = batch.frames_BTHWC.permute(0, 4, 1, 2, 3).float() / 127.5 - 1
        found = self.autoencoder.encode(pictures_BCTHW).latent_dist
        drawn_BCTHW = self.autoencoder.decode(found.mean + found.std * batch.noise_BCTHW).sample
        error_B = (drawn_BCTHW - pictures_BCTHW).square().mean(dim=(1, 2, 3, 4))
        divergence_B = (found.mean.square() + found.var - 1 - found.logvar).mean(dim=(1, 2, 3, 4)) / 2
        return {"loss": error_B + self.divergence * divergence_B, "error": error_B, "divergence": divergence_B}


@dataclass(eq=False)
class AutoencoderPhase:
    """Stills or clips."""

    name: str
    network: Reconstruction
    examples: CropExamples
    judged: Mapping[Split, Tensor]
    """Whole clips NTHWC of each split, on which it is measured how well they come back."""
    pictures: int
    checkpoint: Checkpoint
    units: Sequence[str] = ("CogVideoXResnetBlock3D",)

    def collate(self, examples: Sequence[tuple[Tensor, Tensor]]) -> Crops:
        """Put examples together."""
        frames, noise = zip(*examples, strict=True)
        return Crops(torch.stack(frames), torch.stack(noise))

    def validate(self, network: nn.Module, device: torch.device, looks: Path | None) -> dict[str, float]:  # noqa: ARG002
        """How well whole clips come back, and some of them beside what came back."""
        inner = network.module if isinstance(network, DistributedDataParallel) else network
        found, comparisons = {}, []
        for split, clips_NTHWC in self.judged.items():
            back_NTHWC = reconstructed(inner.autoencoder, clips_NTHWC)
            decibels_N = psnr(clips_NTHWC, back_NTHWC)
            found[f"psnr_{split}"] = float(decibels_N.mean())
            for item in _spread(len(clips_NTHWC), self.pictures):
                caption = f"{split}: {decibels_N[item]:.1f} dB"
                comparisons.append(Comparison(caption, clips_NTHWC[item].numpy(), back_NTHWC[item].numpy()))
        if looks:
            save_comparisons(looks, comparisons)
        return found

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a whole checkpoint: the autoencoder in the hub's format with its scale measured, and all the rest."""
        autoencoder = self.checkpoint.autoencoder()  # a whole one: that of the network may be spread over devices
        autoencoder.load_state_dict(within(state, "autoencoder."))
        factor = measured_factor(autoencoder, self.examples.frames_NTHWC)
        autoencoder.register_to_config(scaling_factor=factor)
        with quietly():
            autoencoder.save_pretrained(str(folder / inside_id("autoencoder")))
        save_config(folder, self.checkpoint.config)
        copy_rest(self.checkpoint, folder, {inside_id("autoencoder")})


@dataclass(frozen=True)
class Fitted:
    """What came out."""

    checkpoint: Checkpoint
    before: Mapping[Split, float]
    """Mean PSNR of whole clips by split, dB."""
    after: Mapping[Split, float]
    factor: float
    """The scaling factor of the latents."""
    sheet: Path
    """Clips above their reconstructions; `clips.mp4` beside it shows them moving."""


def fit_autoencoder(
    checkpoint: Checkpoint,
    source: str | Path,
    folder: Path,
    settings: FitSettings | None = None,
    watch: StepWatcher | None = None,
) -> Fitted:
    """Fit the autoencoder of a tiny checkpoint; run again with the same arguments, it goes on where it was stopped.

    Args:
        checkpoint: where to start; it stays as it is.
        source: a data set folder or the address of one.
        folder: of the run; the new checkpoint is `folder/clips/result`.
        settings: how.
        watch: told of every step.

    Raises:
        UserError: the checkpoint's autoencoder is a published one, the folder is of another run, or the data set
            cannot be read or has clips of another shape.
    """
    settings = settings or FitSettings()
    _refuse_published(checkpoint)
    _claim(folder, checkpoint, source, settings)
    frames = {split: read_frames(source, split, checkpoint.config, settings.most_clips) for split in _splits(source)}
    judged = {split: clips_NTHWC[_spread(len(clips_NTHWC), settings.judged)] for split, clips_NTHWC in frames.items()}
    before = _mean_psnr(checkpoint, judged)
    accelerator, begun = Accelerator(), checkpoint
    kinds: tuple[Literal["stills", "clips"], ...] = ("stills", "clips")
    for kind in kinds:
        loop, result = getattr(settings, kind), folder / kind / "result"
        if not result.exists():
            autoencoder = begun.autoencoder(accelerator.device, torch.float32).requires_grad_(True)
            examples = CropExamples(frames["train"], kind, autoencoder.config.latent_channels, loop.seed)
            network = Reconstruction(autoencoder, settings.divergence)
            phase = AutoencoderPhase(kind, network, examples, judged, settings.pictures, begun)
            Trainer(phase, loop, folder / kind, accelerator).run(watch)
            accelerator.free_memory()
        begun = Checkpoint.open(result)
    after = _mean_psnr(begun, judged)
    sheet = folder / "clips" / "looks" / f"step-{settings.clips.steps:08d}" / "sheet.png"
    return Fitted(begun, before, after, scaling_factor(begun.autoencoder()), sheet)


def read_frames(source: str | Path, split: Split, config: ModelConfig, most: int) -> Tensor:
    """Frames NTHWC, uint8 RGB, of at most so many clips of a split, in the size of the model's shots.

    Raises:
        UserError: the data set cannot be read, or has clips of another shape.
    """
    wanted = set(_spread(open_index(source).counts.split[split], most))
    shot = config.shot_decoder
    turns = read_turns(open_shards(source, split))
    return torch.stack(
        [turn.frames(shot.height, shot.width, shot.frames) for item, turn in enumerate(turns) if item in wanted]
    )


@torch.no_grad()
def reconstructed(autoencoder: AutoencoderKLCogVideoX, frames_NTHWC: Tensor) -> Tensor:
    """The clips through their latents and back, uint8 RGB on the CPU."""
    parts = [
        decode_latents(autoencoder, encode_frames(autoencoder, part_BTHWC).mean_BTCHW).cpu()
        for part_BTHWC in _together(frames_NTHWC)
    ]
    return torch.cat(parts)


def psnr(frames_NTHWC: Tensor, others_NTHWC: Tensor) -> Tensor:
    """Peak signal-to-noise ratio [N] of each clip, dB; equal clips have 10 log10(255^2 * 12) = 58.9, as if rounded."""
    squared_N = (frames_NTHWC.float() - others_NTHWC.float()).square().mean(dim=(1, 2, 3, 4))
    return 10 * (255**2 / squared_N.clamp(min=1 / 12)).log10()


def measured_factor(autoencoder: AutoencoderKLCogVideoX, frames_NTHWC: Tensor) -> float:
    """The scaling factor that gives the latents of these clips a standard deviation of 1."""
    means = [encode_frames(autoencoder, part_BTHWC).mean_BTCHW for part_BTHWC in _together(frames_NTHWC)]
    return scaling_factor(autoencoder) / float(torch.cat(means).std())


def _mean_psnr(checkpoint: Checkpoint, judged: Mapping[Split, Tensor]) -> dict[Split, float]:
    autoencoder = checkpoint.autoencoder()
    return {
        split: float(psnr(clips_NTHWC, reconstructed(autoencoder, clips_NTHWC)).mean())
        for split, clips_NTHWC in judged.items()
    }


def _together(frames_NTHWC: Tensor) -> tuple[Tensor, ...]:
    """The clips in twos, and a last three where their number is odd."""
    return frames_NTHWC.tensor_split(max(1, len(frames_NTHWC) // _TOGETHER))


def _spread(count: int, most: int) -> list[int]:
    """At most so many of `range(count)`, evenly spread."""
    return list(range(count)) if count <= most else [place * count // most for place in range(most)]


def _splits(source: str | Path) -> list[Split]:
    held_out = any(shard.split == "val" for shard in open_index(source).shards)
    return ["train", "val"] if held_out else ["train"]


def _refuse_published(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    if config.size != "tiny" or config.bases["autoencoder"].id != inside_id("autoencoder"):
        raise UserError(
            f"the autoencoder of {checkpoint.folder} is {config.bases['autoencoder'].id}, a published one that needs "
            "no fitting: only the random one of a tiny checkpoint is fitted"
        )


def _claim(folder: Path, checkpoint: Checkpoint, source: str | Path, settings: FitSettings) -> None:
    """Note what the run is made from, or compare it with what is noted."""
    data = {split: Catalog.read(open_shards(source, split)).fingerprint for split in _splits(source)}
    made_from = {"start": checkpoint.identity(), "data": data, "settings": settings.model_dump()}
    refuse_another(folder, made_from)
    note(folder, made_from)
