"""Tag grammar: parsers of a captioner's replies, and the instruction line made from them.

    who:   [Number]2[Index]1,3
    what:  <S>girl</S><MD>run</MD><EV>forest</EV><MA>slowly</MA><SC>0</SC><ET>1</ET><ST>-1</ST>
    line:  Character: Ponyo; Motion: slowly run; Background: forest.

The parsers are tolerant about form: case, spaces and newlines, code fences, reasoning blocks and prose around the
reply, full-width brackets, commas and digits, HTML-escaped tags, missing closing tags, `[Num]`/`[ID]` for
`[Number]`/`[Index]`, the same reply given twice. They are strict about content: every tag must be there, with one value
that is allowed. Text is lower-cased and loses a leading article and a final full stop, so that equal replies are equal
text. The limits on words are a little higher than those the prompt states (see `_MOST_WORDS`): models asked for one
noun write "old man" when there is no single noun, and that is a good reply.

All faults of a reply are raised as one `TagError`, whose message is written for the model, to be sent back for repair.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, cast

TAGS = ("S", "MD", "EV", "MA", "SC", "ET", "ST")
_MOST_WORDS = {"S": 2, "MD": 12, "EV": 3, "MA": 2}
_ALLOWED_NUMBERS = {"SC": (0, 1), "ET": (0, 1), "ST": (1, -1)}
_MOST_CHARACTERS = 80
_LONGEST_REPLY = 20_000
_SAYS_NOTHING = {"none", "null", "n/a", "na", "unknown", "unclear", "nothing", "nobody", "empty"}

# NFKC folds full-width letters, digits, commas and brackets; it does not fold these look-alikes.
_LOOK_ALIKES = str.maketrans(
    {"【": "[", "】": "]", "〈": "<", "〉": ">", "‹": "<", "›": ">", "、": ",", "−": "-", "–": "-"}
)
_NOISE = re.compile(r"<think>.*?</think>|```\w*", re.S | re.I)
_BRACKETED_LIST = re.compile(r"\[([0-9][0-9,;\s]*)\]")
# `ML` is the motion level given in the prompt; some models repeat it, and it ends the value before it like any tag.
_MARK = re.compile(rf"<\s*(/\s*)?({'|'.join(TAGS)}|ML)\s*(/\s*)?>", re.I)
_WHO = re.compile(
    r"\[\s*num(?:ber)?\s*\](?P<number>[^\[\]]*)(?:\[\s*/[^\[\]]*\])?\s*"
    r"\[\s*(?:id|ids|index|indexes|indices)\s*\](?P<index>[^\[\]]*)",
    re.I,
)
# The list may be followed by prose, but not by a range (`1-3`) or part of a number.
_INDEX_LIST = re.compile(r"(?>[0-9]+(?:\s*(?:[,;&\s]|\band\b)\s*#?[0-9]+)*)(?!\s*[-~.]\s*[0-9])(?!\w)", re.I)


class TagError(Exception):
    """An unusable reply; the message is a sentence to the model that wrote it."""


@dataclass(frozen=True)
class WhoReply:
    """Numbers on the cast sheet, from 1, ascending; empty: no character of the cast is on screen."""

    indices: tuple[int, ...]


@dataclass(frozen=True)
class WhatReply:
    """Subject, motion, environment, manner, and the three yes-or-no judgements."""

    S: str
    MD: str
    EV: str
    MA: str
    SC: Literal[0, 1]
    ET: Literal[0, 1]
    ST: Literal[-1, 1]


EXAMPLE = WhatReply(S="gardener", MD="water the tulips", EV="morning greenhouse", MA="gently", SC=0, ET=1, ST=-1)
"""Example in the prompt; a reply that repeats it is a fault."""


def format_what(reply: WhatReply) -> str:
    """Format the reply as one line of tags; `parse_what` is the inverse."""
    return "".join(f"<{tag}>{getattr(reply, tag)}</{tag}>" for tag in TAGS)


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


def parse_who(text: str, cast_size: int) -> WhoReply:
    """Parse the reply to the request `who`.

    Args:
        text: the reply, verbatim.
        cast_size: number of characters on the sheet.

    Raises:
        TagError: no answer in the required form, contradicting answers, a wrong count, or a number not on the sheet.
    """
    answers = {_indices(match["number"], match["index"]) for match in _WHO.finditer(_plain(text))}
    if not answers:
        raise TagError("The reply has no line of the form [Number]how many[Index]number,number.")
    if len(answers) > 1:
        raise TagError("The reply gives several answers that contradict each other; give one.")
    indices = answers.pop()
    off_sheet = [index for index in indices if not 1 <= index <= cast_size]
    if off_sheet:
        raise TagError(f"The cast sheet has the numbers 1 to {cast_size}, but the reply names {off_sheet[0]}.")
    return WhoReply(indices)


def _indices(number_text: str, index_text: str) -> tuple[int, ...]:
    number, index_text = (" ".join(text.split()).strip(" :=#().,").lower() for text in (number_text, index_text))
    count = 0 if number in _SAYS_NOTHING else int(number) if re.fullmatch(r"[0-9]{1,3}", number) else None
    if count is None:
        raise TagError(f"After [Number] must stand how many characters appear, as a number, not {_quoted(number)}.")
    listed = _INDEX_LIST.match(index_text)
    if listed is None and re.split(r"[\s.,]", index_text)[0] not in {"", *_SAYS_NOTHING}:
        raise TagError(f"After [Index] must stand numbers separated by commas, not {_quoted(index_text)}.")
    # at most 4 digits: a longer run is not an index, and int() raises on a very long one
    digits = re.findall(r"[0-9]+", listed[0]) if listed else []
    indices = tuple(sorted({int(run[:4]) for run in digits} - {0}))
    if len(indices) != count:
        raise TagError(f"[Number] says {count}, but [Index] lists {len(indices)} different characters.")
    return indices


def parse_what(text: str) -> WhatReply:
    """Parse the reply to the request `what`.

    Raises:
        TagError: with every fault of the reply in one message.
    """
    found = _values(_plain(text))
    values: dict[str, str | int] = {}
    faults: list[str] = []
    for tag in TAGS:
        try:
            values[tag] = _read_number(tag, found[tag]) if tag in _ALLOWED_NUMBERS else _read_words(tag, found[tag])
        except TagError as fault:
            faults.append(str(fault))
    if faults:
        raise TagError(" ".join(faults))
    reply = WhatReply(
        S=str(values["S"]),
        MD=str(values["MD"]),
        EV=str(values["EV"]),
        MA=str(values["MA"]),
        SC=cast(Literal[0, 1], values["SC"]),
        ET=cast(Literal[0, 1], values["ET"]),
        ST=cast(Literal[-1, 1], values["ST"]),
    )
    if (reply.S, reply.MD, reply.EV) == (EXAMPLE.S, EXAMPLE.MD, EXAMPLE.EV):
        raise TagError("The reply repeats the example of the instructions; describe this clip instead.")
    return reply


def _plain(text: str) -> str:
    """Normalise the text: unescape HTML, fold look-alikes, remove code fences and reasoning."""
    if len(text) > _LONGEST_REPLY:
        raise TagError("The reply is far too long; answer with one line.")
    folded = unicodedata.normalize("NFKC", html.unescape(text)).translate(_LOOK_ALIKES)
    return _BRACKETED_LIST.sub(r" \1 ", _NOISE.sub(" ", folded))


def _values(text: str) -> dict[str, list[str]]:
    """Return all values of each tag: from its opening mark to the next mark of any tag."""
    marks = list(_MARK.finditer(text))
    found: dict[str, list[str]] = {tag: [] for tag in (*TAGS, "ML")}
    for mark, following in zip_longest(marks, marks[1:]):
        if mark[1] or mark[3]:
            continue
        value = text[mark.end() : following.start() if following else len(text)].strip()
        closed = following is not None and following[1]
        # an unclosed tag ends with its line: later lines are prose
        found[mark[2].upper()].append(value if closed else value.split("\n", 1)[0].strip())
    return found


def _read_words(tag: str, texts: list[str]) -> str:
    words = _only(tag, [_tidy(value) for value in texts])
    most = _MOST_WORDS[tag]
    if not any(map(str.isalpha, words)) or words in _SAYS_NOTHING:
        raise TagError(f"Tag <{tag}> says nothing.")
    if len(words.split()) > most or len(words) > _MOST_CHARACTERS:
        raise TagError(f"Tag <{tag}> is too long: use at most {most} words and {_MOST_CHARACTERS} characters.")
    if any(character.isalpha() and "LATIN" not in unicodedata.name(character, "") for character in words):
        raise TagError(f"Tag <{tag}> must be in English, not {_quoted(words)}.")
    if re.search(r"[<>\[\]{};:|\\]", words) or any(unicodedata.category(character)[0] == "C" for character in words):
        raise TagError(f"Tag <{tag}> must hold plain words only, not {_quoted(words)}.")
    return words


def _tidy(value: str) -> str:
    words = re.sub(r"\s+", " ", value).strip(" \"'`*.,!?").lower()
    return re.sub(r"^(?:an?|the) (?=\w)", "", words)


def _read_number(tag: str, texts: list[str]) -> int:
    allowed = _ALLOWED_NUMBERS[tag]
    value = _only(tag, [re.sub(r"\s+", "", text).removeprefix("+") for text in texts])
    if value not in map(str, allowed):
        raise TagError(f"Tag <{tag}> must be {allowed[0]} or {allowed[1]}, not {_quoted(value)}.")
    return int(value)


def _only(tag: str, texts: list[str]) -> str:
    """Return the only value of a tag, repeated or not."""
    if not texts:
        raise TagError(f"Tag <{tag}> is missing.")
    if len(set(texts)) > 1:
        raise TagError(f"Tag <{tag}> is given several values that contradict each other.")
    return texts[0]


def _quoted(text: str) -> str:
    """Quote a model's text in one line of at most 40 characters."""
    shown = re.sub(r"\s+", " ", text).strip()
    return f'"{shown[:40]}"' if len(shown) <= 40 else f'"{shown[:40]}..."'
