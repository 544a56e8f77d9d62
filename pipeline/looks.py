"""The stage `looks`: how light, how varied, how still a clip is, how much text is on it, and what would repeat it.

Facts only; `selection` decides what they mean. Everything but text is measured on a quarter of the size and costs a
fraction of reading the clip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.config import LooksSettings
from pipeline.duplicates import frame_hash
from pipeline.media import read_clip, read_clip_gray
from pipeline.records import Clip, Looks
from pipeline.stage import Outcome, Progress, attempt_each
from pipeline.store import FilmFolder
from pipeline.text import TextFacts, detector_version, find_text

DARK_LUMA = 24
STILL_LUMA = 5
"""A step between frames shows something once the mean luma of one cell changes by this: held drawings change by 2 and
with film grain by 4, from coding alone; lips that open on a face of a medium shot change by 6 to 19 (measured)."""

_SMALL = (180, 120)
_CELLS = (90, 60)


@dataclass(frozen=True)
class MeasureLooks:
    """The stage: table `looks`."""

    name: ClassVar[str] = "looks"
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("cut",)

    settings: LooksSettings
    threads: int = 1
    failed_limit: float = 0.1

    def ingredients(self) -> dict[str, Any]:
        """The settings, and the text detector if it is used."""
        detector = detector_version() if self.settings.text else None
        return {"looks": self.settings.model_dump(mode="json"), "text detector": detector}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Measure every clip of the film.

        Raises:
            RecordError: more than `failed_limit` of the clips cannot be read.
        """

        def measure(clip: Clip) -> Looks:
            path = folder.clip_path(clip.clip_id)
            if not self.settings.text:
                return measure_looks(clip.clip_id, read_clip_gray(path), None)
            frames_THWC = read_clip(path)
            return measure_looks(clip.clip_id, frames_THWC, find_text(frames_THWC, self.settings.text_frames))

        clips = folder.read("clips", Clip)
        rows, failures = attempt_each(
            clips, measure, threads=self.threads, failed_limit=self.failed_limit, progress=progress
        )
        return Outcome(tables={"looks": rows}, failures=failures)


def measure_looks(clip_id: str, frames: NDArray[np.uint8], text: TextFacts | None) -> Looks:
    """The facts of one clip.

    Args:
        clip_id: whose facts they are.
        frames: at least one, uint8; BGR (T, H, W, 3) or luma at full range (T, H, W).
        text: what `find_text` found, None if nobody looked.
    """
    small_THW = np.stack([_small_gray(frame) for frame in frames])
    return Looks(
        clip_id=clip_id,
        light=float(small_THW.mean()),
        contrast=float(small_THW.std(axis=(1, 2)).mean()),
        dark_share=float((small_THW < DARK_LUMA).mean()),
        still_share=still_share(small_THW),
        text_share=text.share if text else None,
        text_lines=text.lines if text else None,
        hashes=tuple(frame_hash(small_HW) for small_HW in small_THW),
    )


def still_share(gray_THW: NDArray[np.uint8]) -> float:
    """Share of steps between consecutive frames in which no cell of a 90x60 grid visibly changes; 1 for one frame."""
    cells_THW = np.stack([cv2.resize(gray_HW, _CELLS, interpolation=cv2.INTER_AREA) for gray_HW in gray_THW])
    changes = np.abs(np.diff(cells_THW.astype(np.int16), axis=0)).max(axis=(1, 2))
    return float((changes < STILL_LUMA).mean()) if changes.size else 1.0


def _small_gray(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    small = cv2.resize(frame, _SMALL, interpolation=cv2.INTER_AREA)
    return np.asarray(small if small.ndim == 2 else cv2.cvtColor(small, cv2.COLOR_BGR2GRAY), np.uint8)
