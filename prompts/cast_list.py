"""Cast list of a reply: characters by number on the sheet, by name, or both, as in `2 (Bunny), 4 (Frank)`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from prompts.tags import TagError

_SEPARATOR = re.compile(r"\s*(?:[,;&+]|\band\b)?\s*")
_RANGE = re.compile(r"[-~.]\s*[0-9]")
_END_OF_CLAUSE = re.compile(r"\n|[.!](?:\s|$)")
_OPENING = re.compile(r"\s*\(")
_NEVER = "(?!)"


@dataclass(frozen=True)
class CastList:
    """Characters listed at the start of a text, and the rest of it."""

    indices: frozenset[int]
    """Numbers on the sheet, some perhaps beyond its end."""
    named: bool
    """True if each is given by its name, with or without its number."""
    rest: str


def read_cast_list(text: str, names: Sequence[str]) -> CastList:
    """Read the list at the start of a case-folded text.

    Args:
        text: the list, and prose after it.
        names: case-folded names of the cast, in the order of their numbers.

    Raises:
        TagError: a range, a number with another character's name, a name that may be the start of another one, or
            prose that goes on with another character.
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
