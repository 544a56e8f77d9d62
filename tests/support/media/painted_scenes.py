"""Painted scenes: a place, figures that act before it, wild action, and dissolves between them, as small pictures."""

from __future__ import annotations

from collections.abc import Iterable

import cv2
import numpy as np
from numpy.typing import NDArray

from examples.world.scene import mixed
from pipeline.core.config import SceneSettings
from pipeline.stages.cutting.scenes import Boundary, SceneFinder

Picture = NDArray[np.uint8]

FPS = 24
WIDTH, HEIGHT = 160, 90
BLACK, WHITE = (np.full((HEIGHT, WIDTH, 3), value, np.uint8) for value in (0, 255))


def painting(seed: int, width: int = WIDTH) -> Picture:
    """Background of soft shapes in its own colours, HEIGHT x width."""
    dice = np.random.default_rng(seed)
    shapes_HWC = cv2.resize(dice.integers(0, 256, (9, width // 10, 3), np.uint8), (width, HEIGHT))
    return cv2.addWeighted(shapes_HWC, 0.6, np.full_like(shapes_HWC, dice.integers(0, 256, 3)), 0.4, 0)


def acted(background: Picture, frames: int, frames_per_drawing: int) -> list[Picture]:
    """Character in front of the background, at another position in each drawing."""
    pictures = []
    for frame in range(frames):
        dice = np.random.default_rng(frame // frames_per_drawing)
        left, top = dice.integers(40, 70), dice.integers(10, 30)
        picture = background.copy()
        cv2.rectangle(picture, (int(left), int(top)), (int(left) + 24, HEIGHT), (90, 140, 230), cv2.FILLED)
        cv2.circle(picture, (int(left) + 12, int(top)), 12, (40, 60, 160), cv2.FILLED)
        pictures.append(picture)
    return pictures


def wild(background: Picture, frames: int, frames_per_drawing: int, seed: int = 0) -> list[Picture]:
    """Large shapes before the background: each drawing changes up to two thirds of the picture."""
    pictures, colours = [], np.random.default_rng(seed).integers(0, 256, (6, 3)).tolist()
    for frame in range(frames):
        dice = np.random.default_rng(1000 * seed + frame // frames_per_drawing)
        picture = background.copy()
        for colour in colours:
            left, top = (int(at) for at in dice.integers((0, 0), (WIDTH - 40, HEIGHT - 30)))
            cv2.rectangle(picture, (left, top), (left + 40, top + 30), colour, cv2.FILLED)
        pictures.append(picture)
    return pictures


def dissolve(old: Picture, new: Picture, frames: int) -> list[Picture]:
    """Frames of a dissolve, none of them clean."""
    return [mixed(old, new, (frame + 1) / (frames + 1)) for frame in range(frames)]


def cuts_in(pictures: Iterable[Picture], fps: float = FPS) -> list[Boundary]:
    """Boundaries that the finder reports for a film of these pictures."""
    finder = SceneFinder(SceneSettings(), fps)
    cuts = [cut for frame, picture in enumerate(pictures) for cut in finder.add(frame, frame / fps, picture)]
    return cuts + finder.finish()


A, B, C = painting(1), painting(2), painting(3)
