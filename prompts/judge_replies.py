"""Replies to the request `judge`: scores from 1 to 10 of each program, a line per criterion, and a reason.

<OA>7 5</OA>
<TA>8 4</TA>
...
<WHY>Program 1 keeps the beach of scene 2 in scene 5.</WHY>
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from prompts.reply_text import fold, quoted
from prompts.tags import TagError

CRITERIA = ("OA", "TA", "CONC", "CHAC", "EC", "VC")
_REASON = "<WHY>Program 2 shows the wrong character in scene 3.</WHY>"
_SCORE = "(10|[1-9])"
_LINE = re.compile(rf"<\s*({'|'.join(CRITERIA)})\s*>([^<]*)", re.I)

Scores = Mapping[str, tuple[int, ...]]
"""Scores of the programs, in the order in which they were shown, by criterion."""


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
        TagError: a criterion is missing or given twice, or has another number of scores, or one out of range.
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
