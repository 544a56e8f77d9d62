"""Looks of a film's clips: light, contrast, stillness, text, logos, quality, and a hash of every frame.

The stage `looks` only states facts, and `selection` turns them into verdicts.

Text and logos are matters of the whole film: lines that return at one height are its subtitles, and what stays through
its scenes is a logo (`overlays/`). The clips of a film that has either are looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar

from pipeline.core.config import LooksSettings
from pipeline.core.measurements import Looks
from pipeline.core.progress import Progress
from pipeline.core.records import Clip
from pipeline.core.stage import Outcome, Resources, Stage, attempt_each
from pipeline.core.store import FilmFolder
from pipeline.stages.overlays import MODEL


@dataclass(frozen=True)
class MeasureLooks(Stage):
    """Stage `looks`: table `looks`."""

    name: ClassVar[str] = "looks"
    version: ClassVar[int] = 9
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
        from pipeline.stages.clip_looks import measure_looks, read_looked_at  # `status` needs the ingredients alone
        from pipeline.stages.overlays.film import FilmOverlays, FirstLook, SecondLook, often_enough, sampled_clips

        clips = folder.read("clips", Clip)
        sampled = sampled_clips(clips)
        attempt = partial(attempt_each, threads=self.threads, failed_limit=self.failed_limit, progress=progress)

        def look(clip: Clip) -> tuple[Clip, Looks, FirstLook]:
            choose = partial(spread, self.settings.text_frames) if self.settings.text else None
            frames_THW, searched_NHWC = read_looked_at(folder.clip_path(clip.clip_id), choose)
            looks = measure_looks(clip.clip_id, clip.fps, frames_THW)
            return clip, looks, FirstLook.at(frames_THW, searched_NHWC, is_sample=clip.clip_id in sampled)

        seen, failures = attempt(clips, look)
        film = FilmOverlays.of([first for _, _, first in seen], (clips[0].width, clips[0].height) if clips else (0, 0))

        def look_again(one: tuple[Clip, Looks, FirstLook]) -> tuple[Clip, Looks, FirstLook, SecondLook]:
            choose = partial(often_enough, one[0].fps) if film.subtitles else None
            frames_THW, searched_NHWC = read_looked_at(folder.clip_path(one[0].clip_id), choose)
            return *one, film.look_again(frames_THW, () if searched_NHWC is None else searched_NHWC)

        again: list[SecondLook] = []
        if film.is_found:
            twice, more = attempt(seen, look_again)
            seen, again, failures = [one[:3] for one in twice], [one[3] for one in twice], (*failures, *more)
        facts = film.facts([first for _, _, first in seen], again)
        rows = [looks.model_copy(update=vars(found)) for (_, looks, _), found in zip(seen, facts, strict=True)]
        return Outcome(tables={"looks": rows}, failures=failures)


def spread(count: int, length: int) -> list[int]:
    """Return the indices of at most `count` of `length` frames, evenly spread."""
    return sorted({(2 * index + 1) * length // (2 * count) for index in range(count)})
