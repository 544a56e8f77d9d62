"""Transitions between scenes: dissolve, fade, wipe and iris, and the shares of both scenes in every mixed frame.

A fade through black is two fades with a black scene in between; so is an iris-out followed by an iris-in. Both scenes
go on during a transition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from examples.world.scene import Scene, TransitionKind
from examples.world.textures import Picture


@dataclass(frozen=True)
class Mix:
    """Mix of a scene's frame with the scene before or after it."""

    kind: TransitionKind
    scene: int
    """The other scene."""
    frame: int
    """Frame of the other scene: beyond its last one, or negative, before its first."""
    share: float
    """Share of the newer scene in the picture."""


def mix_at(scenes: Sequence[Scene], number: int, frame: int) -> Mix | None:
    """Return the mix of a frame of a scene; None if the frame is clean."""
    scene, left = scenes[number], scenes[number].length - frame
    if number > 0 and frame < scene.opening_frames // 2:
        share = _share(frame, scene.opening_frames)
        return Mix(scene.opened_by, number - 1, scenes[number - 1].length + frame, share)
    if number + 1 < len(scenes) and left <= scenes[number + 1].opening_frames // 2:
        after = scenes[number + 1]
        return Mix(after.opened_by, number + 1, -left, _share(-left, after.opening_frames))
    return None


def mixed(old_HWC: Picture, new_HWC: Picture, share: float, kind: TransitionKind = "dissolve") -> Picture:
    """Return the picture with `share` of the new one: mixed in, or on its side of the border of a wipe or iris."""
    if kind not in ("wipe", "iris-in", "iris-out"):
        return np.round(old_HWC * (1 - share) + new_HWC * share).astype(np.uint8)
    height, width = old_HWC.shape[:2]
    if kind == "wipe":
        is_new_HW = np.broadcast_to(np.arange(width) < share * width, (height, width))
    else:
        is_new_HW = _disc(height, width, share) if kind == "iris-in" else ~_disc(height, width, 1 - share)
    return np.where(is_new_HW[..., None], new_HWC, old_HWC)


def _disc(height: int, width: int, share: float) -> np.ndarray:
    """Return the mask of a disc in the middle; at share 1 it reaches the corners."""
    mask_HW = np.zeros((height, width), np.uint8)
    radius = round(share * np.hypot(height, width) / 2)
    return cv2.circle(mask_HW, (width // 2, height // 2), radius, 1, cv2.FILLED) > 0


def _share(offset: int, mixed_frames: int) -> float:
    """Return the share of the new scene in the frame `offset` frames after its first one."""
    return (offset + mixed_frames // 2 + 1) / (mixed_frames + 1)
