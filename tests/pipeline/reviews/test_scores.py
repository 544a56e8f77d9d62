"""Scores of labelled fields: counts, readings, sets of names, weights and agreement of reviewers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from pipeline.reviews.decisions import Value, standings
from pipeline.reviews.intervals import wilson
from pipeline.reviews.scores import Agreement, FieldAccuracy, Labelled, accuracies, agreements, readings_of
from tests.support.records import decision

GROUPS = {"MD": {"dash": "run", "sprint": "run"}, "EV": {"woods": "forest"}}


def pairs(field: str, *rows: tuple[Value, Value], stratum: str = "") -> list[Labelled]:
    """Clips with an answer, None for none, and a label."""
    return [Labelled({field: answer}, standings([decision(field, label)]), stratum) for answer, label in rows]


def only(clips: list[Labelled], populations: Mapping[str, float] | None = None) -> FieldAccuracy:
    (found,) = accuracies(clips, {}, populations or {"": math.inf})
    return found


def agreement(field: str, *clips: Mapping[str, Value]) -> Agreement:
    """Agreement about clips with these answers by reviewer."""
    answers = [[decision(field, value, reviewer=name) for name, value in clip.items()] for clip in clips]
    (found,) = agreements([Labelled({}, standings(clip)) for clip in answers], {})
    return found


def test_nulls_are_counted_apart() -> None:
    found = only(pairs("SC", (1, 1), (1, 0), (0, 0), (0, 0), (None, 1), (1, None), (None, None)))
    assert (found.labelled, found.answered, found.unsaid) == (5, 4, 2)
    share = found.shares["exact"]
    assert (share.share, share.low, share.high) == pytest.approx((0.75, *wilson(0.75, 4)))


def test_names_have_precision_and_recall() -> None:
    rows: list[tuple[Value, Value]] = [
        (("Hana", "Søren"), ("Søren", "Hana")),
        (("Hana",), ("Hana", "Søren")),
        (("Hana", "Ponta"), ()),
        ((), ()),
        (None, ("Hana",)),
        (("Hana",), None),
    ]
    shares = {name: share.share for name, share in only(pairs("characters", *rows)).shares.items()}
    assert shares == pytest.approx({"exact": 0.5, "precision": 3 / 5, "recall": 3 / 4})


def test_the_weights_are_those_of_the_strata() -> None:
    clips = pairs("SC", *[(0, 1)] * 10, stratum="rare") + pairs("SC", *[(1, 1)] * 10, stratum="common")
    assert only(clips, {"rare": 100, "common": 900}).shares["exact"].share == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("field", "one", "other", "equal_from"),
    [
        ("MD", "is running through the trees", "run through trees", "lemma"),
        ("MD", "dashes", "sprint", "group"),
        ("EV", "wood", "forest", "group"),
        ("MA", "slow", "slowly", "lemma"),
        ("MA", "slowly", "quickly", None),
        ("characters", ("Hana", "Søren"), ("Søren", "Hana"), "exact"),
        ("actor", "Hana", "hana", "exact"),
        ("SC", 1, 0, None),
    ],
)
def test_values_are_equal_from_a_reading_on(field: str, one: Value, other: Value, equal_from: str | None) -> None:
    readings = readings_of(field, GROUPS)
    equal = [name for name, form in readings.items() if form(one) == form(other)]
    names = list(readings)
    assert equal == (names[names.index(equal_from) :] if equal_from else [])


def test_alpha_is_that_of_krippendorffs_example() -> None:
    """Four observers, twelve units, nominal data (Krippendorff, Computing Alpha-Reliability, section C): 0.743."""
    rows = ["123321412***", "1233224125*3", "*3332342251*", "12332441251*"]
    clips = [{str(place): int(row[unit]) for place, row in enumerate(rows) if row[unit] != "*"} for unit in range(12)]
    found = agreement("others", *clips)
    assert (found.clips, found.alpha) == (11, pytest.approx(0.743, abs=5e-4))


def test_names_agree_as_sets_and_not_to_be_said_is_an_answer() -> None:
    found = agreement(
        "characters",
        {"anna": ("Hana", "Søren"), "ben": ("Søren", "Hana")},
        {"anna": (), "ben": None},
        {"anna": None, "ben": None},
    )
    assert (found.clips, found.equal) == (3, 2)
    assert found.alpha is not None
    assert 0 < found.alpha < 1
