"""Tag grammar: forms and their patterns agree with the parsers, and instruction lines."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import pytest

from prompts.tags import (
    EXAMPLE,
    EXAMPLE_NAMES,
    EXAMPLE_WITH_ACTOR,
    TagError,
    WhatReply,
    WhoReply,
    format_what,
    format_who,
    instruction,
    what_pattern,
    who_pattern,
)
from prompts.what_replies import parse_what
from prompts.who_replies import parse_who
from tests.support.matching_texts import matching_text

CAST = ("Bunny", "Frank", "Tom & Jerry", "Léa", "ポニョ", "Mr. X (old)")
GIRL = WhatReply(
    S="girl",
    MD="run up the hill, then look back",
    EV="forest",
    MA="very slowly",
    SC=0,
    ET=1,
    ST=-1,
    sentence='Léa says "no" and runs (slowly) up the hill; it is 5 o\'clock.',
)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_every_answer_about_characters_goes_through_its_form(count: int) -> None:
    names = CAST[:count]
    for length in range(count + 1):
        for indices in itertools.combinations(range(1, count + 1), length):
            reply = WhoReply(indices, others=length)
            line = format_who(reply)
            assert re.fullmatch(who_pattern(count), line)
            assert parse_who(line, names) == reply


def test_every_description_goes_through_its_form() -> None:
    for words, sc, et, st in itertools.product(("old man", "hill-side", "o'clock"), (0, 1), (0, 1), (-1, 1)):
        for names, actor in (((), None), (CAST, None), *((CAST, name) for name in CAST)):
            reply = replace(GIRL, S=words, MD=f"eat {words} 2", EV=words, SC=sc, ET=et, ST=st, actor=actor)
            line = format_what(reply, names)
            assert re.fullmatch(what_pattern(names), line), line
            assert parse_what(line, names) == reply


@pytest.mark.parametrize("count", [1, 36])
def test_an_answer_that_matches_is_refused_for_its_count_only(count: int) -> None:
    draw, names = random.Random(count), [f"N{number}" for number in range(count)]
    read, faults = 0, set()
    for _ in range(60):
        line = matching_text(who_pattern(count), draw)
        try:
            reply = parse_who(line, names)
        except TagError as error:
            faults.add(str(error)[:13])
        else:
            read += 1
            assert format_who(reply) == line
    assert faults <= {"[Number] says"}
    assert read > 10


@pytest.mark.parametrize("names", [(), CAST])
def test_a_description_that_matches_is_refused_for_its_words_only(names: tuple[str, ...]) -> None:
    draw, read, faults = random.Random(5), 0, []
    for _ in range(150):
        line = matching_text(what_pattern(names), draw)
        try:
            reply = parse_what(line, names)
        except TagError as error:
            faults.append(str(error))
        else:
            read += 1
            again = format_what(reply, names)
            assert parse_what(again, names) == reply
            assert reply.sentence is None or re.fullmatch(what_pattern(names), again)
    words = r'(Tag <(S|MD|EV|MA)> (is too long: [^.]*|says nothing|must be one subject, [^"]*"[^"]*")\. ?)+'
    assert [fault for fault in faults if not re.fullmatch(words, fault)] == []
    assert read > 10


def test_the_example_is_in_its_form_and_patterns_are_plain_and_short() -> None:
    for pattern in (who_pattern(36), what_pattern(CAST)):
        assert not re.search(r"\(\?|\\[0-9bBwWdDsSAZ]", pattern)
        assert len(pattern) < 12_000
    for example, names in ((EXAMPLE, ()), (EXAMPLE_WITH_ACTOR, EXAMPLE_NAMES)):
        line = format_what(example, names)
        assert re.fullmatch(what_pattern(names), line)
        with pytest.raises(TagError, match="repeats the example"):
            parse_what(line, names)


RUNS = ("girl", "run", "forest", "slowly")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ((["Ponyo"], *RUNS), "Character: Ponyo; Motion: slowly run; Background: forest."),
        ((["A", "B"], *RUNS), "Character: A, B; Motion: slowly run; Background: forest."),
        ((["A", "B"], *RUNS, "B"), "Character: B, A; Motion: slowly run; Background: forest."),
        ((["Bird"], *RUNS, "girl"), "Character: girl, Bird; Motion: slowly run; Background: forest."),
        (([], *RUNS), "Character: girl; Motion: slowly run; Background: forest."),
        ((None, None, "move", None, "barely"), "Motion: barely move."),
        ((None, "girl", None, "forest", "slowly"), "Character: girl; Background: forest."),
        ((None, None, None, None, None), ""),
    ],
)
def test_the_instruction_leaves_out_unknown_parts(values: tuple, line: str) -> None:  # type: ignore[type-arg]
    assert instruction(*values) == line
