"""Logos and watermarks: what stays at one place of a film's pictures from scene to scene.

The gradients of a logo are the same in every picture, those of the film are as often of one sign as of the other. The
median of the gradients over many scenes is therefore nearly that of the logo alone, also of a faint one (Dekel et al.,
On the Effectiveness of Visible Watermarks, CVPR 2017). What tells a faint logo are the scenes with a smooth picture
below it. So the gradients of each scene are divided by their strength nearby before the scenes are averaged. A pixel
may belong to a logo if this mean is large against its standard error, and if most scenes have a gradient of its
direction there. Scenes in front of the same background count once: otherwise the furniture of a room would be a logo.

Everything is measured on gray pictures with a short side of 360 pixels, one a scene, the median of three of a clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.measurements import Box
from pipeline.stages.overlays.borders import borders_of, column_levels, row_levels

SHORT_SIDE = 360
"""At 240 pixels the lines of a thin word are narrower than a pixel."""
MOST_SCENES = 120
"""Largest number of scenes that are compared, which bounds the memory to 23 MB of samples and 93 MB of gradients."""
LEAST_SCENES, ENOUGH_SCENES = 8, 16
"""Numbers of different scenes below which no logo is looked for, and from which on `LEAST_Z` holds. Of 94 films made of
scenes of Big Buck Bunny, 9 showed a logo when it held from 10 on and 30 pixels were enough."""
SAME_PLACE = 0.25
"""Correlation of the gradients of two pictures above which they show one place. 99% of the pairs of scenes of Big Buck
Bunny have less than 0.13, and scenes of one camera position 0.4 and more."""
NEARBY, EVEN = 19, 1.0
"""Side of the square whose gradients count as nearby, pixels, and the strength that counts as smooth."""
LEAST_GRADIENT = 0.6
"""Least median gradient of a logo, gray levels per pixel."""
LEAST_Z, SURE_Z = 4.0, 5.0
"""Least multiple of its standard error that the mean has at a pixel of a logo, and at `SURE_PIXELS` of them."""
LEAST_SHARE = 0.6
"""Least share of the scenes that show at least half of the mean. White on a white sky shows nothing."""
LEAST_PIXELS, SURE_PIXELS, GAP = 48, 8, 13
"""Least numbers of pixels of a logo, and the gap between its parts, pixels."""
MARGIN = 12
"""Pixels next to borders that are left out, also of the blurs: the ends of borders stay in place too."""
NOISE, SLOPES = 1.0, 9.0
"""Widths of the Gaussians between which structure counts, pixels. A wide soft slope would be one chance event for many
pixels at once, and so a false logo in blurred pictures."""
SHOWN = 0.3
"""Part of the logo's gradient above which a clip shows it."""
NEIGHBOURS = 2
"""Clips on each side that must lack the logo as well: it may lie on its own colour for some seconds."""


@dataclass(frozen=True)
class Logo:
    """A logo of a film: its box in the pictures of `small_sample`, and its gradients there.

    Attributes:
        box: left, top, right, bottom in pixels of the small picture.
        template_2HW: median gradients across and down in the box, 0 outside the logo.
        picture_size: width and height of the small picture.
        inside: rows and columns of the small picture without its borders.
    """

    box: tuple[int, int, int, int]
    template_2HW: NDArray[np.float32]
    picture_size: tuple[int, int]
    inside: tuple[slice, slice]

    def share_of(self, gradients_2HW: NDArray[np.float32]) -> float:
        """Return the part of the logo's gradient in a picture: about 1 if it shows the logo, 0 if not."""
        left, top, right, bottom = self.box
        there_2HW = gradients_2HW[:, top:bottom, left:right]
        return float((there_2HW * self.template_2HW).sum() / (self.template_2HW**2).sum())

    def box_at(self, width: int, height: int) -> Box:
        """Return the box in a clip of this size, a pixel of the small picture wider on each side."""
        across, down = width / self.picture_size[0], height / self.picture_size[1]
        left, top, right, bottom = self.box
        return Box(
            left=max(0, int((left - 1) * across)),
            top=max(0, int((top - 1) * down)),
            right=min(width, round((right + 1) * across)),
            bottom=min(height, round((bottom + 1) * down)),
        )


def small_sample(frames_THW: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the median of the first, middle and last frame of a clip as a small picture."""
    height, width = frames_THW.shape[1:]
    scale = SHORT_SIDE / min(height, width)
    size = round(width * scale), round(height * scale)
    chosen = [frames_THW[index] for index in (0, len(frames_THW) // 2, -1)]
    low, high = np.minimum(chosen[0], chosen[1]), np.maximum(chosen[0], chosen[1])
    return _resized(np.maximum(low, np.minimum(high, chosen[2])), size)


def find_logos(samples: Sequence[NDArray[np.uint8]]) -> list[Logo] | None:
    """Return the logos of a film from a sample of each scene; None if it has too few different scenes to tell."""
    if len(samples) < LEAST_SCENES:
        return None
    inside = _inside(np.median(np.stack(samples), axis=0).astype(np.uint8))
    if min(samples[0][inside].shape) < 2 * MARGIN:
        return None  # the film is nearly black
    different = _different_places([sample_HW[inside] for sample_HW in samples])
    if len(different) < LEAST_SCENES:
        return None
    gradients_N2HW = np.stack([gradients(samples[index], inside).astype(np.float16) for index in different])
    # 1. Pixels at which the scenes agree, and of them those with a gradient that can be seen.
    z_HW, share_HW = _agreement(gradients_N2HW)
    less = max(0, ENOUGH_SCENES - len(different)) / 4
    is_logo_HW = (z_HW > LEAST_Z + less) & (share_HW > LEAST_SHARE)
    median_2HW = np.zeros(gradients_N2HW.shape[1:], np.float32)
    median_2HW[:, is_logo_HW] = np.median(gradients_N2HW[:, :, is_logo_HW], axis=0)
    is_logo_HW &= np.hypot(*median_2HW) > LEAST_GRADIENT
    # 2. Pixels that lie close together are one logo.
    joined_HW = cv2.morphologyEx(is_logo_HW.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((GAP, GAP), np.uint8))
    _, labels_HW, parts, _ = cv2.connectedComponentsWithStats(joined_HW)
    logos = []
    for label, (left, top, width, height, _) in enumerate(parts.tolist()):
        box = np.s_[top : top + height, left : left + width]
        own_HW = is_logo_HW[box] & (labels_HW[box] == label)
        sure = (own_HW & (z_HW[box] > SURE_Z + less)).sum()
        if label and own_HW.sum() >= LEAST_PIXELS and sure >= SURE_PIXELS:
            template_2HW = median_2HW[(slice(None), *box)] * own_HW
            logos.append(Logo((left, top, left + width, top + height), template_2HW, is_logo_HW.shape[::-1], inside))
    return logos


def shown_in(shares_CL: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which clips show which logos, from `Logo.share_of` of the film's clips in order of time."""
    padded_CL = np.pad(shares_CL > SHOWN, ((NEIGHBOURS, NEIGHBOURS), (0, 0)))
    around = [padded_CL[start : start + len(shares_CL)] for start in range(2 * NEIGHBOURS + 1)]
    return np.asarray(np.any(around, axis=0))


def gradients(picture_HW: NDArray[np.uint8], inside: tuple[slice, slice] = np.s_[:, :]) -> NDArray[np.float32]:
    """Return the gradients of a picture across and down, gray levels per pixel, without noise and without slopes.

    They are 0 outside of the rows and columns `inside`.
    """
    gray_HW = picture_HW[inside].astype(np.float32)
    gradients_2HW = np.zeros((2, *picture_HW.shape), np.float32)
    fine_HW = cv2.GaussianBlur(gray_HW, (0, 0), NOISE) - cv2.GaussianBlur(gray_HW, (0, 0), SLOPES)
    for axis, gradient_HW in zip(((1, 0), (0, 1)), gradients_2HW, strict=True):
        gradient_HW[inside] = cv2.Sobel(fine_HW, cv2.CV_32F, *axis, ksize=1, scale=0.5)
    return gradients_2HW


def _agreement(gradients_N2HW: NDArray[np.float16]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return how well the scenes agree at each pixel.

    Returns:
        The length of the mean gradient, a multiple of its standard error; the share of scenes with at least half of it.
    """
    count = len(gradients_N2HW)
    mean_2HW = np.asarray(sum(map(_evened, gradients_N2HW)) / count, np.float32)
    length_HW = np.hypot(*mean_2HW)
    direction_2HW = mean_2HW / (length_HW + 1e-6)
    squares_HW, share_HW = np.zeros_like(length_HW), np.zeros_like(length_HW)
    for gradients_2HW in gradients_N2HW:
        along_HW = (_evened(gradients_2HW) * direction_2HW).sum(axis=0)
        squares_HW += (along_HW - length_HW) ** 2 / count
        share_HW += (along_HW > length_HW / 2) / np.float32(count)
    return length_HW / (np.sqrt(squares_HW / count) + 1e-6), share_HW


def _evened(gradients_2HW: NDArray[np.float16]) -> NDArray[np.float32]:
    """Return gradients divided by their strength nearby."""
    exact_2HW = gradients_2HW.astype(np.float32)
    strength_HW = cv2.blur((exact_2HW**2).sum(axis=0), (NEARBY, NEARBY))
    return np.asarray(exact_2HW / np.sqrt(strength_HW + EVEN**2), np.float32)


def _different_places(samples: Sequence[NDArray[np.uint8]]) -> list[int]:
    """Return the indices of the samples whose gradients are unlike those of all chosen before."""
    fields: list[NDArray[np.float32]] = []
    chosen = []
    for index, sample_HW in enumerate(samples):
        height, width = sample_HW.shape
        field = gradients(_resized(sample_HW, (width // 4, height // 4))).ravel()
        field /= np.linalg.norm(field) + 1e-6
        if all(float(field @ earlier) < SAME_PLACE for earlier in fields):
            fields.append(field)
            chosen.append(index)
    return chosen


def _resized(picture_HW: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    return np.asarray(cv2.resize(picture_HW, size, interpolation=cv2.INTER_AREA), np.uint8)


def _inside(median_HW: NDArray[np.uint8]) -> tuple[slice, slice]:
    """Return the rows and columns of the picture inside its borders, without a margin."""
    height, width = median_HW.shape
    left, top, right, bottom = borders_of(row_levels(median_HW), column_levels(median_HW), black_luma=24)
    return slice(top + MARGIN, height - bottom - MARGIN), slice(left + MARGIN, width - right - MARGIN)
