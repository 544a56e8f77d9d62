"""Study: people rank the agents' films of a game by criterion, blind and shuffled; its participants and answers.

    EVALUATION/study/study.json       participants with their links, and the key of the shuffling
    EVALUATION/study/answers.jsonl    a line per answer, append-only; the last about a game and criterion counts

An answer is the order of the agents, the best first. It may be incomplete while the participant is at it, and names the
agents in the order shown, so that the file can be read without the key.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from pipeline.core.atomic import append_lines, write_json
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, faults_of

LETTERS = "ABCDEFGHIJ"
"""Names of the films on the page, and so the most agents of a study."""
LINK_BYTES = 24


@dataclass(frozen=True)
class Criterion:
    """A criterion that agents are ranked by."""

    name: str
    title: str
    question: str
    judged: str | None
    """Metric of the multimodal judge that asks the same; None: it does not."""

    @property
    def metric(self) -> str:
        """Name of the scores in the table of measures."""
        return f"study_{self.name}"


CRITERIA = (
    Criterion("overall", "Overall", "Which film would you rather play on with?", "judge_oa"),
    Criterion("instruction", "Instruction following", "Does each turn show what its instruction says?", "judge_ta"),
    Criterion("context", "Contextual consistency", "Do turns follow from the turns before, places too?", "judge_conc"),
    Criterion("character", "Character consistency", "Do the characters keep their looks?", "judge_chac"),
    Criterion("style", "Style consistency", "Does the drawing keep its style?", "judge_vc"),
    Criterion("state", "State update", "Do the values shown at the film change as the turn suggests?", None),
)
CRITERION = {criterion.name: criterion for criterion in CRITERIA}
STATE = "state"
"""Criterion that is asked only about games in which every agent gives character values."""


class StudyError(UserError):
    """A study that cannot be opened or begun; the message names the remedy."""


class Participant(Record):
    """A person who ranks."""

    name: str = Field(min_length=1, max_length=60, description="as in the exported table")
    link: str = Field(pattern=r"^[A-Za-z0-9_-]{32}$", description="secret part of the address of the person's page")

    @model_validator(mode="after")
    def _can_be_printed(self) -> Self:
        if not self.name.isprintable() or self.name != self.name.strip():
            raise ValueError("a name is one line of printable text")
        return self


class Study(Record):
    """`study.json`; participants are only ever added, because their number decides the orders they see."""

    schema_version: Literal[1] = 1
    key: str = Field(min_length=32, description="secret that all shuffling depends on")
    participants: tuple[Participant, ...] = ()

    def with_participants(self, names: Iterable[str]) -> Study:
        """Return the study with the names that it does not have yet.

        Raises:
            StudyError: a name cannot be used.
        """
        known = {each.name for each in self.participants}
        try:
            new = [
                Participant(name=name, link=secrets.token_urlsafe(LINK_BYTES))
                for name in dict.fromkeys(names)
                if name not in known
            ]
        except ValidationError as error:
            raise StudyError(f"a participant cannot have this name: {faults_of(error)}") from error
        return self.model_copy(update={"participants": (*self.participants, *new)})

    def games_of(self, number: int, games: Sequence[str]) -> list[str]:
        """Return the games in the order of a participant, by the participant's number from 0."""
        return self._random("games", number).sample(games, len(games))

    def shown(self, number: int, game: str, agents: Sequence[str]) -> tuple[str, ...]:
        """Return the agents of a game in the order shown to a participant: as A, B, C, ...

        Of as many participants in a row as there are agents, each sees an agent at another letter.
        """
        block, turn = divmod(number, len(agents))
        order = self._random("agents", block, game).sample(sorted(agents), len(agents))
        return (*order[turn:], *order[:turn])

    def _random(self, *of: object) -> random.Random:
        return random.Random(" ".join(map(str, (self.key, *of))))


class Answer(Record):
    """Line of `answers.jsonl`."""

    time: datetime
    participant: str
    game: str
    criterion: str
    order: tuple[str, ...] = Field(description="agents ranked so far, the best first; empty withdraws the answer")
    shown: tuple[str, ...] = Field(description="agents in the order shown: A, B, ...")

    @model_validator(mode="after")
    def _ranks_agents_once(self) -> Self:
        if self.criterion not in CRITERION:
            raise ValueError(f"criterion must be one of {', '.join(CRITERION)}")
        if len(set(self.order)) < len(self.order) or not set(self.order) <= set(self.shown):
            raise ValueError("order must name some of the agents shown, each once")
        return self

    @property
    def is_complete(self) -> bool:
        """True if all agents are ranked."""
        return len(self.order) == len(self.shown)

    @property
    def subject(self) -> tuple[str, str, str]:
        """Participant, game and criterion: a later answer with the same subject replaces this one."""
        return self.participant, self.game, self.criterion


@dataclass(frozen=True)
class Answers:
    """Content of the answers' file: the answers that count, and the number of unreadable lines."""

    current: dict[tuple[str, str, str], Answer]
    """By subject."""
    faults: int = 0

    def complete(self, games: Sequence[str], agents: Sequence[str]) -> list[Answer]:
        """Return the complete answers about these games with exactly these agents."""
        return [
            answer
            for answer in self.current.values()
            if answer.is_complete and answer.game in games and set(answer.shown) == set(agents)
        ]


def score(rank: int, count: int) -> float:
    """Score of a rank from 1: linear from 10 for the best to 1 for the last, so 10, 7, 4, 1 for four agents."""
    return 10 - 9 * (rank - 1) / (count - 1)


def open_study(folder: Path, names: Iterable[str]) -> Study:
    """Read the study of a folder, or begin it, and add participants to it.

    Raises:
        StudyError: `study.json` is damaged, or a name cannot be used.
        DiskError: it cannot be written.
    """
    path = folder / "study.json"
    before = read_study(folder)
    study = (before or Study(key=secrets.token_hex(16))).with_participants(names)
    if study != before:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)  # the links are secrets
        write_json(path, study.model_dump(mode="json"))
    return study


def read_study(folder: Path) -> Study | None:
    """Read the study of a folder; None: not begun.

    Raises:
        StudyError: `study.json` is damaged.
        DiskError: it cannot be read.
    """
    path = folder / "study.json"
    try:
        with disk_errors(path):
            return Study.model_validate_json(path.read_bytes()) if path.exists() else None
    except ValidationError as error:
        raise StudyError(f"{path}: damaged ({faults_of(error)}); restore it from a copy, it holds the links") from error


def read_answers(folder: Path) -> Answers:
    """Read the answers; a torn or foreign line is counted and skipped.

    Raises:
        DiskError: the file cannot be read.
    """
    path = folder / "answers.jsonl"
    with disk_errors(path):
        content = path.read_bytes() if path.exists() else b""
    current, faults = {}, 0
    for line in filter(bytes.strip, content.split(b"\n")):
        try:
            answer = Answer.model_validate_json(line)
        except ValidationError:
            faults += 1
        else:
            current[answer.subject] = answer
    return Answers(current, faults)


def append_answer(folder: Path, answer: Answer) -> None:
    """Append an answer; when it returns, it is on the disk.

    Raises:
        DiskError: it cannot be written; the file is as it was.
    """
    append_lines(folder / "answers.jsonl", answer.model_dump_json().encode() + b"\n")
