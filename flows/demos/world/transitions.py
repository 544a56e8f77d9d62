"""Transitions between scenes: the mixed frames of a dissolve or fade, and the shares of both scenes.

A fade through black is two fades with a black scene in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flows.demos.world.scene import Scene, TransitionKind
from flows.demos.world.textures import Picture


@dataclass(frozen=True)
class Mix:
    """Mix of a scene's frame with another scene: the last clean picture of the one before, or the first of the next."""

    kind: TransitionKind
    scene: int
    """The other scene."""
    frame: int
    """Frame of the other scene."""
    share: float
    """Share of the newer scene in the picture."""


def mix_at(scenes: Sequence[Scene], number: int, frame: int) -> Mix | None:
    """Return the mix of a frame of a scene; None if the frame is clean."""
    scene, left = scenes[number], scenes[number].length - frame
    if number > 0 and frame < scene.opening_frames // 2:
        return Mix(scene.opened_by, number - 1, scenes[number - 1].length - 1, _share(frame, scene.opening_frames))
    if number + 1 < len(scenes) and left <= scenes[number + 1].opening_frames // 2:
        after = scenes[number + 1]
        return Mix(after.opened_by, number + 1, 0, _share(-left, after.opening_frames))
    return None


def mixed(old_HWC: Picture, new_HWC: Picture, share: float) -> Picture:
    """Return the picture with `share` of the new one mixed in."""
    return np.round(old_HWC * (1 - share) + new_HWC * share).astype(np.uint8)


def _share(offset: int, mixed_frames: int) -> float:
    """Return the share of the new scene in the frame `offset` frames after its first one."""
    return (offset + mixed_frames // 2 + 1) / (mixed_frames + 1)
