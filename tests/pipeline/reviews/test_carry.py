"""Characters carried from reviewed clips: who looks alike gets them, and doubt shows in the confidence."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.reviews.carry import Likeness, Reviewed, carry, most_telling

LOOKS = np.eye(8, dtype=np.float32)


def likeness(looks: list[int], *, apart: float = 100.0, noise: float = 0.1) -> Likeness:
    """Clips with these looks, each in a scene of its own, far apart in time."""
    dice = np.random.default_rng(0)
    vectors_CPD = LOOKS[looks][:, None] + dice.normal(0, noise, (len(looks), 3, 8)).astype(np.float32)
    clips = len(looks)
    return Likeness.of(vectors_CPD, [0] * clips, list(range(clips)), [apart * clip for clip in range(clips)])


def test_clips_get_the_characters_and_the_actor_of_the_reviewed_clip_that_they_look_like() -> None:
    looks = [0, 1, 2] * 4
    said = {0: Reviewed(("Sosuke", "Ponyo"), "Ponyo"), 1: Reviewed(("Lisa",), "Lisa"), 2: Reviewed((), "wave")}
    found = carry(likeness(looks), said)
    assert found.keys() == set(range(3, 12))
    wanted = [(("Ponyo", "Sosuke"), "Ponyo"), (("Lisa",), "Lisa"), ((), "wave")]
    assert [(found[row].characters, found[row].actor) for row in range(3, 12)] == wanted * 3


def test_time_and_scene_carry_where_pictures_say_nothing() -> None:
    same = np.ones((6, 3, 8), np.float32)
    clips = Likeness.of(same, [0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0], [1, 3, 40, 42, 1, 3])
    found = carry(clips, {0: Reviewed(("Ponyo",), None), 2: Reviewed(("Lisa",), None)})
    assert [found[row].characters for row in (1, 3)] == [("Ponyo",), ("Lisa",)]
    assert max(found[4].confidence, found[5].confidence) < min(found[1].confidence, found[3].confidence)


def test_without_reviews_nothing_is_carried_and_one_review_is_no_certainty() -> None:
    clips = likeness([0, 0, 0, 1])
    assert carry(clips, {}) == {}
    found = carry(clips, {0: Reviewed(("Ponyo",), "Ponyo")})
    assert {guess.characters for guess in found.values()} == {("Ponyo",)}
    assert found[3].confidence < found[1].confidence < 0.9


def test_a_film_of_one_character_becomes_surer_with_reviews() -> None:
    clips = likeness([0, 1, 2, 3] * 10)
    alone = Reviewed(("Ponyo",), "Ponyo")
    few, many = (carry(clips, dict.fromkeys(range(count), alone)) for count in (4, 20))
    assert {guess.characters for guess in (*few.values(), *many.values())} == {("Ponyo",)}
    assert few[39].confidence < many[39].confidence


def test_twins_leave_doubt() -> None:
    looks = [0, 0, 1, 2] * 5
    names = {0: "Lum", 1: "Ran", 2: "Ten", 3: "Ataru"}
    said = {row: Reviewed((names[row % 4],), None) for row in range(8)}
    found = carry(likeness(looks), said)
    assert {found[row].characters for row in (11, 15, 19)} == {("Ataru",)}
    assert max(found[row].confidence for row in (8, 9, 12, 13, 16, 17)) < 0.6
    assert min(found[row].confidence for row in (10, 11, 14, 15, 18, 19)) > 0.6


def test_the_next_clips_to_review_are_of_looks_that_no_reviewed_clip_has() -> None:
    looks = [0] * 9 + [1] * 6 + [2] * 3
    clips = likeness(looks)
    first = most_telling(clips, [], 3)
    assert [looks[row] for row in first] == [0, 1, 2]
    assert [looks[row] for row in most_telling(clips, [first[0]], 2)] == [1, 2]
    assert set(most_telling(clips, [first[0]], 99)) == set(range(18)) - {first[0]}


def test_a_doubtful_look_comes_before_a_common_one() -> None:
    looks = [0] * 9 + [1] * 6
    doubt_C = np.array([0.1] * 9 + [1.0] * 6)
    assert looks[most_telling(likeness(looks), [], 1, doubt_C)[0]] == 1


def test_many_clips_are_compared_in_parts() -> None:
    clips = likeness([row % 8 for row in range(5000)])
    found = carry(clips, {row: Reviewed((f"name {row}",), None) for row in range(8)})
    assert all(found[row].characters == (f"name {row % 8}",) for row in range(8, 5000))
    assert len(most_telling(clips, [0], 5)) == 5


@pytest.mark.parametrize("reviewed", [[], [0]])
def test_no_clips_give_no_guesses(reviewed: list[int]) -> None:
    clips = likeness([0])
    assert carry(clips, {row: Reviewed((), None) for row in [0]}) == {}
    assert most_telling(clips, reviewed, 5) == ([] if reviewed else [0])
