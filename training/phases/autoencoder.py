"""Autoencoder fit: the autoencoder of a small checkpoint, trained on the clips of a dataset.

The published autoencoder is general, and a random one reconstructs every picture as grey. The fit overfits the given
clips in two phases of the training loop. Crops of single frames are cheap and teach appearance, and then crops of all
frames teach motion: the decoder draws a shot in groups of frames, and shorter crops would leave the last group
untrained. The loss is reconstruction plus divergence, as in a variational autoencoder, plus the error of the changes
from frame to frame:

    z = mu(x) + sigma(x) eps,    eps ~ N(0, I)
    e = D(z) - x,                d_t = e_(t+1) - e_t
    L = mean e^2 + kappa mean d^2 + lambda mean (mu^2 + sigma^2 - 1 - log sigma^2) / 2

with x the pixels in [-1, 1], mu and sigma the encoder's mean and standard deviation, and D the decoder. An error of
what stands still is in e alone, an error of what moves also in d; kappa is `changes`, 0 by default. The last mean is
the KL divergence of N(mu, sigma^2) from N(0, 1) per latent number; lambda is `divergence`. Finally, the latents are
whitened (`training/phases/whitening.py`).

    fitted = fit_autoencoder(Checkpoint.open("start"), "demo/dataset", Path("autoencoder"))

Crops may be parts of frames. But the autoencoder normalizes over a whole crop, and a part has other statistics. So
parts are only for a cheap and coarse fit.

Letters of the shapes: N clips, B batch, T frames or latent frames, H W pixels or latent pixels, C channels (RGB).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from accelerate import Accelerator
from diffusers import AutoencoderKLCogVideoX
from diffusers.models.autoencoders.autoencoder_kl_cogvideox import CogVideoXCausalConv3d
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from models.acceleration import arrange
from models.checkpoint import Checkpoint
from models.checkpoint_writer import copy_rest, save_config, within
from models.config import ModelConfig, inside_id
from models.frames import decode_latents, encode_frames, to_patches
from models.hub import quietly
from models.prompt_batch import TensorBatch
from models.untrained import Say
from pipeline.core.atomic import held
from pipeline.core.errors import UserError
from pipeline.publish.samples import Split
from training.config import FitSettings
from training.data.checks import check_batch
from training.data.mixture import Mixture
from training.data.order import Position, generator, spread
from training.data.turns import fingerprint_of, read_turns
from training.phase import ALONE, Share
from training.phase_folder import check_made_from, note_made_from
from training.phases.whitening import whiten
from training.pictures import Comparison, save_comparisons
from training.processes import frozen_dtype, new_accelerator, process_count, release_network
from training.trainer import StepWatcher, Trainer

Kind = Literal["stills", "clips"]
_PATCH = 8
"""Pixels per latent pixel along each side."""
_KINDS: tuple[Kind, ...] = ("stills", "clips")
_MEASURED = 256
"""Most clips whose latents are measured to whiten them."""
_BATCH_SIZE = 2
"""Clips encoded at once: a single clip takes torch's slow path for 3-D convolutions on a CPU."""


class Reconstruction(nn.Module):
    """Autoencoder with its loss: errors of reconstruction and of its changes, and divergence."""

    def __init__(self, autoencoder: AutoencoderKLCogVideoX, divergence: float, changes: float = 0.0) -> None:
        super().__init__()
        self.autoencoder, self.divergence, self.changes = autoencoder, divergence, changes

    def forward(self, batch: Crops) -> dict[str, Tensor]:
        """Return the loss and its terms, each [B].

        These are the mean squared errors of pixels in [-1, 1] and of their changes, if they count in this batch, and
        the divergence per latent number.
        """
        pictures_BCTHW = to_patches(batch.frames_BTHWC, self.autoencoder.config.in_channels)
        found = self.autoencoder.encode(pictures_BCTHW).latent_dist
        drawn_BCTHW = self.autoencoder.decode(found.mean + found.std * batch.noise_BCTHW).sample.float()
        error_BCTHW = drawn_BCTHW - pictures_BCTHW
        terms = {"error": error_BCTHW.square().mean(dim=(1, 2, 3, 4))}
        loss_B = terms["error"]
        if self.changes and error_BCTHW.shape[2] > 1:
            terms["changes"] = error_BCTHW.diff(dim=2).square().mean(dim=(1, 2, 3, 4))
            loss_B = loss_B + self.changes * terms["changes"]
        divergence_BCTHW = (found.mean.square() + found.var - 1 - found.logvar).float() / 2
        terms["divergence"] = divergence_BCTHW.mean(dim=(1, 2, 3, 4))
        return {"loss": loss_B + self.divergence * terms["divergence"], **terms}

    def reconstructed(self, frames_NTHWC: Tensor) -> Tensor:
        """Return the clips encoded and decoded, uint8 RGB on the CPU."""
        return reconstructed(self.autoencoder, frames_NTHWC)


@dataclass(eq=False)
class AutoencoderPhase:
    """Autoencoder fit on crops of single frames, or of clips."""

    name: str
    network: Reconstruction
    examples: CropExamples
    measured: Mapping[Split, Tensor]
    """Whole clips [N, T, H, W, C] of each split for measuring PSNR."""
    pictures: int
    checkpoint: Checkpoint
    units: Sequence[str] = ("CogVideoXResnetBlock3D",)
    varied: bool = False

    def size_of(self, _example: tuple[Tensor, Tensor]) -> int:
        """Return 1: all examples are of one size."""
        return 1

    def collate(self, examples: Sequence[tuple[Tensor, Tensor]]) -> Crops:
        """Collate examples."""
        frames, noise = zip(*examples, strict=True)
        return Crops(torch.stack(frames), torch.stack(noise))

    def validate(
        self,
        network: nn.Module,
        device: torch.device,  # noqa: ARG002
        pictures: Path | None,
        share: Share = ALONE,  # noqa: ARG002  # a few clips
    ) -> dict[str, float]:
        """Return the PSNR of whole clips, and save some of them with their reconstructions."""
        inner = network.module if isinstance(network, DistributedDataParallel) else network
        assert isinstance(inner, Reconstruction)
        register_fsdp_forward_method(inner, "reconstructed")  # gathers the weights that are in no unit
        found, comparisons = {}, []
        for split, clips_NTHWC in self.measured.items():
            back_NTHWC = inner.reconstructed(clips_NTHWC)
            decibels_N = psnr(clips_NTHWC, back_NTHWC)
            found[f"psnr_{split}"] = float(decibels_N.mean())
            for item in spread(len(clips_NTHWC), self.pictures):
                caption = f"{split}: {decibels_N[item]:.1f} dB"
                comparisons.append(Comparison(caption, clips_NTHWC[item].numpy(), back_NTHWC[item].numpy()))
        if pictures:
            save_comparisons(pictures, comparisons)
        return found

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a complete checkpoint: autoencoder in the hub's format, with whitened latents, and all other parts."""
        autoencoder = self.checkpoint.autoencoder()  # a new one: the network's may be sharded over devices
        autoencoder.load_state_dict(within(state, "autoencoder."))
        clips_NTHWC = self.examples.frames_NTHWC
        whiten_latents(autoencoder, clips_NTHWC[spread(len(clips_NTHWC), _MEASURED)])
        with quietly():
            autoencoder.save_pretrained(str(folder / inside_id("autoencoder")))
        save_config(folder, self.checkpoint.config)
        copy_rest(self.checkpoint, folder, {inside_id("autoencoder")})


@dataclass(frozen=True, eq=False)
class Crops(TensorBatch):
    """Collated examples: crops of clips, and the noise for sampling their latents."""

    frames_BTHWC: Tensor
    """uint8 RGB."""
    noise_BCTHW: Tensor


class CropExamples:
    """Random crops of clips: of single frames, or of all frames."""

    def __init__(self, frames_NTHWC: Tensor, kind: Kind, channels: int, crop: float = 0.5, seed: int = 0) -> None:
        """Store the clips; `channels` of latents, `crop` the share of height and width."""
        self.frames_NTHWC, self.kind, self.channels, self.crop, self.seed = frames_NTHWC, kind, channels, crop, seed

    def __len__(self) -> int:
        return len(self.frames_NTHWC)

    def __getitem__(self, position: Position) -> tuple[Tensor, Tensor]:
        """Return frames [T, H, W, C] and noise [C, T, H, W]."""
        drawn = generator(self.seed, position)
        clip_THWC = self.frames_NTHWC[position.item]
        frames, height, width, _ = clip_THWC.shape
        length = 1 if self.kind == "stills" else frames
        first = int(torch.randint(frames - length + 1, (), generator=drawn))
        clip_THWC = clip_THWC[first : first + length]
        rows, columns = (max(1, int(side * self.crop) // _PATCH) * _PATCH for side in (height, width))
        top, left = (
            int(torch.randint(most + 1, (), generator=drawn)) for most in (height - rows, width - columns)
        )  # fmt: skip
        latent_frames = (length - 1) // 4 + 1
        shape = (self.channels, latent_frames, rows // _PATCH, columns // _PATCH)
        return clip_THWC[:, top : top + rows, left : left + columns], torch.randn(shape, generator=drawn)


class StillConvolution(CogVideoXCausalConv3d):  # type: ignore[misc]  # diffusers has no types
    """Causal convolution that sums its taps in time over a single frame; other clips are convolved as before."""

    def forward(self, inputs: Tensor, conv_cache: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Convolve frames [B, C, T, H, W]. Return them, and the frames that the next ones need."""
        copies = self.time_kernel_size - 1
        if not copies or conv_cache is not None or inputs.shape[2] > 1:
            convolved: tuple[Tensor, Tensor] = super().forward(inputs, conv_cache)
            return convolved
        conv, weight_OCHW = self.conv, self.conv.weight.sum(dim=2)
        convolved_BCHW = functional.conv2d(inputs[:, :, 0], weight_OCHW, conv.bias, conv.stride[1:], conv.padding[1:])
        return convolved_BCHW[:, :, None], inputs.expand(-1, -1, copies, -1, -1)


def with_cheap_stills(autoencoder: AutoencoderKLCogVideoX) -> AutoencoderKLCogVideoX:
    """Let an autoencoder convolve single frames the cheap way. Weights and results stay; it is changed in place."""
    for module in autoencoder.modules():
        if type(module) is CogVideoXCausalConv3d:
            module.__class__ = StillConvolution
    return autoencoder


@dataclass(frozen=True)
class Fitted:
    """Result of an autoencoder fit."""

    checkpoint: Checkpoint
    before: Mapping[Split, float]
    """Mean PSNR in dB of whole clips before the fit, by split."""
    after: Mapping[Split, float]
    """Mean PSNR in dB of whole clips after the fit, by split."""
    sheet: Path
    """Picture of clips above their reconstructions; `clips.mp4` in the same folder is the video."""


def fit_autoencoder(
    checkpoint: Checkpoint,
    source: str | Path | Mixture,
    folder: Path,
    settings: FitSettings | None = None,
    watch: StepWatcher | None = None,
    say: Say = lambda _: None,
) -> Fitted:
    """Fit the autoencoder of a small checkpoint; a repeated call with the same arguments resumes an interrupted fit.

    Args:
        checkpoint: starting checkpoint; it is not changed.
        source: folder or address of a dataset, or several as a mixture.
        folder: folder of the run; the new checkpoint is `folder/clips/result`.

    Raises:
        UserError: the checkpoint's autoencoder is a published one, the processes cannot share a batch or compute in the
            precision, the folder belongs to another run, or the dataset is unreadable or has clips of another shape.
    """
    settings, data = settings or FitSettings(), source if isinstance(source, Mixture) else Mixture.of(source)
    _refuse_published(checkpoint)
    for kind in _KINDS:
        check_batch(f"autoencoder.{kind}", getattr(settings, kind), process_count())
    accelerator = _accelerator(settings)
    # Lock the folder: processes left by a killed call may still be training in it.
    with held(folder, "the autoencoder's fit") if accelerator.is_main_process else nullcontext():
        begun = checkpoint
        _claim(folder, checkpoint, data, settings)
        frames = {split: read_frames(data, split, checkpoint.config, settings.most_clips) for split in data.splits}
        measured = {
            split: clips_NTHWC[spread(len(clips_NTHWC), settings.measured)] for split, clips_NTHWC in frames.items()
        }

        def phase_of(kind: Kind, begun: Checkpoint) -> AutoencoderPhase:
            autoencoder = with_cheap_stills(begun.autoencoder(accelerator.device, torch.float32)).requires_grad_(True)
            arrange(autoencoder, frozen_dtype(settings.precision))
            channels, seed = autoencoder.config.latent_channels, getattr(settings, kind).seed
            examples = CropExamples(frames["train"], kind, channels, settings.crop, seed)
            network = Reconstruction(autoencoder, settings.divergence, settings.changes)
            return AutoencoderPhase(kind, network, examples, measured, settings.pictures, begun)

        before = _mean_psnr(checkpoint, measured)
        for kind in _KINDS:
            loop, result = getattr(settings, kind), folder / kind / "result"
            if not loop.steps:
                continue
            if not result.exists():
                Trainer(phase_of(kind, begun), loop, folder / kind, accelerator).run(watch, say)
                release_network(accelerator)
            begun = Checkpoint.open(result)
        after = _mean_psnr(begun, measured)
        sheet = folder / "clips" / "pictures" / f"step-{settings.clips.steps:08d}" / "sheet.png"
        return Fitted(begun, before, after, sheet)


def read_frames(source: str | Path | Mixture, split: Split, config: ModelConfig, most: int) -> Tensor:
    """Return frames [N, T, H, W, C], uint8 RGB, of at most `most` clips of a split, in the model's frame size.

    Raises:
        UserError: the dataset cannot be read, or has clips of another shape.
    """
    shards = (source if isinstance(source, Mixture) else Mixture.of(source)).shards(split)
    wanted = set(spread(sum(shard.entry.samples for shard in shards), most))
    shot = config.shot_decoder
    turns = read_turns(shards)
    return torch.stack(
        [turn.frames(shot.height, shot.width, shot.frames) for item, turn in enumerate(turns) if item in wanted]
    )


@torch.no_grad()
def reconstructed(autoencoder: AutoencoderKLCogVideoX, frames_NTHWC: Tensor) -> Tensor:
    """Return the clips encoded and decoded, uint8 RGB on the CPU."""
    parts = [
        decode_latents(autoencoder, encode_frames(autoencoder, part_BTHWC).mean_BTCHW).cpu()
        for part_BTHWC in _batches(frames_NTHWC)
    ]
    return torch.cat(parts)


def psnr(frames_NTHWC: Tensor, others_NTHWC: Tensor) -> Tensor:
    """Peak signal-to-noise ratio [N] of each clip in dB: 10 log10(255^2 / e), with e the mean squared error.

    e is at least 1/12, the error of rounding to whole numbers, so identical clips have 58.9 dB.
    """
    squared_N = (frames_NTHWC.float() - others_NTHWC.float()).square().mean(dim=(1, 2, 3, 4))
    return 10 * (255**2 / squared_N.clamp(min=1 / 12)).log10()


def whiten_latents(autoencoder: AutoencoderKLCogVideoX, frames_NTHWC: Tensor) -> None:
    """Whiten an autoencoder's latents by those of clips."""
    autoencoder.register_to_config(scaling_factor=1.0)
    moments = [encode_frames(autoencoder, part_BTHWC) for part_BTHWC in _batches(frames_NTHWC)]
    variances_NTCHW = torch.cat([each.logvar_BTCHW for each in moments]).exp()
    whiten(autoencoder, torch.cat([each.mean_BTCHW for each in moments]), variances_NTCHW.mean(dim=(0, 1, 3, 4)))


def _mean_psnr(checkpoint: Checkpoint, measured: Mapping[Split, Tensor]) -> dict[Split, float]:
    autoencoder = checkpoint.autoencoder()
    return {
        split: float(psnr(clips_NTHWC, reconstructed(autoencoder, clips_NTHWC)).mean())
        for split, clips_NTHWC in measured.items()
    }


def _batches(frames_NTHWC: Tensor) -> tuple[Tensor, ...]:
    """Split the clips into pairs, with one group of three if their number is odd."""
    return frames_NTHWC.tensor_split(max(1, len(frames_NTHWC) // _BATCH_SIZE))


def _refuse_published(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    if config.size == "full" or config.bases["autoencoder"].id != inside_id("autoencoder"):
        raise UserError(
            f"the autoencoder of {checkpoint.folder} is published ({config.bases['autoencoder'].id}) and needs no "
            "fitting: only the random autoencoder of a small checkpoint is fitted"
        )


def _accelerator(settings: FitSettings) -> Accelerator:
    try:
        return new_accelerator(settings.precision)
    except ValueError as error:
        raise UserError(f"autoencoder: {error}; set autoencoder.precision in the recipe") from error


def _claim(folder: Path, checkpoint: Checkpoint, mixture: Mixture, settings: FitSettings) -> None:
    """Write the ingredients of the run, or compare them with the noted ones."""
    data = {split: fingerprint_of(mixture.shards(split)) for split in mixture.splits}
    made_from = {**checkpoint.as_start(), "data": data, "settings": settings.ingredients()}
    check_made_from(folder, made_from)
    note_made_from(folder, made_from)
