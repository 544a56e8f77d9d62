"""Pictures of 480x720 that move by exactly known amounts, and clips made of them in a film's folder.

A picture is drawn twice as large; moving it by whole pixels there and averaging 2x2 of them gives an exact sub-pixel
motion without interpolation. So shifts must be multiples of half a pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.store import FilmFolder, StageRecord
from tests.support import records

Picture = NDArray[np.uint8]

WIDTH, HEIGHT = 720, 480
FINE = 2
MARGIN = 140
"""Pixels of picture beyond each border of the view."""
SHAPE = (FINE * (HEIGHT + 2 * MARGIN), FINE * (WIDTH + 2 * MARGIN))


@cache
def textured(seed: int = 0) -> Picture:
    """A canvas with detail at every size, like a painted background."""
    random = np.random.default_rng(seed)
    luma = np.full(SHAPE, 128, np.float32)
    for period, strength in ((4, 12), (12, 20), (48, 30), (160, 30)):
        coarse = random.standard_normal([side // (FINE * period) + 2 for side in SHAPE]).astype(np.float32)
        luma += strength * cv2.resize(coarse, SHAPE[::-1], interpolation=cv2.INTER_CUBIC)
    return _coloured(np.clip(luma, 0, 255))


@cache
def shaded(seed: int = 0) -> Picture:
    """A canvas of outlined shapes in flat colours before a gradient, like a cel."""
    random = np.random.default_rng(seed)
    canvas = _coloured(np.tile(np.linspace(120, 220, SHAPE[0], dtype=np.float32)[:, None], (1, SHAPE[1])))
    for _ in range(200):
        centre = [int(random.integers(side)) for side in SHAPE[::-1]]
        axes = [int(side) for side in random.integers(10 * FINE, 120 * FINE, 2)]
        colour, angle = random.integers(30, 240, 3).tolist(), float(random.integers(180))
        cv2.ellipse(canvas, centre, axes, angle, 0, 360, colour, cv2.FILLED, cv2.LINE_AA)
        cv2.ellipse(canvas, centre, axes, angle, 0, 360, (25, 20, 20), 2 * FINE, cv2.LINE_AA)
    return canvas


def view(canvas: Picture, x: float = 0, y: float = 0, zoom: float = 1) -> Picture:
    """What a camera moved by (x, y) pixels from the middle sees; the picture moves the other way."""
    width, height = round(FINE * WIDTH / zoom), round(FINE * HEIGHT / zoom)
    left, top = (SHAPE[1] - width) // 2 + round(FINE * x), (SHAPE[0] - height) // 2 + round(FINE * y)
    return np.asarray(
        cv2.resize(canvas[top : top + height, left : left + width], (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA),
        np.uint8,
    )


def pan(canvas: Picture, x: float, y: float, frames: int = 4, held: int = 1) -> Picture:
    """`frames_THWC` of a camera that moves by (x, y) pixels with every drawing, each held for `held` frames."""
    first = -(frames // held) / 2
    start_x, start_y = round(first * x), round(first * y)
    return np.stack([view(canvas, start_x + frame // held * x, start_y + frame // held * y) for frame in range(frames)])


def zoom_in(canvas: Picture, rate: float, frames: int = 4) -> Picture:
    """`frames_THWC` of a camera that zooms in by `rate` per step."""
    return np.stack([view(canvas, zoom=rate**frame) for frame in range(frames)])


def walk(canvas: Picture, x: float, frames: int = 4, held: int = 1) -> Picture:
    """`frames_THWC` of a textured figure, a tenth of the picture, walking by `x` pixels before a still canvas."""
    return np.stack([_with_figure(canvas, x * (frame // held)) for frame in range(frames)])


def make_clips(root: Path, clips: Mapping[str, Picture]) -> FilmFolder:
    """A film's folder as `cut` leaves it, with these `frames_THWC` as its clips."""
    folder = FilmFolder(root / "films" / "film-01234567")
    folder.save_film(records.film("film.mp4", film_id=folder.film_id))
    rows = [
        records.written_clip(folder, frames_THWC, 2 * index, clip_id=clip_id, index=index)
        for index, (clip_id, frames_THWC) in enumerate(clips.items())
    ]
    folder.write("clips", rows)
    folder.save_stage_record(StageRecord(stage="cut", fingerprint="cut", ingredients={}, files={}))
    return folder


def _with_figure(canvas: Picture, x: float) -> Picture:
    height, width = FINE * HEIGHT, FINE * WIDTH
    top, left = FINE * MARGIN, FINE * MARGIN
    background = canvas[top : top + height, left : left + width]
    shift = round(FINE * x)
    figure = textured(99)[top : top + height, left - shift : left - shift + width]
    mask = np.zeros((height, width), np.uint8)
    cv2.ellipse(mask, (FINE * 220 + shift, FINE * 250), (FINE * 100, FINE * 110), 0, 0, 360, 255, cv2.FILLED)
    picture = np.where(mask[..., None] > 0, figure, background)
    return np.asarray(cv2.resize(picture, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA), np.uint8)


def _coloured(luma: NDArray[np.float32]) -> Picture:
    return np.stack([luma * share for share in (0.9, 1.0, 0.8)], axis=-1).astype(np.uint8)
