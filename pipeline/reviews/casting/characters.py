"""Consequences of names: characters of clips in the review file, and pictures in the cast folder.

    written = write_characters(dataset, path, casting)
    pictures = write_references(dataset, folder, casting)

A clip is written when all figures of at least half of its pictures with figures are named or discarded. The lines bear
the reviewer `cast: NAME`, so a review by a person wins over them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from pipeline.captions.cast import LEAST_SIDE_PIXELS, MOST_PICTURES, TINY_SIDE_PIXELS
from pipeline.core.atomic import replacing
from pipeline.core.records import Clip
from pipeline.core.store import Dataset
from pipeline.reviews.applied import film_clips
from pipeline.reviews.casting.figures import Figures, cut_out
from pipeline.reviews.casting.names import Standing
from pipeline.reviews.casting.rows import Casting
from pipeline.reviews.decisions import BY_CAST, Decision, append_decisions, in_time, read_decisions
from pipeline.reviews.matching import match
from pipeline.video.containers import Picture

FIELD = "characters"
OURS = "figure-"
"""Start of the names of pictures that the cast page put into the cast folder."""
_OURS = re.compile(rf"{OURS}.+(-\d+){{5}}\.png")
_CANDIDATES = 48
"""Most figures of a character that are cut out to choose from."""
_SHARPNESS_SIDE = 128


@dataclass(frozen=True)
class WrittenCharacters:
    """Result of writing to the review file."""

    clips: int
    """Clips whose characters are known from names."""
    lines: int
    """Lines written: only clips that changed get one."""
    waiting: int
    """Clips with a name on them that wait for the names of other figures."""


def characters_of(
    figures: Figures, standings: Sequence[Standing | None]
) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """Return the characters of the clips that are known, by clip id, and the clips that wait for more names."""
    by_clip: dict[str, dict[int, list[Standing | None]]] = defaultdict(lambda: defaultdict(list))
    for figure, standing in zip(figures.items, standings, strict=True):
        is_decided = standing is not None and standing.does != "group"
        by_clip[figure.clip.clip_id][figure.frame].append(standing if is_decided else None)
    known, waiting = {}, set()
    for clip_id, pictures in by_clip.items():
        named = [one for each in pictures.values() for one in each if one and one.does == "name"]
        decided = sum(None not in each for each in pictures.values())
        if named and 2 * decided >= len(pictures):
            known[clip_id] = tuple(sorted({name for one in named for name in one.names}))
        elif named:
            waiting.add(clip_id)
    return known, waiting


def write_characters(dataset: Dataset, path: Path, casting: Casting) -> WrittenCharacters:
    """Append the characters of clips to the review file, and withdraw those that are not known any more.

    Raises:
        UserError: the file cannot be read or written.
    """
    cut = film_clips(dataset)
    clips = {clip.clip_id: (sha256, clip) for sha256, each in cut.items() for clip in each}
    known, waiting = characters_of(casting.figures, casting.standings())
    me = f"{BY_CAST}{casting.reviewer}"
    ours = [one for one in read_decisions(path).decisions if one.reviewer.startswith(BY_CAST) and one.field == FIELD]
    said = match(ours, cut).by_clip
    films = {figure.clip.film_id for figure in casting.figures.items}
    lines = []
    for clip_id, (sha256, clip) in clips.items():
        # the newest line of each person, of whom all share the names: the newest of all counts
        newest = {line.reviewer: line for line in in_time(said.get(clip_id, ()))}
        standing = in_time(line for line in newest.values() if not line.withdraws)
        if clip_id in known and not (standing and standing[-1].value == known[clip_id]):
            lines.append(_line(sha256, clip, me, in_time(newest.values())[-1:], {"value": known[clip_id]}))
        elif clip_id not in known and clip.film_id in films:
            lines += [_line(sha256, clip, one.reviewer, [one], {}) for one in standing]
    append_decisions(path, lines)
    return WrittenCharacters(len(known), len(lines), len(waiting))


def _line(sha256: str, clip: Clip, reviewer: str, before: Sequence[Decision], value: Mapping[str, object]) -> Decision:
    return Decision.model_validate(
        {
            # a clock that was set back must not make the newest line old
            "time": max([datetime.now(UTC), *(line.time for line in before)]),
            "reviewer": reviewer,
            "film_sha256": sha256,
            "start_seconds": clip.start_seconds,
            "end_seconds": clip.end_seconds,
            "field": FIELD,
            **value,
        }
    )


def write_references(dataset: Dataset, folder: Path, casting: Casting) -> int:
    """Write the sharpest and most different pictures of each named character to the cast folder; return their number.

    A character's folder with pictures of somebody else's is left alone; pictures that were written here are replaced.

    Raises:
        UserError: the folder cannot be written.
    """
    written = 0
    for name, places in named_alone(casting.standings()).items():
        home = folder / name
        there = [path for path in home.iterdir() if not path.name.startswith(".")] if home.is_dir() else []
        if any(not _OURS.fullmatch(path.name) or not path.is_file() for path in there):
            continue
        chosen = _chosen(dataset, casting.figures, places)
        for place, picture_HWC in chosen.items():
            figure = casting.figures.items[place]
            left, top, right, bottom = figure.pixels
            name_of = f"{OURS}{figure.clip.clip_id}-{figure.frame}-{left}-{top}-{right}-{bottom}.png"
            with replacing(home / name_of) as temporary:
                Image.fromarray(np.ascontiguousarray(picture_HWC[..., ::-1])).save(temporary, "PNG")
            there = [path for path in there if path.name != name_of]
            written += 1
        for path in there if chosen else ():
            path.unlink()
    return written


def named_alone(standings: Sequence[Standing | None]) -> dict[str, list[int]]:
    """Return the places of the figures with one name only, by this name, the names with the most figures first."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, standing in enumerate(standings):
        if standing and len(standing.names) == 1:
            found[standing.names[0]].append(place)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def sharpness(picture_HWC: Picture) -> float:
    """Return the variance of the Laplacian of a picture scaled to one size: comparable between sizes."""
    gray_HW = cv2.cvtColor(picture_HWC, cv2.COLOR_BGR2GRAY)
    scale = _SHARPNESS_SIDE / max(gray_HW.shape)
    return float(
        cv2.Laplacian(cv2.resize(gray_HW, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), cv2.CV_64F).var()
    )


def _chosen(dataset: Dataset, figures: Figures, places: Sequence[int]) -> dict[int, Picture]:
    """The pictures of a character to show: of the sharper half, each most unlike those before."""
    least = min(TINY_SIDE_PIXELS, max(LEAST_SIDE_PIXELS, *(_side(figures, place) for place in places)))
    large = [place for place in places if _side(figures, place) >= least]
    spread = [large[len(large) * number // _CANDIDATES] for number in range(min(_CANDIDATES, len(large)))]
    candidates = spread if len(large) > _CANDIDATES else large
    cut = cut_out(dataset, [figures.items[place] for place in candidates])
    pictures = {candidates[number]: picture_HWC for number, picture_HWC in cut}
    best = sorted(pictures, key=lambda place: -sharpness(pictures[place]))[: max(MOST_PICTURES, len(pictures) // 2)]
    chosen = best[:1]
    while best and len(chosen) < min(MOST_PICTURES, len(best)):
        alike_BC = figures.vectors_ND[best] @ figures.vectors_ND[chosen].T
        alike_BC[[best.index(place) for place in chosen]] = np.inf
        chosen.append(best[int(alike_BC.max(axis=1).argmin())])
    return {place: pictures[place] for place in chosen}


def _side(figures: Figures, place: int) -> int:
    left, top, right, bottom = figures.items[place].pixels
    return min(right - left, bottom - top)
