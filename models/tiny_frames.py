"""Tiny decoder of frames: latents of CogVideoX's autoencoder to frames in a fraction of its time, with small losses.

It reads the public weights `taecvx` of madebyollin/taehv (MIT) from a file that the user puts beside `config.json`, as
`taecvx.safetensors`. The weights are trained on the latents of CogVideoX, so a checkpoint with another autoencoder
cannot use them. They take the shot decoder's latents as they are, without the scaling factor.

The decoder is a row of blocks. A memory block joins a frame with the frame before it, so information flows forward in
time only. After each group of memory blocks, height and width double; after the last two groups, time does too:

    16 -> 256 channels, three memory blocks, 2 x space             -> 128
                        three memory blocks, 2 x space, 2 x time   -> 64
                        three memory blocks, 2 x space, 2 x time   -> 64 -> RGB from 0 to 1

Five latent frames become 20 frames, of which the first three are left out: an autoencoder packs the first frame alone.

Letters of the shapes: B batch, T latent frames or frames, N their number in a batch, C channels, H and W pixels or
latent pixels.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.checkpoint import Checkpoint
from models.config import inside_id
from models.frames import LATENT_CHANNELS, RGB
from models.weights import read_tensors
from pipeline.core.errors import UserError, shortened

FILE = "taecvx.safetensors"
_WIDTHS = (256, 128, 64, 64)
_TIMES = (1, 2, 2)
"""Factor of the frames after each group of memory blocks."""
_LEFT_OUT = 3


class Soft(nn.Module):
    """Soft limit of the latents to -3..3."""

    def forward(self, latents_NCHW: Tensor) -> Tensor:
        """Return 3 tanh(x / 3)."""
        return 3 * torch.tanh(latents_NCHW / 3)


class MemoryBlock(nn.Module):
    """Residual block on a frame and the frame before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = ((2 * width, width), (width, width), (width, width))
        first, second, third = (nn.Conv2d(*pair, 3, padding=1) for pair in widths)
        self.conv = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        """Return frames of the same shape; before the first frame there are zeros."""
        before_BTCHW = functional.pad(frames_BTCHW, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1]
        both_NCHW = torch.cat([frames_BTCHW, before_BTCHW], dim=2).flatten(0, 1)
        return functional.relu(self.conv(both_NCHW).view_as(frames_BTCHW) + frames_BTCHW)


class Growth(nn.Module):
    """Linear map of each frame to one or two frames."""

    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, times * width, 1, bias=False)

    def forward(self, frames_NCHW: Tensor) -> Tensor:
        """Return [N times, C, H, W], the frames of each frame in a row."""
        _, channels, height, width = frames_NCHW.shape
        grown_NCHW: Tensor = self.conv(frames_NCHW)
        return grown_NCHW.reshape(-1, channels, height, width)


class TinyFrames(nn.Module):
    """Tiny decoder of frames; names and order of its parameters are those of the public weights."""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = [Soft(), nn.Conv2d(LATENT_CHANNELS, _WIDTHS[0], 3, padding=1), nn.ReLU()]
        for width, after, times in zip(_WIDTHS, _WIDTHS[1:], _TIMES, strict=False):
            blocks += [MemoryBlock(width) for _ in range(3)]
            blocks += [
                nn.Upsample(scale_factor=2),
                Growth(width, times),
                nn.Conv2d(width, after, 3, padding=1, bias=False),
            ]
        self.decoder = nn.Sequential(*blocks, nn.ReLU(), nn.Conv2d(_WIDTHS[-1], RGB, 3, padding=1))

    @classmethod
    def of(
        cls, checkpoint: Checkpoint, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> TinyFrames:
        """Load the weights beside a checkpoint.

        Raises:
            UserError: there are none, they are of another network, or the checkpoint has another autoencoder.
        """
        path = checkpoint.folder / FILE
        if not _has_published_latents(checkpoint):
            raise UserError(
                f"{checkpoint.folder} has an autoencoder of its own, and {FILE} is for CogVideoX's: leave out "
                "--frames tiny"
            )
        if not path.is_file():
            raise UserError(
                f"{path} does not exist: put that file of github.com/madebyollin/taehv there, or leave out "
                "--frames tiny"
            )
        decoder = cls()
        decoder.load_state_dict(_fitting(path, decoder))
        return decoder.to(device, dtype).eval().requires_grad_(False)

    @torch.no_grad()
    def decode(self, latents_BTCHW: Tensor) -> Tensor:
        """Decode scaled latents to frames [B, 4T - 3, H, W, 3], uint8 RGB."""
        weight = self.decoder[1].weight
        assert isinstance(weight, Tensor)
        batch, frames_BTCHW = len(latents_BTCHW), latents_BTCHW.to(weight)
        for block in self.decoder:
            if isinstance(block, MemoryBlock):
                frames_BTCHW = block(frames_BTCHW)
            else:
                frames_NCHW = block(frames_BTCHW.flatten(0, 1))
                frames_BTCHW = frames_NCHW.view(batch, -1, *frames_NCHW.shape[1:])
        levels_BTCHW = (frames_BTCHW[:, _LEFT_OUT:].float().clamp(0, 1) * 255).round()
        return levels_BTCHW.to(torch.uint8).permute(0, 1, 3, 4, 2).contiguous()


def is_present(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint has weights of the tiny decoder that fit its autoencoder."""
    return _has_published_latents(checkpoint) and (checkpoint.folder / FILE).is_file()


def _has_published_latents(checkpoint: Checkpoint) -> bool:
    """Return whether the autoencoder may be the published one; one inside the checkpoint is never."""
    return checkpoint.config.bases["autoencoder"].id != inside_id("autoencoder")


def _fitting(path: Path, decoder: TinyFrames) -> dict[str, Tensor]:
    """Return the decoder's tensors of a file. UserError if one is missing, or of another shape.

    The file also has the encoder. A growth may have the rows of more frames than needed; the last rows are used.
    """
    found, wanted = read_tensors(path), decoder.state_dict()
    fitting = {name: found[name][-len(tensor) :] for name, tensor in wanted.items() if name in found}
    faults = [name for name, tensor in wanted.items() if name not in fitting or fitting[name].shape != tensor.shape]
    grown = {
        f"decoder.{number}.conv.weight" for number, block in enumerate(decoder.decoder) if isinstance(block, Growth)
    }
    faults += [name for name in fitting if name not in grown and found[name].shape != wanted[name].shape]
    if faults:
        raise UserError(f"{path} is not taecvx (see {shortened(sorted(set(faults)))}): download it again")
    return fitting
