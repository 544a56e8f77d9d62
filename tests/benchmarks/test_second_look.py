"""Benchmark of the second look: pieces across transitions and of one scene, from a composed film."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.second_look import EVERY, FRAMES, measured, pieces_of, small_pictures
from examples.world.film import FPS, pictures_of
from examples.world.landscapes import Landscape
from examples.world.paintings import Painting
from examples.world.scene import Scene
from examples.world.truth import Truth, truth_about
from examples.world.writer import write_film

SCENES = (
    Scene("first", 72, Landscape(1, 1)),
    Scene("other", 72, Painting("bg uni")),
    Scene("third", 72, Landscape(2, 1), opened_by="dissolve", opening_frames=24),
)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return truth_about(SCENES, FPS)


def test_pieces_across_transitions_show_two_scenes_and_the_others_one(truth: Truth) -> None:
    pieces = list(pieces_of(truth))
    assert [each.kind for each in pieces].count("cut") == 5
    for piece in pieces:
        shown = {truth.scene_at(EVERY * (piece.first + number)).name for number in range(FRAMES)}
        assert (piece.kind is None) == (len(shown) == 1), piece


def test_pieces_of_a_film_are_measured(tmp_path: Path, truth: Truth) -> None:
    film = tmp_path / "film.mp4"
    write_film(film, pictures_of(SCENES), fps=FPS)
    pieces, dropped = measured(small_pictures(film), truth)
    assert dropped == {"cut": pieces["cut"], "dissolve": pieces["dissolve"]}
    assert pieces[None] > 2
