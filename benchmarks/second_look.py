"""Benchmark of the second look alone: pieces of composed films across every transition, as if no boundary were found.

    .venv/bin/python -m benchmarks.second_look --folder bench-scenes

The films are those of `make bench-scenes`. A piece has the pictures of a clip of two seconds. Every transition is put
at five places of a piece. Pieces across a transition count if two scenes each fill a tenth or more and a third one less
than a fiftieth; in pieces of one scene no other fills a fiftieth.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.scenes import ENCODINGS, KINDS, LEAST_SHARE, SEEDS, compose, kind_of, shown_scenes
from examples.world.film import FPS
from examples.world.scene_changes import scene_changes
from examples.world.truth import Truth, truth_about
from pipeline.core.config import SelectionSettings
from pipeline.stages.looks import small_gray
from pipeline.stages.two_groups import two_groups
from pipeline.video.film_reader import FilmReader

FRAMES, EVERY = 16, FPS // 8
"""Pictures of a piece, and frames of the film for one of them."""
PLACES = (0.15, 0.3, 0.5, 0.7, 0.85)
"""Places of a transition in a piece, as shares of its length."""
NEXT = 8
"""Pictures from the start of one piece of one scene to the next."""
MOST_OTHER = 0.02
"""Share that a third scene, or a second one in a piece of one scene, stays below."""


@dataclass(frozen=True)
class Piece:
    """Piece of a film: its first picture, and the kind of the transition in it, None in one scene."""

    first: int
    kind: str | None


def pieces_of(truth: Truth) -> Iterator[Piece]:
    """Yield the pieces across transitions, then those of one scene."""
    last = len(truth.frames) // EVERY - FRAMES
    for transition, place in product(truth.transitions, PLACES):
        first = round(transition.frame / EVERY - FRAMES * place)
        if 0 <= first <= last:
            shares = _shares(truth, first)
            if shares[1] >= LEAST_SHARE and sum(shares[2:]) < MOST_OTHER:
                yield Piece(first, kind_of(truth, transition))
    first = 0
    while first <= last:
        is_one = _shares(truth, first)[1] < MOST_OTHER
        if is_one:
            yield Piece(first, None)
        first += NEXT if is_one else 1


def _shares(truth: Truth, first: int) -> list[float]:
    """Return the shares of the scenes in a piece, the largest first, at least two."""
    frames = range(EVERY * first, EVERY * (first + FRAMES), EVERY)
    return sorted([*shown_scenes(truth, frames).values(), 0.0], reverse=True)


def small_pictures(film: Path) -> np.ndarray:
    """Return every third frame in the size in which `looks` sees it, gray, (T, 120, 180), uint8.

    Unlike a clip's, the picture has not been cropped and encoded again.
    """
    with FilmReader(film) as reader:
        chosen = (frame.picture for number, frame in enumerate(reader.frames()) if number % EVERY == 0)
        return np.stack([small_gray(np.asarray(each.to_ndarray(format="gray"), np.uint8)) for each in chosen])


def measured(pictures_THW: np.ndarray, truth: Truth) -> tuple[Counter[str | None], Counter[str | None]]:
    """Count the pieces of each kind, and those that selection drops."""
    pieces = list(pieces_of(truth))
    limit = SelectionSettings().max_two_groups
    dropped = [each for each in pieces if two_groups(pictures_THW[each.first : each.first + FRAMES]) > limit]
    return Counter(each.kind for each in pieces), Counter(each.kind for each in dropped)


def main() -> None:
    """Measure all films and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("bench-scenes"), help="the films, kept between runs")
    folder = parser.parse_args().folder
    folder.mkdir(exist_ok=True)
    table = Table("film", "encoding", *KINDS, "one scene", title="pieces dropped as two scenes, of all")
    for letter, encoding in track(list(product(SEEDS, ENCODINGS)), "films", console=Console(stderr=True)):
        truth = truth_about(scene_changes(SEEDS[letter]), FPS)
        pieces, dropped = measured(small_pictures(compose(folder, letter, encoding)), truth)
        table.add_row(letter, encoding, *(f"{dropped[kind]}/{pieces[kind]}" for kind in (*KINDS, None)))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
