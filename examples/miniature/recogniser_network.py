"""Recogniser: names the characters, the place and the motion in clips of the world, real or drawn by a model.

It recognises characters, raincoats, place, night and flag in single frames and averages over the clip. It recognises
motion and actor from the changes between frames. In training, clips are blurred, shifted and made noisy, so that
reconstructions of an autoencoder get the same labels as the originals.

Letters of the shapes: B batch, T frames, H W pixels, C channels, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from examples.world.characters import CAST
from examples.world.puppet_motions import MOTIONS
from examples.world.scenery import PLACES
from pipeline.core.errors import UserError

Field = Literal["who", "raincoats", "where", "night", "flag", "what", "actor"]
LABELS: Mapping[Field, tuple[str, ...]] = {
    "who": tuple(CAST),
    "raincoats": tuple(CAST),
    "where": tuple(PLACES),
    "night": ("night",),
    "flag": ("flag",),
    "what": tuple(MOTIONS),
    "actor": tuple(CAST),
}
ONE_OF: frozenset[Field] = frozenset({"where", "what", "actor"})
"""Fields with exactly one correct label; the other fields have any number."""
_BY_FRAME: tuple[Field, ...] = ("who", "raincoats", "where", "night", "flag")
_BY_CLIP: tuple[Field, ...] = ("what", "actor")
HEIGHT, WIDTH = 64, 96
_FRAMES_SEEN = 4
"""Frames of a clip of which characters and place are learned, in a step of training."""
_AT_ONCE = 16
"""Clips named at once, to save memory."""
_FILE = "recogniser.safetensors"
PACKED = Path(__file__).parent / "packed" / "recogniser"
"""The recogniser of the repository, which the step `pack` writes."""
_NOISE, _SHIFT, _TINT = 0.06, 4, 0.06


@dataclass(frozen=True)
class Named:
    """Content of a clip as the recogniser names it."""

    who: frozenset[str]
    raincoats: frozenset[str]
    where: str
    night: bool
    flag: bool
    what: str
    actor: str

    def follows(self, who: Iterable[str], where: str, what: str) -> dict[str, bool]:
        """Return which parts are as asked for, and as `as asked` whether all are."""
        parts = {"who": self.who == frozenset(who), "where": self.where == where, "what": self.what == what}
        return {**parts, "as asked": all(parts.values())}


class Recogniser(nn.Module):
    """Two small convolutional networks, one for frames and one for their changes."""

    def __init__(self, labels: Mapping[Field, Sequence[str]] = LABELS) -> None:
        super().__init__()
        self.labels = labels
        self.frames, self.changes = _trunk(3), _trunk(6)
        self.over_time = nn.Sequential(
            nn.Conv1d(192, 128, 3, padding=1), nn.GELU(), nn.Conv1d(128, 128, 3, padding=1), nn.GELU()
        )
        self.by_frame = nn.ModuleDict({field: nn.Linear(192, len(labels[field])) for field in _BY_FRAME})
        self.by_clip = nn.ModuleDict({field: nn.Linear(256, len(labels[field])) for field in _BY_CLIP})

    def forward(self, frames_BTHWC: Tensor) -> dict[Field, Tensor]:
        """Return the logits [B, K] of every field, for uint8 RGB frames of any size."""
        pixels_BTCHW = _pixels(frames_BTHWC)
        if self.training:
            pixels_BTCHW = _worsened(pixels_BTCHW)
        chosen = torch.randperm(pixels_BTCHW.shape[1])[:_FRAMES_SEEN] if self.training else slice(None)
        seen_BTD = _each(self.frames, pixels_BTCHW[:, chosen])
        before, after = pixels_BTCHW[:, :-1], pixels_BTCHW[:, 1:]
        moved_BTD = _each(self.changes, torch.cat([after, 4 * (after - before)], dim=2))
        clip_BDT = self.over_time(moved_BTD.mT)
        clip_BD = torch.cat([clip_BDT.mean(dim=2), clip_BDT.amax(dim=2)], dim=1)
        by_frame: dict[Field, Tensor] = {field: self.by_frame[field](seen_BTD).mean(dim=1) for field in _BY_FRAME}
        return by_frame | {field: self.by_clip[field](clip_BD) for field in _BY_CLIP}

    @torch.no_grad()
    def name(self, frames_BTHWC: Tensor) -> list[Named]:
        """Name the content of clips: uint8 RGB frames of any size."""
        self.eval()
        return [
            Named(**{field: self._answer(field, logits_BK[row]) for field, logits_BK in logits.items()})
            for some_BTHWC in torch.split(frames_BTHWC, _AT_ONCE)
            for logits in (seen_acting(self(some_BTHWC)),)
            for row in range(len(some_BTHWC))
        ]

    def save(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write weights with the labels of every field."""
        labels = {str(field): "|".join(names) for field, names in self.labels.items()}
        save_file({name: value.contiguous() for name, value in state.items()}, folder / _FILE, metadata=labels)

    @classmethod
    def open(cls, folder: Path = PACKED) -> Recogniser:
        """Read a recogniser, by default the one of the repository. UserError if there is none."""
        if not (folder / _FILE).exists():
            raise UserError(f"{folder} has no trained recogniser: run the step `recogniser` first")
        with safe_open(folder / _FILE, "pt") as file:
            recogniser = cls({field: file.metadata()[field].split("|") for field in LABELS})
            recogniser.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        return recogniser.eval()

    def _answer(self, field: Field, logits_K: Tensor) -> Any:
        labels = self.labels[field]
        if field in ONE_OF:
            return labels[int(logits_K.argmax())]
        if len(labels) == 1:
            return bool(logits_K[0] > 0)
        return frozenset(name for name, value in zip(labels, logits_K.tolist(), strict=True) if value > 0)


def seen_acting(logits: Mapping[Field, Tensor]) -> dict[Field, Tensor]:
    """Return the logits without actors that are not seen: if anybody is seen, one of them acts."""
    seen_BK = logits["who"] > 0  # labels of both fields are the characters
    unseen_BK = ~seen_BK & seen_BK.any(dim=1, keepdim=True)
    return {**logits, "actor": logits["actor"].masked_fill(unseen_BK, -torch.inf)}


def loss_of(logits: Mapping[Field, Tensor], truth: Mapping[Field, Tensor]) -> dict[str, Tensor]:
    """Return the negative log likelihood [B] of every field and the sum as `loss`; labels below 0 are unknown."""
    losses: dict[str, Tensor] = {}
    for field, logits_BK in logits.items():
        if field in ONE_OF:
            losses[field] = functional.cross_entropy(logits_BK, truth[field], reduction="none")
        else:
            known_BK = truth[field] >= 0
            right_BK = truth[field].clamp(min=0)
            each_BK = functional.binary_cross_entropy_with_logits(logits_BK, right_BK, reduction="none")
            losses[field] = (each_BK * known_BK).sum(dim=1)
    return losses | {"loss": torch.stack(list(losses.values())).sum(dim=0)}


def _trunk(channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (24, 48, 64, 96):
        layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.GroupNorm(8, width), nn.GELU()]
        channels = width
    return nn.Sequential(*layers)


def _each(trunk: nn.Sequential, pictures_BTCHW: Tensor) -> Tensor:
    """Return mean and maximum of the trunk's features of each picture, [B, T, D]."""
    features_NDHW = trunk(pictures_BTCHW.flatten(0, 1))
    pooled_ND = torch.cat([features_NDHW.mean(dim=(2, 3)), features_NDHW.amax(dim=(2, 3))], dim=1)
    return pooled_ND.view(*pictures_BTCHW.shape[:2], -1)


def _pixels(frames_BTHWC: Tensor) -> Tensor:
    """Return frames [B, T, C, H, W] of the recogniser's size, from -1 to 1."""
    pixels_NCHW = frames_BTHWC.flatten(0, 1).permute(0, 3, 1, 2).float() / 127.5 - 1
    if pixels_NCHW.shape[2:] != (HEIGHT, WIDTH):
        pixels_NCHW = functional.interpolate(pixels_NCHW, (HEIGHT, WIDTH), mode="area")
    return pixels_NCHW.reshape(*frames_BTHWC.shape[:2], 3, HEIGHT, WIDTH)


def _worsened(pixels_BTCHW: Tensor) -> Tensor:
    """Return clips as a model might draw them: blurred, shifted, tinted and noisy, each clip by random amounts."""
    clips = []
    for pixels_TCHW in pixels_BTCHW:
        down, right = (int(torch.randint(-_SHIFT, _SHIFT + 1, ())) for _ in range(2))
        padded_TCHW = functional.pad(pixels_TCHW, [_SHIFT] * 4, mode="replicate")
        moved_TCHW = padded_TCHW[..., _SHIFT + down : _SHIFT + down + HEIGHT, _SHIFT + right : _SHIFT + right + WIDTH]
        share = float(torch.rand(()))
        blurred_TCHW = functional.avg_pool2d(functional.pad(moved_TCHW, [1] * 4, mode="replicate"), 3, stride=1)
        clips.append(moved_TCHW + share * (blurred_TCHW - moved_TCHW))
    worse_BTCHW = torch.stack(clips)
    tint_B1C11 = _TINT * torch.randn(len(clips), 1, 3, 1, 1).to(worse_BTCHW)
    strength_B1111 = _NOISE * torch.rand(len(clips), 1, 1, 1, 1).to(worse_BTCHW)
    return worse_BTCHW + tint_B1C11 + strength_B1111 * torch.randn_like(worse_BTCHW)
