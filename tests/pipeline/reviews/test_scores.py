"""Scores of labelled fields: counts, readings, sets of names, weights, confusions and agreement of reviewers."""

from __future__ import annotations

import pytest

from pipeline.reviews.decisions import Value
from pipeline.reviews.intervals import wilson
from pipeline.reviews.scores import FieldAccuracy, Labelled, accuracies, agreements, readings_of

GROUPS = {"MD": {"dash": "run", "sprint": "run"}, "EV": {"woods": "forest"}}


def pairs(field: str, *rows: tuple[Value, Value], stratum: str = "") -> list[Labelled]:
    """Clips with an answer, None for none, and a label."""
    return [Labelled({field: answer} if answer is not None else {}, {field: label}, stratum) for answer, label in rows]


def only(clips: list[Labelled], groups: dict[str, dict[str, str]] | None = None) -> FieldAccuracy:
    (found,) = accuracies(clips, groups or {}, None)
    return found


def test_nulls_are_counted_apart() -> None:
    found = only(pairs("SC", (1, 1), (1, 0), (0, 0), (0, 0), (None, 1), (1, None), (None, None)))
    assert (found.labelled, found.answered, found.unsaid) == (5, 4, 2)
    assert found.best
    assert found.best.share == 0.75
    assert (found.best.low, found.best.high) == pytest.approx(wilson(0.75, 4))


def test_names_have_precision_and_recall() -> None:
    found = only(
        pairs(
            "characters",
            (("Hana", "Søren"), ("Søren", "Hana")),
            (("Hana",), ("Hana", "Søren")),
            (("Hana", "Ponta"), ()),
            ((), ()),
            (None, ("Hana",)),
            (("Hana",), None),
        )
    )
    assert found.best
    assert found.best.share == 0.5
    assert found.precision
    assert found.recall
    assert found.precision.share == pytest.approx(3 / 5)
    assert found.recall.share == pytest.approx(3 / 4)


def test_the_weights_are_those_of_the_strata() -> None:
    rare = pairs("SC", *[(0, 1)] * 10, stratum="rare")
    common = pairs("SC", *[(1, 1)] * 10, stratum="common")
    (found,) = accuracies(rare + common, {}, {"rare": 100, "common": 900})
    assert found.best
    assert found.best.share == pytest.approx(0.9)
    assert only(rare + common).best.share == 0.5  # type: ignore[union-attr]


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


def voices(field: str, *answers: dict[str, Value]) -> list[dict[str, dict[str, Value]]]:
    return [{field: answer} for answer in answers]


def test_alpha_is_that_of_krippendorffs_example() -> None:
    """Four observers, twelve units, nominal data (Krippendorff, Computing Alpha-Reliability, section C): 0.743."""
    rows = ["123321412***", "1233224125*3", "*3332342251*", "12332441251*"]
    clips = [
        {f"observer {place}": int(row[unit]) for place, row in enumerate(rows) if row[unit] != "*"}
        for unit in range(12)
    ]
    (found,) = agreements(voices("others", *clips), {})
    assert found.clips == 11
    assert found.alpha == pytest.approx(0.743, abs=5e-4)


def test_names_agree_as_sets_and_not_to_be_said_is_an_answer() -> None:
    pair: Value = ("Hana", "Søren")
    answers: list[dict[str, Value]] = [
        {"anna": pair, "ben": pair[::-1]},
        {"anna": (), "ben": None},
        {"anna": None, "ben": None},
    ]
    (found,) = agreements(voices("characters", *answers), {})
    assert (found.clips, found.equal) == (3, 2)
    assert found.alpha is not None
    assert 0 < found.alpha < 1


@pytest.mark.slow
def test_very_many_values_fit_into_memory() -> None:
    """A table of all of them would take 1 TB; half of the answers are equal."""
    answers: list[dict[str, Value]] = [
        {"anna": f"run {clip}", "ben": f"run {clip}" if clip % 2 else f"walk {clip}"} for clip in range(4000)
    ]
    (found,) = agreements(voices("MD", *answers), {})
    assert (found.clips, found.equal) == (4000, 2000)
    assert found.alpha == pytest.approx(0.5, abs=0.1)
