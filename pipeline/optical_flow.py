"""Optical flow between consecutive frames: what every back end offers, and the one for a CPU.

`dis` is OpenCV's Dense Inverse Search at its coarsest preset with two corrections. By itself it spreads a figure's
motion over the still drawing around it (a figure moving 5 px measured 2.5 px), sees motion in film grain, and is 10 to
25 % off below 2 px. One Lucas-Kanade step mends the sub-pixel part, and a pixel whose surroundings are explained as
well by standing still is set to zero, which is background. Together they cost 4 ms for a pair of 360x240 pictures;
the preset `medium` costs 11 ms, still measures that figure at 3.7 px and sees 1 px of motion in a grainy still.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from pipeline.config import MotionSettings

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


def identify(settings: MotionSettings) -> dict[str, Any]:
    """The ingredients of a measurement: model, weights, version and scale; two equal ones give equal vectors.

    Raises:
        ConfigError: the model is unknown, has no weights, or needs an extra that is not installed.
    """
    if settings.model == "dis":
        return {"model": "dis", "scale": _scale(settings)}
    from pipeline.optical_flow_network import identify_network

    return {**identify_network(settings.model, settings.checkpoint), "scale": _scale(settings)}


def flow_model_of(settings: MotionSettings) -> str:
    """The name under which records and the data set know the measurement, such as `dis@0.5` or `memflow:1a2b3c4d@1`.

    Raises:
        ConfigError: as `identify`.
    """
    found = identify(settings)
    weights = f":{found['weights'][:8]}" if "weights" in found else ""
    return f"{settings.model}{weights}@{_scale(settings):g}"


def open_optical_flow(settings: MotionSettings) -> OpticalFlow:
    """The back end that the settings name, with its weights loaded.

    Raises:
        ConfigError: as `identify`, or the checkpoint does not hold weights of this model.
    """
    if settings.model == "dis":
        return DenseInverseSearch(_scale(settings))
    from pipeline.optical_flow_network import OpticalFlowNetwork

    return OpticalFlowNetwork(settings.model, settings.checkpoint, _scale(settings), settings.batch)


def scaled(picture: npt.NDArray[np.uint8], scale: float) -> npt.NDArray[np.uint8]:
    """The picture (HW or HWC) at `scale` times its size, each pixel the mean of what it covers."""
    if scale == 1:
        return picture
    return np.asarray(cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)


def _scale(settings: MotionSettings) -> float:
    if settings.scale is not None:
        return settings.scale
    return 0.5 if settings.model == "dis" else 1.0


SMOOTHING = 1.5
"""Sigma of the blur before the corrections, pixels: removes grain, and the aliasing that biases sub-pixel steps."""
WINDOW = 25
"""Side of the Lucas-Kanade window, pixels."""
FLATNESS = 0.5
"""Added to the structure tensor, squared luma per pixel: where there is no texture, there is no correction."""
LONGEST_CORRECTION = 1.0
"""Pixels; beyond it the linear model of a Lucas-Kanade step does not hold."""
STILL_WINDOW = 5
"""Side of the surroundings in which standing still is weighed against moving, pixels."""
STILL_MARGIN = 0.5
"""Mean luma by which moving must explain the surroundings better than standing still."""


class DenseInverseSearch:
    """OpenCV's DIS at preset ultrafast, corrected; luma only, one clip at a time, many clips side by side."""

    colour = False
    clips_at_once = 1
    in_threads = True

    def __init__(self, scale: float) -> None:
        # DIS cuts its work into as many stripes as OpenCV has threads, and other stripes give other vectors. Clips
        # run side by side instead. The setting holds for the process: resetting it would race with other films.
        cv2.setNumThreads(1)
        self.scale = scale

    def steps(self, clips: Sequence[Frames]) -> Iterator[Vectors]:
        """See `OpticalFlow.steps`."""
        search = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
        pairs_of_clips = zip(*(self._pairs(frames_THW) for frames_THW in clips), strict=True)
        for pairs in pairs_of_clips:
            yield np.stack([_corrected(search, *pair) / np.float32(self.scale) for pair in pairs])

    def _pairs(self, frames_THW: Frames) -> Iterator[tuple[_Picture, _Picture]]:
        before = _Picture(scaled(frames_THW[0], self.scale))
        for frame_HW in frames_THW[1:]:
            after = _Picture(scaled(frame_HW, self.scale))
            yield before, after
            before = after


class _Picture:
    """A frame at working size, and smoothed."""

    def __init__(self, luma_HW: npt.NDArray[np.uint8]) -> None:
        self.luma_HW = luma_HW
        # float before blurring: rounding to whole luma would bring the sub-pixel bias back
        self.smooth_HW: Luma = np.asarray(cv2.GaussianBlur(luma_HW.astype(np.float32), (0, 0), SMOOTHING), np.float32)


def _corrected(search: cv2.DISOpticalFlow, before: _Picture, after: _Picture) -> Vectors:
    """`vectors_HW2` in pixels of the working size."""
    if np.array_equal(before.luma_HW, after.luma_HW):
        return np.zeros((*before.luma_HW.shape, 2), np.float32)
    vectors_HW2 = search.calc(before.luma_HW, after.luma_HW, None)  # type: ignore[call-overload] # None: no first guess
    reached_HW = _fetch(after.smooth_HW, vectors_HW2)
    unexplained_HW = before.smooth_HW - reached_HW
    correction_HW2 = _lucas_kanade(np.float32(0.5) * (before.smooth_HW + reached_HW), unexplained_HW)
    moving = _surroundings(before.smooth_HW - after.smooth_HW) > _surroundings(unexplained_HW) + STILL_MARGIN
    return np.asarray((vectors_HW2 + correction_HW2) * moving[..., None], np.float32)


def _fetch(picture_HW: Luma, vectors_HW2: Vectors) -> Luma:
    """What lies at the end of each vector."""
    height, width = picture_HW.shape
    columns_HW = vectors_HW2[..., 0] + np.arange(width, dtype=np.float32)
    rows_HW = vectors_HW2[..., 1] + np.arange(height, dtype=np.float32)[:, None]
    fetched_HW = cv2.remap(picture_HW, columns_HW, rows_HW, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(fetched_HW, np.float32)


def _lucas_kanade(smooth_HW: Luma, change_HW: Luma) -> Vectors:
    """The small motion that explains `change_HW` best around each pixel."""
    slope_x = cv2.Scharr(smooth_HW, cv2.CV_32F, 1, 0, scale=1 / 32)
    slope_y = cv2.Scharr(smooth_HW, cv2.CV_32F, 0, 1, scale=1 / 32)
    products = (slope_x * slope_x, slope_x * slope_y, slope_y * slope_y, slope_x * change_HW, slope_y * change_HW)
    means = (np.asarray(cv2.boxFilter(product, -1, (WINDOW, WINDOW)), np.float32) for product in products)
    xx, xy, yy, xt, yt = means
    xx, yy = xx + np.float32(FLATNESS), yy + np.float32(FLATNESS)
    correction_HW2 = np.stack((yy * xt - xy * yt, xx * yt - xy * xt), axis=-1)
    correction_HW2 /= (xx * yy - xy * xy)[..., None]
    return np.clip(correction_HW2, -LONGEST_CORRECTION, LONGEST_CORRECTION, out=correction_HW2)


def _surroundings(difference_HW: Luma) -> Luma:
    return np.asarray(cv2.boxFilter(np.abs(difference_HW), -1, (STILL_WINDOW, STILL_WINDOW)), np.float32)
