"""Numbered films, encoded: each frame shows its number as a barcode, each scene has its own colours; and damage.

make_film(tmp_path / "film.mp4", frames=96, fps=Fraction(24000, 1001), scenes=(0, 40))
read_barcode(picture_HWC)   # -> 17
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from examples.world.acting import pan
from examples.world.barcode import paint_barcode
from examples.world.film import pictures_of
from examples.world.places import DrawnPlace
from examples.world.scene import Scene
from examples.world.textures import Picture, PictureSize, soft
from examples.world.writer import write_film
from pipeline.core.hashes import FILM_HASHES, Hashes, film_hash
from pipeline.core.records import make_film_id
from pipeline.core.store import FilmFolder
from pipeline.stages.probe import probe

Paint = Callable[[int, Picture], None]


def make_film(
    path: Path,
    *,
    frames: int = 48,
    fps: Fraction | int = 24,
    size: PictureSize = (320, 180),
    scenes: Sequence[int] = (0,),
    borders: tuple[int, int, int, int] = (0, 0, 0, 0),
    barcode: bool = True,
    paint: Paint | None = None,
    codec: str = "libx264",
    options: Mapping[str, str] | None = None,
    **encoding: Any,
) -> Path:
    """Encode the pictures of `paint_pictures`, fast, and return the film's path; for the encoding see `write_film`."""
    pictures = paint_pictures(frames, size, scenes, borders, barcode, paint)
    fast = {"preset": "superfast"} if codec == "libx264" else {}
    return write_film(path, pictures, fps=fps, codec=codec, options={**fast, **(options or {})}, **encoding)


def paint_pictures(
    frames: int,
    size: PictureSize,
    scenes: Sequence[int] = (0,),
    borders: tuple[int, int, int, int] = (0, 0, 0, 0),
    barcode: bool = True,
    paint: Paint | None = None,
) -> Iterator[Picture]:
    """Paint numbered pictures as they are before coding: upright, BGR, HWC uint8.

    Args:
        frames: number of frames, numbered from 0.
        size: width and height of the upright picture in coded pixels.
        scenes: first frame of each scene; each has its own background, over which the camera pans.
        borders: width of the black borders left, top, right and bottom, in upright coded pixels.
        barcode: paint the frame's number (needs a picture of at least 64x48).
        paint: called with the frame's number and its picture to draw on.
    """
    left, top, right, bottom = borders
    inside = size[0] - left - right, size[1] - top - bottom
    panned = [_panned(number, inside, end - start) for number, (start, end) in enumerate(pairwise((*scenes, frames)))]
    for number, seen in enumerate(pictures_of(panned)):
        picture = np.zeros((size[1], size[0], 3), np.uint8)
        shown = picture[top : size[1] - bottom, left : size[0] - right]
        shown[:] = seen
        if barcode:
            paint_barcode(shown, number)
        if paint is not None:
            paint(number, picture)
        yield picture


def planned(root: Path, path: Path) -> FilmFolder:
    """Film folder in the dataset at `root`, as the plan of a build leaves it."""
    hashes = Hashes(root / FILM_HASHES)
    sha256 = film_hash(path, hashes)
    hashes.save()
    film = probe(path, make_film_id(path.name, sha256), sha256)
    folder = FilmFolder(root / "films" / film.film_id)
    folder.save_film(film)
    return folder


def truncate(path: Path, share: float) -> Path:
    """Cut the file off after `share` of its bytes."""
    content = path.read_bytes()
    path.write_bytes(content[: round(len(content) * share)])
    return path


def corrupt(path: Path, start_share: float, end_share: float, seed: int = 0) -> Path:
    """Overwrite the bytes between two shares of the file with noise."""
    content = bytearray(path.read_bytes())
    start, end = round(len(content) * start_share), round(len(content) * end_share)
    content[start:end] = np.random.default_rng(seed).bytes(end - start)
    path.write_bytes(content)
    return path


def _panned(number: int, size: PictureSize, frames: int) -> Scene:
    place = _soft_place(number, size)
    return Scene(f"scene {number}", frames, place, frames_per_drawing=1, camera="pan", look=pan(place.whole, -1))


@lru_cache(maxsize=8)
def _soft_place(number: int, size: PictureSize) -> DrawnPlace:
    return DrawnPlace(f"place {number}", soft(size, seed=number), size)
