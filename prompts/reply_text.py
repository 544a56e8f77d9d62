"""Text of replies: folding of what looks alike, JSON objects in prose, words that say nothing, and quoting."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from prompts.tags import TagError

COUNT_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_LONGEST_REPLY = 20_000
_MOST_OBJECTS = 100
"""Most JSON objects that are read; a story has one for each of up to 50 panels."""
_MOST_LEVELS = 50
SAYS_NONE = {
    *("none", "null", "n/a", "na", "nothing", "nobody", "noone", "no one", "no-one", "empty"),
    *("not visible", "not applicable"),
}
"""Values that mean that there is none."""
SAYS_UNKNOWN = {"unknown", "unclear", "unspecified", "cannot tell"}
"""Values that mean that the model does not know."""
SAYS_NOTHING = SAYS_NONE | SAYS_UNKNOWN
# NFKC folds full-width letters, digits, commas and brackets; it does not fold these look-alikes.
_LOOK_ALIKES = str.maketrans(
    {"【": "[", "】": "]", "〈": "<", "〉": ">", "‹": "<", "›": ">", "、": ",", "−": "-", "–": "-"}
    | {"‘": "'", "’": "'", "“": '"', "”": '"', "。": "."}
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOISE = re.compile(r"<think>.*?</think>|```\w*", re.S | re.I)


def fold(text: str) -> str:
    """Normalise the text: unescape HTML and fold look-alikes."""
    if len(text) > _LONGEST_REPLY:
        raise TagError("The reply is far too long; answer with one line.")
    return _NOISE.sub(" ", unicodedata.normalize("NFKC", html.unescape(text)).translate(_LOOK_ALIKES))


def objects(plain: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text, except those nested too deeply.

    Half of a surrogate pair, which JSON can spell and no file can hold, becomes a replacement character.
    """
    decoder, end = json.JSONDecoder(), 0
    for brace in list(re.finditer(r"\{", plain))[:_MOST_OBJECTS]:
        if brace.start() < end:
            continue
        try:
            found, end = decoder.raw_decode(plain, brace.start())
            found = _storable(found, _MOST_LEVELS)
        except (ValueError, RecursionError):
            continue
        yield found


def _storable(value: Any, levels: int) -> Any:
    """Return a JSON value without surrogates; raise ValueError if it has more levels."""
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if not isinstance(value, list | dict):
        return value
    if not levels:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_storable(item, levels - 1) for item in value]
    return {key: _storable(item, levels - 1) for key, item in value.items()}


def as_text(value: Any) -> str:
    """Return a JSON value as it would stand in a tag: lists with commas, true and false as 1 and 0."""
    if isinstance(value, list):
        return ", ".join(map(as_text, value))
    return str(int(value) if isinstance(value, bool) else value)


def quoted(text: str) -> str:
    """Quote a model's text in one line of at most 40 characters."""
    shown = re.sub(r"\s+", " ", text).strip()
    return f'"{shown[:40]}"' if len(shown) <= 40 else f'"{shown[:40]}..."'
