"""Tagged replies: tolerant parsing, strict checks."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from prompts.tags import EXAMPLE, TagError, WhatReply, format_what, instruction, parse_what, parse_who

GIRL = WhatReply(S="girl", MD="run up the hill", EV="forest", MA="slowly", SC=0, ET=1, ST=-1)
LINE = format_what(GIRL)


def test_a_written_reply_is_read_back() -> None:
    for words, sc, et, st in itertools.product(("old man", "hill-side", "o'clock"), (0, 1), (0, 1), (-1, 1)):
        reply = WhatReply(words, f"eat {words} 2", words, "very slowly", sc, et, st)
        assert parse_what(format_what(reply)) == reply


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        LINE.lower(),
        LINE.upper(),
        f"Sure! Here is the description:\n```xml\n{LINE}\n```\nI hope this helps: 1 < 2.",
        f"<think>perhaps <S>boy</S>?</think>{LINE}",
        LINE.replace("><", "> \n <"),
        LINE.replace("<MD>", "<MD>\n  ").replace("run up", "run \n up"),
        LINE.replace("<", "< ").replace("</", "</ ").replace(">", " >"),
        LINE.replace("<", "＜").replace(">", "＞"),
        LINE.replace("<", "&lt;").replace(">", "&gt;"),
        LINE.replace("</S>", "").replace("</MD>", "").replace("</ST>", ""),
        LINE.replace("</ST>", "\nThe girl is tired."),
        LINE.replace("<SC>", "<ML>3</ML><SC>"),
        LINE.replace("<ST>-1", "<ST>−1"),
        LINE.replace("<ET>1", "<ET>+1").replace("girl", "The girl").replace("forest", "a Forest."),
        LINE + "\n" + LINE,
        LINE.replace("</S><MD>", "</S>, <MD>"),
    ],
)
def test_case_and_white_space_do_not_matter(text: str) -> None:
    assert parse_what(text) == GIRL


def test_plus_one_is_one() -> None:
    assert parse_what(LINE.replace("-1", "+1")).ST == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("I cannot help with that.", "<S> is missing"),
        ("", "<ST> is missing"),
        (LINE.replace("<EV>forest</EV>", ""), "<EV> is missing"),
        (LINE.replace("girl", ""), "<S> says nothing"),
        (LINE.replace("girl", "None"), "<S> says nothing"),
        (LINE.replace("girl", "?!"), "<S> says nothing"),
        (LINE.replace("girl", "the young and happy girl"), "<S> is too long"),
        (LINE.replace("run", "run " * 13), "<MD> is too long"),
        (LINE.replace("run", "r" * 90), "<MD> is too long"),
        (LINE.replace("girl", "少女"), "<S> must be in English"),
        (LINE.replace("girl", "<b>girl"), "<S> must hold plain words"),
        (LINE.replace("girl", "girl; boy"), "<S> must hold plain words"),
        (LINE.replace("forest", "for\x00est"), "<EV> must hold plain words"),
        (LINE.replace("forest", "for\u202eest"), "<EV> must hold plain words"),
        (LINE.replace("<SC>0", "<SC>2"), "<SC> must be 0 or 1, not \"2\""),
        (LINE.replace("<SC>0", "<SC>0|1"), "<SC> must be 0 or 1"),
        (LINE.replace("<ET>1", "<ET>yes"), "<ET> must be 0 or 1"),
        (LINE.replace("<ST>-1", "<ST>0"), "<ST> must be 1 or -1"),
        (LINE.replace("<ST>-1", "<ST>"), "<ST> must be 1 or -1"),
        (LINE.replace("<ST>-1", "<ST>" + "9" * 5000), "<ST> must be 1 or -1"),
        (LINE + LINE.replace("girl", "boy"), "<S> is given several values"),
        (LINE + LINE.replace("<SC>0", "<SC>1"), "<SC> is given several values"),
        (format_what(EXAMPLE), "repeats the example"),
    ],
)  # fmt: skip
def test_faults_are_named(text: str, fault: str) -> None:
    with pytest.raises(TagError) as caught:
        parse_what(text)
    assert fault in str(caught.value)


def test_all_faults_come_in_one_message_of_bounded_length() -> None:
    with pytest.raises(TagError) as caught:
        parse_what("".join(f"<{tag}>{'<' + 'x' * 2_000}</{tag}>" for tag in ("S", "MD", "EV", "MA", "SC", "ET", "ST")))
    assert all(f"<{tag}>" in str(caught.value) for tag in ("S", "MD", "EV", "MA", "SC", "ET", "ST"))
    assert len(str(caught.value)) < 1000


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "unit", ["<think>", "< ", "[Number]1[Index]1 " + " " * 500, "<S>", "&lt;S &gt;", "[1,", "<S> " * 50 + "\n"]
)
def test_hostile_replies_are_read_quickly(unit: str) -> None:
    for text in ((unit * 20_000)[:20_000], unit * 100_000):
        for read in (parse_what, lambda text: parse_who(text, 3)):
            with suppress(TagError):
                read(text)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("[Number]2[Index]1,3", (1, 3)),
        ("[Num]2[ID]3, 1", (1, 3)),
        ("[ number ] 2 [ INDICES ] 1 and 3", (1, 3)),
        ("[Number]: 2\n[Index]: #1, #3.", (1, 3)),
        ("【Number】２【Index】１，３", (1, 3)),
        ("[Number]2[/Number][Index]1、3[/Index]", (1, 3)),
        ("[Number]2[Index][1, 3]", (1, 3)),
        ("```\n[Number]2[Index]1,3\n```", (1, 3)),
        ("I see two of them. [Number]2[Index]1,3 They hold hands.", (1, 3)),
        ("[Number]2[Index]1,3\n[Number]2[Index]3,1", (1, 3)),
        ("&#91;Number&#93;2&#91;Index&#93;1,3", (1, 3)),
        ("[Number]1[Index]3", (3,)),
        ("[Number]0[Index]0", ()),
        ("[Number]0[Index]", ()),
        ("[Number]None[Index]None", ()),
        ("[Number]0[Index]None. Nobody of the sheet appears.", ()),
    ],
)
def test_the_answer_about_characters_is_read(text: str, indices: tuple[int, ...]) -> None:
    assert parse_who(text, 3).indices == indices


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Ponyo and Sosuke", "no line of the form"),
        ("", "no line of the form"),
        ("[Number]2", "no line of the form"),
        ("[Number]2[Index]1,4", "numbers 1 to 3"),
        ("[Number]1[Index]99999999999999999999999999", "numbers 1 to 3"),
        ("[Number]2[Index]1", "says 2, but [Index] lists 1"),
        ("[Number]2[Index]1,1", "says 2, but [Index] lists 1"),
        ("[Number]1[Index]0", "says 1, but [Index] lists 0"),
        ("[Number]3[Index]1-3", "numbers separated by commas"),
        ("[Number]1[Index]Ponyo", "numbers separated by commas"),
        ("[Number]many[Index]1,2", "as a number"),
        ("[Number]1[Index]1 [Number]1[Index]2", "contradict"),
        ("[Number]how many[Index]number,number", "as a number"),
    ],
)
def test_bad_answers_about_characters_are_refused(text: str, fault: str) -> None:
    with pytest.raises(TagError) as caught:
        parse_who(text, 3)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ((["Ponyo"], "girl", "run", "forest", "slowly"), "Character: Ponyo; Motion: slowly run; Background: forest."),
        ((["A", "B"], "girl", "run", "forest", "slowly"), "Character: A, B; Motion: slowly run; Background: forest."),
        (([], "girl", "run", "forest", "slowly"), "Character: girl; Motion: slowly run; Background: forest."),
        ((None, None, "move", None, "barely"), "Motion: barely move."),
        ((None, None, "stay still", "night", None), "Motion: stay still; Background: night."),
        ((None, "girl", None, "forest", "slowly"), "Character: girl; Background: forest."),
        ((None, None, None, None, None), ""),
    ],
)
def test_the_instruction_leaves_out_unknown_parts(values: tuple, line: str) -> None:  # type: ignore[type-arg]
    assert instruction(*values) == line
