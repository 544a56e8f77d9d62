"""Pictures of 480x720 that move by exactly known amounts, multiples of half a pixel, and clips of them in a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path

import cv2
import numpy as np

from flows.demos.world import motions
from flows.demos.world.film import pictures_of
from flows.demos.world.places import DrawnPlace, Figure
from flows.demos.world.scene import Look, Scene
from flows.demos.world.textures import FINE, Picture, PictureSize, cel, detailed
from pipeline.core.records import Clip, Film
from pipeline.core.store import FilmFolder, StageRecord
from pipeline.video.clip_files import write_clip

WIDTH, HEIGHT = 720, 480
MARGIN = 140
"""Pixels of picture beyond each border of the view."""
CANVAS = (FINE * (WIDTH + 2 * MARGIN), FINE * (HEIGHT + 2 * MARGIN))
WALKER = "walker"


@cache
def textured() -> DrawnPlace:
    """A place with detail at every size, like a painted background."""
    return _place("textured", detailed)


@cache
def shaded() -> DrawnPlace:
    """A place of outlined shapes in flat colours before a gradient, like a cel."""
    return _place("shaded", cel)


def view(place: DrawnPlace) -> Picture:
    """The place as a camera sees it that nobody moved."""
    return next(pictures_of([Scene("view", 1, place)]))


def pan(place: DrawnPlace, x: float, y: float, frames: int = 4, held: int = 1) -> Picture:
    """`frames_THWC` of a camera that moves by (x, y) pixels with every drawing, each held for `held` frames."""
    first = -(frames // held) / 2
    left, top, right, bottom = place.whole
    across, down = round(first * x), round(first * y)
    start = left + across, top + down, right + across, bottom + down
    return _filmed(place, frames, motions.held(motions.pan(start, x, y), held))


def zoom_in(place: DrawnPlace, rate: float, frames: int = 4) -> Picture:
    """`frames_THWC` of a camera that zooms in by `rate` per step."""
    middle = MARGIN + WIDTH / 2, MARGIN + HEIGHT / 2
    return _filmed(place, frames, lambda frame: motions.closer(place.whole, *middle, rate**frame))


def walk(place: DrawnPlace, x: float, frames: int = 4, held: int = 1) -> Picture:
    """`frames_THWC` of a textured figure, a tenth of the picture, walking by `x` pixels before a still place."""
    draw = motions.drift(WALKER, _walker().middle, (x, 0))
    return np.stack(list(pictures_of([Scene("walk", frames, place, draw, held, "walks")])))


def make_clips(root: Path, clips: Mapping[str, Picture]) -> FilmFolder:
    """A film's folder as `cut` leaves it, with these `frames_THWC` as its clips."""
    folder = FilmFolder(root / "films" / "film-01234567")
    (folder.path / "clips").mkdir(parents=True)
    folder.save_film(
        Film(
            film_id=folder.film_id,
            name="film.mp4",
            source="film.mp4",
            sha256="01234567" * 8,
            bytes=1,
            container="mp4",
            codec="h264",
            pixel_format="yuv420p",
            bit_depth=8,
            width=720,
            height=480,
            sample_aspect=Fraction(1),
            rotation_degrees=0,
            display_width=720,
            display_height=480,
            fps=Fraction(24),
            variable_rate=False,
            interlaced=False,
            frames=2400,
            duration_seconds=100,
            missing_seconds=0,
        )
    )
    rows = []
    for index, (clip_id, frames_THWC) in enumerate(clips.items()):
        path = folder.clip_path(clip_id)
        write_clip(path, frames_THWC, Fraction(8), 17)
        content = path.read_bytes()
        rows.append(
            Clip(
                clip_id=clip_id,
                film_id=folder.film_id,
                scene=0,
                index=index,
                start_seconds=2 * index,
                end_seconds=2 * index + 2,
                fps=Fraction(8),
                frames=len(frames_THWC),
                width=frames_THWC.shape[2],
                height=frames_THWC.shape[1],
                source_frames=tuple(range(len(frames_THWC))),
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )
        )
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
