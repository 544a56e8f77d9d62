"""Scene benchmark: boundaries and clips are scored against the composer's truth."""

from __future__ import annotations

import pytest

from benchmarks.scenes import KINDS, Found, kind_of, score, shown_scenes
from examples.world.film import FPS
from examples.world.landscapes import Landscape
from examples.world.paintings import Painting
from examples.world.scene import Scene
from examples.world.scene_changes import COUNTS, scene_changes
from examples.world.truth import Truth, truth_about

SCENES = (
    Scene("first", 50, Landscape(1, 1)),
    Scene("alike", 50, Landscape(1, 2)),
    Scene("other", 50, Painting("bg uni"), opened_by="dissolve", opening_frames=10),
    Scene("figure", 50, Painting("bg uni"), opened_by="dissolve", opening_frames=10),
)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return truth_about(SCENES, FPS)


def test_each_transition_has_its_kind(truth: Truth) -> None:
    assert [kind_of(truth, each) for each in truth.transitions] == ["match cut", "dissolve", "figure dissolve"]


def test_every_transition_counts_once_and_what_lies_beside_is_false(truth: Truth) -> None:
    found = [Found(52, True), Found(98, False), Found(101, True), Found(180, False)]
    scored = score(truth, found)
    assert {kind: hits for kind, hits in scored.hits.items() if hits} == {"match cut": 1, "dissolve": 1}
    assert scored.totals["figure dissolve"] == 1
    assert (scored.false_cuts, scored.false_gradual) == ((), (98, 180))  # 101 is nearer to the dissolve at 100
    assert (scored.found_cuts, scored.found_gradual) == (2, 2)


def test_mixed_frames_count_by_the_shares_of_both_scenes(truth: Truth) -> None:
    assert shown_scenes(truth, range(60, 76)) == {1: 1.0}
    shown = shown_scenes(truth, range(95, 105))
    assert shown[1] == pytest.approx(0.5)
    assert shown[2] == pytest.approx(0.5)


def test_a_film_has_every_kind_of_transition() -> None:
    scenes = scene_changes(1)
    made = truth_about(scenes, FPS)
    kinds = [kind_of(made, each) for each in made.transitions]
    assert set(kinds) == set(KINDS)
    assert kinds.count("match cut") == COUNTS["match cut"]
    assert scenes[5].length == scene_changes(1)[5].length
