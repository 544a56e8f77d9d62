"""Changes as the detectors find them: which of two that overlap is a false detection."""

from __future__ import annotations

from dataclasses import replace

from pipeline.stages.changes import Change

TRUE, LOPSIDED = Change(69, 75, 82, "wipe"), Change(69, 75, 120, "wipe")


def test_a_lopsided_change_is_replaced_by_the_one_it_holds() -> None:
    assert TRUE.replaces(LOPSIDED)
    assert not LOPSIDED.replaces(TRUE)
    assert replace(TRUE, is_joined=True).replaces(LOPSIDED)
    assert Change(107, 114, 120, "wipe").replaces(Change(69, 114, 120, "wipe"))


def test_others_are_not_replaced() -> None:
    assert not TRUE.replaces(replace(LOPSIDED, frame=95)), "one that proceeds evenly"
    assert not TRUE.replaces(replace(LOPSIDED, after=92)), "one that is hardly longer"
    assert not TRUE.replaces(replace(LOPSIDED, before=90, frame=92)), "one elsewhere"
    assert not TRUE.replaces(replace(LOPSIDED, is_joined=True)), "one joined from several, perhaps true ones"
    assert not replace(TRUE, is_sure=False).replaces(LOPSIDED), "a certain one, by one in doubt"
    assert replace(TRUE, is_sure=False).replaces(replace(LOPSIDED, is_sure=False))
    assert not Change(74, 75, 75, "cut").replaces(LOPSIDED), "a gradual change, by a cut"


def test_a_joined_change_says_so() -> None:
    joined = TRUE.joined(Change(80, 85, 90, "dissolve"))
    assert (joined.before, joined.frame, joined.after, joined.kind) == (69, 75, 90, "dissolve")
    assert joined.is_joined
