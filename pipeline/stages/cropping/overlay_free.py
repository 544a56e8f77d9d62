"""Part of a film's picture without its logos and subtitles, found on the keyframes that vote on its borders.

An overlay is cut off with all that lies between it and one side of the picture, so that the largest picture is left. If
avoiding everything costs too much, the subtitles or the logos alone are avoided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import cv2
import numpy as np

from pipeline.core.measurements import Box
from pipeline.core.records import Crop
from pipeline.stages.overlays.film import FilmOverlays, FirstLook
from pipeline.video.containers import Picture

LINES = 480
"""Height of the pictures in which overlays are searched, as of clips by default."""
MOST_COST = 0.2
"""Share of the picture from which an overlay is not avoided."""
MARGIN = 0.02
"""Distance kept from an overlay, in picture heights and widths: outlines and shadows reach beyond the boxes."""
TALL = 2
"""Multiple of the median height from which a line is no subtitle."""
MOST_LOGOS = 4
"""Number of logos above which the film is left alone."""


class Part(NamedTuple):
    """Part of a picture, as shares of its width and height."""

    left: float = 0.0
    top: float = 0.0
    right: float = 1.0
    bottom: float = 1.0

    @property
    def cost(self) -> float:
        """Return the share of the picture that lies outside."""
        return 1 - max(0.0, self.right - self.left) * max(0.0, self.bottom - self.top)

    def without(self, other: Part) -> tuple[Part, ...]:
        """Return the four parts that are left if one side is moved past another part."""
        return (
            self._replace(left=max(self.left, other.right)),
            self._replace(top=max(self.top, other.bottom)),
            self._replace(right=min(self.right, other.left)),
            self._replace(bottom=min(self.bottom, other.top)),
        )

    def of(self, crop: Crop, whole: Crop) -> Crop:
        """Return what a crop has of this part of the whole; its sides stay even: colour is stored at half size."""
        left, right = (whole.left + round(share * whole.width / 2) * 2 for share in (self.left, self.right))
        top, bottom = (whole.top + round(share * whole.height / 2) * 2 for share in (self.top, self.bottom))
        left, top = max(left, crop.left), max(top, crop.top)
        right, bottom = min(right, crop.left + crop.width), min(bottom, crop.top + crop.height)
        return crop.model_copy(update={"left": left, "top": top, "width": right - left, "height": bottom - top})


@dataclass(frozen=True)
class Avoided:
    """The part without overlays, and sentences for the report: what was cut off, and what was not."""

    part: Part
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def small_picture(picture_HWC: Picture) -> Picture:
    """Return a picture at the height in which overlays are searched."""
    height, width = picture_HWC.shape[:2]
    size = round(width * LINES / height), LINES
    return np.asarray(cv2.resize(picture_HWC, size, interpolation=cv2.INTER_AREA), np.uint8)


def avoid_overlays(pictures: Sequence[Picture]) -> Avoided:
    """Find the overlays of a film on pictures of one size, inside its borders, and the part without them."""
    found, warnings = _overlays_of(pictures)
    avoided = choose_part(found)
    return replace(avoided, warnings=(*warnings, *avoided.warnings))


def choose_part(found: Mapping[str, Sequence[Part]]) -> Avoided:
    """Choose the part of the picture without the overlays found, by kind; the first kind matters most."""
    names = list(found)
    for chosen in [names, *([name] for name in names if len(names) > 1)]:
        part = largest_without([box for name in chosen for box in found[name]])
        if chosen and part.cost < MOST_COST:
            left_in = [name for name in names if name not in chosen]
            notes = (f"{' and '.join(chosen)} cut off, with {part.cost:.0%} of the picture",)
            return Avoided(part, notes, tuple(_too_much(name, found[name]) for name in left_in))
    return Avoided(Part(), (), tuple(_too_much(name, boxes) for name, boxes in found.items()))


def _overlays_of(pictures: Sequence[Picture]) -> tuple[dict[str, list[Part]], list[str]]:
    """Return the boxes of each kind of overlay, and warnings about what was not looked for."""
    height, width = pictures[0].shape[:2]
    grays = (cv2.cvtColor(picture_HWC, cv2.COLOR_BGR2GRAY) for picture_HWC in pictures)
    looks = [
        FirstLook.at(np.asarray(gray_HW, np.uint8)[None], picture_HWC[None], is_sample=True)
        for gray_HW, picture_HWC in zip(grays, pictures, strict=True)
    ]
    overlays = FilmOverlays.of(looks, (width, height))
    found: dict[str, list[Part]] = {}
    if overlays.subtitles:
        lines = [line.box for picture_HWC in pictures for line in overlays.subtitles.find(picture_HWC)]
        heights = [bottom - top for _, top, _, bottom in lines]
        tops = [top for _, top, _, bottom in lines if bottom - top <= TALL * np.median(heights)]
        found["subtitles"] = [Part(top=min(tops) / height - MARGIN)] if tops else []
    if overlays.logos:
        found["logos"] = [_around(logo.box_at(width, height), width, height) for logo in overlays.logos]
    warnings = ["logos not avoided: too few different keyframes to find them"] if overlays.logos is None else []
    return {name: boxes for name, boxes in found.items() if boxes}, warnings


def _around(box: Box, width: int, height: int) -> Part:
    """Return a box as a part of the picture, with a margin."""
    left, right = box.left / width - MARGIN, box.right / width + MARGIN
    return Part(left, box.top / height - MARGIN, right, box.bottom / height + MARGIN)


def largest_without(boxes: Sequence[Part]) -> Part:
    """Return the largest part of the picture without any of the boxes; nothing if there are too many."""
    if len(boxes) > MOST_LOGOS + 1:
        return Part(right=0.0)
    parts = {Part()}
    for box in boxes:
        parts = {left for part in parts for left in part.without(box)}
    return min(parts, key=lambda part: part.cost)


def _too_much(name: str, boxes: Sequence[Part]) -> str:
    return f"{name} stay in the picture: avoiding them costs {largest_without(boxes).cost:.0%} of it"
