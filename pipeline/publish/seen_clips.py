"""Clips of a dataset with everything known about each, and the choice of clips by conditions.

    choice = ClipChoice(films=("ponyo.mkv",), levels=parse_levels("4-5"), tags=(parse_tag("EV=forest"),))
    for seen in choice.of(dataset.record, seen_clips(dataset)): ...

A missing table reads as empty, so a dataset can be inspected before its build has finished. All conditions of a choice
must hold. Several films are alternatives; several characters, tags or words must all be there. Case does not matter.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from pipeline.core.dialogue import Dialogue, SpokenLine
from pipeline.core.errors import UserError
from pipeline.core.measurements import ClipSound, Looks, Motion
from pipeline.core.plain_text import first_few, printable
from pipeline.core.records import Caption, Clip, Damage, Reviewed, Scene, Verdict, slug
from pipeline.core.store import Dataset, DatasetRecord, FilmEntry, FilmFolder
from pipeline.publish.coverage import NOT_JUDGED
from pipeline.publish.samples import Split, instruction_of, scene_splits
from pipeline.publish.shards import Index, read_index
from pipeline.publish.vocabulary import Vocabulary, load_vocabulary
from pipeline.reviews.applied import read_captions, read_reviewed, with_reviews
from pipeline.stages.selection import FAILED
from prompts.tags import TAGS

ClipFate = Literal["kept", "dropped", "failed", "pending"]
CHOSEN_TAGS = (*TAGS, "actor")
_MOST_NAMED = 12
"""Most known values that an error names."""


@dataclass(frozen=True)
class SeenClip:
    """A clip with its records of the later stages and its review; None if there is none.

    `split` is the split of its scene, even if the clip is not kept; None before shards were written.
    """

    clip: Clip
    motion: Motion | None
    caption: Caption | None
    verdict: Verdict | None
    split: Split | None
    looks: Looks | None = None
    """Looks without the hashes."""
    machine: Caption | None = None
    """Caption as the captioner made it; `caption` is the published one."""
    reviewed: Reviewed | None = None
    dialogue: tuple[SpokenLine, ...] | None = None
    """Lines heard in the clip, in seconds from its start; None if the film has no usable subtitles."""
    sound: ClipSound | None = None
    """Its sound; None if it was not kept."""

    @property
    def fate(self) -> ClipFate:
        """Fate of the clip; `pending` means that it has no verdict yet."""
        if self.verdict is None:
            return "pending"
        if self.verdict.keep:
            return "kept"
        return "failed" if self.verdict.reasons[0].startswith(FAILED) else "dropped"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons it is not in the shards; empty for a kept clip."""
        if self.verdict is None:
            return (NOT_JUDGED,)
        return () if self.verdict.keep else tuple(reason.removeprefix(FAILED) for reason in self.verdict.reasons)

    @property
    def overruled(self) -> tuple[str, ...]:
        """Reasons to drop the clip that a review overrules."""
        return self.verdict.reasons if self.verdict and self.verdict.keep else ()

    @property
    def flags(self) -> tuple[str, ...]:
        """Reasons that the settings note instead of dropping the clip, then the doubts about its caption."""
        return (*(self.verdict.flags if self.verdict else ()), *(self.caption.flags if self.caption else ()))

    @property
    def level(self) -> int | None:
        """Motion level 1..5, None if unknown."""
        return self.verdict.level if self.verdict else None

    @property
    def answer(self) -> Caption | None:
        """The published caption; None if there is none or its reply is quarantined."""
        return self.caption if self.caption and not self.caption.fault else None

    @property
    def text(self) -> str:
        """The instruction line; empty if none of its tags is known."""
        return instruction_of(self.answer) if self.answer else ""


def seen_clips(dataset: Dataset) -> list[SeenClip]:
    """Return all clips of a dataset, also dropped ones, film by film in time order. Raises UserError."""
    index, vocabulary = read_index_if_made(dataset), load_vocabulary(dataset.root)
    return [
        seen
        for place, folder in enumerate(dataset.folders())
        for seen in film_clips(folder, splits_of(folder, place, index), vocabulary)
    ]


def film_clips(folder: FilmFolder, splits: Mapping[int, Split], vocabulary: Vocabulary) -> list[SeenClip]:
    """Return the clips of a film in time order; `splits` of its scenes may be empty. Raises StoreError."""
    verdicts = {row.clip_id: row for row in folder.read_if_made("verdicts", Verdict)}
    motions = {row.clip_id: row for row in folder.read_if_made("motion", Motion)}
    looks = {row.clip_id: row.model_copy(update={"hashes": ()}) for row in folder.read_if_made("looks", Looks)}
    machine = read_captions(folder)
    reviewed, dialogue, sounds = read_reviewed(folder), Dialogue.of(folder), folder.sounds()
    captions = with_reviews(machine.values(), reviewed)
    published = {clip_id: vocabulary.applied(caption) for clip_id, caption in captions.items()}
    return [
        SeenClip(
            clip,
            motions.get(clip.clip_id),
            published.get(clip.clip_id),
            verdicts.get(clip.clip_id),
            splits.get(clip.scene),
            looks.get(clip.clip_id),
            machine.get(clip.clip_id),
            reviewed.get(clip.clip_id),
            dialogue.within(clip.start_seconds, clip.end_seconds),
            sounds.get(clip.clip_id),
        )
        for clip in sorted(folder.read_if_made("clips", Clip), key=lambda clip: clip.start_seconds)
    ]


def read_index_if_made(dataset: Dataset) -> Index | None:
    """Return the index of the shards; None before shards were written. Raises StoreError if it is damaged."""
    return read_index(dataset.root) if (dataset.root / "shards" / "index.json").exists() else None


def splits_of(folder: FilmFolder, place: int, index: Index | None) -> dict[int, Split]:
    """Return the split of each scene of the film with this position in `dataset.json`; nothing without an index."""
    if index is None:
        return {}
    scenes, damage = folder.read_if_made("scenes", Scene), folder.read_if_made("damage", Damage)
    return scene_splits(scenes, damage, place, index.settings)


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
    without: tuple[str, ...] = ()
    """Flags that a clip must not have."""
    verdict: ClipFate | None = None
    words: str = ""
    """Words or beginnings of words in caption, dialogue, reasons, flags, the film's name or the clip's id."""

    def of(self, record: DatasetRecord, clips: Sequence[SeenClip]) -> list[SeenClip]:
        """Return the chosen clips of a dataset, given all its clips, in their order.

        Raises:
            ChoiceError: the dataset has no such film, character or tag.
        """
        films = film_ids(record.films, self.films)
        _refuse_unknown_characters(record, clips, self.characters)
        for tag, value in self.tags:
            _refuse_unknown_value(tag, value, clips)
        names = {film.film_id: film.name for film in record.films}
        starts = [_beginning(word) for word in _fold(self.words).split()]
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
            and not _folded(self.without) & {flag.partition(":")[0] for flag in _folded(seen.flags)}
        )


def parse_levels(text: str) -> range:
    """Parse motion levels: `4`, or `4-5`. Raises ChoiceError."""
    match = re.fullmatch(r"([1-5])(?:-([1-5]))?", text.strip())
    lowest, highest = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if highest < lowest:
        raise ChoiceError(f"{printable(text)!r} is not a range of motion levels; write 4, or 4-5, between 1 and 5")
    return range(lowest, highest + 1)


def parse_tag(text: str) -> tuple[str, str]:
    """Parse a condition on a tag, `EV=forest`, into the tag and its value. Raises ChoiceError."""
    name, _, value = (part.strip() for part in text.partition("="))
    tag = {known.casefold(): known for known in CHOSEN_TAGS}.get(name.casefold())
    if tag is None or not value:
        raise ChoiceError(f"{printable(text)!r} is not TAG=value, as in EV=forest; the tags are {_named(CHOSEN_TAGS)}")
    return tag, value


def film_ids(films: Sequence[FilmEntry], wanted: Iterable[str]) -> set[str]:
    """Return the ids of films given by id, or by file name with or without suffix. Raises ChoiceError."""
    found = set[str]()
    for text in wanted:
        ids = {
            film.film_id
            for film in films
            if _fold(text) in _folded([film.film_id, film.name, film.name.rpartition(".")[0], slug(film.name)]) - {""}
        }
        if not ids:
            raise ChoiceError(f"no film {printable(text)!r} in this dataset; it has {_named(f.name for f in films)}")
        found |= ids
    return found


def _refuse_unknown_characters(record: DatasetRecord, clips: Iterable[SeenClip], wanted: Sequence[str]) -> None:
    if not wanted:
        return
    known = dict.fromkeys([*record.cast, *(name for seen in clips for name in _characters(seen))])
    if missing := [name for name in wanted if _fold(name) not in _folded(known)]:
        there = f"it has {_named(known)}" if known else "to find characters, build with --cast and --captioner server"
        raise ChoiceError(f"no character {printable(missing[0])!r} in this dataset; {there}")


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
    said = [seen.text, answer.S, answer.sentence] if answer else []
    said += [line.said for line in seen.dialogue or ()]
    text = _fold("\n".join(filter(None, (seen.clip.clip_id, film_name, *said, *seen.flags, *seen.reasons))))
    return all(start.search(text) for start in starts)


def _beginning(word: str) -> re.Pattern[str]:
    """Pattern of the beginning of a word; Japanese and Chinese have no spaces, so there it is found anywhere."""
    return re.compile(re.escape(word) if word[0] >= "\u2e80" else rf"(?<!\w){re.escape(word)}")


def _folded(texts: Iterable[str]) -> set[str]:
    return set(map(_fold, texts))


def _fold(text: str) -> str:
    """Text for comparison: file names of some disks hold letters and accents as separate characters."""
    return unicodedata.normalize("NFC", text).casefold()


def _named(values: Iterable[str]) -> str:
    return first_few(list(values), _MOST_NAMED) or "none"
