"""Picture quality of a clip: sharpness, and the blocks and bands that an earlier encoder left.

All three are measured on the luma of a few frames at the clip's size, so a film that was scaled up is less sharp.

    sharpness  = 1 - blur       of the differences between neighbours, the share that a box of 9 pixels removes, in the
                                less sharp direction: the blur effect of Crete et al. (2007)
    blockiness = P A(P) / (2 - 2 cos(2 pi / P))     step on the lines of a grid of P pixels
    banding    = sum d^2 / sum |d|      height of the steps in soft gradients

A(P) is the amplitude of the period P in a profile of the picture: for each column, how much the step to the next column
exceeds the mean of those beside it, in smooth parts. Blocks of 8 pixels of the film have any width in the clip, so the
period with the largest amplitude counts, if it stands out in columns and rows alike. Pictures that are stretched have
no blocks here, and grain hides low steps. The period 4 is left out, since the clip's own coding has it.

d are differences over three pixels in gradients that are soft for 100 pixels. Steps below 1 do not fit in eight bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

FRAMES, LINES = 4, 3
"""Frames of a clip that are measured, evenly spread, and the distance of their measured rows, then columns."""
_REBLUR = 9
_MOST_STEP, _SMOOTH_STEP = 6.0, 4.0
"""Largest excess that counts, so that no drawn edge outweighs a grid; mean step of smooth parts, gray levels."""
_LEAST_PERIOD, _MOST_PERIOD = 3.4, 13.6
"""Periods of a grid of 8 pixels in clips of 480 lines, from films of 1080 lines to films of 288. The clip's own coding
has the period 16."""
_OWN_PERIOD, _OWN_WIDTH = 4, 0.01
"""Blocks of the clip's own coding, and the frequencies around theirs that are left out, cycles per pixel."""
_STANDS_OUT = 7.0
"""Least ratio of the strongest line of the spectrum to the median."""
_SPECTRUM, _LINE_WIDTH = 8192, 0.001
"""Length of the transform, and half the width of a line, cycles per pixel."""
_STRIDE, _WINDOW = 3, 11
"""Pixels of a difference, and differences of a window of a soft gradient."""
_LEAST_CHANGE, _MOST_CHANGE = 3.0, 10.0
"""Change over the window, gray levels; with more, a smooth gradient has steps above 1."""
_LEAST_GRADIENT = 0.005
"""Share of the picture that must be in soft gradients."""

Luma = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Quality:
    """Picture quality, with the fields of `records.Looks`."""

    sharpness: float
    blockiness: float
    banding: float | None


def measure_quality(frames_THW: Luma) -> Quality:
    """Measure a clip from the full-range luma of its frames at full size."""
    count = min(FRAMES, len(frames_THW))
    chosen = [(2 * number + 1) * len(frames_THW) // (2 * count) for number in range(count)]
    upright = [frames_THW[number, ::LINES].astype(np.float32) for number in chosen]
    turned = [np.ascontiguousarray(frames_THW[number, :, ::LINES].T, np.float32) for number in chosen]
    sharp = [min(_sharpness(one), _sharpness(other)) for one, other in zip(upright, turned, strict=True)]
    return Quality(
        sharpness=float(np.mean(sharp)),
        blockiness=_blockiness(upright, turned),
        banding=_banding([*upright, *turned]),
    )


def _sharpness(picture_HW: Floats) -> float:
    """Share of the differences along the rows that a box of 9 pixels does not only weaken, but removes."""
    blurred_HW = cv2.blur(picture_HW, (_REBLUR, 1))
    steps_HW, left_HW = (np.abs(np.diff(one_HW, axis=1)) for one_HW in (picture_HW, blurred_HW))
    whole = float(steps_HW.sum(dtype=np.float64))
    return float(np.maximum(0, steps_HW - left_HW).sum(dtype=np.float64)) / whole if whole else 0.0


def _blockiness(upright: list[Floats], turned: list[Floats]) -> float:
    """Step on the lines of the strongest grid of columns and rows, gray levels; 0 if no grid stands out."""
    lines_F = np.minimum(_spectrum(upright), _spectrum(turned))
    cycles_F = np.fft.rfftfreq(_SPECTRUM)
    wanted_F = (cycles_F >= 1 / _MOST_PERIOD) & (cycles_F <= 1 / _LEAST_PERIOD)
    wanted_F &= np.abs(cycles_F - 1 / _OWN_PERIOD) > _OWN_WIDTH
    cycles_F = cycles_F[wanted_F]
    lines_F = lines_F[wanted_F] / (1 - np.cos(2 * np.pi * cycles_F))
    strongest = int(np.argmax(lines_F))
    if lines_F[strongest] < _STANDS_OUT * np.median(lines_F):
        return 0.0
    # a grid has all multiples of its frequency at one amplitude
    half = np.abs(cycles_F - cycles_F[strongest] / 2) <= _LINE_WIDTH
    cycles = cycles_F[strongest] / (2 if np.max(lines_F, where=half, initial=0) > lines_F[strongest] / 2 else 1)
    return float(lines_F[strongest] / cycles / 2)


def _spectrum(pictures: list[Floats]) -> NDArray[np.float64]:
    """Amplitudes of the profile of pictures across their columns, gray levels."""
    excess_W, smooth_W = np.zeros(pictures[0].shape[1] - 1), np.zeros(pictures[0].shape[1] - 1)
    for picture_HW in pictures:
        steps_HW = np.abs(np.diff(picture_HW, axis=1))
        beside_HW = (np.roll(steps_HW, 1, axis=1) + np.roll(steps_HW, -1, axis=1)) / 2
        is_smooth_HW = cv2.blur(steps_HW, (_REBLUR, _REBLUR // LINES)) < _SMOOTH_STEP
        excess_W += (np.clip(steps_HW - beside_HW, -_MOST_STEP, _MOST_STEP) * is_smooth_HW).sum(axis=0)
        smooth_W += is_smooth_HW.sum(axis=0)
    profile_W = (excess_W / np.maximum(1, smooth_W))[1:-1]
    return np.asarray(np.abs(np.fft.rfft(profile_W - profile_W.mean(), _SPECTRUM)) * 2 / len(profile_W))


def _banding(pictures: list[Floats]) -> float | None:
    """Mean height of the steps in soft gradients along the rows, gray levels; None if there is hardly any gradient."""
    squares = heights = 0.0
    windows = gradients = 0
    for picture_HW in pictures:
        # 1. Differences over three pixels, and their sums over a window: the change, its size and its squares.
        sampled_HW = picture_HW[:, ::_STRIDE]
        steps_HW = np.diff(sampled_HW, axis=1)
        change_HW = sampled_HW[:, _WINDOW:] - sampled_HW[:, :-_WINDOW]
        if change_HW.shape[1] <= 2 * _WINDOW:
            continue  # a small clip has no room for three windows
        size_HW, square_HW = (
            cv2.blur(one_HW, (_WINDOW, 1))[:, _WINDOW // 2 : steps_HW.shape[1] - _WINDOW // 2] * _WINDOW
            for one_HW in (np.abs(steps_HW), steps_HW**2)
        )
        # 2. A gradient goes one way, without texture, also in the windows beside: an edge between flat parts is none.
        before_HW, here_HW, after_HW = (
            change_HW[:, start : change_HW.shape[1] - 2 * _WINDOW + start] for start in (0, _WINDOW, 2 * _WINDOW)
        )
        size_HW, square_HW = size_HW[:, _WINDOW:-_WINDOW], square_HW[:, _WINDOW:-_WINDOW]
        is_soft_HW = (np.abs(here_HW) >= _LEAST_CHANGE) & (np.abs(here_HW) <= _MOST_CHANGE)
        is_soft_HW &= size_HW <= 1.25 * np.abs(here_HW) + 1
        for beside_HW in (before_HW, after_HW):
            along_HW = beside_HW * np.sign(here_HW)
            is_soft_HW &= (along_HW >= _LEAST_CHANGE / 2) & (along_HW <= _MOST_CHANGE)
        squares += float(square_HW[is_soft_HW].sum(dtype=np.float64))
        heights += float(size_HW[is_soft_HW].sum(dtype=np.float64))
        windows, gradients = windows + is_soft_HW.size, gradients + int(is_soft_HW.sum())
    return squares / heights if gradients >= _LEAST_GRADIENT * windows and gradients else None
