"""Standing of a field: the newest line of each reviewer, conflicts, and their settling."""

from __future__ import annotations

import pytest

from pipeline.reviews.decisions import Decision
from pipeline.reviews.standing import Standing, standings
from tests.support.records import decision


def by(reviewer: str, *values: object, minute: int = 0, field: str = "MD") -> Decision:
    return decision(field, *values, minute=minute, reviewer=reviewer)


def standing(*decisions: Decision) -> Standing | None:
    found = standings(decisions)
    assert len(found) <= 1
    return next(iter(found.values()), None)


def test_the_newest_line_of_a_reviewer_stands_wherever_it_is_in_the_file() -> None:
    found = standing(by("anna", "run", minute=2), by("anna", "walk", minute=1))
    assert found is not None
    assert (found.value, found.reviewer, found.conflict, dict(found.voices)) == ("run", "anna", False, {"anna": "run"})


def test_of_lines_of_one_time_the_last_stands() -> None:
    found = standing(by("anna", "run"), by("anna", "walk"))
    assert found is not None
    assert found.value == "walk"


def test_a_withdrawn_decision_is_gone_and_may_be_made_again() -> None:
    made, undone = by("anna", "run", minute=1), by("anna", minute=2)
    assert standing(made, undone) is None
    assert standing(undone) is None
    again = standing(made, undone, by("anna", "run", minute=3))
    assert again is not None
    assert again.value == "run"
    left = standing(by("bob", "walk"), made, undone)
    assert left is not None
    assert (left.value, left.conflict) == ("walk", False)


def test_a_value_that_cannot_be_said_stands() -> None:
    found = standing(by("anna", None))
    assert found is not None
    assert (found.value, dict(found.voices)) == (None, {"anna": None})


def test_reviewers_who_differ_are_a_conflict_until_it_is_settled() -> None:
    anna, bob = by("anna", "run", minute=1), by("bob", "walk", minute=2)
    found = standing(bob, anna)
    assert found is not None
    assert (found.value, found.conflict, list(found.voices.items())) == (
        ("walk", True, [("anna", "run"), ("bob", "walk")])
    )
    settled = by("settled: carla", "crawl", minute=3)
    found = standing(settled, bob, anna)
    assert found is not None
    assert (found.value, found.reviewer, found.conflict) == ("crawl", "settled: carla", False)
    assert found.voices == {"anna": "run", "bob": "walk"}
    reopened = standing(anna, bob, settled, by("anna", "jump", minute=4))
    assert reopened is not None
    assert (reopened.value, reopened.conflict) == ("jump", True)
    early = standing(by("settled: carla", "crawl"), anna, bob)
    assert early is not None
    assert (early.value, early.conflict) == ("walk", True)
    unsettled = standing(anna, bob, settled, by("settled: carla", minute=4))
    assert unsettled is not None
    assert (unsettled.value, unsettled.conflict) == ("walk", True)


def test_a_voice_that_joins_the_settled_value_opens_no_conflict() -> None:
    lines = [by("anna", "run", minute=1), by("bob", "walk", minute=2), by("settled: carla", "walk", minute=3)]
    joined = standing(*lines, by("anna", "walk", minute=4))
    assert joined is not None
    assert (joined.value, joined.conflict) == ("walk", False)
    differs = standing(*lines, by("dora", "run", minute=4), by("anna", "walk", minute=5))
    assert differs is not None
    assert differs.conflict


def test_reviewers_who_come_to_agree_are_no_conflict() -> None:
    found = standing(by("anna", "run"), by("bob", "walk"), by("anna", "walk", minute=1))
    assert found is not None
    assert (found.value, found.conflict) == ("walk", False)


@pytest.mark.parametrize(
    ("field", "one", "other", "differ"),
    [
        ("characters", ["Hana", "Søren"], ["Søren", "Hana"], False),
        ("characters", ["Hana"], [], True),
        ("characters", [], None, True),
        ("sentence", "Hana  runs.", "hana runs.", False),
        ("sentence", "Hana runs.", "Hana walks.", True),
        ("keep", True, False, True),
        ("ST", 1, -1, True),
        ("SC", 1, 1, False),
        ("SC", 0, None, True),
    ],
)
def test_equal_decisions_need_not_be_equal_text(field: str, one: object, other: object, differ: bool) -> None:
    found = standing(by("anna", one, field=field), by("bob", other, field=field))
    assert found is not None
    assert found.conflict is differ


def test_fields_stand_alone() -> None:
    found = standings([by("anna", "run"), by("bob", 1, field="SC"), by("bob", True, field="keep")])
    assert {field: (one.value, one.reviewer) for field, one in found.items()} == {
        "MD": ("run", "anna"),
        "SC": (1, "bob"),
        "keep": (True, "bob"),
    }
