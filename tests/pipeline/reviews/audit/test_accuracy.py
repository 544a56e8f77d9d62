"""Accuracy of fields: counts, readings, sets of names, weights and confusions."""

from __future__ import annotations

import pytest

from pipeline.reviews.audit.accuracy import Confusion, FieldAccuracy, Labelled, accuracies
from pipeline.reviews.audit.intervals import wilson
from pipeline.reviews.decisions import Value


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
    assert found.coverage
    assert found.coverage.share == 0.8
    assert found.confusions == (Confusion(answer="1", label="0", clips=1),)


def test_words_are_read_in_three_ways() -> None:
    clips = pairs("MD", ("run", "run"), ("runs", "run"), ("dashes", "run"), ("dash", "walk"), ("jump", "walk"))
    found = only(clips, {"MD": {"dash": "run"}})
    assert {name: share.share for name, share in found.accuracy.items()} == {
        "exact": 0.2,
        "lemma": 0.4,
        "group": pytest.approx(0.6),
    }
    assert found.confusions == (
        Confusion(answer="jump", label="walk", clips=1),
        Confusion(answer="run", label="walk", clips=1),
    )


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
    assert found.confusions == (
        Confusion(answer="Hana", label="Hana, Søren", clips=1),
        Confusion(answer="Hana, Ponta", label="nobody", clips=1),
    )


def test_a_field_without_an_answer_has_no_accuracy() -> None:
    found = only(pairs("EV", (None, "forest"), (None, "sea")))
    assert found.best is None
    assert found.accuracy == {}
    assert found.coverage
    assert found.coverage.share == 0
    assert found.coverage.high < 1


def test_the_weights_are_those_of_the_strata() -> None:
    rare = pairs("SC", *[(0, 1)] * 10, stratum="rare")
    common = pairs("SC", *[(1, 1)] * 10, stratum="common")
    (found,) = accuracies(rare + common, {}, {"rare": 100, "common": 900})
    assert found.best
    assert found.best.share == pytest.approx(0.9)
    assert only(rare + common).best.share == 0.5  # type: ignore[union-attr]


def test_only_labelled_fields_are_listed_and_a_sentence_never_is() -> None:
    clip = Labelled({"keep": True, "SC": 1, "sentence": "A."}, {"keep": False, "sentence": "B.", "ST": -1})
    found = {one.field: one for one in accuracies([clip], {}, None)}
    assert list(found) == ["keep", "ST"]
    assert found["keep"].confusions == (Confusion(answer="keep", label="drop", clips=1),)


def test_the_most_frequent_confusions_come_first() -> None:
    rows: list[tuple[Value, Value]] = [("sea", f"place{number}") for number in range(8)]
    found = only(pairs("EV", *rows, ("sea", "place7"), ("sea", "place7")))
    assert len(found.confusions) == 5
    assert found.confusions[0] == Confusion(answer="sea", label="place7", clips=3)
