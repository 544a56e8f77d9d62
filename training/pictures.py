"""Comparison pictures of validation: reference clips beside generated clips, as a contact sheet and as a video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from pipeline.video.clip_files import write_clip

FILM = "clips.mp4"
_COLUMNS = 5
_CAPTION_HEIGHT = 14
_FPS = Fraction(8)
_CRF = 18

Frames = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Reference and generated version of a clip, each [T, H, W, 3], uint8 RGB."""

    caption: str
    truth_THWC: Frames
    """Clip as reconstructed by the autoencoder: the upper bound of the quality of `drawn_THWC`."""
    drawn_THWC: Frames


def save_comparisons(folder: Path, comparisons: Sequence[Comparison]) -> None:
    """Write `sheet.png` (five reference frames above five generated ones) and FILM (side by side)."""
    if not comparisons:
        return
    folder.mkdir(parents=True, exist_ok=True)
    _stacked([_sheet_of(each) for each in comparisons]).save(folder / "sheet.png")
    pairs = [np.concatenate([each.truth_THWC, each.drawn_THWC], axis=2) for each in comparisons]
    film_THWC = np.concatenate(pairs, axis=1)
    write_clip(folder / FILM, (frame[:, :, ::-1] for frame in film_THWC), _FPS, _CRF)


def _sheet_of(comparison: Comparison) -> Image.Image:
    frames = np.linspace(0, len(comparison.truth_THWC) - 1, _COLUMNS).round().astype(int)
    rows = [np.concatenate(list(clip[frames]), axis=1) for clip in (comparison.truth_THWC, comparison.drawn_THWC)]
    pictures_HWC = np.concatenate(rows, axis=0)
    sheet = Image.new("RGB", (pictures_HWC.shape[1], pictures_HWC.shape[0] + _CAPTION_HEIGHT), "white")
    sheet.paste(Image.fromarray(pictures_HWC), (0, _CAPTION_HEIGHT))
    ImageDraw.Draw(sheet).text((3, 1), comparison.caption, fill="black")
    return sheet


def _stacked(sheets: Sequence[Image.Image]) -> Image.Image:
    whole = Image.new("RGB", (sheets[0].width, sum(sheet.height for sheet in sheets)))
    top = 0
    for sheet in sheets:
        whole.paste(sheet, (0, top))
        top += sheet.height
    return whole
