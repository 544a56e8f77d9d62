"""Optical flow between consecutive frames: what every back end offers, and the one for a CPU.

`dis` is OpenCV's Dense Inverse Search at its coarsest preset, on smoothed luma, with two corrections. By itself the
search spreads a figure's motion over the still drawing around it (a figure walking 5 px a step scored 2.5 px), sees
motion in grain, and is 10 to 25 % off below 2 px. One Lucas-Kanade step mends the sub-pixel part, and pixels whose
surroundings are explained nearly as well by standing still are set to zero, which is background. That costs 3.5 ms for
a pair of 360x240 pictures. The preset `medium` alone costs 11 ms, scores that figure 3.7 px, and a grainy still 1 px.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import cv2
import numpy as np
import numpy.typing as npt

Frames = npt.NDArray[np.uint8]
"""A clip: `frames_THWC` BGR, or `frames_THW` luma."""

Vectors = npt.NDArray[np.float32]
"""Motion vectors (x, y) in the last axis, in pixels of the clip's own size."""

Luma = npt.NDArray[np.float32]
"""A picture's luma with fractions, 0..255."""


class OpticalFlow(Protocol):
    """A way to measure optical flow. The vectors may lie on a coarser grid than the frames."""

    colour: bool
    """Whether it wants BGR frames (THWC) or luma (THW)."""
    clips_at_once: int
    """How many clips one call of `steps` is best given."""
    in_threads: bool
    """Whether several threads may call `steps` at the same time."""

    def steps(self, clips: Sequence[Frames]) -> Iterator[Vectors]:
        """For each step from frame t to t + 1 the vectors of all clips, `vectors_BHW2`; the clips have one shape."""
        ...


def scaled(picture: npt.NDArray[np.uint8], scale: float) -> npt.NDArray[np.uint8]:
    """The picture (HW or HWC) at `scale` times its size, each pixel the mean of what it covers."""
    if scale == 1:
        return picture
    return np.asarray(cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)


SMOOTHING = 1.5
"""Sigma of the blur before everything, pixels: removes grain, and the aliasing that biases sub-pixel steps."""
DARK_LUMA, SAME_LIGHT = 8, 0.01
"""Light is compared where there is any, and a difference of a hundredth is none. From black nothing can move."""
WINDOW = 13
"""Side of the Lucas-Kanade window, in blocks of 2x2 pixels: its answer is smooth, so a coarser grid holds it."""
FLATNESS = 0.5
"""Added to the structure tensor, squared luma per pixel: where there is no texture, there is no correction."""
LONGEST_CORRECTION = 1.0
"""Pixels; beyond it the linear model of a Lucas-Kanade step does not hold."""
STILL_WINDOW = 5
"""Side of the surroundings in which standing still is weighed against moving, pixels."""
STILL_RATIO, STILL_LUMA = 2.0, 1.0
"""A pixel moves when standing still leaves so many times the difference that moving leaves, and so much luma more."""


class DenseInverseSearch:
    """OpenCV's DIS at preset ultrafast, corrected; luma only, one clip at a time, many clips side by side."""

    colour = False
    clips_at_once = 1
    in_threads = True

    def __init__(self, scale: float) -> None:
        # Clips run side by side, so OpenCV's own threads would only get in each other's way. The setting holds for
        # the process and is left so: taking it back would race with other films. The vectors are the same either way.
        cv2.setNumThreads(1)
        self.scale = scale

    def steps(self, clips: Sequence[Frames]) -> Iterator[Vectors]:
        """See `OpticalFlow.steps`."""
        search = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
        pairs_of_clips = zip(*(self._pairs(frames_THW) for frames_THW in clips), strict=True)
        for pairs in pairs_of_clips:
            yield np.stack([_corrected(search, *pair) for pair in pairs]) / np.float32(self.scale)

    def _pairs(self, frames_THW: Frames) -> Iterator[tuple[_Picture, _Picture]]:
        before = _Picture.of(frames_THW[0], self.scale)
        for frame_HW in frames_THW[1:]:
            after = _Picture.of(frame_HW, self.scale)
            yield before, after
            before = after


class _Picture:
    """A frame at working size: smoothed luma, with its fractions for the corrections and in whole luma to search."""

    def __init__(self, smooth_HW: Luma) -> None:
        self.smooth_HW = smooth_HW
        self.rounded_HW = np.clip(np.rint(smooth_HW), 0, 255).astype(np.uint8)

    @classmethod
    def of(cls, frame_HW: npt.NDArray[np.uint8], scale: float) -> _Picture:
        luma_HW = scaled(frame_HW, scale).astype(np.float32)
        return cls(np.asarray(cv2.GaussianBlur(luma_HW, (0, 0), SMOOTHING), np.float32))

    def in_the_light_of(self, other: _Picture) -> _Picture:
        """This picture as bright as the other: a fade or a flash is no motion."""
        own, others = self.smooth_HW[::4, ::4], other.smooth_HW[::4, ::4]
        lit = others > DARK_LUMA
        gain = float(np.median(own[lit] / others[lit])) if lit.any() else 1.0
        return self if gain == 0 or abs(gain - 1) < SAME_LIGHT else _Picture(self.smooth_HW / np.float32(gain))


def _corrected(search: cv2.DISOpticalFlow, before: _Picture, after: _Picture) -> Vectors:
    """`vectors_HW2` in pixels of the working size."""
    if np.array_equal(before.rounded_HW, after.rounded_HW) or before.rounded_HW.max() <= DARK_LUMA:
        return np.zeros((*before.rounded_HW.shape, 2), np.float32)
    after = after.in_the_light_of(before)
    found_HW2 = search.calc(before.rounded_HW, after.rounded_HW, None)  # type: ignore[call-overload] # no first guess
    across_HW, down_HW = cv2.split(found_HW2)  # in planes, since numpy is slow over a last axis of two
    reached_HW = _fetch(after.smooth_HW, across_HW, down_HW)
    unexplained_HW = before.smooth_HW - reached_HW
    more_across_HW, more_down_HW = _lucas_kanade(np.float32(0.5) * (before.smooth_HW + reached_HW), unexplained_HW)
    standing, moving = _surroundings(before.smooth_HW - after.smooth_HW), _surroundings(unexplained_HW)
    moves_HW = (standing > STILL_RATIO * moving + STILL_LUMA).astype(np.float32)
    planes = (across_HW + more_across_HW) * moves_HW, (down_HW + more_down_HW) * moves_HW
    return np.asarray(cv2.merge(planes), np.float32)


def _fetch(picture_HW: Luma, across_HW: Luma, down_HW: Luma) -> Luma:
    """What lies at the end of each vector."""
    height, width = picture_HW.shape
    columns_HW = across_HW + np.arange(width, dtype=np.float32)
    rows_HW = down_HW + np.arange(height, dtype=np.float32)[:, None]
    fetched_HW = cv2.remap(picture_HW, columns_HW, rows_HW, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(fetched_HW, np.float32)


def _lucas_kanade(smooth_HW: Luma, change_HW: Luma) -> tuple[Luma, Luma]:
    """The small motion, across and down, that explains `change_HW` best around each pixel."""
    slope_x = cv2.Scharr(smooth_HW, cv2.CV_32F, 1, 0, scale=1 / 32)
    slope_y = cv2.Scharr(smooth_HW, cv2.CV_32F, 0, 1, scale=1 / 32)
    products = (slope_x * slope_x, slope_x * slope_y, slope_y * slope_y, slope_x * change_HW, slope_y * change_HW)
    xx, xy, yy, xt, yt = (cv2.boxFilter(_halved(product), -1, (WINDOW, WINDOW)) for product in products)
    xx, yy = xx + np.float32(FLATNESS), yy + np.float32(FLATNESS)
    determinant = xx * yy - xy * xy
    across, down = (
        np.clip(numerator / determinant, -LONGEST_CORRECTION, LONGEST_CORRECTION)
        for numerator in (yy * xt - xy * yt, xx * yt - xy * xt)
    )
    size = smooth_HW.shape[::-1]
    return np.asarray(cv2.resize(across, size), np.float32), np.asarray(cv2.resize(down, size), np.float32)


def _halved(picture_HW: Luma) -> Luma:
    return np.asarray(cv2.resize(picture_HW, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.float32)


def _surroundings(difference_HW: Luma) -> Luma:
    return np.asarray(cv2.boxFilter(np.abs(difference_HW), -1, (STILL_WINDOW, STILL_WINDOW)), np.float32)
