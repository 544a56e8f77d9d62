"""Looks of a clip: light, contrast, stillness, text, likeness to two scenes, quality, and a hash of every frame.

The stage `looks` only states facts, and `selection` turns them into verdicts. Everything but text and
quality is measured on small pictures (180x120), which costs a fraction of reading the clip.

Text lines (credits, title cards, burnt-in subtitles) are found, not read, by the text detector of PP-OCRv4 (DBNet),
which ships inside the package rapidocr, so nothing is downloaded. Its input is 320 pixels high, which takes
35 ms on one core. Subtitles and rolling credits are still found, and faces and leaves are mistaken for letters ten
times less often than at 480 (measured on Big Buck Bunny). At 256 it loses six of the film's 45 clips with text. The
detector sees every picture: a limit on thin strokes that keeps 96% of 570 composed texts lets six textured pictures of
ten pass as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from threading import Lock
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.config import LooksSettings
from pipeline.core.progress import Progress
from pipeline.core.records import Clip, Looks
from pipeline.core.stage import Outcome, Resources, Stage, attempt_each
from pipeline.core.store import FilmFolder
from pipeline.stages.duplicates import frame_hash
from pipeline.stages.picture_quality import measure_quality
from pipeline.stages.two_groups import second_look, small_gray
from pipeline.video.clip_files import read_clip_gray, read_clip_in_part

DARK_LUMA = 24
STILL_LUMA = 3.5
STILL_WINDOW = 3
"""A step is still if the mean luma changes by less than this in every window of 3x3 pixels of the small picture. We
measured clips of 720x480 at crf 17 and 23. Coding changes held drawings by at most 2.0, and by 3.0 with film grain of
sigma 5. A soft background that pans by half a pixel changes by 3.9 or more. A mouth of 7x4 pixels that opens by two
pixels changes by 4.8. The windows overlap, since motion on the border of two cells might change neither enough."""

_SIDE = 320
_STRIDE = 32
_PIXEL_SCORE = 0.3
_LINE_SCORE = 0.6
_TALL, _TALL_SCORE = 0.2, 0.8
"""A box taller than a fifth of the picture is a title or, more often, not text at all: it needs a higher score."""
_MODEL = "ch_PP-OCRv4_det_mobile.onnx"
_LOADING = Lock()
"""The first thread that measures a clip holds this while it loads the detector; otherwise each would load one."""


@dataclass(frozen=True)
class MeasureLooks(Stage):
    """Stage `looks`: table `looks`."""

    name: ClassVar[str] = "looks"
    version: ClassVar[int] = 7
    needs: ClassVar[tuple[str, ...]] = ("cut",)

    settings: LooksSettings
    threads: int = 1
    failed_limit: float = 0.1

    @property
    def resources(self) -> Resources:
        """One CPU per thread."""
        return Resources(cpus=self.threads or 1)

    def ingredients(self) -> dict[str, Any]:
        """Settings, and the text detector if it is used."""
        detector = f"rapidocr {version('rapidocr')} {_MODEL}" if self.settings.text else None
        return {"looks": self.settings.ingredients(), "text detector": detector}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Measure every clip of the film.

        Raises:
            RecordError: more than `failed_limit` of the clips cannot be read.
        """

        def measure(clip: Clip) -> Looks:
            path = folder.clip_path(clip.clip_id)
            if not self.settings.text:
                return measure_looks(clip.clip_id, clip.fps, read_clip_gray(path), None)
            # text in colour, since the detector makes more mistakes on gray pictures; all else in gray, for its cost
            frames_THW, searched_NHWC = read_clip_in_part(path, partial(spread, self.settings.text_frames))
            return measure_looks(clip.clip_id, clip.fps, frames_THW, find_text(searched_NHWC))

        clips = folder.read("clips", Clip)
        rows, failures = attempt_each(
            clips, measure, threads=self.threads, failed_limit=self.failed_limit, progress=progress
        )
        return Outcome(tables={"looks": rows}, failures=failures)


def measure_looks(clip_id: str, fps: Fraction, frames_THW: NDArray[np.uint8], text: TextFacts | None) -> Looks:
    """Measure one clip from the full-range luma of its frames, and the result of `find_text` if text is searched."""
    small_THW = small_gray(frames_THW)
    return Looks(
        clip_id=clip_id,
        light=float(small_THW.mean()),
        contrast=float(small_THW.std(axis=(1, 2)).mean()),
        dark_share=float((small_THW < DARK_LUMA).mean()),
        still_share=still_share(small_THW),
        text_share=text.share if text else None,
        text_lines=text.lines if text else None,
        hashes=tuple(frame_hash(small_HW) for small_HW in small_THW),
        two_groups=second_look(small_THW, fps),
        **vars(measure_quality(frames_THW)),
    )


def still_share(small_THW: NDArray[np.uint8]) -> float:
    """Share of steps between consecutive small pictures in which no window changes visibly; 1 for one picture."""
    steps_THW = np.diff(small_THW.astype(np.float32), axis=0)
    return float(np.mean([_most_change(step_HW) < STILL_LUMA for step_HW in steps_THW])) if len(steps_THW) else 1.0


def _most_change(step_HW: NDArray[np.float32]) -> float:
    # windows across the border would count some pixels, and their noise, twice
    margin = STILL_WINDOW // 2
    means_HW = cv2.blur(step_HW, (STILL_WINDOW, STILL_WINDOW))[margin:-margin, margin:-margin]
    return float(np.abs(means_HW).max())


@dataclass(frozen=True)
class TextFacts:
    """Text on one picture, or the maximum over several."""

    share: float
    """Share of the picture covered by the boxes of its lines, 0..1."""
    lines: int


def find_text(frames_NHWC: NDArray[np.uint8]) -> TextFacts:
    """Return the most text on any of several frames, BGR: the detector makes more mistakes on gray pictures."""
    seen = [_text_on(frame_HWC) for frame_HWC in frames_NHWC]
    return TextFacts(share=max(facts.share for facts in seen), lines=max(facts.lines for facts in seen))


def spread(count: int, length: int) -> list[int]:
    """Return the indices of at most `count` of `length` frames, evenly spread."""
    return sorted({(2 * index + 1) * length // (2 * count) for index in range(count)})


def _text_on(picture_HWC: NDArray[np.uint8]) -> TextFacts:
    height, width = picture_HWC.shape[:2]
    scale = _SIDE / min(height, width)
    size = tuple(max(1, round(side * scale / _STRIDE)) * _STRIDE for side in (width, height))
    resized = cv2.resize(picture_HWC, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    input_1CHW = (resized.astype(np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]
    with _LOADING:
        session, find_boxes = _detector()
    scores_11HW = session.run(None, {session.get_inputs()[0].name: input_1CHW})[0]
    boxes, scores = find_boxes(scores_11HW, (size[1], size[0]))
    lines = [box for box, score in zip(boxes, scores, strict=True) if _is_line(box, score, size[1])]
    covered = np.zeros((size[1], size[0]), np.uint8)
    cv2.fillPoly(covered, [np.round(box).astype(np.int32) for box in lines], 1)
    return TextFacts(share=float(covered.mean()), lines=len(lines))


def _is_line(box_42: NDArray[np.float32], score: float, picture_height: int) -> bool:
    sides = np.linalg.norm(box_42 - np.roll(box_42, 1, axis=0), axis=1)
    tall = sides.min() > _TALL * picture_height
    return score >= (_TALL_SCORE if tall else _LINE_SCORE)


@cache
def _detector() -> tuple[Any, Any]:
    """Return the network and the box finder for its output, loaded once; both are thread-safe."""
    import onnxruntime
    from rapidocr.ch_ppocr_det.utils import DBPostProcess

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # clips run in parallel instead
    model = files("rapidocr") / "models" / _MODEL
    session = onnxruntime.InferenceSession(model.read_bytes(), options, providers=["CPUExecutionProvider"])
    boxes = DBPostProcess(thresh=_PIXEL_SCORE, box_thresh=_LINE_SCORE, unclip_ratio=1.6, use_dilation=True)
    return session, boxes
