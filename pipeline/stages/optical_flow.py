"""Interface of all optical-flow back ends, and the back end for CPUs.

`dis` is OpenCV's Dense Inverse Search at its coarsest preset, on smoothed luma, with two corrections. Uncorrected, the
search spreads a figure's motion over the still drawing around it: a figure that walks 5 px a step scored 2.5 px. It
also sees motion in grain, and is 10 to 25% off below 2 px.

1. One Lucas-Kanade step refines the sub-pixel part. With the gradient g of the luma, the difference d that the vector
   found leaves, and means over a window around each pixel, the correction is

       v = (mean(g g^T) + FLATNESS * I)^(-1) mean(g d)      |v_x|, |v_y| <= LONGEST_CORRECTION

2. A pixel whose surroundings are explained nearly as well by no motion is background, and its vector is set to zero.

That costs 3.5 ms for a pair of 360x240 pictures. The preset `medium` alone costs 11 ms, scores that figure 3.7 px, and
a grainy still 1 px.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Protocol

import cv2
import numpy as np
import numpy.typing as npt

Frames = npt.NDArray[np.uint8]
"""A clip: `frames_THWC` BGR, or `frames_THW` luma."""

Vectors = npt.NDArray[np.float32]
"""Motion vectors (x, y) in the last axis, in pixels of the clip's own size."""

Luma = npt.NDArray[np.float32]
"""Luma of a picture as floats, 0..255."""


class OpticalFlow(Protocol):
    """Interface of an optical-flow back end. The vectors may lie on a coarser grid than the frames."""

    colour: bool
    """Input format: BGR frames (THWC) if true, else luma (THW)."""
    clips_at_once: int
    """Best number of clips for one call of `steps`."""
    in_threads: bool
    """True if `steps` is thread-safe."""

    def steps(self, clips: Sequence[Frames]) -> Iterator[Vectors]:
        """Yield `vectors_BHW2` of all clips for each step from frame t to t + 1; the clips have one shape."""
        ...


def scaled(picture: npt.NDArray[np.uint8], scale: float) -> npt.NDArray[np.uint8]:
    """Return the picture (HW or HWC) at `scale` times its size, each pixel the mean of the area it covers."""
    if scale == 1:
        return picture
    return np.asarray(cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)


SMOOTHING = 1.5
"""Sigma of the initial blur, pixels: removes grain, and the aliasing that biases sub-pixel steps."""
DARK_LUMA, SAME_LIGHT = 8, 0.01
"""Brightness is compared at pixels above this luma; a gain within this of 1 is ignored. Black frames do not move."""
WINDOW = 13
"""Side of the Lucas-Kanade window, in blocks of 2x2 pixels: the correction is smooth, so a coarser grid is enough."""
FLATNESS = 0.5
"""Regularisation added to the structure tensor, squared luma per pixel: no texture, no correction."""
LONGEST_CORRECTION = 1.0
"""Limit of the correction in each direction, pixels: beyond it the linear model of Lucas-Kanade does not hold."""
STILL_WINDOW = 5
"""Side of the window in which "still" and "moving" are compared, pixels."""
STILL_RATIO, STILL_LUMA = 2.0, 1.0
"""A pixel moves if its difference without motion exceeds ratio times the difference with motion, plus luma."""


class DenseInverseSearch:
    """OpenCV's DIS at preset ultrafast, corrected; luma only, one clip per call, clips in parallel threads."""

    colour = False
    clips_at_once = 1
    in_threads = True

    def __init__(self, scale: float) -> None:
        # Clips run in parallel, so OpenCV's own threads would only compete for cores. The setting is global to the
        # process and is not restored, since that would race with other films. It does not change the vectors.
        cv2.setNumThreads(1)
        self.scale = scale

    def steps(self, clips: Sequence[Frames]) -> Iterator[Vectors]:
        """Compute vectors as `OpticalFlow.steps` does."""
        search = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
        pairs_of_clips = zip(*(self._pairs(frames_THW) for frames_THW in clips), strict=True)
        for pairs in pairs_of_clips:
            vectors_BHW2 = np.stack([_corrected(search, *pair) for pair in pairs])
            yield np.divide(vectors_BHW2, np.float32(self.scale), out=vectors_BHW2)

    def _pairs(self, frames_THW: Frames) -> Iterator[tuple[_Picture, _Picture]]:
        before = _Picture.of(frames_THW[0], self.scale)
        for frame_HW in frames_THW[1:]:
            after = _Picture.of(frame_HW, self.scale)
            yield before, after
            before = after


class _Picture:
    """A frame at working size: smoothed luma, as floats for the corrections and as integers for the search."""

    def __init__(self, smooth_HW: Luma) -> None:
        self.smooth_HW = smooth_HW
        self.rounded_HW = np.asarray(cv2.convertScaleAbs(smooth_HW), np.uint8)

    @classmethod
    def of(cls, frame_HW: npt.NDArray[np.uint8], scale: float) -> _Picture:
        luma_HW = scaled(frame_HW, scale).astype(np.float32)
        return cls(np.asarray(cv2.GaussianBlur(luma_HW, (0, 0), SMOOTHING), np.float32))

    def at_brightness_of(self, other: _Picture) -> _Picture:
        """Return this picture at the brightness of the other: a fade or a flash is not motion."""
        own, others = self.smooth_HW[::4, ::4], other.smooth_HW[::4, ::4]
        lit = others > DARK_LUMA
        gain = float(np.median(own[lit] / others[lit])) if lit.any() else 1.0
        return self if gain == 0 or abs(gain - 1) < SAME_LIGHT else _Picture(self.smooth_HW / np.float32(gain))


def _corrected(search: cv2.DISOpticalFlow, before: _Picture, after: _Picture) -> Vectors:
    """Return the corrected vectors of one step, `vectors_HW2`, in pixels of the working size."""
    if np.array_equal(before.rounded_HW, after.rounded_HW) or before.rounded_HW.max() <= DARK_LUMA:
        return np.zeros((*before.rounded_HW.shape, 2), np.float32)
    after = after.at_brightness_of(before)
    found_HW2 = search.calc(before.rounded_HW, after.rounded_HW, None)  # type: ignore[call-overload] # no first guess
    # in planes, since numpy is slow over a last axis of two; taken one by one in a quarter of the time of cv2.split
    across_HW, down_HW = cv2.extractChannel(found_HW2, 0), cv2.extractChannel(found_HW2, 1)
    reached_HW = _warped(after.smooth_HW, found_HW2)
    unexplained_HW = before.smooth_HW - reached_HW
    more_across_HW, more_down_HW = _lucas_kanade(np.float32(0.5) * (before.smooth_HW + reached_HW), unexplained_HW)
    standing, moving = _surroundings(before.smooth_HW - after.smooth_HW), _surroundings(unexplained_HW)
    moves_HW = (standing > STILL_RATIO * moving + STILL_LUMA).astype(np.float32)
    planes = (across_HW + more_across_HW) * moves_HW, (down_HW + more_down_HW) * moves_HW
    return np.asarray(cv2.merge(planes), np.float32)


def _warped(picture_HW: Luma, vectors_HW2: Vectors) -> Luma:
    """Return the picture values at the end of each vector (backward warping)."""
    ends_HW2 = vectors_HW2 + _places(*picture_HW.shape)
    # both coordinates in one map: three quarters of the time of a map for each
    warped_HW = cv2.remap(picture_HW, ends_HW2, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)  # type: ignore[call-overload]
    return np.asarray(warped_HW, np.float32)


@lru_cache(maxsize=4)
def _places(height: int, width: int) -> Vectors:
    """Return the place (x, y) of every pixel of a picture."""
    columns_HW, rows_HW = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    return np.asarray(cv2.merge((columns_HW, rows_HW)), np.float32)


def _lucas_kanade(smooth_HW: Luma, change_HW: Luma) -> tuple[Luma, Luma]:
    """Return the small motion (x, y) that best explains `change_HW` around each pixel; the equation is at the top."""
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
