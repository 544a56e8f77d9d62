"""Readings of labels: each joins at least the values that the stricter one joins."""

from __future__ import annotations

import pytest

from pipeline.reviews.audit.readings import EXACT, GROUP, LEMMA, SCORED, readings_of
from pipeline.reviews.decisions import Value

GROUPS = {"MD": {"dash": "run", "sprint": "run"}, "EV": {"woods": "forest"}}


@pytest.mark.parametrize(
    ("field", "one", "other", "equal_from"),
    [
        ("MD", "run", "run", EXACT),
        ("MD", "runs", "run", LEMMA),
        ("MD", "is running through the trees", "run through trees", LEMMA),
        ("MD", "dash", "run", GROUP),
        ("MD", "dashes", "sprint", GROUP),
        ("MD", "walk", "run", None),
        ("EV", "a forest", "forest", LEMMA),
        ("EV", "wood", "forest", GROUP),
        ("EV", "forest", "meadow", None),
        ("S", "butterflies", "butterfly", LEMMA),
        ("S", "girl", "boy", None),
        ("MA", "slow", "slowly", LEMMA),
        ("MA", "slowly", "quickly", None),
        ("characters", ("Hana", "Søren"), ("Søren", "Hana"), EXACT),
        ("characters", (), ("Hana",), None),
        ("actor", "Hana", "hana", EXACT),
        ("SC", 1, 1, EXACT),
        ("SC", 1, 0, None),
    ],
)
def test_values_are_equal_from_a_reading_on(field: str, one: Value, other: Value, equal_from: str | None) -> None:
    readings = readings_of(field, GROUPS)
    equal = [name for name, form in readings.items() if form(one) == form(other)]
    names = list(readings)
    assert equal == (names[names.index(equal_from) :] if equal_from else [])


def test_a_data_set_without_a_vocabulary_has_no_groups() -> None:
    assert list(readings_of("MD", {})) == [EXACT, LEMMA]
    assert list(readings_of("ST", GROUPS)) == [EXACT]


def test_a_sentence_is_not_scored() -> None:
    assert "sentence" not in SCORED
    assert "keep" in SCORED
