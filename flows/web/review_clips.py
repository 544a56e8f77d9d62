"""Clips under review: rows for the page, doubts about captions, standings, and decisions added to the review file.

    clips = ReviewedClips(dataset, ReviewTask(file=Path("review.jsonl"), reviewer="anna"))
    clips.save([Change(clip="ponyo-01234567-000012500", field="MD", value="run")])       on disk when it returns

The tables are read once. The review file is read again whenever another process has changed it.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.console.terminal import say
from pipeline.core.errors import UserError
from pipeline.core.records import Caption, Clip, faults_of
from pipeline.core.store import Dataset
from pipeline.publish.carried_characters import NEXT, carry_through
from pipeline.reviews.applied import Reviews, applied_standings, is_in_cast, matched_reviews
from pipeline.reviews.clips import ReviewableClip, reviewable
from pipeline.reviews.decisions import (
    CAPTION_FIELDS,
    KEEP,
    SETTLED,
    Decision,
    Standing,
    append_decisions,
    read_decisions,
)
from prompts.tags import what_pattern

NEIGHBOURS = 2
"""Number of neighbouring clips that the page shows before and after a clip."""
DOUBTED_TAGS = ("S", "MD", "EV")
"""Tags whose rare values are doubtful."""
LEAST_VALUES = 40
"""Number of captions with a tag from which on a value seen once is rare."""
NEAR_EDGE = 0.03
"""Relative distance to the edge of a motion level that counts as near."""


@dataclass(frozen=True)
class Doubt:
    """Reason to look at a clip early; it guides the order of a review and has no other use."""

    text: str
    weight: int


@dataclass(frozen=True)
class ReviewTask:
    """Task of a reviewer: the clips to decide about, and the file for the decisions."""

    file: Path
    reviewer: str
    clip_ids: Sequence[str] | None = None
    """Clips to decide about, in the order to show them. None means all clips, the most doubtful first."""
    blind: bool = False
    """Hide the answers of the machine and of other reviewers."""


class Change(BaseModel):
    """Decision of the reviewer as the page sends it; without `value` it withdraws an earlier one."""

    model_config = ConfigDict(extra="forbid", strict=True)

    clip: str
    field: str
    value: Any = None
    settle: bool = False
    """Settle a conflict between reviewers."""


class InvalidDecisionError(UserError):
    """Decision that cannot be stored; the message is shown to the reviewer."""


class ReviewedClips:
    """Clips of a dataset with their standings; thread-safe.

    Raises:
        UserError: the dataset or the review file cannot be read, a clip of the task is not in the dataset, or the
            reviewer's name cannot be stored.
    """

    def __init__(self, dataset: Dataset, task: ReviewTask) -> None:
        self.dataset = dataset
        self.task = task
        self._lock = threading.Lock()
        self._record = dataset.record
        folders = [(film.sha256, dataset.folder(film.film_id)) for film in self._record.films]
        self._films = {sha256: folder.read_if_made("clips", Clip) for sha256, folder in folders}
        self._seen = _mark(task.file)
        self._reviews = self._read()
        self._added: dict[str, list[Decision]] = {}
        """Decisions saved here since the file was last read, by clip id."""
        self._clips = {clip.clip_id: clip for clip in reviewable(dataset, None)}
        asked = self._clips if task.clip_ids is None else task.clip_ids
        self._places = {clip_id: place for place, clip_id in enumerate(asked)}
        if missing := self._places.keys() - self._clips.keys():
            raise UserError(f"{len(missing)} clips are not in this dataset any more, such as {min(missing)}")
        for clip_id in list(self._places)[:1]:
            self._decision(Change(clip=clip_id, field=KEEP), _now())  # checks the reviewer's name

    @property
    def summary(self) -> str:
        """Counts of clips and of reviewed ones, for the terminal."""
        reviewed = sum(1 for clip_id in self._places if self._standings_of(clip_id))
        return f"{len(self._places)} clips, {reviewed} reviewed"

    @property
    def reviews(self) -> Reviews:
        """Content of the review file, without what was saved here since it was read."""
        with self._lock:
            self._refresh()
            return self._reviews

    def has(self, clip_id: str) -> bool:
        """Return True if the dataset has this clip."""
        return clip_id in self._clips

    def path(self, clip_id: str) -> Path:
        """Return the path of a clip's file. KeyError if there is no such clip."""
        return self._clips[clip_id].path

    def sound(self, clip_id: str) -> Path | None:
        """Return the path of a clip's sound; None if it has none. KeyError if there is no such clip."""
        return self._clips[clip_id].sound

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per clip for the page, in time order; those shown as neighbours only have no place."""
        clips = list(self._clips.values())
        doubts = {} if self.task.blind else self._doubts(clips)
        rows = []
        for place in _with_neighbours([clip.clip_id in self._places for clip in clips]):
            clip = clips[place]
            answers = {} if self.task.blind else _answers(clip, doubts[clip.clip_id])
            rows.append({**_identity(clip), "place": self._places.get(clip.clip_id), **answers})
        return rows

    def _doubts(self, clips: Sequence[ReviewableClip]) -> dict[str, list[Doubt]]:
        """Return the doubts about each clip; if there are vectors, the clips that tell the most about others lead."""
        doubts = doubts_of(clips, self._record.edges)
        try:
            carried = carry_through(self.dataset, self.reviews.standings)
        except UserError as error:
            say(f"clips are in the order without likeness: {error}", "yellow")
            return doubts
        for clip_id, guess in carried.guesses.items():
            names = ", ".join(guess.characters) or "nobody"
            doubts[clip_id].append(Doubt(f"looks like {names}, {guess.confidence:.0%} sure", 0))
        for place, clip_id in enumerate(carried.next_clips):
            doubts[clip_id].append(Doubt("its review tells much about other clips", 10 + NEXT - place))
        return doubts

    def standings(self) -> dict[str, dict[str, Any]]:
        """Return the standing of every reviewed field, by clip id, as the file is now."""
        with self._lock:
            self._refresh()
            reviewed = self._reviews.decisions.keys() | self._added.keys()
            return {clip_id: found for clip_id in reviewed if (found := self._standings_of(clip_id))}

    def last_clip(self) -> str | None:
        """Return the clip that this reviewer decided about last, or None before the first decision."""
        with self._lock:
            own = (
                (decision.time, clip_id)
                for clip_id in self._reviews.decisions.keys() | self._added.keys()
                for decision in self._decisions_of(clip_id)
                if decision.reviewer == self.task.reviewer
            )
            return max(own, default=(None, None))[1]

    def save(self, changes: Iterable[Change]) -> dict[str, dict[str, Any]]:
        """Append decisions to the file; when it returns, they are on the disk. Return the standings of their clips.

        Raises:
            InvalidDecisionError: one of them cannot be stored; then none is.
            DiskError: they cannot be written; the file is unchanged.
        """
        with self._lock:
            self._refresh()
            now = _now()
            decisions = [(change.clip, self._decision(change, now)) for change in changes]
            append_decisions(self.task.file, (decision for _, decision in decisions))
            written = sum(len(decision.line.encode()) for _, decision in decisions)
            if self._seen[1] + written == (mark := _mark(self.task.file))[1]:
                self._seen = mark  # otherwise another process has written too: the next request reads the file
            for clip_id, decision in decisions:
                self._added.setdefault(clip_id, []).append(decision)
            return {clip_id: self._standings_of(clip_id) for clip_id, _ in decisions}

    def _refresh(self) -> None:
        """Read the file again if another process has changed it."""
        mark = _mark(self.task.file)
        if mark != self._seen:
            self._reviews = self._read()
            self._added.clear()
            self._seen = mark

    def _read(self) -> Reviews:
        return matched_reviews(read_decisions(self.task.file), self._films, self._record.cast)

    def _decisions_of(self, clip_id: str) -> list[Decision]:
        return [*self._reviews.decisions.get(clip_id, ()), *self._added.get(clip_id, ())]

    def _standings_of(self, clip_id: str) -> dict[str, Any]:
        if not self.task.blind and clip_id not in self._added:
            return {field: _as_json(one) for field, one in self._reviews.standings.get(clip_id, {}).items()}
        decisions = self._decisions_of(clip_id)
        if self.task.blind:
            decisions = [decision for decision in decisions if decision.reviewer == self.task.reviewer]
        found = applied_standings(decisions, self._record.cast)
        return {field: _as_json(standing) for field, standing in found.items()}

    def _decision(self, change: Change, now: datetime) -> Decision:
        clip = self._clips.get(change.clip)
        if clip is None or change.clip not in self._places:
            raise InvalidDecisionError(f"{change.clip[:80]!r} is not a clip to decide about here")
        # a clock that was set back must not make the newest decision an old one
        times = [now, *(decision.time for decision in self._decisions_of(change.clip))]
        values = {
            "time": max(times),
            "reviewer": SETTLED + self.task.reviewer if change.settle else self.task.reviewer,
            "film_sha256": clip.film_sha256,
            "start_seconds": clip.start_seconds,
            "end_seconds": clip.end_seconds,
            "field": change.field,
            **({"value": change.value} if "value" in change.model_fields_set else {}),
        }
        try:
            decision = Decision.model_validate(values)
        except ValidationError as error:
            raise InvalidDecisionError(faults_of(error).replace("Value error, ", "")) from error
        if not is_in_cast(decision.field, decision.value, self._record.cast):
            raise InvalidDecisionError(f"{change.field}: names must be of this dataset's cast")
        return decision


def _identity(clip: ReviewableClip) -> dict[str, Any]:
    """Return the part of a clip's row that a blind reviewer sees too."""
    return {
        "id": clip.clip_id,
        "film": clip.film_id,
        "scene": clip.scene,
        "start": round(clip.start_seconds, 3),
        "end": round(clip.end_seconds, 3),
        "sound": clip.sound is not None,
    }


def _answers(clip: ReviewableClip, doubts: Sequence[Doubt]) -> dict[str, Any]:
    """Return the machine's part of a clip's row, without what is not known."""
    caption = clip.caption
    tags = {} if caption is None or caption.fault else {name: getattr(caption, name) for name in CAPTION_FIELDS}
    known = {name: value for name, value in tags.items() if value is not None}
    if clip.keep is not None:
        known[KEEP] = clip.keep
    return {
        "level": clip.level,
        "camera": clip.camera,
        "quality": clip.quality,
        "overlays": clip.overlays,
        "dialogue": clip.dialogue,
        "reasons": clip.reasons,
        "source": caption.source if caption else None,
        "machine": known,
        "flags": (*clip.flags, *(caption.flags if caption else ())),
        "doubts": [doubt.text for doubt in doubts],
        "doubt": sum(doubt.weight for doubt in doubts),
    }


def _as_json(standing: Standing) -> dict[str, Any]:
    return {
        "value": standing.value,
        "by": standing.reviewer,
        "conflict": standing.conflict,
        "voices": dict(standing.voices),
    }


def doubts_of(clips: Sequence[ReviewableClip], edges: Sequence[float] | None) -> dict[str, list[Doubt]]:
    """Return the doubts about each clip, by clip id.

    Args:
        clips: all clips of the dataset, which decide the values that are rare.
    """
    captions = [clip.caption for clip in clips if clip.caption and not clip.caption.fault]
    rare = {tag: _rare(Counter(getattr(caption, tag) for caption in captions)) for tag in DOUBTED_TAGS}
    return {clip.clip_id: [*_about_caption(clip.caption, rare), *_near_edge(clip, edges or ())] for clip in clips}


def _rare(counts: Counter[str | None]) -> set[str]:
    """Return the values seen once, unless most are: then being the only one says nothing."""
    counts.pop(None, None)
    once = {value for value, count in counts.items() if value and count == 1}
    return once if counts.total() >= LEAST_VALUES and 2 * len(once) < counts.total() else set()


def _about_caption(caption: Caption | None, rare: Mapping[str, set[str]]) -> Iterator[Doubt]:
    if caption is None:
        return
    if caption.fault:
        yield Doubt(caption.fault, 5)
        return
    yield from (Doubt(flag, 3) for flag in caption.flags)
    if caption.raw_what and not _form(caption.characters or ()).fullmatch(caption.raw_what.strip()):
        yield Doubt("the reply was not in its form", 1)
    if caption.raw_sentence and not caption.sentence:
        yield Doubt("the sentence of the reply was unusable", 1)
    for tag, values in rare.items():
        if (value := getattr(caption, tag)) in values:
            yield Doubt(f"rare {tag}: {value}", 1)


@cache
def _form(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(what_pattern(names))


def _near_edge(clip: ReviewableClip, edges: Sequence[float]) -> Iterator[Doubt]:
    for level, edge in enumerate(edges, start=1):
        if clip.scope_px is not None and abs(clip.scope_px - edge) <= NEAR_EDGE * edge:
            yield Doubt(f"motion near the edge of levels {level} and {level + 1}", 1)


def _with_neighbours(asked: Sequence[bool]) -> list[int]:
    """Return the positions of the clips to review and of their neighbours."""
    return [place for place in range(len(asked)) if any(asked[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1])]


def _mark(path: Path) -> tuple[int, int, int]:
    """Return inode, size and time of change of a file, by which a change is noticed; zeros if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns


def _now() -> datetime:
    return datetime.now(UTC)
