"""Pictures to train on: Big Buck Bunny, composed films, painted art, and drawn cels, at 128x72.

None of the titles of `make bench-real` is among them, and nothing before the held-out art. Shots of the trailer are,
since it is cut from the film.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.transitions.render import Pictures
from benchmarks.transitions.shots import FRAMES, Sources

Notes = dict[str, list[Any]]
"""Notes about a film: its `scenes` (first frame, end, is it held out) and `transitions` (frame, kind, ends)."""
SIZE = (128, 72)
DRAWN = 1500
"""Number of drawn cels."""
CHANCES, COMPOSED = {"bunny": 0.4, "still": 0.35}, 0.1
"""Chances of a scene of each kind, and of each composed film."""
DISPUTED = (5307, 7208, 11085, 7173, 7217, 8091, 9584, 10612, 11056, 11095, 11188)
"""Frames of Big Buck Bunny that only one of two detectors calls a cut."""


def read_library(folder: Path, films: Iterable[str]) -> tuple[Pictures, Sources]:
    """Return the pictures of some films and all art in a folder, and what is known about them."""
    parts: list[NDArray[np.uint8]] = []
    spans: list[tuple[int, int, int]] = []
    stretches: list[tuple[int, int]] = []
    truths: list[NDArray[np.float32]] = []
    begin, names = 0, list(films)
    for film, path in enumerate(folder / f"{name}.mp4" for name in names):
        frames = np.stack(list(_film(path)))
        truth, own_spans, own_stretches = _truth(json.loads(path.with_suffix(".json").read_text()), len(frames))
        spans += [(begin + first, length, film) for first, length in own_spans]
        stretches += [(begin + first, length) for first, length in own_stretches]
        parts.append(frames)
        truths.append(truth)
        begin += len(frames)
    stills = np.stack([*_art(folder), *_cels(np.random.default_rng(5), DRAWN)])
    spans += [(begin + number, 1, 1000 + number) for number in range(len(stills))]
    sprites = [cv2.imread(str(path), cv2.IMREAD_UNCHANGED) for path in sorted(folder.glob("figure*.png"))]
    drawn = list(_sprites(np.random.default_rng(6), 300))
    cut = np.stack([*(one for one in sprites if one is not None), *drawn])
    frames = np.concatenate([*parts, stills, cut[..., :3]])
    first = len(frames) - len(cut)
    looks = np.stack(
        [cv2.resize(frames[a + n // 2], (8, 6), interpolation=cv2.INTER_AREA).ravel() for a, n, _ in spans]
    )
    pictures = Pictures(
        torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous(),
        torch.from_numpy(np.ascontiguousarray(cut[..., 3:])).permute(0, 3, 1, 2),
    )
    truth = np.concatenate(truths)
    kinds = ["still" if length == 1 else names[film] for _, length, film in spans]
    counts = Counter(kinds)
    chances = np.cumsum([CHANCES.get(kind, COMPOSED) / counts[kind] for kind in kinds])
    return pictures, Sources(
        np.array(spans), chances / chances[-1], looks.astype(np.float32), np.array(stretches), truth, (first, len(cut))
    )


def _film(path: Path) -> Iterator[NDArray[np.uint8]]:
    film = cv2.VideoCapture(str(path))
    while True:
        is_read, picture_HWC = film.read()
        if not is_read:
            return
        yield np.asarray(picture_HWC, np.uint8)


def _truth(notes: Notes, frames: int) -> tuple[NDArray[np.float32], list[tuple[int, int]], list[tuple[int, int]]]:
    """Return truth (frames, 2), the clean spans, and the stretches with nothing held out or disputed."""
    truth = np.zeros((frames, 2), np.float32)
    hidden = np.zeros(frames, bool)
    for first, last, is_held_out in notes["scenes"]:
        hidden[first:last] |= bool(is_held_out)
    edges = [0]
    for frame, _, before, after in notes["transitions"]:
        if after >= frames:
            continue
        truth[before + 1 : after, 0] = 1
        truth[frame, 1] = 1
        if after - before > 6:
            truth[[frame - 1, frame + 1], 1] = 0.5
        if hidden[max(before, 0)] or hidden[min(after, frames - 1)]:
            hidden[before + 1 : after] = True
        edges += [before + 1, after]
    pairs = zip(edges[::2], [*edges[1::2], frames], strict=True)
    spans = [(a, b - a) for a, b in pairs if b - a >= 12 and not hidden[a:b].any()]
    marks = np.flatnonzero(np.diff(np.concatenate([[True], hidden, [True]]).astype(int)))
    free = [(int(a), int(b - a)) for a, b in pairwise(marks) if not hidden[min(a, frames - 1)] and b - a > FRAMES + 8]
    return truth, spans, free


def bunny_notes(cuts: Iterable[int], first: int, last: int) -> Notes:
    """Return the notes of Big Buck Bunny: cuts, and as held out what is disputed or outside of the story."""
    outside = [[0, first, 1], [last, last + 20_000, 1]]
    return {
        "scenes": [*outside, *([frame - 2, frame + 3, 1] for frame in DISPUTED)],
        "transitions": [[cut, "cut", cut - 1, cut] for cut in cuts],
    }


def _art(folder: Path) -> Iterator[NDArray[np.uint8]]:
    """Yield each painted background whole, and in closer views."""
    for path in sorted(folder.glob("art*.jpg")):
        picture_HWC = cv2.imread(str(path))
        assert picture_HWC is not None
        height, width = picture_HWC.shape[:2]
        for scale in (1.0, 0.6, 0.45):
            for down in np.linspace(0, 1 - scale, 1 + 2 * (scale < 1)):
                for across in np.linspace(0, 1 - scale, 1 + 2 * (scale < 1)):
                    part = picture_HWC[round(down * height) :, round(across * width) :]
                    part = part[: round(scale * height), : round(scale * width)]
                    yield np.asarray(cv2.resize(part, SIZE, interpolation=cv2.INTER_AREA), np.uint8)


def _cels(dice: Generator, count: int) -> Iterator[NDArray[np.uint8]]:
    """Yield drawn backgrounds: a gradient, and flat shapes with outlines, few or many."""
    for _ in range(count):
        ends = dice.integers(0, 256, (2, 3))
        down = np.linspace(0, 1, SIZE[1] * 2)[:, None, None] ** dice.uniform(0.5, 2)
        picture = (
            np.broadcast_to(ends[0] + (ends[1] - ends[0]) * down, (SIZE[1] * 2, SIZE[0] * 2, 3)).astype(np.uint8).copy()
        )
        if dice.random() < 0.3:
            picture[:] = dice.integers(150, 256)
        _shapes(picture, dice, int(dice.choice((2, 5, 10, 25))))
        yield np.asarray(cv2.resize(picture, SIZE, interpolation=cv2.INTER_AREA), np.uint8)


def _shapes(picture: NDArray[np.uint8], dice: Generator, count: int) -> None:
    height, width = picture.shape[:2]
    channels = picture.shape[2]
    line = int(dice.choice((0, 1, 2, 4)))
    base = dice.integers(0, 256, 3)
    for _ in range(count):
        colour = (*np.clip(base + dice.normal(0, 70, 3), 0, 255).tolist(), 255)[:channels]
        centre = (int(dice.integers(width)), int(dice.integers(height)))
        size = dice.uniform(0.03, 0.45) * height
        if dice.random() < 0.5:
            axes = (int(size * dice.uniform(0.4, 1.5)), int(size))
            angle = float(dice.uniform(0, 180))
            cv2.ellipse(picture, centre, axes, angle, 0, 360, colour, -1, cv2.LINE_AA)
            if line:
                cv2.ellipse(picture, centre, axes, angle, 0, 360, (20, 20, 20, 255)[:channels], line, cv2.LINE_AA)
        else:
            corners = np.sort(dice.uniform(0, 2 * np.pi, int(dice.integers(3, 8))))
            points = np.stack([np.cos(corners) * dice.uniform(0.6, 2), np.sin(corners)], axis=1) * size + centre
            cv2.fillPoly(picture, [points.astype(np.int32)], colour, cv2.LINE_AA)
            if line:
                cv2.polylines(picture, [points.astype(np.int32)], True, (20, 20, 20, 255)[:channels], line, cv2.LINE_AA)


def _sprites(dice: Generator, count: int) -> Iterator[NDArray[np.uint8]]:
    """Yield drawn figures with a mask as fourth channel."""
    for _ in range(count):
        picture = np.zeros((SIZE[1] * 2, SIZE[0] * 2, 4), np.uint8)
        _shapes(picture, dice, int(dice.choice((3, 6, 10))))
        yield np.asarray(cv2.resize(picture, SIZE, interpolation=cv2.INTER_AREA), np.uint8)
