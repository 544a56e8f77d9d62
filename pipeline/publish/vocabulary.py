"""Vocabulary: tag values with the same meaning, published as one value, from `vocabulary.toml` in the dataset.

    [MD]
    "run" = ["dash", "sprint"]          # published as `run`
    [EV]
    "forest" = ["woods", "wood"]

Users edit the file; `suggested` proposes a first one from spellings that differ little. The mapping is applied when the
dataset is published; the tables of captions do not change.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pipeline.core.errors import UserError
from pipeline.core.records import Caption, faults_of
from pipeline.core.toml import read_toml
from prompts.words import SMALL_WORDS

VOCABULARY = "vocabulary.toml"
GROUPED = ("MD", "EV")
"""Tags whose values are grouped: motions and places."""

_GROUPS = TypeAdapter(dict[str, dict[str, list[str]]])
_LEAST_LIKENESS = 0.75
_SAME_START = 3
"""First letters that two spellings of one word have in common."""


@dataclass(frozen=True)
class Vocabulary:
    """Published value by replaced value, by tag."""

    published: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def applied(self, caption: Caption) -> Caption:
        """Return the caption as it is published. An actor `dragon` beside a character `Dragon` is the character."""
        values = {tag: table.get(getattr(caption, tag)) for tag, table in self.published.items()}
        known = {tag: value for tag, value in values.items() if value is not None}
        spelled = (name for name in caption.characters or () if name.casefold() == (caption.actor or "").casefold())
        if actor := next(spelled, None):
            known["actor"] = actor
        return caption.model_copy(update=known) if known else caption


def load_vocabulary(root: Path) -> Vocabulary:
    """Read the vocabulary of the dataset in `root`; an empty one if there is no file.

    Raises:
        UserError: the file is not TOML of this form, or a value is in two groups.
    """
    path = root / VOCABULARY
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file; replace it with a file, or remove it")
    try:
        groups = _GROUPS.validate_python(read_toml(path))
    except FileNotFoundError:
        return Vocabulary()
    except ValidationError as error:
        raise UserError(f'{path}: {faults_of(error)}; write lines such as "run" = ["dash"]') from error
    if unknown := sorted(set(groups) - set(GROUPED)):
        raise UserError(f"{path} has a table [{unknown[0]}]; the tables are {' and '.join(GROUPED)}")
    return Vocabulary({tag: _table(path, tag, group) for tag, group in groups.items()})


def _table(path: Path, tag: str, groups: Mapping[str, Iterable[str]]) -> dict[str, str]:
    table: dict[str, str] = {}
    for value, others in groups.items():
        for other in others:
            if other in table or other in groups:
                raise UserError(f"{path} has `{other}` in two groups of [{tag}]; leave it in one")
            table[other] = value
    return table


def suggested(captions: Iterable[Caption]) -> dict[str, dict[str, list[str]]]:
    """Return groups of values whose spelling differs little, by tag and the most frequent value of the group."""
    counts: dict[str, Counter[str]] = {tag: Counter() for tag in GROUPED}
    for caption in captions:
        for tag, counter in counts.items():
            if value := getattr(caption, tag):
                counter[value] += 1
    return {tag: _grouped(counter) for tag, counter in counts.items()}


def as_toml(groups: Mapping[str, Mapping[str, Iterable[str]]]) -> str:
    """Return groups as the text of a vocabulary file."""
    head = "# Published values, each with the values that it replaces. Edit the file, then build again.\n"
    tables = []
    for tag, group in groups.items():
        lines = [f"{_quoted(value)} = [{', '.join(map(_quoted, others))}]" for value, others in group.items()]
        tables.append("\n".join([f"[{tag}]", *lines, ""]))
    return "\n".join([head, *tables])


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _grouped(counts: Counter[str]) -> dict[str, list[str]]:
    """Add every value, the most frequent first, to the first group of similar values, or start a new group."""
    groups: dict[str, list[str]] = {}
    joined: dict[str, str] = {}
    by_starts: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for value, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        words = _words(value)
        near = by_starts[tuple(word[:_SAME_START] for word in words)]
        leader = joined.get("".join(words)) or next((known for known in near if _alike(_words(known), words)), None)
        if leader is None:
            groups[value] = []
            joined["".join(words)] = value
            near.append(value)
        else:
            groups[leader].append(value)
    return {value: others for value, others in groups.items() if others}


def _words(value: str) -> list[str]:
    return [word for word in re.split(r"[\s-]+", value) if word not in SMALL_WORDS]


def _alike(words: Sequence[str], others: Sequence[str]) -> bool:
    """Return True if the words of two values have similar spellings pair by pair.

    This is stricter than a distance between whole values, in which `run up the hill` is close to `run down the hill`.
    """
    return all(
        one == other
        or (
            min(len(one), len(other)) > _SAME_START
            and SequenceMatcher(None, one, other, autojunk=False).ratio() >= _LEAST_LIKENESS
        )
        for one, other in zip(words, others, strict=False)
    )
