"""Agreement of reviewers: published values of Krippendorff's alpha, sets of names, clips seen by one only."""

from __future__ import annotations

import pytest

from pipeline.reviews.audit.agreement import agreements
from pipeline.reviews.decisions import Value


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


def test_answers_are_compared_by_their_widest_reading() -> None:
    clips = voices("MD", {"anna": "runs", "ben": "dash"}, {"anna": "walk", "ben": "sit"}, {"anna": "run"})
    (found,) = agreements(clips, {"MD": {"dash": "run"}})
    assert (found.clips, found.equal, found.reviewers) == (2, 1, ("anna", "ben"))


def test_names_agree_as_sets_and_not_to_be_said_is_an_answer() -> None:
    clips = voices(
        "characters",
        {"anna": ("Hana", "Søren"), "ben": ("Søren", "Hana")},
        {"anna": (), "ben": None},
        {"anna": None, "ben": None},
    )
    (found,) = agreements(clips, {})
    assert (found.clips, found.equal) == (3, 2)
    assert found.alpha is not None
    assert 0 < found.alpha < 1


def test_alpha_of_one_value_alone_is_undefined() -> None:
    (found,) = agreements(voices("SC", {"anna": 1, "ben": 1}, {"anna": 1, "ben": 1}), {})
    assert (found.equal, found.alpha) == (2, None)


@pytest.mark.slow
def test_very_many_values_fit_into_memory() -> None:
    """A table of all of them would take 1 TB; half of the answers are equal."""
    answers: list[dict[str, Value]] = [
        {"anna": f"run {clip}", "ben": f"run {clip}" if clip % 2 else f"walk {clip}"} for clip in range(4000)
    ]
    (found,) = agreements(voices("MD", *answers), {})
    assert (found.clips, found.equal) == (4000, 2000)
    assert found.alpha == pytest.approx(0.5, abs=0.1)


def test_a_single_reviewer_has_no_agreement() -> None:
    assert agreements(voices("SC", {"anna": 1}, {"ben": 1}), {}) == []
