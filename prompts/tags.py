"""Tag grammar: the forms of a captioner's replies, patterns to guide it, and the instruction line made from them.

    who:   [Number]2[Index]1,3[Others]0
    what:  <S>girl</S><MD>run</MD><EV>forest</EV><MA>slowly</MA><SC>0</SC><ET>1</ET><ST>-1</ST>
           <AC>Ponyo</AC><SE>Ponyo runs slowly through the forest.</SE>        on the same line; AC if names were given
    line:  Character: Ponyo; Motion: slowly run; Background: forest.

The seven tags are the method's. `Others` counts the people who are not on the cast sheet. `AC` (actor) names the
character that is the subject S, and `SE` describes the clip in one plain sentence.

A form is defined here once. `format_who` and `format_what` write it; `who_pattern` and `what_pattern` match it, so that
a server can guide the model by them. The parsers in `who_replies.py` and `what_replies.py` accept more than the form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

TAGS = ("S", "MD", "EV", "MA", "SC", "ET", "ST")
MOST_WORDS = {"S": 2, "MD": 12, "EV": 3, "MA": 2}
"""Most words of a tag: a little more than the prompt asks for, since `old man` is a good reply to "one noun"."""
NUMBERS = {"SC": (0, 1), "ET": (0, 1), "ST": (1, -1)}
"""Allowed values of the tags that are numbers."""
READING = 3
"""Version of the parsers: raised when they read a reply differently, so that captions are made again from replies."""
NOBODY = "none"
"""Value of the actor if the subject is none of the characters found."""
MOST_OTHERS = 99
_COUNT = "(0|[1-9][0-9]?)"
_WORD = "[a-z0-9][a-z0-9'-]{0,23}"
_LATIN = "A-Za-zÀ-ÖØ-öø-ÿ"
_ESCAPED = re.compile(r"[][.^$*+?(){}|\\/-]")


class TagError(Exception):
    """An unusable reply; the message is a sentence to the model that wrote it."""


@dataclass(frozen=True)
class WhoReply:
    """Numbers on the cast sheet, from 1, ascending; empty: no character of the cast is on screen."""

    indices: tuple[int, ...]
    others: int | None = None
    """People on screen besides them; None: not counted."""


@dataclass(frozen=True)
class WhatReply:
    """Subject, motion, environment, manner, the three yes-or-no judgements, the actor and the clip in a sentence."""

    S: str
    MD: str
    EV: str
    MA: str
    SC: Literal[0, 1]
    ET: Literal[0, 1]
    ST: Literal[-1, 1]
    actor: str | None = None
    """Character that is the subject; None: the subject is not a character, or no character was found."""
    sentence: str | None = None
    raw_sentence: str | None = field(default=None, compare=False)
    """The sentence as the model wrote it, usable or not."""


EXAMPLE = WhatReply(
    S="gardener",
    MD="water the tulips",
    EV="morning greenhouse",
    MA="gently",
    SC=0,
    ET=1,
    ST=-1,
    sentence="A gardener waters the tulips in a greenhouse in the morning.",
)
"""Example in the prompt; a reply that repeats it is a fault."""
EXAMPLE_NAMES = ("Rosa", "Felix")
EXAMPLE_WITH_ACTOR = replace(
    EXAMPLE, actor="Rosa", sentence="Rosa waters the tulips in a greenhouse in the morning while Felix watches."
)
"""Example in a prompt that names characters."""


def format_who(reply: WhoReply) -> str:
    """Format the reply as one line; `parse_who` is the inverse."""
    line = f"[Number]{len(reply.indices)}[Index]{','.join(map(str, reply.indices)) or 0}"
    return line if reply.others is None else f"{line}[Others]{reply.others}"


def format_what(reply: WhatReply, names: Sequence[str] = ()) -> str:
    """Format the reply as one line of tags, with the actor if characters were found; `parse_what` is the inverse."""
    values = {tag: getattr(reply, tag) for tag in TAGS}
    if names:
        values["AC"] = reply.actor or NOBODY
    if reply.sentence:
        values["SE"] = reply.sentence
    return "".join(f"<{tag}>{value}</{tag}>" for tag, value in values.items())


def who_pattern(cast_size: int) -> str:
    """Return a regular expression of the replies to `who` in their form; numbers ascend, without repetition.

    The parser checks that the count equals the length of the list. If the expression did, it would force a model that
    wrote 2 to invent a second character. It would also be too long: there are two million ways to choose 6 of 36.
    """
    numbers = range(1, cast_size + 1)
    lists = ["".join(f"({before},)?" for before in range(1, last)) + str(last) for last in numbers]
    some = rf"({any_of(map(str, numbers))})\[Index\]({any_of(lists)})"
    return rf"\[Number\](0\[Index\]0|{some})\[Others\]{_COUNT}"


def what_pattern(names: Sequence[str] = ()) -> str:
    """Return a regular expression of the replies to `what` in their form.

    It has no lookaround and no back-references, because guided decoding does not support them.
    """
    parts = {tag: words_pattern(tag) for tag in MOST_WORDS}
    parts |= {tag: f"({any_of(map(str, allowed))})" for tag, allowed in NUMBERS.items()}
    if names:
        parts["AC"] = f"({any_of([*map(literal, names), NOBODY])})"
    parts["SE"] = sentence_pattern(names)
    return "".join(f"<{tag}>{pattern}</{tag}>" for tag, pattern in parts.items())


def words_pattern(tag: str) -> str:
    """Return a regular expression of the values of a tag of words: lower case, in ASCII."""
    comma = ",?" if tag == "MD" else ""
    return f"{_WORD}({comma} {_WORD}){{0,{MOST_WORDS[tag] - 1}}}"


def sentence_pattern(names: Sequence[str] = ()) -> str:
    """Return a regular expression of a sentence in Latin letters and the letters of the characters' names."""
    foreign = "".join(sorted({letter for letter in "".join(names) if letter.isalpha() and not letter.isascii()}))
    return rf"[{_LATIN}{foreign}0-9][{_LATIN}{foreign}0-9 ,.;:!?'\"()&-]{{8,236}}[.!?]"


def any_of(choices: Iterable[str]) -> str:
    """Return a regular expression of either of some expressions."""
    return "|".join(choices)


def literal(text: str) -> str:
    """Escape the characters that have a meaning in every dialect of regular expressions, and no others."""
    return _ESCAPED.sub(lambda match: f"\\{match[0]}", text)


def instruction(
    characters: Sequence[str] | None,
    subject: str | None,
    motion: str | None,
    environment: str | None,
    manner: str | None,
    actor: str | None = None,
) -> str:
    """Return the instruction line `Character: X; Motion: <adverb> <motion>; Background: <environment>.`

    X is the actor and then the other characters; without an actor the characters' names, or the subject if there are
    none. A part without a value is left out, and so is an adverb without a motion; the line is empty if nothing is
    known.
    """
    companions = [name for name in characters or () if name != actor]
    names = ", ".join([actor, *companions] if actor else companions) or subject
    movement = f"{manner} {motion}" if manner and motion else motion
    parts = [("Character", names), ("Motion", movement), ("Background", environment)]
    line = "; ".join(f"{label}: {value}" for label, value in parts if value)
    return f"{line}." if line else ""
