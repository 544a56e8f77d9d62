"""Composed season: episodes of Big Buck Bunny's pictures, with opening, ending, recap, preview and eyecatch, and truth.

The story of an episode shows a corner of the film's picture, as it is, mirrored or upside down, and half of them
backwards, so that one film gives forty minutes without a repeat: no two views of a moment are alike. Openings, endings
and eyecatches show the whole picture. An ending has other credits in each episode.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from examples.world.textures import Picture
from examples.world.writer import write_film
from pipeline.video.film_reader import FilmReader

FPS = 24
CRFS = (18, 38)
_CHUNK_SECONDS = 20
_STORY = range(10, 490, _CHUNK_SECONDS + 10)
"""Starts of the film's parts that stories use, seconds. A still shot may not go on from the end of one to the next."""
_VIEWS = range(1, 9)
_BACKWARDS = range(5, 9)
_LAST_FRAME = 500 * FPS
"""First frame of a film played backwards."""
_CORNER = 0.55
"""Side of a corner, as a share of the picture."""
_OPENING_A, _OPENING_B, _ENDING, _EYECATCH = 30.0, 200.0, 300.0, 400.0
THEME_SECONDS = 22.0, 20.0
"""Lengths of opening and ending."""
_PAGE_SECONDS = 4.0
"""Time for which a page of credits stays."""

Kind = Literal["opening", "ending", "recap", "preview", "repeated"]


@dataclass(frozen=True)
class Piece:
    """Part of an episode: frames of the film, seen in one way."""

    kind: Kind | None
    """None: story."""
    start: int
    """First frame in the film."""
    frames: int
    view: int
    """0: whole picture; 1 to 8: a corner."""
    credits: int | None = None
    """Seed of the credits over it."""


@dataclass(frozen=True)
class Truth:
    """Stretch of an episode that repeats another, or is repeated."""

    start_seconds: float
    end_seconds: float
    kind: Kind


Episode = tuple[Piece, ...]


def compose(
    seed: int, count: int, story_chunks: int = 5, theme_seconds: Sequence[float] = THEME_SECONDS
) -> list[Episode]:
    """Return a season of episodes; at five chunks of story, each lasts about three minutes.

    The second half has another opening, if that leaves two episodes with each, and one episode has none.
    `theme_seconds`: lengths of opening and ending, up to 90 seconds.
    """
    rng = random.Random(seed)
    chunks = [(view, start) for view in _VIEWS for start in _STORY]
    rng.shuffle(chunks)
    stories = [
        [_piece(None, start, _CHUNK_SECONDS, view) for view, start in chunks[n * story_chunks : (n + 1) * story_chunks]]
        for n in range(count)
    ]
    without_opening = rng.randrange(1, count)
    with_first = count // 2 if count > 5 else count
    episodes = []
    for number, story in enumerate(stories):
        cold = [replace(story[0], frames=FPS * rng.choice((0, 0, 4, 9)))]
        rest = [replace(story[0], start=story[0].start + cold[0].frames, frames=story[0].frames - cold[0].frames)]
        opening = _piece("opening", _OPENING_A if number < with_first else _OPENING_B, theme_seconds[0], 0, -1)
        middle = 1 + story_chunks // 2
        parts = [
            *(_shots("recap", stories[number - 1], rng) if number else ()),
            *cold,
            *(() if number == without_opening and count > 4 else [opening]),
            *rest,
            *story[1:middle],
            _piece("repeated", _EYECATCH, 4, 0),
            *story[middle:],
            _piece("ending", _ENDING, theme_seconds[1], 0, credits=1000 * seed + number),
            *(_shots("preview", stories[number + 1], rng) if number + 1 < count else ()),
        ]
        episodes.append(tuple(part for part in parts if part.frames))
    return episodes


def _piece(kind: Kind | None, start: float, seconds: float, view: int, credits: int | None = None) -> Piece:
    return Piece(kind, round(start * FPS), round(seconds * FPS), view, credits)


def _shots(kind: Kind, story: Sequence[Piece], rng: random.Random) -> Iterator[Piece]:
    """Yield four pieces of another episode's story, in its order."""
    for chunk in sorted(rng.sample(range(len(story)), min(4, len(story)))):
        frames = round(FPS * rng.uniform(3, 4.5))
        first = rng.randrange(story[chunk].frames - frames)
        yield replace(story[chunk], kind=kind, start=story[chunk].start + first, frames=frames)


def truth_of(episode: Episode) -> list[Truth]:
    """Return the stretches of an episode by kind, in order; pieces of one kind that touch are one stretch."""
    found: list[Truth] = []
    frame = 0
    for piece in episode:
        start, end = frame / FPS, (frame + piece.frames) / FPS
        frame += piece.frames
        if piece.kind is None:
            continue
        if found and found[-1].kind == piece.kind and found[-1].end_seconds == start:
            found[-1] = replace(found[-1], end_seconds=end)
        else:
            found.append(Truth(start, end, piece.kind))
    return found


def read_source(film: Path, size: tuple[int, int], path: Path) -> NDArray[np.uint8]:
    """Return all pictures of a film in a small size, BGR, as an array in the file `path`."""
    width, height = size
    with path.open("wb") as file, FilmReader(film, threads=2) as reader:
        for frame in reader.frames():
            picture_HWC = frame.picture.reformat(width, height, "bgr24", interpolation="AREA").to_ndarray()
            file.write(picture_HWC.tobytes())
    return np.memmap(path, np.uint8, "r").reshape(-1, height, width, 3)


def write_episode(path: Path, source_THWC: NDArray[np.uint8], episode: Episode, crf: int) -> Path:
    """Encode an episode at a quality."""
    return write_film(path, _pictures(source_THWC, episode), fps=FPS, options={"crf": str(crf)})


def _pictures(source_THWC: NDArray[np.uint8], episode: Episode) -> Iterator[Picture]:
    for piece in episode:
        pages: dict[int, tuple[Picture, Picture]] = {}
        for number in range(piece.frames):
            frame = piece.start + number
            picture = _seen(source_THWC[_LAST_FRAME - frame if piece.view in _BACKWARDS else frame], piece.view)
            if piece.credits is not None:
                page = int(number / FPS / _PAGE_SECONDS)
                if page not in pages:
                    pages[page] = _credits(picture.shape[:2], piece.credits * 100 + page)
                colour, mask = pages[page]
                picture = np.where(mask[..., None] > 0, colour, picture)
            yield picture


def _seen(picture_HWC: Picture, view: int) -> Picture:
    if view == 0:
        return np.asarray(picture_HWC)
    height, width = picture_HWC.shape[:2]
    tall, wide = round(height * _CORNER), round(width * _CORNER)
    corner_HWC = picture_HWC[-tall:, -wide:] if view in _BACKWARDS else picture_HWC[:tall, :wide]
    part_HWC = cv2.resize(corner_HWC, (width, height), interpolation=cv2.INTER_CUBIC)
    upside_down, mirrored = divmod((view - 1) % 4, 2)
    return np.asarray(part_HWC[:: -1 if upside_down else 1, :: -1 if mirrored else 1], np.uint8)


def _credits(shape: tuple[int, ...], seed: int) -> tuple[Picture, Picture]:
    """Return a page of drawn credits, white with a dark edge, and its mask; negative seeds give one short line."""
    rng = random.Random(seed)
    height, width = shape
    image, mask = Image.new("RGB", (width, height)), Image.new("L", (width, height))
    size = height // 13
    font = ImageFont.load_default(size)
    lines = 1 if seed < 0 else rng.randint(2, 5)
    left, top = rng.randrange(width // 2), rng.randrange(height // 3)
    for line in range(lines):
        name = " ".join(_name(rng) for _ in range(2))
        place = (left, top + line * round(1.4 * size))
        for canvas in (image, mask):
            fills = ("white", "black") if canvas is image else (255, 255)
            ImageDraw.Draw(canvas).text(place, name, fills[0], font, stroke_width=1, stroke_fill=fills[1])
    return np.asarray(image, np.uint8), np.asarray(mask, np.uint8)


def _name(rng: random.Random) -> str:
    return "".join(rng.choice("kstnhmr") + rng.choice("aiueo") for _ in range(rng.randint(2, 4))).title()
