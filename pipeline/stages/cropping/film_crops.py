"""Search for the crops of a film, on at most 60 of its keyframes.

Most films have one crop. A stretch with larger borders, such as a letterboxed opening, has its own. If parts of a film
disagree otherwise, the smaller borders count, so that no picture is lost, and a warning names those parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core.config import CropSettings
from pipeline.core.progress import Progress
from pipeline.core.records import Crop, Film
from pipeline.stages.cropping.border_changes import times_of
from pipeline.stages.cropping.border_votes import Ballot, Vote
from pipeline.stages.cropping.overlay_free import Avoided, Part, avoid_overlays, small_picture
from pipeline.stages.overlays.borders import Borders
from pipeline.video.containers import Picture
from pipeline.video.film_reader import keyframes


@dataclass(frozen=True)
class CropJob:
    """Input of the child process."""

    film: Film
    settings: CropSettings
    avoid_overlays: bool = False


def find_crops(job: CropJob, progress: Progress) -> list[Crop]:
    """Find the film's crops in order of time, in this process; the first holds the warnings.

    Raises:
        RecordError: the film cannot be opened.
    """
    film, settings = job.film, job.settings
    votes, pictures, seen = _votes(job, progress)
    if not votes:
        return [whole_picture(film, f"borders not looked for: none of {seen} keyframes is bright enough to judge by")]
    ballot = Ballot.of(votes, settings.black_luma)
    common = ballot.borders()
    stretches = ballot.stretches(common)
    # 1. From the end of a stretch to the start of the next one, the film has its common crop.
    whole = _inside(film, common, len(votes), 0.0)
    crops = {0.0: whole}
    for stretch in stretches:
        start, end = times_of(stretch, ballot, film, settings)
        crops[start] = _inside(film, stretch.borders, stretch.last - stretch.first + 1, start)
        if end is not None:
            crops[end] = _inside(film, common, len(votes), end)
    # 2. Overlays stand at one place of the film's picture, so all crops lose the same part of it.
    avoided = avoid_overlays([_cut_out(picture, film, whole) for picture in pictures]) if pictures else Avoided(Part())
    # 3. The first crop stands for the film: it has the notes and warnings.
    first, *others = (avoided.part.of(crops[start], whole) for start in sorted(crops))
    warnings = (*ballot.warnings(common, stretches), *avoided.warnings)
    return [first.model_copy(update={"notes": avoided.notes, "warnings": warnings}), *others]


def whole_picture(film: Film, *warnings: str) -> Crop:
    """Return the crop that keeps the whole picture."""
    width, height = film.upright_size
    return Crop(film_id=film.film_id, left=0, top=0, width=width, height=height, frames_used=0, warnings=warnings)


def _votes(job: CropJob, progress: Progress) -> tuple[list[Vote], list[Picture], int]:
    """Return the votes of the keyframes that are bright enough, their pictures if needed, and the number read."""
    film, settings = job.film, job.settings
    votes: list[Vote] = []
    pictures: list[Picture] = []
    seen = 0
    path = Path(film.source)
    for seconds, picture_HWC in keyframes(path, settings.keyframes, film.rotation_degrees, film.duration_seconds):
        seen += 1
        progress(seen, settings.keyframes)
        vote = Vote.of(seconds, picture_HWC, film, settings)
        if vote is not None:
            votes.append(vote)
            if job.avoid_overlays:
                pictures.append(small_picture(picture_HWC))
    return votes, pictures, seen


def _cut_out(picture_HWC: Picture, film: Film, crop: Crop) -> Picture:
    """Return the part of a small picture inside a crop of the film."""
    scale = len(picture_HWC) / film.upright_size[1]
    top, bottom, left, right = (
        round(side * scale) for side in (crop.top, crop.top + crop.height, crop.left, crop.left + crop.width)
    )
    return np.ascontiguousarray(picture_HWC[top:bottom, left:right])


def _inside(film: Film, borders: Borders, frames_used: int, start_seconds: float) -> Crop:
    """Return the crop inside borders, each rounded down to an even number of lines: colour is stored at half size."""
    width, height = film.upright_size
    left, top, right, bottom = (side // 2 * 2 for side in borders)
    return Crop(
        film_id=film.film_id,
        left=left,
        top=top,
        width=width - left - right,
        height=height - top - bottom,
        frames_used=frames_used,
        start_seconds=start_seconds,
    )
