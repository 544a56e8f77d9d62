"""Random texts that match a regular expression, drawn from its parse tree."""

from __future__ import annotations

import random
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any


def matching_text(pattern: str, draw: random.Random) -> str:
    """Draw a text that matches a pattern of literals, sets, groups, alternatives and bounded repeats."""
    return _drawn(_parser.parse(pattern), draw)


def _drawn(tree: Any, draw: random.Random) -> str:
    return "".join(_part(kind, value, draw) for kind, value in tree)


def _part(kind: Any, value: Any, draw: random.Random) -> str:
    if kind is ops.LITERAL:
        return chr(value)
    if kind is ops.IN:
        set_kind, member = draw.choice(value)
        return chr(draw.randint(*member) if set_kind is ops.RANGE else member)
    if kind is ops.BRANCH:
        return _drawn(draw.choice(value[1]), draw)
    if kind is ops.SUBPATTERN:
        return _drawn(value[3], draw)
    assert kind is ops.MAX_REPEAT, f"the pattern has {kind}, which not every server knows"
    least, most, repeated = value
    return "".join(_drawn(repeated, draw) for _ in range(draw.randint(least, most)))
