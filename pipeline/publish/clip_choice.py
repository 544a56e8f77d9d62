"""Choice of clips by film, split, motion level, character, tag, verdict and words; no expressions, nothing evaluated.

    choice = ClipChoice(films=("ponyo.mkv",), levels=parse_levels("4-5"), tags=(parse_tag("EV=forest"),))
    clips = choice.of(dataset.record, seen_clips(dataset))

The conditions hold together. Several films are alternatives; several characters, tags or words must all be there.
Upper and lower case are the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pipeline.core.errors import UserError
from pipeline.core.plain_text import first_few, printable
from pipeline.core.records import slug
from pipeline.core.store import DatasetRecord, FilmEntry
from pipeline.publish.seen_clips import ClipFate, SeenClip
from pipeline.publish.splits import Split
from prompts.tags import TAGS

CHOSEN_TAGS = (*TAGS, "actor")
_MOST_NAMED = 12
"""Most known values that an error names."""


class ChoiceError(UserError):
    """A condition that no clip can meet; the message has the known values."""


@dataclass(frozen=True)
class ClipChoice:
    """Conditions on clips; without any, all clips are chosen."""

    films: tuple[str, ...] = ()
    """Ids, or file names with or without suffix."""
    split: Split | None = None
    levels: range | None = None
    characters: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    """Pairs of a tag and its whole value, see `parse_tag`."""
    verdict: ClipFate | None = None
    words: str = ""
    """Words, or their beginnings, to find in the caption, the reasons, the flags, the film's name or the clip's id."""

    def of(self, record: DatasetRecord, clips: Sequence[SeenClip]) -> list[SeenClip]:
        """Return the chosen clips, in their order.

        Args:
            record: of the data set.
            clips: all its clips.

        Raises:
            ChoiceError: no clip of the data set is of such a film, names such a character, or has such a tag.
        """
        films = _film_ids(record.films, self.films)
        _refuse_unknown_characters(record, clips, self.characters)
        for tag, value in self.tags:
            _refuse_unknown_value(tag, value, clips)
        names = {film.film_id: film.name for film in record.films}
        starts = [re.compile(rf"(?<!\w){re.escape(word)}") for word in _fold(self.words).split()]
        return [
            seen
            for seen in clips
            if (not films or seen.clip.film_id in films)
            and self._fits(seen)
            and _has_words(seen, names[seen.clip.film_id], starts)
        ]

    def _fits(self, seen: SeenClip) -> bool:
        return (
            self.split in (None, seen.split)
            and self.verdict in (None, seen.fate)
            and (self.levels is None or seen.level in self.levels)
            and _folded(self.characters) <= _folded(_characters(seen))
            and all(_fold(_value(seen, tag)) == _fold(value) for tag, value in self.tags)
        )


def parse_levels(text: str) -> range:
    """Parse motion levels: `4`, or `4-5`.

    Raises:
        ChoiceError: it is neither.
    """
    match = re.fullmatch(r"([1-5])(?:-([1-5]))?", text.strip())
    lowest, highest = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if highest < lowest:
        raise ChoiceError(f"{printable(text)!r} is not a range of motion levels; write 4, or 4-5, between 1 and 5")
    return range(lowest, highest + 1)


def parse_tag(text: str) -> tuple[str, str]:
    """Parse a condition on a tag, `EV=forest`, into the tag and its value.

    Raises:
        ChoiceError: it is not of this form, or there is no such tag.
    """
    name, _, value = (part.strip() for part in text.partition("="))
    tag = {known.casefold(): known for known in CHOSEN_TAGS}.get(name.casefold())
    if tag is None or not value:
        raise ChoiceError(f"{printable(text)!r} is not TAG=value, as in EV=forest; the tags are {_named(CHOSEN_TAGS)}")
    return tag, value


def _film_ids(films: Sequence[FilmEntry], wanted: Iterable[str]) -> set[str]:
    found = set[str]()
    for text in wanted:
        ids = {film.film_id for film in films if _fold(text) in _names(film)}
        if not ids:
            raise ChoiceError(f"no film {printable(text)!r} in this data set; it has {_named(f.name for f in films)}")
        found |= ids
    return found


def _names(film: FilmEntry) -> set[str]:
    return _folded([film.film_id, film.name, film.name.rpartition(".")[0], slug(film.name)]) - {""}


def _refuse_unknown_characters(record: DatasetRecord, clips: Iterable[SeenClip], wanted: Sequence[str]) -> None:
    if not wanted:
        return
    known = dict.fromkeys([*record.cast, *(name for seen in clips for name in _characters(seen))])
    if missing := [name for name in wanted if _fold(name) not in _folded(known)]:
        there = (
            f"it has {_named(known)}" if known else "its captions name none: build with --cast and --captioner server"
        )
        raise ChoiceError(f"no character {printable(missing[0])!r} in this data set; {there}")


def _refuse_unknown_value(tag: str, value: str, clips: Iterable[SeenClip]) -> None:
    counts = Counter(said for seen in clips if (said := _value(seen, tag)))
    known = [said for said, _ in counts.most_common()]
    if _fold(value) in _folded(known):
        return
    near = [said for said in known if _fold(value) in _fold(said)]
    near = near or get_close_matches(value, known, n=_MOST_NAMED) or known
    there = f"there is {_named(near)}; --search finds words" if known else "no clip has this tag"
    raise ChoiceError(f"no clip has {tag}={printable(value)}; {there}")


def _characters(seen: SeenClip) -> tuple[str, ...]:
    return (seen.answer and seen.answer.characters) or ()


def _value(seen: SeenClip, tag: str) -> str:
    value = getattr(seen.answer, tag, None)
    return "" if value is None else str(value)


def _has_words(seen: SeenClip, film_name: str, starts: Iterable[re.Pattern[str]]) -> bool:
    answer = seen.answer
    said = (seen.text, answer.S, answer.sentence, *answer.flags) if answer else ()
    text = _fold("\n".join(filter(None, (seen.clip.clip_id, film_name, *said, *seen.reasons))))
    return all(start.search(text) for start in starts)


def _folded(texts: Iterable[str]) -> set[str]:
    return set(map(_fold, texts))


def _fold(text: str) -> str:
    """Text for comparison: file names of some disks hold letters and accents as separate characters."""
    return unicodedata.normalize("NFC", text).casefold()


def _named(values: Iterable[str]) -> str:
    return first_few(list(values), _MOST_NAMED) or "none"
