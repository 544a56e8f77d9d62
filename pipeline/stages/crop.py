"""Search for the black borders of a film, which give one crop for the whole film, on at most 60 of its keyframes.

A row or column is border if it is black on every keyframe bright enough to vote (one exception is allowed), and if the
black area ends in a sharp line. Bars do; the dark edges of a night scene or a vignette fade out. If parts of a film
disagree, the smaller borders count, so that no picture is lost, and a warning names those parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.child_process import call_in_child
from pipeline.core.config import CropSettings
from pipeline.core.progress import Progress
from pipeline.core.records import Crop, Film
from pipeline.core.stage import Outcome, Resources, Stage
from pipeline.core.store import FilmFolder
from pipeline.stages.overlays.borders import Borders, borders_of, column_levels, row_levels
from pipeline.video.colour import is_mapped, mapping_of
from pipeline.video.film_reader import keyframes
from pipeline.video.scaling import gray_codes

FORGIVING = 20
"""Least number of votes with which one keyframe may be bright in a border."""
CLEARLY = 0.02
"""Least difference of two borders, as a share of the side, to count as different."""
FEW = 4
"""Number of votes below which a title card or a logo on black may pass for the picture inside borders."""
PART = 0.15
"""Share of the votes above which a part of the film is worth a warning."""


@dataclass(frozen=True)
class Votes:
    """Levels of the rows and columns of the voting keyframes, 0..255."""

    rows_FH: NDArray[np.float32]
    columns_FW: NDArray[np.float32]
    positions: NDArray[np.float64]
    """Approximate position of each keyframe in the film, 0..1."""


@dataclass(frozen=True)
class CropJob:
    """Input of the child process."""

    film: Film
    settings: CropSettings


@dataclass(frozen=True)
class FindCrop(Stage):
    """Stage `crop`: the part of the picture without black borders."""

    name: ClassVar[str] = "crop"
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ()

    settings: CropSettings

    @property
    def resources(self) -> Resources:
        """The film itself."""
        return Resources(reads_film=True)

    def ingredients(self) -> dict[str, Any]:
        """The settings."""
        return {"settings": self.settings.ingredients()}

    def film_ingredients(self, film: Film) -> dict[str, Any]:
        """The colour mapping, for films whose dark levels it changes."""
        return mapping_of(film) if is_mapped(film.transfer) else {}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Write the table `crop`: one row. The keyframes are decoded in a child process.

        Raises:
            RecordError: the film cannot be opened, or crashes the decoder.
        """
        if not self.settings.enabled:
            return Outcome(tables={"crop": [whole_picture(folder.film)]})
        crop = call_in_child(find_crop, CropJob(folder.film, self.settings), folder.film_id, progress)
        return Outcome(tables={"crop": [crop]})


def find_crop(job: CropJob, progress: Progress) -> Crop:
    """Find the film's crop, in this process. Raises RecordError if the film cannot be opened."""
    film, settings = job.film, job.settings
    votes, seen = _votes(job, progress)
    if not len(votes.rows_FH):
        return whole_picture(film, f"borders not looked for: none of {seen} keyframes is bright enough to judge by")
    borders = find_borders(votes, settings.black_luma)
    left, top = _even(borders.left), _even(borders.top)
    width, height = film.upright_size
    return Crop(
        film_id=film.film_id,
        left=left,
        top=top,
        width=width - left - _even(borders.right),
        height=height - top - _even(borders.bottom),
        frames_used=len(votes.rows_FH),
        warnings=tuple(disagreements(votes, borders, settings.black_luma, film.duration_seconds)),
    )


def _votes(job: CropJob, progress: Progress) -> tuple[Votes, int]:
    """Return the levels of the keyframes that are bright enough, and the number of keyframes read."""
    film, settings = job.film, job.settings
    width, height = film.upright_size
    rows, columns, places = [], [], []
    sdr_codes = gray_codes(film.transfer)
    seen = 0
    for picture_HWC in keyframes(Path(film.source), settings.keyframes, film.rotation_degrees, film.duration_seconds):
        seen += 1
        progress(seen, settings.keyframes)
        # HDR codes dark levels differently from SDR; borders are gray, so a table of gray codes is enough
        luma_HW = np.asarray(cv2.LUT(cv2.cvtColor(picture_HWC, cv2.COLOR_BGR2GRAY), sdr_codes), np.uint8)
        if luma_HW.shape != (height, width) or luma_HW.mean() < settings.dark_frame_luma:
            continue
        rows.append(row_levels(luma_HW))
        columns.append(column_levels(luma_HW))
        places.append(seen - 0.5)
    votes = Votes(
        np.array(rows, np.float32).reshape(-1, height),
        np.array(columns, np.float32).reshape(-1, width),
        np.array(places) / max(1, seen),
    )
    return votes, seen


def whole_picture(film: Film, *warnings: str) -> Crop:
    """Return the crop that keeps the whole picture."""
    width, height = film.upright_size
    return Crop(film_id=film.film_id, left=0, top=0, width=width, height=height, frames_used=0, warnings=warnings)


def find_borders(votes: Votes, black_luma: float) -> Borders:
    """Return the borders common to all votes."""
    forgiven = 1 if len(votes.rows_FH) >= FORGIVING else 0
    rows_H, columns_W = (np.sort(levels, axis=0)[-1 - forgiven] for levels in (votes.rows_FH, votes.columns_FW))
    return borders_of(rows_H, columns_W, black_luma)


def disagreements(votes: Votes, borders: Borders, black_luma: float, film_seconds: float) -> list[str]:
    """Return warnings: few votes, picture outside the crop, a part with larger borders, a small area left."""
    levels = zip(votes.rows_FH, votes.columns_FW, strict=True)
    own = np.array([borders_of(rows_H, columns_W, black_luma) for rows_H, columns_W in levels])
    sizes = np.array([votes.columns_FW.shape[1], votes.rows_FH.shape[1]] * 2)
    least = np.maximum(4, CLEARLY * sizes)
    decided = np.array(borders)
    texts = []
    if len(own) < FEW and any(_even(side) for side in borders):
        texts.append(
            f"black borders found on only {len(own)} keyframe(s): look at its clips; [crop] enabled = false keeps all"
        )
    outside = (own < decided - least).any(axis=1)
    if outside.any():
        places = _places(votes.positions[outside], film_seconds)
        texts.append(f"{outside.sum()} of {len(own)} keyframes show picture outside the crop, {places}")
    larger = np.asarray((own > decided + least).any(axis=1))
    part = _largest_part(own, larger, least)
    if part.sum() > PART * len(own):
        common = Borders(*(int(side) for side in np.median(own[part], axis=0)))
        places = _places(votes.positions[part], film_seconds)
        texts.append(
            f"{part.sum()} of {len(own)} keyframes have larger black borders (left {common.left}, top {common.top}, "
            f"right {common.right}, bottom {common.bottom} px), {places}; clips from there will show them"
        )
    kept = np.prod(1 - (decided[:2] + decided[2:]) / sizes[:2])
    if kept < 0.5:
        texts.append(f"only {kept:.0%} of the picture lies inside the black borders")
    return texts


def _largest_part(own_F4: NDArray[np.int64], larger_F: NDArray[np.bool_], least_4: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the largest group of keyframes with equal larger borders, symmetric as bars are."""
    even = (np.abs(own_F4[:, :2] - own_F4[:, 2:]) <= least_4[:2]).all(axis=1)
    groups = [
        larger_F & even & (np.abs(own_F4 - own) <= 2).all(axis=1) for own in np.unique(own_F4[larger_F & even], axis=0)
    ]
    return max(groups, key=lambda group: int(group.sum()), default=np.zeros(len(own_F4), bool))


def _places(positions: NDArray[np.float64], film_seconds: float) -> str:
    first, last = (timedelta(seconds=round(float(place) * film_seconds)) for place in (positions[0], positions[-1]))
    return f"near {first}" if first == last else f"between about {first} and {last}"


def _even(border: int) -> int:
    """Round a border down to an even number of lines, since colour is stored at half size."""
    return border // 2 * 2
