"""Overlays of a film: its logos and subtitles, found from all its clips, and what each clip shows of them.

overlays = FilmOverlays.of(first_looks)
facts = overlays.facts(first_looks, [overlays.look_again(...) for each clip] if overlays.is_found else None, size)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.core.measurements import Box
from pipeline.core.records import Clip
from pipeline.stages.overlays.logos import MOST_SCENES, Logo, find_logos, gradients, shown_in, small_sample
from pipeline.stages.overlays.text import (
    Line,
    SubtitlePlace,
    boxes_of,
    covered_share,
    find_lines,
    overlap,
)

AGAIN_SECONDS = Fraction(3, 5)
"""Longest time between two pictures that are searched for subtitles, which stay longer."""
SAME = 0.5
"""Share of a line from which it is part of a logo."""


@dataclass(frozen=True)
class FirstLook:
    """First look at a clip, by itself.

    Attributes:
        lines: what may be text, on each searched picture; None: not searched.
        sample_HW: small picture of the clip; None: other clips show the film's scenes.
    """

    lines: Sequence[Sequence[Line]] | None
    sample_HW: NDArray[np.uint8] | None

    @classmethod
    def at(
        cls, frames_THW: NDArray[np.uint8], searched_NHWC: NDArray[np.uint8] | None, *, is_sample: bool
    ) -> FirstLook:
        """Look at a clip: all its frames in gray, and the pictures that are searched for text in colour."""
        lines = None if searched_NHWC is None else [find_lines(picture_HWC) for picture_HWC in searched_NHWC]
        return cls(lines, small_sample(frames_THW) if is_sample else None)


@dataclass(frozen=True)
class SecondLook:
    """Part of each logo that a clip shows, and the lines in the place of subtitles on each searched picture."""

    logo_shares: Sequence[float]
    lines: Sequence[Sequence[Line]]


@dataclass(frozen=True)
class OverlayFacts:
    """Overlays of a clip, as in `Looks`."""

    text_share: float | None
    text_lines: int | None
    text_boxes: tuple[Box, ...] | None
    subtitle_lines: int | None
    logo_boxes: tuple[Box, ...] | None


@dataclass(frozen=True)
class FilmOverlays:
    """Overlays of a whole film.

    Attributes:
        logos: those that stay through its scenes; None: too few scenes to tell.
        subtitles: place where lines return; None: nowhere.
        size: width and height of the clips.
    """

    logos: Sequence[Logo] | None
    subtitles: SubtitlePlace | None
    size: tuple[int, int]

    @classmethod
    def of(cls, looks: Sequence[FirstLook], size: tuple[int, int]) -> FilmOverlays:
        """Find the overlays of a film from the first looks at its clips."""
        logos = find_logos([look.sample_HW for look in looks if look.sample_HW is not None])
        boxes = [logo.box_at(*size) for logo in logos or ()]
        return cls(logos, SubtitlePlace.of([_outside(look.lines or (), boxes) for look in looks]), size)

    @property
    def is_found(self) -> bool:
        """Return True if the clips have to be looked at again."""
        return bool(self.logos or self.subtitles)

    def look_again(self, frames_THW: NDArray[np.uint8], searched_NHWC: Iterable[NDArray[np.uint8]]) -> SecondLook:
        """Look at a clip again: all its frames in gray, and the pictures of `often_enough` if there are subtitles."""
        sample_HW = small_sample(frames_THW)
        shares = [logo.share_of(gradients(sample_HW, logo.inside)) for logo in self.logos or ()]
        lines = [self.subtitles.find(picture_HWC) for picture_HWC in searched_NHWC] if self.subtitles else []
        return SecondLook(shares, lines)

    def facts(self, looks: Sequence[FirstLook], again: Sequence[SecondLook]) -> list[OverlayFacts]:
        """Return the overlays of each clip, in order of time; `again` is empty unless something `is_found`."""
        if not self.is_found:
            return [self._of_clip(look, (), ()) for look in looks]
        logos = self.logos or ()
        shown_CL = shown_in(np.array([look.logo_shares for look in again]).reshape(len(again), len(logos)))
        facts = []
        for first, second, shown_L in zip(looks, again, shown_CL, strict=True):
            boxes = [logo.box_at(*self.size) for logo, is_shown in zip(logos, shown_L, strict=True) if is_shown]
            facts.append(self._of_clip(first, _outside(second.lines, boxes), boxes))
        return facts

    def _of_clip(self, look: FirstLook, subtitles: Sequence[Sequence[Line]], logo_boxes: Sequence[Box]) -> OverlayFacts:
        logos = None if self.logos is None else tuple(logo_boxes)
        if look.lines is None:
            return OverlayFacts(None, None, None, None, logos)
        sure = [[line for line in lines if line.is_sure] for lines in _outside(look.lines, logo_boxes)]
        every = [line for lines in (*sure, *subtitles) for line in lines]
        return OverlayFacts(
            text_share=max((covered_share(lines, *self.size) for lines in sure), default=0.0),
            text_lines=max(map(len, sure), default=0),
            text_boxes=boxes_of(every, *self.size),
            subtitle_lines=max(map(len, subtitles), default=0),
            logo_boxes=logos,
        )


def sampled_clips(clips: Sequence[Clip]) -> set[str]:
    """Return the ids of the clips whose small pictures stand for the film: the first of each scene, evenly spread."""
    first: dict[int, str] = {}
    for clip in clips:
        first.setdefault(clip.scene, clip.clip_id)
    ids = list(first.values())
    count = min(len(ids), MOST_SCENES)
    return {ids[number * len(ids) // count] for number in range(count)}


def often_enough(fps: Fraction, length: int) -> list[int]:
    """Return the indices of frames from the first to the last of a clip, at most `AGAIN_SECONDS` apart."""
    steps = max(1, -int(-(length - 1) // (fps * AGAIN_SECONDS)))
    return sorted({number * (length - 1) // steps for number in range(steps + 1)})


def _outside(lines: Iterable[Sequence[Line]], boxes: Sequence[Box]) -> list[list[Line]]:
    """Return the lines on each picture that are not part of a logo."""
    corners = [(box.left, box.top, box.right, box.bottom) for box in boxes]
    return [[line for line in of_one if all(overlap(line.box, box) < SAME for box in corners)] for of_one in lines]
