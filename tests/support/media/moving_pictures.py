"""Pictures of 480x720 that move by exactly known amounts, multiples of half a pixel, and clips of them in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import cv2
import numpy as np

from examples.world import acting
from examples.world.film import pictures_of
from examples.world.places import DrawnPlace, Figure
from examples.world.scene import Look, Scene
from examples.world.textures import FINE, Picture, PictureSize, cel, detailed
from pipeline.core.store import FilmFolder, StageRecord
from tests.support import records

WIDTH, HEIGHT = 720, 480
MARGIN = 140
"""Pixels of the picture beyond each border of the view."""
CANVAS = (FINE * (WIDTH + 2 * MARGIN), FINE * (HEIGHT + 2 * MARGIN))
WALKER = "walker"


@cache
def textured() -> DrawnPlace:
    """Place with detail at every scale, like a painted background."""
    return _place("textured", detailed)


@cache
def shaded() -> DrawnPlace:
    """Place of outlined shapes in flat colours before a gradient, like a cel."""
    return _place("shaded", cel)


def view(place: DrawnPlace) -> Picture:
    """View of the place from a still camera."""
    return next(pictures_of([Scene("view", 1, place)]))


def pan(place: DrawnPlace, x: float, y: float, frames: int = 4, held: int = 1) -> Picture:
    """`frames_THWC` of a camera that moves by (x, y) pixels with every drawing, each held for `held` frames."""
    first = -(frames // held) / 2
    left, top, right, bottom = place.whole
    across, down = round(first * x), round(first * y)
    start = left + across, top + down, right + across, bottom + down
    return _filmed(place, frames, acting.held(acting.pan(start, x, y), held))


def zoom_in(place: DrawnPlace, rate: float, frames: int = 4) -> Picture:
    """`frames_THWC` of a camera that zooms in by `rate` per step."""
    middle = MARGIN + WIDTH / 2, MARGIN + HEIGHT / 2
    return _filmed(place, frames, lambda frame: acting.closer(place.whole, *middle, rate**frame))


def walk(place: DrawnPlace, x: float, frames: int = 4, held: int = 1) -> Picture:
    """`frames_THWC` of a textured figure, a tenth of the picture, walking by `x` pixels before a still place."""
    draw = acting.drift(WALKER, _walker().middle, (x, 0))
    return np.stack(list(pictures_of([Scene("walk", frames, place, draw, held, "walks")])))


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


def _filmed(place: DrawnPlace, frames: int, look: Look) -> Picture:
    return np.stack(list(pictures_of([Scene("filmed", frames, place, look=look)])))


def _place(name: str, texture: Callable[[PictureSize, int], Picture]) -> DrawnPlace:
    return DrawnPlace(name, texture(CANVAS, 0), (WIDTH, HEIGHT), (_walker(),), FINE, MARGIN)


@cache
def _walker() -> Figure:
    middle = MARGIN + 220, MARGIN + 250
    mask_HW = np.zeros(CANVAS[::-1], np.uint8)
    cv2.ellipse(mask_HW, (FINE * middle[0], FINE * middle[1]), (FINE * 100, FINE * 110), 0, 0, 360, 255, cv2.FILLED)
    return Figure(WALKER, detailed(CANVAS, 99), mask_HW > 0, middle)
