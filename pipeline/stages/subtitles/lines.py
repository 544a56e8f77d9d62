"""Lines of dialogue among the events of a subtitle track; signs, songs and effects are left out by named rules.

Fansubs mark signs and songs by the name of their style (`Signs`, `OP Romaji`), by a position on the picture (`\\pos`),
by karaoke (`\\k`) or as drawings (`\\p1`). Broadcast captions put sounds in brackets, and notes of music around songs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pysubs2 import SSAEvent

from pipeline.core.dialogue import LONGEST_LINE_SECONDS, LeftOutRule, SpokenLine

SIGNS = {"sign", "signs", "title", "titles", "eyecatch", "credit", "credits", "staff", "typeset", "ts", "note"} | {
    *("notes", "tn", "tl", "screen", "logo")
}
SONGS = {"song", "songs", "op", "ed", "opening", "ending", "karaoke", "kara", "lyric", "lyrics", "insert"} | {
    *("romaji", "kanji", "theme")
}
"""Words in the names of styles. Names are divided at case, digits and signs: `OP2-Romaji` is `op` and `romaji`."""
MOST_CHARACTERS = 500
"""Longest text of a line; two lines of subtitles have about 90."""
SHORTEST_SECONDS = 0.01
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_OVERRIDES = re.compile(r"\{[^{}]*\}")
_DRAWING, _KARAOKE = re.compile(r"\\p[1-9]"), re.compile(r"\\[kK][fo]?\d")
_PLACED = re.compile(r"\\(?:pos|move)\s*\(")
_NOTES = re.compile("[♪♫♬]")
_BRACKETED = re.compile(r"(?:[-\s]*[\[(（【〔][^\[\](（）)【】〔〕]*[\])）】〕])+[\s.。]*")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Control characters, and marks of direction that would reorder a page."""


@dataclass(frozen=True)
class Found:
    """Lines of a track in order of time, and the number of its other events by rule."""

    lines: list[SpokenLine]
    left_out: Counter[LeftOutRule]
    by_position: bool
    """False: most lines have a position, so a position says nothing."""


def spoken_lines(
    events: Sequence[SSAEvent], *, start_seconds: float, film_seconds: float, language: str | None
) -> Found:
    """Find the lines of dialogue of a track.

    Args:
        events: the events, in times of the track.
        start_seconds: time of the film's first frame on the clock of the track.
        film_seconds: length of the film.
        language: language of the track, noted in each line.
    """
    left_out: Counter[LeftOutRule] = Counter()
    said: list[tuple[SSAEvent, str]] = []
    for event in events:
        rule, text = _judge(event)
        if rule:
            left_out[rule] += 1
        else:
            said.append((event, text))
    placed = [bool(_PLACED.search(event.text)) for event, _ in said]
    by_position = 2 * sum(placed) <= len(placed)
    found: dict[tuple[object, ...], SpokenLine] = {}
    for (event, text), is_placed in zip(said, placed, strict=True):
        line = _line(event, text, start_seconds, film_seconds, language)
        if by_position and is_placed:
            left_out["sign by position"] += 1
        elif isinstance(line, str):
            left_out[line] += 1
        elif found.setdefault((line.start_seconds, line.end_seconds, line.text), line) is not line:
            left_out["repeated"] += 1
    lines = sorted(found.values(), key=lambda line: (line.start_seconds, line.end_seconds, line.text))
    return Found(lines, left_out, by_position)


def _judge(event: SSAEvent) -> tuple[LeftOutRule | None, str]:
    """Return the rule that leaves an event out by its form, or None and its plain text."""
    if event.is_comment:
        return "comment", ""
    tags = "".join(_OVERRIDES.findall(event.text))
    if _DRAWING.search(tags):
        return "drawing", ""
    words = {word.lower() for word in _WORD.findall(event.style)}
    if words & SONGS:
        return "song by style", ""
    if words & SIGNS:
        return "sign by style", ""
    if _KARAOKE.search(tags):
        return "karaoke", ""
    text = plain(event.text)
    if not text:
        return "empty", ""
    if len(text) > MOST_CHARACTERS:
        return "too long", ""
    if _NOTES.search(text):
        return "song by notes", ""
    return ("sound", "") if _BRACKETED.fullmatch(text) else (None, text)


def plain(text: str) -> str:
    """Return the text of an event on one line, without overrides and unseen characters."""
    # not SSAEvent.plaintext, which takes quadratic time for a text of opening braces
    text = _OVERRIDES.sub("", text)
    text = text.replace("\\N", " ").replace("\\n", " ").replace("\\h", " ").replace("\t", " ")
    return " ".join(_UNSEEN.sub("", text).split())


def _line(
    event: SSAEvent, text: str, start_seconds: float, film_seconds: float, language: str | None
) -> SpokenLine | LeftOutRule:
    start, end = event.start / 1000 - start_seconds, event.end / 1000 - start_seconds
    if end - start > LONGEST_LINE_SECONDS:
        return "too long"
    if start >= film_seconds:
        return "beyond the end"
    start, end = max(0.0, start), min(end, film_seconds)
    if end - start < SHORTEST_SECONDS:
        return "no length"
    speaker = plain(event.name)[:MOST_CHARACTERS] or None
    return SpokenLine(
        start_seconds=round(start, 3), end_seconds=round(end, 3), text=text, speaker=speaker, language=language
    )
