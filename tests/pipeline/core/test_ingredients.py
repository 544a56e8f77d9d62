"""Ingredients: equal fingerprints for equal values, names of changed ones, and results redone only when stale."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pipeline.core.ingredients import ResultNote, ResultNotes, changed, changes, fingerprint, read_note

PAGES = {"versions": [1, 2], "card": {"title": "Käse"}}
NOTED = """{
  "report": {
    "files": {
      "README.md": 5,
      "sub/report.html": 6
    },
    "made_from": "4d4f81ad713264d1"
  },
  "shards": {
    "files": {},
    "made_from": "0123456789abcdef"
  }
}
"""
"""`published.json` as written by every version."""


def test_a_fingerprint_is_the_same_in_every_version_and_order() -> None:
    assert fingerprint(PAGES) == "4d4f81ad713264d1"
    assert fingerprint({"card": {"title": "Käse"}, "versions": (1, 2)}) == fingerprint(PAGES)
    assert fingerprint({"card": {"title": "Käse"}, "versions": (2, 1)}) != fingerprint(PAGES)


def test_changed_ingredients_are_named_at_any_depth_and_short_values_shown() -> None:
    before = {"settings": {"left": 0, "right": 1}, "content": "a" * 64, "upstream": {"cut": "1"}, "gone": True}
    now = {"settings": {"left": 2, "right": 1}, "content": "b" * 64, "upstream": {"cut": "2"}, "new": None}
    assert changed(before, now) == ["content", "gone", "new", "settings.left", "upstream.cut"]
    assert changes(before, now) == (
        "content, gone (true to none), new (none to null), settings.left (0 to 2), upstream.cut"
    )
    assert changed(before, before) == []
    assert changed({"films": [{"match": "*", "skip": []}]}, {"films": [{"skip": [], "match": "*"}]}) == []


def test_files_are_checked_only_if_the_ingredients_are_unchanged() -> None:
    looked: list[str] = []

    def marks(names: Iterable[str]) -> dict[str, int]:
        looked.extend(names)
        return {"one": 1, "two": 3}

    made_from = ResultNote(fingerprint(PAGES), {"one": 1, "two": 2, "three": 3})
    assert made_from.why_stale({}, marks) == "changed"
    assert not looked
    assert made_from.why_stale(PAGES, marks) == "missing or damaged: two (2 of 3 files)"
    assert ResultNote(fingerprint(PAGES), {"one": 1}).why_stale(PAGES, marks) is None
    assert ResultNote(fingerprint({"a": 1}), {}, {"a": 1}).why_stale({"a": 2}, marks) == "changed: a (1 to 2)"


@pytest.fixture
def notes(tmp_path: Path) -> ResultNotes:
    (tmp_path / "published.json").write_text(NOTED, encoding="utf-8")
    return ResultNotes(tmp_path / "published.json")


def pages(root: Path, report: str = "report") -> Callable[[], list[Path]]:
    def write() -> list[Path]:
        (root / "sub").mkdir(exist_ok=True)
        (root / "README.md").write_text("title")
        (root / "sub" / "report.html").write_text(report)
        return [root / "README.md", root / "sub" / "report.html"]

    return write


def test_changed_ingredients_and_damaged_files_make_it_again(notes: ResultNotes, tmp_path: Path) -> None:
    assert notes.renew("report", {}, pages(tmp_path, "another"))
    assert notes.why_stale("report", PAGES) == "changed"
    (tmp_path / "README.md").write_text("cut")
    assert notes.why_stale("report", {}) == "missing or damaged: README.md (1 of 2 files)"
    assert notes.renew("report", {}, pages(tmp_path))
    assert notes.why_stale("report", {}) is None


def test_a_kill_while_a_result_is_made_invalidates_the_old_one(notes: ResultNotes, tmp_path: Path) -> None:
    pages(tmp_path)()
    assert notes.why_stale("report", PAGES) is None

    def be_killed() -> list[Path]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        notes.renew("report", {}, be_killed)
    assert notes.why_stale("report", PAGES) == "not made yet"
    assert (read_note(notes.path) or {}).keys() == {"shards"}


@pytest.mark.parametrize("damaged", ["", "{", "[]", "\udcff"])
def test_damaged_notes_are_made_again(notes: ResultNotes, tmp_path: Path, damaged: str) -> None:
    notes.path.write_bytes(damaged.encode(errors="surrogateescape"))
    assert notes.renew("report", PAGES, pages(tmp_path))
    assert notes.why_stale("report", PAGES) is None
    notes.path.unlink()
    assert notes.why_stale("report", PAGES) == "not made yet"
