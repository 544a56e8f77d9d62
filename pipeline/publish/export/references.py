"""Pictures of characters in an export: a reference for each clip, from another scene, and stills of each character.

    portraits = find_portraits(dataset, seen, (720, 480))
    portraits.reference_for(seen[0])        the character of the clip in another scene; None if there is none
    portraits.stills(most=20)               pictures of each character, sharpest first, by name and look

A figure's name is the one of the cast page. Without one, the only figure of a clip with one character has its name.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from pipeline.captions.cast import name_fault
from pipeline.core.store import Dataset
from pipeline.publish.seen_clips import SeenClip
from pipeline.reviews.casting.characters import sharpness
from pipeline.reviews.casting.clusters import clusters
from pipeline.reviews.casting.figures import Figure, Figures, cut_out, read_figures
from pipeline.reviews.casting.names import CAST_FILE, read_cast_file
from pipeline.video.containers import Picture

REFERENCES, STILLS = "references", "stills"
"""Folders of an export."""
_SEARCHED = 192
"""Most figures of a character that are cut out and compared."""
_AMONG = 16
"""Sharpest pictures from other scenes, from which the references of a character are drawn."""
_GROUND = 224
_QUALITY = 95


@dataclass(frozen=True)
class Portrait:
    """Picture of one character alone."""

    figure: Figure
    content: bytes
    """JPEG file of the picture."""
    widened: bytes
    """JPEG file with gray at two sides, in the shape of a clip, because trainers crop to it."""
    sharpness: float
    look: int
    """Number of the character's look, such as an outfit, from 1; the most frequent first."""


@dataclass(frozen=True)
class Portraits:
    """Pictures of characters by name, sharpest first."""

    by_name: Mapping[str, Sequence[Portrait]]
    on_screen: Mapping[str, Sequence[str]]
    """Names of the figures on a clip, by clip id, the most frequent first."""

    def reference_for(self, seen: SeenClip) -> Portrait | None:
        """Return a picture of a character of a clip, the actor if possible, from another scene; None without one."""
        answer = seen.answer
        names = self.on_screen.get(seen.clip.clip_id) or (answer and answer.characters) or ()
        actor_first = sorted(names, key=lambda name: not answer or name != answer.actor)
        scene = (seen.clip.film_id, seen.clip.scene)
        for name in actor_first:
            others = [one for one in self.by_name.get(name, ()) if _scene_of(one.figure) != scene][:_AMONG]
            if others:
                return others[zlib.crc32(seen.clip.clip_id.encode()) % len(others)]
        return None

    def stills(self, most: int) -> Iterator[tuple[str, Portrait, int]]:
        """Yield name, picture and number from 1 of the sharpest pictures, at most so many of a look, one a clip."""
        for name, portraits in self.by_name.items():
            taken: set[tuple[int, str]] = set()
            counts = Counter[int]()
            for one in portraits:
                if counts[one.look] < most and (one.look, one.figure.clip.clip_id) not in taken:
                    taken.add((one.look, one.figure.clip.clip_id))
                    counts[one.look] += 1
                    yield name, one, counts[one.look]


def find_portraits(dataset: Dataset, seen: Sequence[SeenClip], shape: tuple[int, int]) -> Portraits:
    """Find the pictures of characters on some clips.

    Args:
        shape: width and height of the clips of the export.

    Raises:
        UserError: no clip has vectors; the message names the setting.
        RecordError: a clip is missing or damaged.
    """
    figures = read_figures(dataset)
    named = _named(dataset, figures, {one.clip.clip_id: one for one in seen})
    on_screen: dict[str, Counter[str]] = defaultdict(Counter)
    for name, places in named.items():
        for place in places:
            on_screen[figures.items[place].clip.clip_id][name] += 1
    least = figures.usual_likeness()
    return Portraits(
        {name: _portraits(dataset, figures, places, least, shape) for name, places in sorted(named.items())},
        {clip_id: [name for name, _ in counts.most_common()] for clip_id, counts in on_screen.items()},
    )


def _named(dataset: Dataset, figures: Figures, seen: Mapping[str, SeenClip]) -> dict[str, list[int]]:
    """Places of the figures of each character on the chosen clips."""
    on_picture = Counter((figure.clip.clip_id, figure.frame) for figure in figures.items)
    standings = read_cast_file(dataset.root / CAST_FILE).standings(figures.items)
    found: dict[str, list[int]] = defaultdict(list)
    for place, (figure, standing) in enumerate(zip(figures.items, standings, strict=True)):
        clip = seen.get(figure.clip.clip_id)
        said = (clip.answer.characters if clip and clip.answer else None) or ()
        if standing is None or standing.does == "group":
            names = said if on_picture[figure.clip.clip_id, figure.frame] == 1 else ()
        else:
            names = standing.names
        if clip and len(names) == 1 and not name_fault(names[0]):  # a name becomes a folder
            found[names[0]].append(place)
    return found


def _portraits(
    dataset: Dataset, figures: Figures, places: Sequence[int], least: float, shape: tuple[int, int]
) -> list[Portrait]:
    label_N = clusters(figures.vectors_ND[places], least)
    looks = {label: number for number, (label, _) in enumerate(Counter(label_N.tolist()).most_common(), start=1)}
    step = max(1.0, len(places) / _SEARCHED)
    chosen = [int(number * step) for number in range(min(len(places), _SEARCHED))]
    items = [figures.items[places[number]] for number in chosen]
    cut = []
    for place, picture_HWC in cut_out(dataset, items):
        look = looks[int(label_N[chosen[place]])]
        files = _jpeg(picture_HWC), _jpeg(_widened(picture_HWC, *shape))
        cut.append(Portrait(items[place], *files, sharpness(picture_HWC), look))
    return sorted(cut, key=lambda one: -one.sharpness)


def _scene_of(figure: Figure) -> tuple[str, int]:
    return figure.clip.film_id, figure.clip.scene


def _widened(picture_HWC: Picture, width: int, height: int) -> Picture:
    high, wide = picture_HWC.shape[:2]
    more = max(0, round(high * width / height) - wide), max(0, round(wide * height / width) - high)
    sides = (more[1] // 2, more[1] - more[1] // 2, more[0] // 2, more[0] - more[0] // 2)
    wide_HWC = cv2.copyMakeBorder(picture_HWC, *sides, cv2.BORDER_CONSTANT, value=(_GROUND,) * 3)
    return np.asarray(wide_HWC, np.uint8)


def _jpeg(picture_HWC: Picture) -> bytes:
    return cv2.imencode(".jpg", picture_HWC, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()
