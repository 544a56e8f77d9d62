"""Camera of a clip: static, or the kind, direction and size of its move, from points tracked through the drawings.

1. Corners, at most one per cell, are tracked from drawing to drawing (Lucas-Kanade), and back as a check.
2. The steps of the points are divided into planes. A plane is what one shift, rotation and zoom explains (RANSAC): a
   near part of the place, a far part, or a figure.
3. The plane with the most points is the place, and its motion is the camera's. Points in the left, right and upper
   margin count four times, because figures act in the middle and stand on the lower edge.
4. The sums over the clip name the kind. If too few points agree, or if no kind dominates, the camera is undecided.
5. If a pan or tilt passes much of the place, but a part in the middle of the picture stays and no plane explains it,
   the camera follows a figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt

from pipeline.core.measurements import CameraDirection, CameraKind

Picture = npt.NDArray[np.uint8]
Points = npt.NDArray[np.float32]
Transform = npt.NDArray[np.float64]
"""Similarity as a 2x3 matrix: maps a pixel (x, y, 1) of a drawing to its position (x, y) in the next."""

CELL = 26
"""Side of a cell, pixels of the drawing: the picture has at most one corner per cell."""
CORNER = 2e-4
"""Least eigenvalue of the gradients at a corner (`cv2.cornerMinEigenVal`, block 5): flat cells have no corner."""
RENEWED = 5
"""Steps after which corners are found again."""
RETURN_PX = 0.4
"""Largest distance between a point and where tracking back arrives, drawing pixels."""
FIT_PX, FIT_SHARE = 0.2, 0.05
"""Tolerance of a plane: drawing pixels, plus a share of the median step."""
PLANES, PLANE_POINTS, PLANE_SHARE = 3, 8, 0.08
"""Most planes; least points of a plane, and their least share of the tracked points."""
RESTS_PX = 0.5
"""Largest median step of a picture that rests, drawing pixels."""
MARGIN, MARGIN_POINTS, MARGIN_WEIGHT = 0.2, 6, 4.0
"""Width of the left, right and upper margin as a share of the picture; least number of its points, and their weight."""

AGREES, AGREES_STILL = 0.22, 0.4
"""Least weighted share of points on the place's plane, averaged over the steps, if the camera moves, and if not."""
SEEN = 0.8
"""Least share of the steps in which the place was found."""
STILL, MOVES = 0.003, 0.004
"""Largest sum of a static camera, and least sum of a moving one, as shares of the picture's width."""
DOMINATES = 1.5
"""Least ratio of the largest component to the second."""
STEADY, LASTING = 0.7, 0.4
"""Least share of a component's path that is not undone, and of the steps that go its way."""
SHAKE_UNDONE, SHAKE_TURNS, SHAKE_PX = 0.35, 0.25, 0.5
"""A shake undoes all but this share of its path, turns at this share of its steps, and goes this far in a step."""
PASSES = 0.1
"""Least path of a camera that follows, as a share of the picture's width."""
FOLLOWED_SHARE, FOLLOWED_RATIO, FOLLOWED_LUMA = 0.02, 0.8, 3.0
"""Least area of a followed figure as a share of the picture. In it, the place's planes leave at least this share of the
difference between two drawings unexplained, and at least this luma."""


@dataclass(frozen=True)
class CameraStep:
    """Camera motion from one drawing to the next, in pixels of the drawing."""

    planes: tuple[Transform, ...]
    """Motions of all planes, the place's first."""
    share: float
    """Weighted share of the tracked points on the place's plane, 0..1."""

    @property
    def transform(self) -> Transform:
        """Motion of the place."""
        return self.planes[0]


@dataclass
class CameraTracker:
    """Camera of one clip; takes its drawings in order."""

    _steps: list[CameraStep | None] = field(default_factory=list)
    _drawings: list[tuple[Picture, Picture]] = field(default_factory=list)
    _points_N2: Points = field(default_factory=lambda: np.empty((0, 2), np.float32))
    _age: int = RENEWED

    def step(self, before_HW: Picture, after_HW: Picture) -> CameraStep | None:
        """Track the points from one drawing to the next; None if the place is not found."""
        if self._age >= RENEWED or len(self._points_N2) < 2 * PLANE_POINTS:
            self._points_N2, self._age = corners(before_HW), 0
        self._age += 1
        starts_N2, ends_N2 = _tracked(before_HW, after_HW, self._points_N2)
        self._points_N2 = ends_N2
        step = _camera_step(starts_N2, ends_N2, before_HW.shape)
        self._steps.append(step)
        self._drawings.append((before_HW, after_HW))
        return step

    def result(self, first_HW: Picture) -> tuple[CameraKind | None, CameraDirection | None]:
        """Name the camera's kind and direction; the kind is None if it is undecided. Repeated drawings do not count."""
        if not self._steps:
            return ("static" if _margin(corners(first_HW), first_HW.shape).sum() >= MARGIN_POINTS else None), None
        found = [step for step in self._steps if step]
        if len(found) < SEEN * len(self._steps):
            return None, None
        motions_T4 = np.array([_components(step.transform, first_HW.shape) for step in found])
        width, share = first_HW.shape[1], float(np.mean([step.share for step in found]))
        if np.abs(motions_T4).sum(axis=0).max() <= STILL * width:
            sure = share >= AGREES_STILL and len(found) == len(self._steps)
            return ("static" if sure else None), None
        if share < AGREES:
            return None, None
        if _shakes(motions_T4):
            return "shake", None
        largest = _dominant(motions_T4, MOVES * width)
        if largest is None:
            return None, None
        kind, (way, back) = _KINDS[largest]
        direction = way if motions_T4[:, largest].sum() > 0 else back
        follows = kind in ("pan", "tilt") and np.abs(motions_T4[:, largest]).sum() >= PASSES * width
        return ("follow" if follows and self._keeps_a_figure() else kind), direction

    def _keeps_a_figure(self) -> bool:
        """Return True if a part in the middle stays, although no plane of the place explains it."""
        steps = zip(self._drawings, self._steps, strict=True)
        maps = np.stack([_unexplained(*drawings, step) for drawings, step in steps if step])
        rest_HW, change_HW = np.median(maps, axis=0)
        figure_HW = (rest_HW > FOLLOWED_RATIO * change_HW) & (rest_HW > FOLLOWED_LUMA)
        count, _, boxes, centres = cv2.connectedComponentsWithStats(figure_HW.astype(np.uint8))
        inside = ~_margin(centres.astype(np.float32), figure_HW.shape)
        return any(inside[part] and boxes[part, cv2.CC_STAT_AREA] >= FOLLOWED_SHARE * figure_HW.size
                   for part in range(1, count))  # fmt: skip


_KINDS: tuple[tuple[CameraKind, tuple[CameraDirection, CameraDirection]], ...] = (
    ("pan", ("left", "right")),
    ("tilt", ("up", "down")),
    ("zoom", ("in", "out")),
    ("rotate", ("counterclockwise", "clockwise")),
)
"""Kind of each component of a motion, and the camera's way if the component is positive, and if it is negative."""


def corners(drawing_HW: Picture) -> Points:
    """Return the strongest corner (x, y) of each cell that has one."""
    strength_HW = cv2.cornerMinEigenVal(drawing_HW, 5)
    down, across = drawing_HW.shape[0] // CELL, drawing_HW.shape[1] // CELL
    cells = strength_HW[: down * CELL, : across * CELL].reshape(down, CELL, across, CELL).swapaxes(1, 2)
    flat = cells.reshape(down * across, CELL * CELL)
    strongest = flat.argmax(axis=1)
    found = np.flatnonzero(flat[np.arange(len(flat)), strongest] >= CORNER)
    rows, columns = found // across * CELL + strongest[found] // CELL, found % across * CELL + strongest[found] % CELL
    return np.stack((columns, rows), axis=-1).astype(np.float32)


def _tracked(before_HW: Picture, after_HW: Picture, points_N2: Points) -> tuple[Points, Points]:
    """Return the starts and ends of the points that tracking finds, and finds again backwards."""
    if len(points_N2) == 0:
        return points_N2, points_N2
    ends, found = _lucas_kanade(before_HW, after_HW, points_N2[:, None])
    back, found_back = _lucas_kanade(after_HW, before_HW, ends)
    returns = np.abs(back[:, 0] - points_N2).max(axis=1) < RETURN_PX
    inside = ((ends[:, 0] >= 0) & (ends[:, 0] < before_HW.shape[::-1])).all(axis=1)
    good = returns & inside & (found[:, 0] > 0) & (found_back[:, 0] > 0)
    return points_N2[good], ends[good, 0]


def _lucas_kanade(before_HW: Picture, after_HW: Picture, points_N12: Points) -> tuple[Points, Picture]:
    criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 8, 0.05)
    ends_N12, found_N1, _ = cv2.calcOpticalFlowPyrLK(  # type: ignore[call-overload] # no first guess
        before_HW, after_HW, points_N12, None, winSize=(11, 11), maxLevel=3, criteria=criteria
    )
    return ends_N12, found_N1


def _camera_step(starts_N2: Points, ends_N2: Points, shape: Sequence[int]) -> CameraStep | None:
    """Choose the place among the planes of one step; None if there is no plane, or nothing to see in the margin."""
    margin_N = _margin(starts_N2, shape)
    if margin_N.sum() < MARGIN_POINTS:
        return None
    weights_N = np.where(margin_N, MARGIN_WEIGHT, 1.0)
    weights_N /= weights_N.sum()
    planes = sorted(_planes(starts_N2, ends_N2, weights_N), key=lambda plane: -plane[1])
    return CameraStep(tuple(transform for transform, _ in planes), planes[0][1]) if planes else None


def _margin(points_N2: Points, shape: Sequence[int]) -> npt.NDArray[np.bool_]:
    x_N, y_N = points_N2[:, 0] / shape[1], points_N2[:, 1] / shape[0]
    return np.asarray((x_N < MARGIN) | (x_N > 1 - MARGIN) | (y_N < MARGIN))


def _planes(
    starts_N2: Points, ends_N2: Points, weights_N: npt.NDArray[np.float64]
) -> Iterator[tuple[Transform, float]]:
    """Yield the planes in a set of steps, with their weights; only the first if most of the picture rests."""
    left = np.arange(len(starts_N2))
    least = max(PLANE_POINTS, PLANE_SHARE * len(left))
    median = float(np.median(np.hypot(*(ends_N2 - starts_N2).T)))
    for _ in range(PLANES):
        if len(left) < least:
            return
        transform, agree_N1 = cv2.estimateAffinePartial2D(
            starts_N2[left], ends_N2[left], method=cv2.RANSAC, ransacReprojThreshold=FIT_PX + FIT_SHARE * median,
            maxIters=100, refineIters=0,
        )  # fmt: skip
        if transform is None or agree_N1.sum() < least:
            return
        members = left[agree_N1[:, 0] > 0]
        weight = float(weights_N[members].sum())
        yield _similarity(starts_N2[members], ends_N2[members]), weight
        if weight > 0.5 and median < RESTS_PX:
            return
        left = left[agree_N1[:, 0] == 0]


def _similarity(starts_N2: Points, ends_N2: Points) -> Transform:
    """Return the similarity with the least squared error; as complex numbers, it is end = a * start + b."""
    starts_N, ends_N = (points_N2.astype(np.float64) @ (1, 1j) for points_N2 in (starts_N2, ends_N2))
    spread_N = starts_N - starts_N.mean()
    a = np.vdot(spread_N, ends_N) / np.vdot(spread_N, spread_N).real
    b = ends_N.mean() - a * starts_N.mean()
    return np.array(((a.real, -a.imag, b.real), (a.imag, a.real, b.imag)))


def _components(transform: Transform, shape: Sequence[int]) -> tuple[float, float, float, float]:
    """Return the shift right and down at the middle, and the mean shift by zoom and by rotation, in drawing pixels."""
    height, width = shape[:2]
    middle = np.array((width / 2, height / 2, 1.0))
    across, down = transform @ middle - middle[:2]
    zoom, turn = np.hypot(transform[0, 0], transform[1, 0]), np.arctan2(transform[1, 0], transform[0, 0])
    reach = _mean_distance(height, width)
    return float(across), float(down), float(np.log(zoom) * reach), float(turn * reach)


@lru_cache(maxsize=4)
def _mean_distance(height: int, width: int) -> float:
    """Return the mean distance of a picture's pixels from its middle."""
    rows_HW, columns_HW = np.mgrid[0.5:height, 0.5:width]
    return float(np.hypot(rows_HW - height / 2, columns_HW - width / 2).mean())


def _shakes(motions_T4: npt.NDArray[np.float64]) -> bool:
    """Return True if the picture goes to and fro."""
    shifts_T2 = motions_T4[:, :2]
    path = np.hypot(*shifts_T2.T).sum()
    turns = max(np.count_nonzero(np.diff(np.sign(shift_T[np.abs(shift_T) >= SHAKE_PX]))) for shift_T in shifts_T2.T)
    undone = np.hypot(*shifts_T2.sum(axis=0)) <= SHAKE_UNDONE * path
    return bool(undone and path >= SHAKE_PX * len(motions_T4) and turns >= SHAKE_TURNS * len(motions_T4))


def _dominant(motions_T4: npt.NDArray[np.float64], least: float) -> int | None:
    """Return the index of the component that dominates a clip; None if there is none."""
    sums_4, paths_4 = np.abs(motions_T4.sum(axis=0)), np.abs(motions_T4).sum(axis=0)
    second, largest = (int(index) for index in np.argsort(sums_4)[-2:])
    way_T = motions_T4[:, largest] * np.sign(motions_T4[:, largest].sum())
    lasts = np.mean(way_T >= way_T.mean() / 4) >= LASTING
    steady = sums_4[largest] >= STEADY * paths_4[largest]
    clear = sums_4[largest] >= max(least, DOMINATES * sums_4[second])
    return largest if lasts and steady and clear else None


def _unexplained(before_HW: Picture, after_HW: Picture, step: CameraStep) -> npt.NDArray[np.float32]:
    """Return two maps at half size: the difference of two drawings after the motion of the place, and before it."""
    before, after = (_softened(drawing_HW) for drawing_HW in (before_HW, after_HW))
    way = _shift(step.transform, before_HW.shape)
    rests = [np.abs(_moved_back(after, plane) - before) for plane in step.planes
             if way @ _shift(plane, before_HW.shape) >= 0.3 * way @ way]  # fmt: skip
    return np.stack([cv2.boxFilter(change, -1, (9, 9)) for change in (np.min(rests, axis=0), np.abs(after - before))])


def _softened(drawing_HW: Picture) -> npt.NDArray[np.float32]:
    half_HW = cv2.resize(drawing_HW, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.GaussianBlur(half_HW.astype(np.float32), (0, 0), 1), np.float32)


def _shift(transform: Transform, shape: Sequence[int]) -> npt.NDArray[np.float64]:
    return np.array(_components(transform, shape)[:2])


def _moved_back(after_HW: npt.NDArray[np.float32], transform: Transform) -> npt.NDArray[np.float32]:
    halved = transform * ((1, 1, 0.5), (1, 1, 0.5))
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    warped_HW = cv2.warpAffine(after_HW, halved, after_HW.shape[::-1], flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(warped_HW, np.float32)
