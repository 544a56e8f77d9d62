"""Replies in an evaluation: the stories that a model writes, and the scores that a judge gives to games.

A story has a line of tags per panel. It is parsed as tolerantly as captions and checked as strictly:

    <S>Ponyo, Sosuke</S><MD>run over the waves</MD><EV>sea</EV><ML>5</ML><MA>wildly</MA><SC>1</SC><ET>1</ET><ST>-1</ST>

The tags are those of a caption (`tags.py`), with the motion level ML, and S names characters. A reply in this form
matches `story_pattern`; JSON with a panel per object is understood too.

A judge gives scores from 1 to 10 to each program, a line per criterion, and a reason:

    <OA>7 5</OA>
    <TA>8 4</TA>
    ...
    <WHY>Program 1 keeps the beach of scene 2 in scene 5.</WHY>
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prompts.reply_text import as_text, fold, objects, quoted
from prompts.tags import MOST_WORDS, NUMBERS, TagError, any_of, literal, words_pattern
from prompts.what_replies import read_number, read_words, tag_values

LEVELS = (1, 2, 3, 4, 5)
_STORY_TAGS = ("S", "MD", "EV", "ML", "MA", "SC", "ET", "ST")
_PANEL = re.compile(r"<\s*S\s*>", re.I)
_MOST_FAULTS = 6
"""Faults named in one message; a reply that is wrong throughout is not quoted back in full."""
CRITERIA = ("OA", "TA", "CONC", "CHAC", "EC", "VC")
_REASON = "<WHY>Program 2 shows the wrong character in scene 3.</WHY>"
_SCORE = "(10|[1-9])"
_LINE = re.compile(rf"<\s*({'|'.join(CRITERIA)})\s*>([^<]*)", re.I)

Scores = Mapping[str, tuple[int, ...]]
"""Scores of the programs, in the order in which they were shown, by criterion."""


@dataclass(frozen=True)
class StoryPanel:
    """A panel of a story: characters on screen, the protagonist first, and the tags."""

    characters: tuple[str, ...]
    MD: str
    EV: str
    ML: int
    MA: str
    SC: Literal[0, 1]
    ET: Literal[0, 1]
    ST: Literal[-1, 1]


EXAMPLE_PANEL = StoryPanel(("Rosa", "Felix"), "water the tulips", "morning greenhouse", 2, "gently", 1, 1, -1)
"""Panel of the example in the prompt."""


def format_panel(panel: StoryPanel) -> str:
    """Format a panel as one line; `parse_story` is the inverse for all lines."""
    values = {tag: getattr(panel, tag) for tag in _STORY_TAGS[1:]}
    parts = {"S": ", ".join(panel.characters), **values}
    return "".join(f"<{tag}>{value}</{tag}>" for tag, value in parts.items())


def story_pattern(protagonist: str, companions: Sequence[str], panels: int) -> str:
    """Return a regular expression of the replies in their form."""
    joined = f"(, ({any_of(map(literal, companions))}))?" if companions else ""
    parts = {"S": literal(protagonist) + joined, "ML": f"({any_of(map(str, LEVELS))})"}
    parts |= {tag: words_pattern(tag) for tag in MOST_WORDS if tag != "S"}
    parts |= {tag: f"({any_of(map(str, allowed))})" for tag, allowed in NUMBERS.items()}
    line = "".join(f"<{tag}>{parts[tag]}</{tag}>" for tag in _STORY_TAGS)
    return rf"({line}\n){{{panels - 1}}}{line}"


def parse_story(text: str, protagonist: str, companions: Sequence[str], panels: int) -> tuple[StoryPanel, ...]:
    """Parse the reply to the request `story`.

    Raises:
        TagError: with the faults of the reply in one message.
    """
    found = _panels(fold(text))
    if len(found) != panels:
        raise TagError(f"The story must have {panels} panels, not {len(found)}.")
    read: list[StoryPanel] = []
    faults: list[str] = []
    for number, values in enumerate(found, start=1):
        try:
            read.append(_panel(values, protagonist, companions))
        except TagError as fault:
            faults.append(f"Panel {number}: {fault}")
    if faults:
        raise TagError(" ".join(faults[:_MOST_FAULTS]))
    return tuple(read)


def _panels(plain: str) -> list[Mapping[str, list[str]]]:
    """Return the values of each panel by tag: of JSON objects, or of the text from one tag S to the next."""
    marks = [mark.start() for mark in _PANEL.finditer(plain)]
    if marks:
        return [tag_values(plain[start:end]) for start, end in zip(marks, [*marks[1:], len(plain)], strict=True)]
    rows = ({key.upper(): as_text(value) for key, value in row.items()} for row in objects(plain))
    return [{tag: [row[tag]] if tag in row else [] for tag in _STORY_TAGS} for row in rows if "S" in row]


def _panel(values: Mapping[str, list[str]], protagonist: str, companions: Sequence[str]) -> StoryPanel:
    characters = _characters(values["S"], protagonist, companions)
    social, entertainment, stamina = (read_number(tag, values[tag], allowed) for tag, allowed in NUMBERS.items())
    if social and len(characters) == 1:
        raise TagError("Tag <SC> is 1, but no other character is there to do something with.")
    return StoryPanel(
        characters,
        read_words("MD", values["MD"]),
        read_words("EV", values["EV"]),
        read_number("ML", values["ML"], LEVELS),
        read_words("MA", values["MA"]),
        1 if social else 0,
        1 if entertainment else 0,
        1 if stamina == 1 else -1,
    )


def _characters(texts: Sequence[str], protagonist: str, companions: Sequence[str]) -> tuple[str, ...]:
    if len(texts) != 1:
        raise TagError("Tag <S> must be there once.")
    known = {_key(name): name for name in (protagonist, *companions)}
    # the longest first: a name may hold another one, or an `and`
    any_name = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, sorted(known, key=len, reverse=True)))})(?!\w)")
    names = [known[key] for key in dict.fromkeys(any_name.findall(_key(texts[0])))]
    strangers = [_key(part) for part in re.split(r"[,;&+]|\band\b", any_name.sub(",", _key(texts[0]))) if _key(part)]
    if strangers:
        raise TagError(f"Tag <S> names {quoted(strangers[0])}, a character that is not in the list.")
    if protagonist not in names or len(names) > 2:
        raise TagError(f"Tag <S> must be {protagonist}, alone or with one other character.")
    return (protagonist, *(name for name in names if name != protagonist))


def _key(name: str) -> str:
    return " ".join(fold(name).split()).strip(" \"'`*.!?").casefold()


def example(programs: int) -> str:
    """Return the form of a reply about a number of programs."""
    rows = (" ".join(str((3 * row + 4 * column) % 8 + 2) for column in range(programs)) for row in range(len(CRITERIA)))
    lines = (f"<{name}>{row}</{name}>" for name, row in zip(CRITERIA, rows, strict=True))
    return "\n".join([*lines, _REASON])


def format_scores(scores: Scores) -> str:
    """Format scores as lines of tags; `parse_scores` is the inverse."""
    return "\n".join(f"<{name}>{' '.join(map(str, scores[name]))}</{name}>" for name in CRITERIA)


def judge_pattern(programs: int) -> str:
    """Return a regular expression of the replies in their form."""
    row = rf"{_SCORE}( {_SCORE}){{{programs - 1}}}"
    return "\n".join(f"<{name}>{row}</{name}>" for name in CRITERIA) + r"\n<WHY>[A-Za-z0-9 ,.;:'()-]{1,400}</WHY>"


def parse_scores(text: str, programs: int) -> Scores:
    """Parse the reply about a number of programs; the reason is not read.

    Raises:
        TagError: a criterion is missing or given twice, or its scores are too few, too many or out of range.
    """
    found: dict[str, str] = {}
    for name, values in _LINE.findall(fold(text)):
        if found.setdefault(name.upper(), values.strip()) != values.strip():
            raise TagError(f"Tag <{name.upper()}> is given twice, with other scores.")
    faults = []
    scores: dict[str, tuple[int, ...]] = {}
    for name in CRITERIA:
        try:
            scores[name] = _row(name, found.get(name), programs)
        except TagError as fault:
            faults.append(str(fault))
    if faults:
        raise TagError(" ".join(faults))
    return scores


def _row(name: str, values: str | None, programs: int) -> tuple[int, ...]:
    if values is None:
        raise TagError(f"Tag <{name}> is missing.")
    parts: Sequence[str] = re.split(r"[\s,;]+", values)
    wrong = [part for part in parts if not re.fullmatch(_SCORE, part)]
    if wrong:
        raise TagError(f"Tag <{name}> must hold whole scores from 1 to 10, not {quoted(wrong[0])}.")
    if len(parts) != programs:
        raise TagError(f"Tag <{name}> must hold {programs} scores, not {len(parts)}.")
    return tuple(map(int, parts))
