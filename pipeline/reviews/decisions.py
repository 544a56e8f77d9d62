"""Review decisions: an append-only file (`review.jsonl`) with one decision about one field of a clip per line.

    {"time": "2026-11-22T10:11:12.345Z", "reviewer": "anna", "film_sha256": "6c1f...", "start_seconds": 12.5,
     "end_seconds": 14.5, "field": "MD", "value": "run"}                                            (on one line)

A line names film content and a span of it, not a clip, so it outlives the clips that it was made on. A line without
`value` withdraws the reviewer's decision about the field; a tag whose value is null cannot be said.

Lines are only ever added. Two processes may append at once. A line that a killed process left torn, or that is not a
decision, is reported with its number and harms no other line.

A reviewer's newest line about a field counts for that reviewer, by its time and then by its position in the file.
Different voices are a conflict until a line of `settled: NAME`; afterwards, a newer voice is a conflict if it differs
from the settled value. The newest of these lines is published. Lines of `cast: NAME`, which the cast page writes, count
only where nobody else has said anything about the field.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)

from pipeline.core.atomic import append_lines
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.plain_text import printable
from pipeline.core.records import Record, faults_of
from prompts.tags import MOST_OTHERS, MOST_WORDS, NUMBERS, TAGS, words_pattern

REVIEW_FILE: Final = "review.jsonl"
KEEP: Final = "keep"
CAPTION_FIELDS: Final = (*TAGS, "characters", "actor", "others", "sentence")
FIELDS: Final = (KEEP, *CAPTION_FIELDS)
"""Fields of a clip that a reviewer decides about: keep or drop, and the fields of its caption."""
SETTLED: Final = "settled: "
"""Start of the reviewer of a line that settles a conflict; the name of the person follows."""
BY_CAST: Final = "cast: "
"""Start of the reviewer of a line that the cast page wrote; the name of the person follows."""
MOST_NAME = 64
MOST_WORD_CHARACTERS = 80
MOST_SENTENCE = 240
MOST_CHARACTERS_LISTED = 64
MOST_LINE_BYTES = 1 << 16
_MOST_REASON = 200

Value = bool | int | str | tuple[str, ...] | None
"""Decided value: true or false (keep), a number, text, or the names on screen. None means that nobody can tell."""


def _in_utc(time: datetime) -> datetime:
    """Return a time in UTC, to the millisecond, as it is written."""
    if time.tzinfo is None:
        raise ValueError("must name its zone, as in 2026-11-22T10:11:12.345Z")
    try:
        exact = time.astimezone(UTC)
    except OverflowError:
        raise ValueError("is not a calendar time") from None
    return exact.replace(microsecond=exact.microsecond // 1000 * 1000)


def _one_line(text: str, most: int) -> str:
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError("must be printable text on one line, without spaces around it")
    if len(text) > most:
        raise ValueError(f"must have at most {most} characters")
    return text


def _reviewer(name: str) -> str:
    _one_line(name.removeprefix(SETTLED).removeprefix(BY_CAST), MOST_NAME)
    return name


Reviewer = Annotated[str, AfterValidator(_reviewer)]
Time = Annotated[
    datetime,
    BeforeValidator(lambda time: datetime.fromisoformat(time) if isinstance(time, str) else time),
    AfterValidator(_in_utc),
    PlainSerializer(lambda time: time.isoformat(timespec="milliseconds").replace("+00:00", "Z"), return_type=str),
]


class Decision(Record):
    """Decision of a reviewer about one field of a span of film."""

    model_config = ConfigDict(strict=True)

    time: Time
    reviewer: Reviewer
    film_sha256: str = Field(pattern="^[0-9a-f]{64}$", description="hash of the film's whole content")
    start_seconds: float = Field(ge=0)
    end_seconds: float
    field: str
    value: Value = Field(default=None, description="left out: withdraws the reviewer's decision about the field")

    @property
    def withdraws(self) -> bool:
        """True if the reviewer takes back an earlier decision about the field."""
        return "value" not in self.model_fields_set

    @property
    def settles(self) -> bool:
        """True if it settles a conflict between reviewers."""
        return self.reviewer.startswith(SETTLED)

    @property
    def line(self) -> str:
        """The decision as a line of the file."""
        return json.dumps(self.model_dump(mode="json", exclude_unset=True), ensure_ascii=False) + "\n"

    @field_validator("value", mode="before")
    @classmethod
    def _in_its_type(cls, value: object) -> object:
        """Return a value with names as a tuple; one reason instead of one for each type of the union."""
        value = tuple(value) if isinstance(value, list) else value
        names = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
        if not (value is None or names or isinstance(value, bool | int | str)):
            raise ValueError("must be true, false, a whole number, text, a list of names, or null")
        return value

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.end_seconds <= self.start_seconds:
            raise ValueError("end_seconds must be greater than start_seconds")
        if self.field not in FIELDS:
            raise ValueError(f"field must be one of {', '.join(FIELDS)}")
        if not self.withdraws and (self.field == KEEP or self.value is not None):
            _CHECKS[self.field](self.value)
        return self


@dataclass(frozen=True)
class LineFault:
    """Line of a review file that is not a decision."""

    line: int
    """Number of the line, from 1."""
    reason: str


@dataclass(frozen=True)
class Reading:
    """Content of a review file."""

    decisions: tuple[Decision, ...] = ()
    """In the order of the file."""
    faults: tuple[LineFault, ...] = ()
    lines: tuple[int, ...] = ()
    """Number of the line of each decision."""

    def lines_of(self, decisions: Iterable[Decision]) -> tuple[int, ...]:
        """Return the line numbers of the given decisions; if a line occurs twice, its first number counts."""
        numbers = dict(zip(reversed(self.decisions), reversed(self.lines), strict=True))
        return tuple(numbers[decision] for decision in decisions)


def read_decisions(path: Path) -> Reading:
    """Read a review file; a missing file reads as empty. Raises UserError if it cannot be read, or is not a file."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file; set `[review] file` to the file of decisions")
    decisions: list[Decision] = []
    faults: list[LineFault] = []
    lines: list[int] = []
    try:
        with disk_errors(path), path.open("rb") as file:
            for number, line in enumerate(_lines(file), start=1):
                if len(line) > MOST_LINE_BYTES:
                    faults.append(LineFault(number, f"is longer than {MOST_LINE_BYTES} bytes"))
                elif line.strip():
                    try:
                        decisions.append(Decision.model_validate_json(line))
                        lines.append(number)
                    except ValidationError as error:
                        faults.append(LineFault(number, _reason(error)))
    except FileNotFoundError:
        return Reading()
    return Reading(tuple(decisions), tuple(faults), tuple(lines))


def append_decisions(path: Path, decisions: Iterable[Decision]) -> None:
    """Append decisions as `append_lines` does: when it returns, they are on the disk; after an error, none is."""
    append_lines(path, "".join(decision.line for decision in decisions).encode())


@dataclass(frozen=True)
class Standing:
    """Reviewed value of one field of one clip."""

    value: Value
    """The value to publish; None if nobody can tell."""
    reviewer: str
    """Reviewer of that value, `settled: NAME` for a settled one."""
    time: datetime
    """Time of that decision."""
    conflict: bool
    """True if reviewers differ, after the newest settling line if there is one."""
    voices: Mapping[str, Value]
    """Standing value of each reviewer, in the order of their times, without the settling lines."""


def standings(decisions: Iterable[Decision]) -> dict[str, Standing]:
    """Return the standing of every reviewed field, from all decisions about one clip in the order of the file."""
    newest: dict[str, dict[str, Decision]] = defaultdict(dict)
    for decision in in_time(decisions):
        lines = newest[decision.field]
        lines.pop(decision.reviewer, None)
        lines[decision.reviewer] = decision
    found = {name: _standing([line for line in lines.values() if not line.withdraws]) for name, lines in newest.items()}
    return {field: standing for field, standing in found.items() if standing}


def in_time(decisions: Iterable[Decision]) -> list[Decision]:
    """Return decisions by their times; decisions of the same time keep the order of the file."""
    return sorted(decisions, key=lambda decision: decision.time)


def comparable(value: Value) -> object:
    """Return a value in the form in which equal decisions are equal: names as a set, text without case and spacing."""
    if isinstance(value, tuple):
        return frozenset(value)
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def _standing(lines: list[Decision]) -> Standing | None:
    """Return the standing of a field from the standing lines of its reviewers, the newest last."""
    lines = [line for line in lines if not line.reviewer.startswith(BY_CAST)] or lines[-1:]
    if not lines:
        return None
    voices = {line.reviewer: line.value for line in lines if not line.settles}
    differ = len({comparable(value) for value in voices.values()}) > 1
    last = lines[-1]
    settled = next((index for index, line in reversed(list(enumerate(lines))) if line.settles), None)
    if settled is not None:  # a voice since then differs from the settled value, or joins it
        differ = any(comparable(line.value) != comparable(lines[settled].value) for line in lines[settled:])
    return Standing(value=last.value, reviewer=last.reviewer, time=last.time, conflict=differ, voices=voices)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, but only the start of a line that is too long, which may not fit into memory."""
    while line := file.readline(MOST_LINE_BYTES + 1):
        yield line
        while len(line) > MOST_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MOST_LINE_BYTES + 1)


def _reason(error: ValidationError) -> str:
    """Faults of a line, on one short line that is safe to print although it quotes a line that may be hostile."""
    text = printable(faults_of(error)).replace("Value error, ", "")
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}..."


def _check_keep(value: Value) -> None:
    if not isinstance(value, bool):
        raise ValueError("keep must be true or false")


def _check_words(tag: str) -> Callable[[Value], None]:
    pattern = re.compile(words_pattern(tag))

    def check(value: Value) -> None:
        if not isinstance(value, str) or len(value) > MOST_WORD_CHARACTERS or not pattern.fullmatch(value):
            raise ValueError(f"{tag} must be 1 to {MOST_WORDS[tag]} plain words in lower case, or null")

    return check


def _check_number(name: str, allowed: Container[object], numbers: str) -> Callable[[Value], None]:
    def check(value: Value) -> None:
        if isinstance(value, bool) or value not in allowed:
            raise ValueError(f"{name} must be {numbers}, or null")

    return check


def _check_names(value: Value) -> None:
    if not isinstance(value, tuple) or len(value) > MOST_CHARACTERS_LISTED or len(set(value)) < len(value):
        raise ValueError(f"characters must be a list of at most {MOST_CHARACTERS_LISTED} names, each once, or null")
    for name in value:
        _one_line(name, MOST_WORD_CHARACTERS)


def _check_text(name: str, most: int) -> Callable[[Value], None]:
    def check(value: Value) -> None:
        if not isinstance(value, str):
            raise ValueError(f"{name} must be text or null")
        _one_line(value, most)

    return check


_CHECKS: Mapping[str, Callable[[Value], None]] = {
    KEEP: _check_keep,
    **{tag: _check_words(tag) for tag in MOST_WORDS},
    **{tag: _check_number(tag, allowed, f"{allowed[0]} or {allowed[1]}") for tag, allowed in NUMBERS.items()},
    "characters": _check_names,
    "actor": _check_text("actor", MOST_WORD_CHARACTERS),
    "others": _check_number("others", range(MOST_OTHERS + 1), f"0 to {MOST_OTHERS}"),
    "sentence": _check_text("sentence", MOST_SENTENCE),
}
