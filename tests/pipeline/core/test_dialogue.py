"""Spans of dialogue: lines clipped to a clip, lines that can be quoted, and films without subtitles."""

from pathlib import Path

from pipeline.core.dialogue import NO_DIALOGUE, Dialogue
from pipeline.core.store import FilmFolder
from tests.support.datasets.dialogue import line, write_dialogue

FILM = Dialogue([line(0, 25, "long"), line(9.95, 12, "later"), line(11.95, 13, "edge"), line(20, 21, "far")], True)


def test_lines_are_clipped_and_counted_from_the_start_of_the_span() -> None:
    lines = FILM.within(10, 12) or ()
    assert [(one.text, one.start_seconds, one.end_seconds) for one in lines] == [("long", 0, 2), ("later", 0, 2)]


def test_lines_heard_by_half_can_be_quoted() -> None:
    assert [one.text for one in FILM.mostly_within(11, 13)] == ["edge"]
    assert [one.text for one in FILM.mostly_within(0, 13)] == ["long", "later", "edge"]


def test_a_film_without_usable_subtitles_has_unknown_dialogue(tmp_path: Path) -> None:
    folder = FilmFolder(tmp_path / "film-01234567")
    assert Dialogue.of(folder) is NO_DIALOGUE
    assert NO_DIALOGUE.within(0, 100) is None
    write_dialogue(folder)
    assert Dialogue.of(folder).within(0, 100) == ()
