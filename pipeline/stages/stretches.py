"""Stretches of a film to leave out: skipped ranges, openings and the like by their chapters, and repeats."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.core.config import Rule, SelectionSettings
from pipeline.core.film_settings import range_seconds
from pipeline.core.records import Film

Kind = Literal["opening", "ending", "recap", "preview"]
CHAPTER_ERROR_SECONDS = 0.25
"""Part of a clip that a chapter may cover: chapters begin at key frames, near a cut."""
_CHAPTERS: dict[Kind, str] = {
    "opening": r"(?:nc)?op|opening|オープニング",
    "ending": r"(?:nc)?ed|ending|(?:end |ending )?credits|エンディング",
    "recap": r"recap|previously(?: on .*)?|(?:前回の)?あらすじ",
    "preview": r"preview|next episode|(?:next )?episode preview|(?:次回)?予告",
}
_TITLES = {
    kind: re.compile(rf"(?:{names}) ?\d*(?: (?:theme|song|credits|animation))?(?: ?[-:–—「(].*)?", re.IGNORECASE)
    for kind, names in _CHAPTERS.items()
}


@dataclass(frozen=True)
class Stretch:
    """Stretch of a film whose clips are dropped for one reason."""

    start_seconds: float
    end_seconds: float
    reason: Literal["skipped", "repeated"] | Kind

    def holds(self, start_seconds: float, end_seconds: float) -> bool:
        """Return True if it drops a clip of these times: skipped ranges to the frame, others with their error."""
        allowed = 0.0 if self.reason == "skipped" else CHAPTER_ERROR_SECONDS
        return min(self.end_seconds, end_seconds) - max(self.start_seconds, start_seconds) > allowed


def kind_of_chapter(title: str | None) -> Kind | None:
    """Kind of a chapter by its name in English or Japanese; None for a part of the story, or without a name."""
    text = " ".join(unicodedata.normalize("NFKC", title or "").split())
    return next((kind for kind, names in _TITLES.items() if names.fullmatch(text)), None)


def stretches_of(film: Film, settings: SelectionSettings) -> list[Stretch]:
    """Return the stretches to leave out of a film, in order of their start; they may overlap."""
    found = (*_skipped(film, settings), *_chapters(film, settings), *_repeats(film, settings))
    return sorted(found, key=lambda one: one.start_seconds)


def _skipped(film: Film, settings: SelectionSettings) -> Iterator[Stretch]:
    for start, end in map(range_seconds, _ranges(film, settings)):
        if start < film.duration_seconds:
            yield Stretch(start, min(end, film.duration_seconds), "skipped")


def ranges_beyond(film: Film, settings: SelectionSettings) -> list[str]:
    """Return the ranges to skip that begin at the film's end or later, as written."""
    return [text for text in _ranges(film, settings) if range_seconds(text)[0] >= film.duration_seconds]


def _ranges(film: Film, settings: SelectionSettings) -> Sequence[str]:
    return settings.skip if film.skip is None else film.skip


def _chapters(film: Film, settings: SelectionSettings) -> Iterator[Stretch]:
    rules = _rules(settings)
    for chapter in film.chapters or ():
        kind, end = kind_of_chapter(chapter.title), min(chapter.end_seconds, film.duration_seconds)
        if kind and rules[kind] == "drop" and end > chapter.start_seconds:
            yield Stretch(chapter.start_seconds, end, kind)


def _repeats(film: Film, settings: SelectionSettings) -> Iterator[Stretch]:
    rules = _rules(settings)
    for repeat in film.repeats:
        rule, end = rules[repeat.kind], min(repeat.end_seconds, film.duration_seconds)
        if rule == "drop" or (rule == "first" and not repeat.is_first):
            yield Stretch(repeat.start_seconds, end, repeat.kind)


def _rules(settings: SelectionSettings) -> dict[str, Rule]:
    return {
        "opening": settings.openings,
        "ending": settings.endings,
        "recap": settings.recaps,
        "preview": settings.previews,
        "repeated": settings.repeats,
    }


def reasons_at(stretches: Sequence[Stretch], start_seconds: float, end_seconds: float) -> list[str]:
    """Return the reasons to drop a clip of these times, each once."""
    return list(dict.fromkeys(one.reason for one in stretches if one.holds(start_seconds, end_seconds)))
