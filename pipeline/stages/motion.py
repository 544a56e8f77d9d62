"""Motion of a clip, its camera's part and its number of drawings, as measured by the stage `motion`.

Let u_t(p) be the optical flow from frame t to t + 1, in pixels of the clip, at one of the P pixels p of the flow's own
grid. With the threshold background_px:

    M_t = {p : |u_t(p)| >= background_px}           moving pixels of step t
    T   = {t : |M_t| > STRAY_SHARE * P, and frames t and t + 1 are not the same picture coded twice}

    scope  = sum_{t in T} sum_{p in M_t} |u_t(p)|  /  sum_{t in T} |M_t|
    camera = sum_{t in T} |M_t| * mean_p |C_t(p) - p|  /  sum_{t in T} |M_t|

C_t is the motion of the place in step t (`camera`), or the identity if the place is not found or moves by less than
background_px; its mean takes every eighth pixel of the picture in each direction, since in a flat place that zooms or
rotates only the edges move visibly. Both values are in pixels per frame step, and 0 if T is empty. Because held frames
and background are left out, a clip on threes, or a figure before a still background, scores the speed of what moves.

Drawings are frames that differ from the one before. While the camera moves or the film weaves, every frame does; if a
figure is drawn anew only every second frame or less often (on twos, threes or fours), its drawings count instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar

import cv2
import numpy as np
import numpy.typing as npt

from pipeline.core.config import MotionSettings
from pipeline.core.measurements import CameraDirection, CameraKind, Motion
from pipeline.core.progress import Progress
from pipeline.core.records import Clip, RecordError
from pipeline.core.stage import GPU, Outcome, Resources, Stage, attempt_batches
from pipeline.core.store import FilmFolder
from pipeline.stages.camera import CameraStep, CameraTracker, Transform
from pipeline.stages.optical_flow import DenseInverseSearch, Frames, OpticalFlow, Vectors, scaled
from pipeline.video.clip_files import read_clip, read_clip_gray

DRAWING_SCALE = 0.5
"""Scale at which drawings are compared: averaging 2x2 pixels removes most coding noise and grain."""
DRAWN_LUMA, DRAWN_SHARE = 16, 1e-4
"""A new drawing changes by more than this luma on more than this share of the picture. A mouth of 20x10 px changes
4e-4. At crf 17 or 23, held drawings never change so much; film grain of sigma 5 changes 1.2e-5, and grain of sigma 6
reaches the limit."""
FAINT_LUMA, FAINT_SHARE = 4, 1e-3
"""A step that is not above this either is the same picture coded twice, which changes 6e-5 of the picture; a pan by
half a pixel changes 0.04 or more."""

REDRAWN_LUMA, REDRAWN_SHARE, NOISE_SHARE, NOISE_OF_MOST = 12, 2e-4, 5e-5, 0.02
"""If the camera is not static, a new drawing leaves more than this luma unexplained on more than this share of it.
Shares below the noise, or below so much of the largest share, are alike."""
HELD_RATIO, HELD_LASTS, HELD_LEAST = 3.0, 0.75, 0.2
"""Drawings are held if new ones leave this many times the share of held ones, if this share of the new ones stays for a
step, and if at least this share of the steps has a new one: fives are not told from a single event."""

STRAY_SHARE = 1e-4
"""Moving pixels on at most this share are noise: otherwise, a dozen wrong vectors in a fade would set the scope."""


@dataclass(frozen=True)
class MeasureMotion(Stage):
    """Stage `motion`: the motion of every clip. Levels follow from the dataset's edges and are not stored here."""

    name: ClassVar[str] = "motion"
    version: ClassVar[int] = 3
    needs: ClassVar[tuple[str, ...]] = ("cut",)

    settings: MotionSettings
    threads: int
    failed_limit: float

    @property
    def resources(self) -> Resources:
        """CPU threads for `dis`, or a GPU for a network."""
        network = self.settings.model != "dis"
        return Resources(cpus=self.threads or 1, gpu=network, tags=(GPU,) if network else ())

    def ingredients(self) -> dict[str, Any]:
        """Optical-flow model and background threshold; neither the edges nor the batch size change the result."""
        return {"motion": {"background_px": self.settings.background_px, **identify(self.settings)}}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Measure every clip of the film.

        Raises:
            UserError: the optical-flow model cannot be used as configured.
            RecordError: too many clips cannot be read.
        """
        clips = folder.read("clips", Clip)
        if not clips:
            return Outcome({"motion": []})
        optical_flow = open_optical_flow(self.settings)
        measurer = _Measurer(folder, optical_flow, flow_model_of(self.settings), self.settings.background_px)
        rows, failures = attempt_batches(
            clips,
            measurer.measure,
            size=optical_flow.clips_at_once,
            threads=self.threads if optical_flow.in_threads else 1,
            failed_limit=self.failed_limit,
            progress=progress,
        )
        return Outcome({"motion": rows}, failures)


def identify(settings: MotionSettings) -> dict[str, Any]:
    """Return the ingredients of a measurement: model, weights, version and scale. Equal ingredients, equal vectors.

    Raises:
        UserError: the model is unknown, has no weights, or needs an extra that is not installed.
    """
    if settings.model == "dis":
        return {"model": "dis", "scale": _scale(settings)}
    from pipeline.stages.optical_flow_network import identify_network

    return {**identify_network(settings.model, settings.checkpoint), "scale": _scale(settings)}


def flow_model_of(settings: MotionSettings) -> str:
    """Return the measurement's name in records, such as `dis@0.5` or `memflow:1a2b3c4d@1`. Raises as `identify`."""
    found = identify(settings)
    weights = f":{found['weights'][:8]}" if "weights" in found else ""
    return f"{settings.model}{weights}@{_scale(settings):g}"


def open_optical_flow(settings: MotionSettings) -> OpticalFlow:
    """Open the back end named in the settings, with its weights loaded.

    Raises:
        UserError: as `identify`, or the checkpoint does not hold weights of this model.
    """
    if settings.model == "dis":
        return DenseInverseSearch(_scale(settings))
    from pipeline.stages.optical_flow_network import OpticalFlowNetwork

    return OpticalFlowNetwork(settings.model, settings.checkpoint, _scale(settings), settings.batch)


def _scale(settings: MotionSettings) -> float:
    if settings.scale is not None:
        return settings.scale
    return 0.5 if settings.model == "dis" else 1.0


@dataclass(frozen=True)
class ClipMotion:
    """Result of `measure_frames` for one clip, with the fields of `records.Motion`."""

    scope_px: float
    camera_px: float
    camera_kind: CameraKind | None
    camera_direction: CameraDirection | None
    unique_frames: int


def measure_frames(clips: Sequence[Frames], optical_flow: OpticalFlow, background_px: float) -> list[ClipMotion]:
    """Measure clips of one shape: `frames_THWC` (BGR) or `frames_THW` (luma), as the optical flow requires."""
    measured = [_ClipMeasurer(_drawings(frames), _Tally(background_px)) for frames in clips]
    for step, vectors_BHW2 in enumerate(optical_flow.steps(clips)):
        for clip, vectors_HW2 in zip(measured, vectors_BHW2, strict=True):
            clip.add(step, vectors_HW2)
    return [clip.result() for clip in measured]


@dataclass
class _ClipMeasurer:
    """Measurement of one clip, step by step."""

    drawings_THW: Frames
    tally: _Tally
    camera: CameraTracker = field(default_factory=CameraTracker)
    moves: dict[int, CameraStep | None] = field(default_factory=dict)
    """Motion of the place in each step that changes the picture; None if it is not found."""

    def add(self, step: int, vectors_HW2: Vectors) -> None:
        before_HW, after_HW = self.drawings_THW[step : step + 2]
        if not _same_picture(before_HW, after_HW):
            self.moves[step] = self.camera.step(before_HW, after_HW)
            self.tally.add(vectors_HW2, self.moves[step], before_HW.shape)

    def result(self) -> ClipMotion:
        kind, direction = self.camera.result(self.drawings_THW[0])
        camera_px = 0.0 if kind == "static" else self.tally.mean(self.tally.camera)
        scope_px = self.tally.mean(self.tally.magnitudes)
        drawings = count_drawings(self.drawings_THW)
        if kind != "static":
            drawings = min(drawings, _count_held(self.drawings_THW, self.moves) or drawings)
        return ClipMotion(scope_px, camera_px, kind, direction, drawings)


def count_drawings(drawings_THW: Frames) -> int:
    """Count the frames that differ from the last counted one, and the first frame. Slow change accumulates."""
    count, last_HW = 1, drawings_THW[0]
    for drawing_HW in drawings_THW[1:]:
        if _changed_share(last_HW, drawing_HW, DRAWN_LUMA) > DRAWN_SHARE:
            count, last_HW = count + 1, drawing_HW
    return count


def _count_held(drawings_THW: Frames, moves: Mapping[int, CameraStep | None]) -> int | None:
    """Count the drawings of a figure that is held for a few steps before a place that moves; None if none is."""
    shares_T = np.zeros(len(drawings_THW) - 1)
    for step, move in moves.items():
        planes = move.planes if move else ()
        shares_T[step] = _redrawn_share(drawings_THW[step], drawings_THW[step + 1], planes)
    # the widest gap between the shares separates held drawings from new ones
    sorted_T = np.maximum(np.sort(shares_T), max(NOISE_SHARE, NOISE_OF_MOST * shares_T.max(initial=0)))
    gaps = sorted_T[1:] / sorted_T[:-1] * (sorted_T[1:] >= REDRAWN_SHARE)
    if gaps.max(initial=0) < HELD_RATIO:
        return None
    new_T = shares_T >= sorted_T[gaps.argmax() + 1]
    stay = np.count_nonzero(new_T[:-1] & ~new_T[1:]) >= HELD_LASTS * np.count_nonzero(new_T[:-1])
    return 1 + int(new_T.sum()) if stay and new_T.mean() >= HELD_LEAST else None


def _redrawn_share(before_HW: Frames, after_HW: Frames, planes: Sequence[Transform]) -> float:
    """Share of the picture that neither rests nor moves with a plane of the place, forwards and backwards.

    Where a figure passes, the place is covered or appears: it is unexplained in one of the two ways only.
    """
    after_is_new_HW = _unexplained(before_HW, after_HW, planes)
    back = [np.asarray(cv2.invertAffineTransform(plane), np.float64) for plane in planes]
    before_is_gone_HW = cv2.dilate(_unexplained(after_HW, before_HW, back).astype(np.uint8), np.ones((5, 5)))
    return float(np.mean(after_is_new_HW & (before_is_gone_HW > 0)))


def _unexplained(before_HW: Frames, after_HW: Frames, planes: Sequence[Transform]) -> npt.NDArray[np.bool_]:
    """Pixels of a drawing that no motion of the other gives within a pixel: edges at fractions of a pixel differ."""
    size, window = before_HW.shape[::-1], np.ones((3, 3), np.uint8)
    moved = [before_HW, *(cv2.warpAffine(before_HW, plane, size, borderMode=cv2.BORDER_REPLICATE) for plane in planes)]
    rests = [
        cv2.max(cv2.subtract(after_HW, cv2.dilate(one_HW, window)), cv2.subtract(cv2.erode(one_HW, window), after_HW))
        for one_HW in moved
    ]
    return np.asarray(np.min(rests, axis=0) > REDRAWN_LUMA)


def _drawings(frames: Frames) -> Frames:
    gray = frames if frames.ndim == 3 else [cv2.cvtColor(frame_HWC, cv2.COLOR_BGR2GRAY) for frame_HWC in frames]
    return np.stack([scaled(np.asarray(frame_HW, np.uint8), DRAWING_SCALE) for frame_HW in gray])


def _same_picture(before_HW: Frames, after_HW: Frames) -> bool:
    drawn = _changed_share(before_HW, after_HW, DRAWN_LUMA) > DRAWN_SHARE
    return not drawn and _changed_share(before_HW, after_HW, FAINT_LUMA) <= FAINT_SHARE


def _changed_share(before_HW: Frames, after_HW: Frames, luma: int) -> float:
    return float(np.count_nonzero(cv2.absdiff(before_HW, after_HW) > luma) / before_HW.size)


@dataclass
class _Tally:
    """Sums over the moving pixels of a clip; `mean` divides by their number."""

    background_px: float
    pixels: int = 0
    magnitudes: float = 0.0
    camera: float = 0.0

    def add(self, vectors_HW2: Vectors, camera: CameraStep | None, drawing_shape: tuple[int, ...]) -> None:
        # not cv2.magnitude: its last bit depends on memory alignment, and equal input must give equal tables
        magnitudes_HW = np.sqrt(vectors_HW2[..., 0] ** 2 + vectors_HW2[..., 1] ** 2)
        moving_HW = magnitudes_HW >= self.background_px
        moving_N = magnitudes_HW[moving_HW]
        if len(moving_N) <= STRAY_SHARE * magnitudes_HW.size:
            return
        self.pixels += len(moving_N)
        self.magnitudes += float(moving_N.sum(dtype=np.float64))
        if camera:
            displacement_px = _mean_displacement(camera.transform, drawing_shape)
            self.camera += len(moving_N) * displacement_px * (displacement_px >= self.background_px)

    def mean(self, total: float) -> float:
        return total / self.pixels if self.pixels else 0.0


def _mean_displacement(transform: Transform, drawing_shape: tuple[int, ...]) -> float:
    """Mean displacement of the picture (every eighth pixel in each direction) by a drawing's motion, in clip pixels."""
    pitch = 8 * DRAWING_SCALE
    rows_HW, columns_HW = np.mgrid[pitch / 2 : drawing_shape[0] : pitch, pitch / 2 : drawing_shape[1] : pitch]
    places = np.stack((columns_HW.ravel(), rows_HW.ravel(), np.ones(rows_HW.size)))
    return float(np.linalg.norm(transform @ places - places[:2], axis=0).mean()) / DRAWING_SCALE


@dataclass(frozen=True)
class _Measurer:
    """Measurement of clips of one film, read from their files."""

    folder: FilmFolder
    optical_flow: OpticalFlow = field(repr=False)
    flow_model: str
    background_px: float

    def measure(self, clips: Sequence[Clip]) -> list[Motion | RecordError]:
        read = [self._read(clip) for clip in clips]
        good = [frames for frames in read if not isinstance(frames, RecordError)]
        found = iter(measure_frames(good, self.optical_flow, self.background_px) if good else ())
        return [
            frames if isinstance(frames, RecordError) else self._record(clip, next(found))
            for clip, frames in zip(clips, read, strict=True)
        ]

    def _read(self, clip: Clip) -> Frames | RecordError:
        path = self.folder.clip_path(clip.clip_id)
        try:
            frames = read_clip(path) if self.optical_flow.colour else read_clip_gray(path)
        except RecordError as error:
            return error
        if frames.shape[:3] != (clip.frames, clip.height, clip.width):
            length, height, width = frames.shape[:3]
            found, wanted = f"{length} frames of {width}x{height}", f"{clip.frames} of {clip.width}x{clip.height}"
            return RecordError(clip.clip_id, f"the clip file holds {found}, not {wanted}; build again from `cut`")
        return frames

    def _record(self, clip: Clip, found: ClipMotion) -> Motion | RecordError:
        if not isfinite(found.scope_px):
            return RecordError(clip.clip_id, f"{self.flow_model} gave no finite optical flow")
        return Motion(clip_id=clip.clip_id, flow_model=self.flow_model, **vars(found))
