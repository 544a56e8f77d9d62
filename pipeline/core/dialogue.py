"""Dialogue of a film: the spoken lines that its subtitles give, the tracks that they come from, and spans of lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pipeline.core.records import Record

if TYPE_CHECKING:
    from pipeline.core.store import FilmFolder

LONGEST_LINE_SECONDS = 30.0
"""Longest time that a line of dialogue is shown; what stays longer is a notice."""
LEAST_HEARD_SECONDS = 0.1
"""Least part of a line in a span: subtitles begin and end a few frames beside the speech."""

LeftOutRule = Literal[
    "comment", "drawing", "sign by style", "song by style", "sign by position", "karaoke", "song by notes", "sound",
    "empty", "no length", "too long", "beyond the end", "repeated", "unreadable",
]  # fmt: skip
"""Rules by which events of a text track are not lines of dialogue."""


class LeftOut(Record):
    """Number of the events of a text track that one rule leaves out."""

    rule: LeftOutRule
    events: int


class SubtitleTrack(Record):
    """A subtitle track of a film, in its container or in a file beside it, and why it was chosen or not."""

    source: str = Field(description="`stream 3` of the container, or the end of the file's name, as `.ja.ass`")
    codec: str = Field(description="as FFmpeg names it, or the suffix of the file")
    language: str | None = Field(description="language tag as `ja`; null: not stated, or unknown")
    title: str | None
    chosen: bool
    remark: str | None = Field(description="reason that it was not chosen, or a doubt about the chosen one")
    lines: int | None = Field(description="lines of dialogue; null: not read")
    left_out: tuple[LeftOut, ...] = ()


class SpokenLine(Record):
    """A line of dialogue of a film (table `dialogue`)."""

    start_seconds: float
    end_seconds: float
    text: str
    speaker: str | None = Field(description="as the subtitles name it")
    language: str | None

    @property
    def seconds(self) -> float:
        """Length of the line."""
        return self.end_seconds - self.start_seconds

    @property
    def said(self) -> str:
        """The text after its speaker, as `Ponyo: Sosuke!`."""
        return f"{self.speaker}: {self.text}" if self.speaker else self.text

    def within(self, start_seconds: float, end_seconds: float) -> SpokenLine | None:
        """Return the part in a span, in seconds from its start; None if too little of the line is heard there."""
        start, end = max(self.start_seconds, start_seconds), min(self.end_seconds, end_seconds)
        if end - start < min(LEAST_HEARD_SECONDS, self.seconds):
            return None
        times = {"start_seconds": round(start - start_seconds, 3), "end_seconds": round(end - start_seconds, 3)}
        return self.model_copy(update=times)


@dataclass(frozen=True)
class Dialogue:
    """Lines of dialogue of a film, by their start; `is_known` is False if no subtitle track was usable."""

    lines: Sequence[SpokenLine] = ()
    is_known: bool = False

    @classmethod
    def of(cls, folder: FilmFolder) -> Dialogue:
        """Return the dialogue of a film; unknown before the stage has run. Raises StoreError."""
        tracks = folder.read_if_made("subtitles", SubtitleTrack)
        if not any(track.chosen for track in tracks):
            return NO_DIALOGUE
        return cls(folder.read_if_made("dialogue", SpokenLine), is_known=True)

    def within(self, start_seconds: float, end_seconds: float) -> tuple[SpokenLine, ...] | None:
        """Return the lines heard in a span, in seconds from its start; None if the dialogue is unknown."""
        return tuple(part for _, part in self._heard(start_seconds, end_seconds)) if self.is_known else None

    def mostly_within(self, start_seconds: float, end_seconds: float) -> tuple[SpokenLine, ...]:
        """Return the lines of which at least half is heard in a span, in seconds from its start: they can be quoted."""
        heard = self._heard(start_seconds, end_seconds)
        return tuple(part for line, part in heard if 2 * part.seconds >= line.seconds)

    def _heard(self, start_seconds: float, end_seconds: float) -> Iterator[tuple[SpokenLine, SpokenLine]]:
        """Yield the lines heard in a span, each with its part there."""
        first = bisect_left(self.lines, start_seconds - LONGEST_LINE_SECONDS, key=lambda line: line.start_seconds)
        for line in islice(self.lines, first, None):
            if line.start_seconds >= end_seconds:
                return
            if part := line.within(start_seconds, end_seconds):
                yield line, part


NO_DIALOGUE = Dialogue()
"""Dialogue of a film without usable subtitles."""
