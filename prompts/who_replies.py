"""Replies to the request `who`: tolerant parsing of the form in `tags.py`, with strict checks of the content.

The parser tolerates what cannot be mistaken. The form may differ in case, spaces, code fences, reasoning blocks, prose
around the answer and full-width characters. `[Num]` and `[ID]` stand for `[Number]` and `[Index]`, and JSON has the
same keys. The same answer may come twice. Names may stand with the numbers or instead of them (`2 (Bunny)`,
`2 = Bunny`, `Bunny, Frank`), and counts may be words. A wrong count, a number that is not on the sheet and answers that
contradict each other are faults. If `Others` is missing or unknown, the people were not counted.

A fault is a `TagError`, whose message is written for the model, to be sent back for repair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

from prompts.reply_text import COUNT_WORDS, SAYS_NONE, SAYS_UNKNOWN, as_text, fold, objects, quoted
from prompts.tags import MOST_OTHERS, TagError, WhoReply

_EDGES = " :;=#(.,\"'"
_BRACKETED_LIST = re.compile(r"\[([0-9][0-9,;\s]*)\]")
_WHO_MARK = re.compile(
    r"\[\s*(?P<closing>/?)\s*(?P<tag>num(?:ber)?|ids?|index(?:es)?|indices|others?)\s*\]"
    r"|\b(?P<word>number|index|indices|others)\s*[:=](?!\s*\[)",
    re.I,
)
_WHO_KEYS = {
    **dict.fromkeys(("num", "number", "count"), "number"),
    **dict.fromkeys(("id", "ids", "index", "indexes", "indices", "characters", "names"), "index"),
    **dict.fromkeys(("other", "others"), "others"),
}
_SEPARATOR = re.compile(r"\s*(?:[,;&+]|\band\b)?\s*")
_RANGE = re.compile(r"[-~.]\s*[0-9]")
_END_OF_CLAUSE = re.compile(r"\n|[.!](?:\s|$)")
_OPENING = re.compile(r"\s*\(")
_NEVER = "(?!)"


def parse_who(text: str, names: Sequence[str]) -> WhoReply:
    """Parse the verbatim reply to the request `who`, given the cast in the order of its numbers on the sheet.

    Raises:
        TagError: no readable answer, contradicting answers, a wrong count, or a number that is not on the sheet.
    """
    folded = [fold(name).casefold() for name in names]
    plain = fold(text)
    answers = {_read_who(answer, folded) for answer in _who_answers(plain)} or _bare_list(plain, folded)
    if not answers:
        raise TagError("The reply has no line of the form [Number]how many[Index]number,number[Others]how many.")
    if len(answers) > 1:
        raise TagError("The reply gives several answers that contradict each other; give one.")
    reply = answers.pop()
    off_sheet = [index for index in reply.indices if index > len(names)]
    if off_sheet:
        raise TagError(f"The cast sheet has the numbers 1 to {len(names)}, but the reply names {off_sheet[0]}.")
    return reply


def _who_answers(plain: str) -> Iterator[dict[str, str]]:
    """Yield the texts of every answer by its keys `number` (some JSON lacks it), `index`, and `others` if present."""
    for found in objects(plain):
        named = {_WHO_KEYS[key.lower()]: value for key, value in found.items() if key.lower() in _WHO_KEYS}
        texts = {key: as_text(value) for key, value in named.items() if key != "others" or value is not None}
        if "index" in texts:
            yield texts
    text = _BRACKETED_LIST.sub(r" \1 ", plain.replace("*", " "))
    marks = [mark for mark in _WHO_MARK.finditer(text) if not mark["closing"]]
    answer: dict[str, str] = {}
    for mark, following in zip_longest(marks, marks[1:]):
        value = text[mark.end() : following.start() if following else len(text)]
        answer[_key(mark)] = value.replace('"', " ")
        # a repeated key makes another answer, so that an answer can contradict itself
        ends = following is None or _key(following) == "number" or _key(following) in answer
        if ends and {"number", "index"} <= answer.keys():
            yield dict(answer)
        if following and _key(following) == "number":
            answer = {}


def _key(mark: re.Match[str]) -> str:
    return _WHO_KEYS[(mark["tag"] or mark["word"]).lower()]


def _read_who(answer: dict[str, str], names: Sequence[str]) -> WhoReply:
    listing = _trimmed(answer["index"])
    found = read_cast_list(listing, names)
    if not found.indices and found.rest == listing and re.split(r"[\s.,]", listing)[0] not in {"", *SAYS_NONE}:
        raise TagError(f"After [Index] must stand numbers separated by commas, not {quoted(listing)}.")
    if "number" in answer and (count := _count("Number", answer["number"])) != len(found.indices):
        raise TagError(f"[Number] says {count}, but [Index] lists {len(found.indices)} different characters.")
    return WhoReply(tuple(sorted(found.indices)), _others(answer.get("others", "unknown")))


def _others(text: str) -> int | None:
    """Return the number of other people; None if the model does not know it."""
    line = _first_line(text)
    return None if _trimmed(line) in SAYS_UNKNOWN else _count("Others", line)


def _bare_list(plain: str, names: Sequence[str]) -> set[WhoReply]:
    """Return the answer of a reply that is only names, or says that there is nobody; a lone number may be a count."""
    text = _trimmed(plain)
    if text in {"0", *SAYS_NONE}:
        return {WhoReply(())}
    found = read_cast_list(text, names)
    usable = found.indices and found.named and not found.rest
    return {WhoReply(tuple(sorted(found.indices)))} if usable else set()


def _count(tag: str, text: str) -> int:
    without_remark = re.sub(r"\([^()0-9]*\)\s*$", "", text.strip())
    words = re.sub(r" (?:characters?|people|persons?)$", "", _trimmed(without_remark))
    if words in SAYS_NONE:
        return 0
    if words in COUNT_WORDS:
        return COUNT_WORDS.index(words)
    if not re.fullmatch(r"[0-9]{1,3}", words) or int(words) > MOST_OTHERS:
        raise TagError(f"After [{tag}] must stand how many appear, as a number, not {quoted(words)}.")
    return int(words)


def _first_line(text: str) -> str:
    """Return a value without the prose after it: its first line, up to the end of a sentence."""
    return re.split(r"\n|[.,](?=\s)|\s(?=[A-Z][a-z])", text.strip(), maxsplit=1)[0]


def _trimmed(text: str) -> str:
    """Return a case-folded value without enclosing characters; a closing bracket with a partner in the value stays."""
    trimmed = re.sub(r"\[\s*/[^\[\]]*\]", " ", " ".join(text.split())).lstrip(_EDGES + ")").rstrip(_EDGES)
    for _ in range(trimmed.count(")") - trimmed.count("(")):
        trimmed = trimmed.removesuffix(")").rstrip(_EDGES)
    return trimmed.casefold()


@dataclass(frozen=True)
class CastList:
    """Characters listed at the start of a text, and the rest of it."""

    indices: frozenset[int]
    """Numbers on the sheet, some perhaps beyond its end."""
    named: bool
    """True if each is given by its name, with or without its number."""
    rest: str


def read_cast_list(text: str, names: Sequence[str]) -> CastList:
    """Read the list at the start of a case-folded text, given the case-folded names of the cast in order.

    Raises:
        TagError: a range, a number with another character's name, a name that may be the start of another one, or
            another character in the prose after the list.
    """
    item = _item(tuple(names))
    indices: set[int] = set()
    named, position = True, 0
    while match := item.match(text, position):
        indices.add(_index(match, names))
        named = named and bool(match["name"] or match["label"])
        separator = _SEPARATOR.match(text, match.end())
        position = separator.end() if separator else match.end()
    rest = text[position:]
    if _RANGE.match(rest):
        raise TagError("The characters must be listed by numbers separated by commas, not as a range.")
    clause = _END_OF_CLAUSE.split(rest, maxsplit=1)[0] if indices else ""
    further = {_index(match, names) for match in item.finditer(clause)} - indices
    if any(1 <= index <= len(names) for index in further):
        raise TagError("After the list the reply names another character; list all of them, separated by commas.")
    return CastList(frozenset(indices - {0}), named, rest)


@cache
def _item(names: tuple[str, ...]) -> re.Pattern[str]:
    """Pattern of one character: `2`, `2 (Bunny)`, `2 = Bunny`, `2 (in the back)`, `Bunny`, `Bunny (2)`."""
    name = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or _NEVER
    labelled = rf"\s*[=:.)-]?\s*\(?\s*(?P<label>{name})(?!\w)\s*\)?"
    remark = rf"\s*\((?![^()]{{0,60}}(?<!\w)(?:{name})(?!\w))[^()]{{0,60}}\)"
    by_number = rf"#?(?P<number>[0-9]+)(?!\w)(?:{labelled}|{remark})?"
    by_name = rf"(?P<name>{name})(?!\w)(?:\s*[=:(]\s*#?(?P<inside>[0-9]+)(?!\w)\s*\)?)?"
    return re.compile(rf"(?<!\w)(?:{by_number}|{by_name})")


def _index(match: re.Match[str], names: Sequence[str]) -> int:
    digits, name = match["number"] or match["inside"], match["label"] or match["name"]
    goes_on = name and not match["inside"] and _OPENING.match(match.string, match.end())
    if goes_on and any(other.startswith(f"{name} (") for other in names):
        raise TagError(f"It is unclear which character the reply calls {name}; give the number on the cast sheet.")
    # at most 4 digits: a longer run is not an index, and int() raises on a very long one
    index = int(digits[:4]) if digits else names.index(name) + 1
    if name and 1 <= index <= len(names) and names[index - 1] != name:
        raise TagError(f"On the cast sheet the number {index} is {names[index - 1]}, but the reply calls it {name}.")
    return index
