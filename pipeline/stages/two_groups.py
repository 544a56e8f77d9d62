"""Second look for two scenes in a clip, by how much of the picture changes for good and does not only move.

Every two seconds of a clip are looked at, at 8 pictures a second, inside the bars of the picture (`second_look`).

For every moment that splits the clip, with the median pictures A before and B after it:

    light    = median_p [B_p / A_p]
    kept_p   = |B_p - A_p| > CHANGED, |B_p - light A_p| > CHANGED, and most pictures before show A_p, most after it B_p,
               next to none the other
    likeness = correlation of the detail of A and B where they differ       near 1 if only the light changes
    share    = mean_p [kept_p] * (1 - likeness)

We use medians because leaping figures hide any pixel of a place only now and then. The moment of the largest share
counts. Motion changes pixels for good too, but can be followed: optical flow follows the kept pixels from `REACH`
pictures before the moment to `REACH` after it, far enough for a dissolve, and back.

    lost     = share of the kept pixels whose way ends inside on another gray, the smaller one of both directions
    value    = share * lost / SURE, at most 1

Flow loses fast figures and fast pans as well, so the value is multiplied by `DOUBT`, with two exceptions. One is that
every picture near the moment shows A, B, a dissolve or a wipe of both, which no motion does. The other
is that hardly any edge is found again, although the camera does not go far.

A dissolve of figures, or between places of like colours, changes a small share of the picture. It is known by its
pictures in between, in which all kept pixels have come equally far from A to B. In a slow zoom they have too, but most
are found again; where most are lost, `lost` is the value, if larger. Large letters that fade in look the same.
"""

from __future__ import annotations

from fractions import Fraction

import cv2
import numpy as np

from pipeline.stages.same_scene import (
    TINY_HEIGHT,
    TINY_WIDTH,
    Followed,
    follow,
    is_blank,
    likeness_of,
    medians,
    tiny_gray,
    undecided,
)

SMALL = (180, 120)
"""Width and height of small pictures."""
RATE, WINDOW = 8, 16
"""Pictures a second that are compared, and their number: two seconds."""
BAR_LUMA, BAR_RANGE = 24, 6
"""Largest luma of a bar, and the largest difference of its pixels, over all pictures, gray levels."""
MOST_BAR = 0.45
"""Largest share of a side that a bar takes; a picture that is dark beyond it has none."""
CHANGED = 12
"""Least difference of a changed pixel, gray levels."""
COMMON, RARE = 0.5, 0.15
"""Least share of the pictures on a side that show its own gray of a pixel, and largest that show the other one."""
LEAST_SHARE = 0.06
"""Share of the picture below which only dissolves are followed, to save time: no more than a figure changes there."""
LEAST_DISSOLVED = 0.02
"""Share of the picture below which nothing is followed."""
REACH = 4
"""Pictures on each side of the moment between which pixels are followed."""
FOLLOWED = (120, 80)
"""Size of the pictures in which they are followed; at 180x120 they are not followed better, and take twice the time."""
SURE = 0.18
"""Share of the picture that changes for good from which the value is 1. Of a scene that moves, 0.04 were lost beyond
doubt, of Big Buck Bunny's 0.05; the limit of 0.35 is 0.06."""
DOUBT = 0.25
"""Factor of the value of a clip whose change motion may explain."""
BESIDE = 3
"""Pictures on each side of the moment that must show A, B or a mix."""
LARGEST_MISFIT = 0.12
"""Largest median distance of the pixels' shares from the share of the picture, in a dissolve."""
MOST_UNDECIDED = 0.25
"""Largest share of pixels that show neither scene, in a wipe."""
BETWEEN = 0.12
"""Least distance of a picture within a dissolve from either scene, as a share of the way from one to the other."""
LEAST_BETWEEN, MOST_ODD = 2, 0.3
"""Least number of pictures within a dissolve, and largest share of the pictures between the scenes that are no mix."""
MOST_ALIKE = 0.7
"""Largest likeness of the first and last picture in a dissolve. It was 0.67 or less at dissolves of small figures and
between drawings of one layout, 0.81 and more where a light rises on a part of the picture."""
MOST_LOST = 0.5
"""Largest share of kept pixels lost in one scene through which the pictures pass as through a dissolve. It was 0.16 in
composed pans and zooms, up to 0.44 in pieces of Big Buck Bunny without its title, and 0.6 or more in nine of ten
dissolves."""
MOST_EDGES = 0.28
"""Largest share of the edges found again in another scene."""
LONGEST_WAY = 0.15
"""Longest way of most pixels, in picture widths: farther on, nothing of the same scene is found again either."""


def small_gray(frames_THW: np.ndarray) -> np.ndarray:
    """Return the small pictures of frames' luma at full range, THW uint8."""
    return np.stack([cv2.resize(frame_HW, SMALL, interpolation=cv2.INTER_AREA) for frame_HW in frames_THW])


def second_look(pictures_THW: np.ndarray, fps: Fraction) -> float:
    """Return the largest `two_groups` of every two seconds of a clip, at 8 pictures a second, inside its bars.

    Args:
        pictures_THW: all pictures of the clip, small and gray, uint8.
        fps: their rate; a lower one than 8 is taken as it is.
    """
    step = max(fps / RATE, Fraction(1))
    chosen = [int(number * step) for number in range(len(pictures_THW)) if number * step < len(pictures_THW)]
    chosen_THW = _inside_bars(pictures_THW)[chosen]
    last = max(len(chosen_THW) - WINDOW, 0)
    return max(two_groups(chosen_THW[start : start + WINDOW]) for start in {*range(0, last, WINDOW // 2), last})


def _inside_bars(pictures_THW: np.ndarray) -> np.ndarray:
    """Return the pictures without the black bars that all of them have."""
    darkest_HW, lightest_HW = pictures_THW.min(axis=0), pictures_THW.max(axis=0)

    def inside(axis: int) -> slice:
        lightest_N, darkest_N = lightest_HW.max(axis=axis), darkest_HW.min(axis=axis)
        shown = np.flatnonzero((lightest_N > BAR_LUMA) | (lightest_N - darkest_N > BAR_RANGE))
        size = len(lightest_N)
        is_dark = not len(shown) or max(shown[0], size - 1 - shown[-1]) > MOST_BAR * size
        return slice(0, size) if is_dark else slice(shown[0], shown[-1] + 1)

    return pictures_THW[:, inside(1), inside(0)]


def two_groups(pictures_THW: np.ndarray) -> float:
    """Return how far gray pictures of one size, in time order, fall into two groups: 0 (one) to 1 (two)."""
    pictures_PT = np.stack([tiny_gray(picture_HW) for picture_HW in pictures_THW], axis=1)
    share, split, kept_P = _most_kept(pictures_PT)
    is_dissolve = _is_dissolve(pictures_PT, split, kept_P)
    if share < LEAST_SHARE and not is_dissolve:
        return 0.0
    near = [cv2.resize(picture_HW, FOLLOWED, interpolation=cv2.INTER_AREA) for picture_HW in _near(pictures_THW, split)]
    tiny_HW = kept_P.reshape(TINY_HEIGHT, TINY_WIDTH).astype(np.uint8)
    kept_HW = cv2.resize(tiny_HW, FOLLOWED, interpolation=cv2.INTER_NEAREST) > 0
    ways = follow(near), follow(near[::-1])
    lost = min(float(way.is_lost_HW[kept_HW].mean()) for way in ways)
    value = min(share * lost / SURE, 1.0)
    if is_dissolve and lost > MOST_LOST:
        return max(lost, value)
    is_doubtful = _passes_through_others(pictures_PT[kept_P], split) and not _is_elsewhere(ways)
    return value * (DOUBT if is_doubtful else 1.0)


def _most_kept(pictures_PT: np.ndarray) -> tuple[float, int, np.ndarray]:
    """Return the largest share of the picture that changes for good, the moment, and its pixels."""
    best = 0.0, 0, np.zeros(len(pictures_PT), bool)
    if (np.ptp(pictures_PT, axis=1) > CHANGED).mean() < LEAST_DISSOLVED:
        return best
    frames = pictures_PT.shape[1]
    for split in range(2, frames - 1):
        old_P, new_P = medians(pictures_PT[:, :split]), medians(pictures_PT[:, split:])
        light = np.median(new_P / np.maximum(old_P, 1))
        changed_P = np.minimum(np.abs(new_P - old_P), np.abs(new_P - light * old_P)) > CHANGED
        kept_P = changed_P & _is_kept(pictures_PT, split, old_P) & _is_kept(pictures_PT[:, ::-1], frames - split, new_P)
        if kept_P.mean() > best[0]:
            share = float(kept_P.mean()) * (1 - max(likeness_of(old_P, new_P, changed_P), 0.0))
            best = max(best, (share, split, kept_P), key=lambda found: found[0])
    return best


def _is_kept(pictures_PT: np.ndarray, split: int, gray_P: np.ndarray) -> np.ndarray:
    """Return true for pixels that show a gray mostly before a moment and hardly after it."""
    shown_PT = np.abs(pictures_PT - gray_P[:, None]) < CHANGED
    kept_P: np.ndarray = (shown_PT[:, :split].mean(axis=1) >= COMMON) & (shown_PT[:, split:].mean(axis=1) <= RARE)
    return kept_P


def _near(pictures_THW: np.ndarray, split: int) -> np.ndarray:
    return pictures_THW[max(split - REACH, 0) : split + REACH]


def _is_dissolve(pictures_PT: np.ndarray, split: int, kept_P: np.ndarray) -> bool:
    """Return true if the pictures between the scenes are mixes of both, in which all kept pixels have like shares."""
    # in a long dissolve the medians of both sides are mixes themselves, the first and last pictures less
    first_P, last_P = pictures_PT[:, 0], pictures_PT[:, -1]
    likeness = likeness_of(first_P, last_P, kept_P)
    is_relit_or_fade = likeness > MOST_ALIKE or is_blank(first_P) or is_blank(last_P)
    if is_relit_or_fade or kept_P.mean() * (1 - max(likeness, 0.0)) < LEAST_DISSOLVED:
        return False
    share_T, misfit_T = _shares(pictures_PT[kept_P], split)[1:]
    between_T = (share_T > BETWEEN) & (share_T < 1 - BETWEEN)
    mixed = np.count_nonzero(between_T & (misfit_T < LARGEST_MISFIT))
    return bool(mixed >= max(LEAST_BETWEEN, (1 - MOST_ODD) * np.count_nonzero(between_T)))


def _passes_through_others(kept_PT: np.ndarray, split: int) -> bool:
    """Return true if the kept pixels of a near picture show neither scene, nor a dissolve or wipe of both."""
    shares_TP, _, misfit_T = _shares(kept_PT, split)
    near = slice(max(split - BESIDE, 0), split + BESIDE)
    undecided_N = undecided(shares_TP[near]).mean(axis=1)
    return bool(((misfit_T[near] > LARGEST_MISFIT) & (undecided_N > MOST_UNDECIDED)).any())


def _shares(kept_PT: np.ndarray, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the share of the new scene in every pixel (T, P) and picture (T), and their median distance (T)."""
    old_P, new_P = medians(kept_PT[:, :split]), medians(kept_PT[:, split:])
    shares_TP = (kept_PT.T - old_P) / (new_P - old_P)
    share_T = medians(shares_TP)
    return shares_TP, share_T, medians(np.abs(shares_TP - share_T[:, None]))


def _is_elsewhere(ways: tuple[Followed, Followed]) -> bool:
    """Return true if next to none of the edges is found again, though most pixels do not move far."""
    return max(way.edges for way in ways) < MOST_EDGES and min(way.length for way in ways) < LONGEST_WAY
