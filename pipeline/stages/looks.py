"""Looks of a clip: light, contrast, stillness, text, likeness to two scenes, quality, and a hash of every frame.

The stage `looks` only states facts, and `selection` turns them into verdicts. Everything but text and
quality is measured on small pictures (180x120), which costs a fraction of reading the clip.

Text and logos are matters of the whole film: lines that return at one height are its subtitles, and what stays through
its scenes is a logo (`overlays/`). The clips of a film that has either are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.config import LooksSettings
from pipeline.core.progress import Progress
from pipeline.core.records import Bars, Clip, Looks
from pipeline.core.stage import Outcome, Resources, Stage, attempt_each
from pipeline.core.store import FilmFolder
from pipeline.stages.duplicates import frame_hash
from pipeline.stages.overlays.borders import bars_of
from pipeline.stages.overlays.film import FilmOverlays, FirstLook, SecondLook, often_enough, sampled_clips
from pipeline.stages.overlays.text import MODEL
from pipeline.stages.picture_quality import measure_quality
from pipeline.stages.two_groups import second_look, small_gray
from pipeline.video.clip_files import read_clip_gray, read_clip_in_part
from pipeline.video.containers import Picture

DARK_LUMA = 24
STILL_LUMA = 3.5
STILL_WINDOW = 3
"""A step is still if the mean luma changes by less than this in every window of 3x3 pixels of the small picture. We
measured clips of 720x480 at crf 17 and 23. Coding changes held drawings by at most 2.0, and by 3.0 with film grain of
sigma 5. A soft background that pans by half a pixel changes by 3.9 or more. A mouth of 7x4 pixels that opens by two
pixels changes by 4.8. The windows overlap, since motion on the border of two cells might change neither enough."""

BLACK_LUMA = 24
"""Luma below which bars are black."""


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
        detector = f"rapidocr {version('rapidocr')} {MODEL}" if self.settings.text else None
        return {"looks": self.settings.ingredients(), "text detector": detector}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Measure every clip of the film.

        Raises:
            RecordError: more than `failed_limit` of the clips cannot be read.
        """

        clips = folder.read("clips", Clip)
        sampled = sampled_clips(clips)
        attempt = partial(attempt_each, threads=self.threads, failed_limit=self.failed_limit, progress=progress)

        def look(clip: Clip) -> tuple[Clip, Looks, FirstLook]:
            choose = partial(spread, self.settings.text_frames) if self.settings.text else None
            frames_THW, searched_NHWC = _read(folder.clip_path(clip.clip_id), choose)
            looks = measure_looks(clip.clip_id, clip.fps, frames_THW)
            return clip, looks, FirstLook.at(frames_THW, searched_NHWC, is_sample=clip.clip_id in sampled)

        seen, failures = attempt(clips, look)
        film = FilmOverlays.of([first for _, _, first in seen], (clips[0].width, clips[0].height) if clips else (0, 0))

        def look_again(one: tuple[Clip, Looks, FirstLook]) -> tuple[Clip, Looks, FirstLook, SecondLook]:
            choose = partial(often_enough, one[0].fps) if film.subtitles else None
            frames_THW, searched_NHWC = _read(folder.clip_path(one[0].clip_id), choose)
            return *one, film.look_again(frames_THW, () if searched_NHWC is None else searched_NHWC)

        again: list[SecondLook] = []
        if film.is_found:
            twice, more = attempt(seen, look_again)
            seen, again, failures = [one[:3] for one in twice], [one[3] for one in twice], (*failures, *more)
        facts = film.facts([first for _, _, first in seen], again)
        rows = [looks.model_copy(update=found.as_fields()) for (_, looks, _), found in zip(seen, facts, strict=True)]
        return Outcome(tables={"looks": rows}, failures=failures)


def _read(path: Path, choose: Callable[[int], Sequence[int]] | None) -> tuple[Picture, Picture | None]:
    """Return all frames of a clip in gray, and the chosen ones in colour.

    The text detector makes more mistakes on gray pictures. For all else, gray is enough and cheaper.
    """
    return (read_clip_gray(path), None) if choose is None else read_clip_in_part(path, choose)


def measure_looks(clip_id: str, fps: Fraction, frames_THW: NDArray[np.uint8]) -> Looks:
    """Measure one clip from the full-range luma of its frames, without the overlays of its film."""
    small_THW = small_gray(frames_THW)
    return Looks(
        clip_id=clip_id,
        light=float(small_THW.mean()),
        contrast=float(small_THW.std(axis=(1, 2)).mean()),
        dark_share=float((small_THW < DARK_LUMA).mean()),
        still_share=still_share(small_THW),
        text_share=None,
        text_lines=None,
        hashes=tuple(frame_hash(small_HW) for small_HW in small_THW),
        two_groups=second_look(small_THW, fps),
        **vars(measure_quality(frames_THW)),
        bars=Bars(**bars_of(frames_THW, BLACK_LUMA)._asdict()),
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


def spread(count: int, length: int) -> list[int]:
    """Return the indices of at most `count` of `length` frames, evenly spread."""
    return sorted({(2 * index + 1) * length // (2 * count) for index in range(count)})
