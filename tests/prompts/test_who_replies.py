"""Replies about the characters on screen: read where they cannot be mistaken, refused where they can."""

from __future__ import annotations

from contextlib import suppress

import pytest

from prompts.tags import TagError
from prompts.who_replies import parse_who

CAST = ("Bunny Girl", "Bunny", "Anna", "Frank", "Mr. X")


@pytest.mark.parametrize(
    ("text", "indices", "others"),
    [
        # the form asked for, and the method's own without the other people
        ("[Number]2[Index]1,3[Others]0", (1, 3), 0),
        ("[Number]2[Index]1,3", (1, 3), None),
        ("[Number]0[Index]0[Others]2", (), 2),
        # brackets, case, spaces, digits, fences, repetitions, prose
        ("[Num]2[ID]3, 1", (1, 3), None),
        ("[ number ] 2 [ INDICES ] 1 and 3 [ OTHER ] 1", (1, 3), 1),
        ("【Number】２【Index】１，３【Others】０", (1, 3), 0),
        ("[Number]2[/Number][Index]1、3[/Index][Others]1[/Others]", (1, 3), 1),
        ("I see two of them. [Number]2[Index]1,3 They hold hands.", (1, 3), None),
        ("[Number]2[Index]1,3\n[Number]2[Index]3,1", (1, 3), None),
        ("&#91;Number&#93;2&#91;Index&#93;1,3", (1, 3), None),
        ("<think>Perhaps [Number]1[Index]1?</think>[Number]1[Index]2", (2,), None),
        ("**[Number]** 2 **[Index]** 1, 3 **[Others]** 0", (1, 3), 0),
        ("[Number]2 (Bunny Girl and Anna)[Index]1,3[Others]0 (no other people)", (1, 3), 0),
        # nobody
        ("[Number]None[Index]None[Others]none", (), 0),
        ("[Number]0[Index]None. Nobody of the sheet appears.", (), None),
        ("Nobody.", (), None),
        ("0", (), None),
        # not counted
        ("[Number]1[Index]3[Others]Cannot tell.", (3,), None),
        ('{"number": 1, "index": [3], "others": null}', (3,), None),
        # counts in words
        ("[Number]two[Index]1,3[Others]one", (1, 3), 1),
        # names beside the numbers
        ("[Number]2[Index]2 (Bunny), 4 (Frank)", (2, 4), None),
        ("[Number]2[Index]#2 Bunny and #4 Frank", (2, 4), None),
        ("[Number]1[Index]2 (in the back)", (2,), None),
        ("[Number]1[Index]5 (Mr. X)[Others]0", (5,), 0),
        ("[Number]2[Index]Frank (4), Anna (3)", (3, 4), None),
        # names instead of the numbers
        ("[Number]2[Index]BUNNY, frank", (2, 4), None),
        ("Bunny and Bunny Girl.", (1, 2), None),
        ("2 (Bunny), Frank", (2, 4), None),
        ("1: Bunny Girl\n2: Bunny", (1, 2), None),
        # JSON
        ('{"number": 2, "index": [1, 3], "others": 0}', (1, 3), 0),
        ('```json\n{"Number": "2", "Index": "1,3"}\n```', (1, 3), None),
        ('{"characters": ["Bunny", "Frank"], "others": 2}', (2, 4), 2),
        ('Sure: {"num": 1, "ids": [4]} as asked', (4,), None),
    ],
)
def test_an_unmistakable_answer_is_read(text: str, indices: tuple[int, ...], others: int | None) -> None:
    reply = parse_who(text, CAST)
    assert (reply.indices, reply.others) == (indices, others)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        # no answer
        ("", "no line of the form"),
        ("The rabbit and the man", "no line of the form"),
        ("1, 3", "no line of the form"),
        ("2 (Bunny), 4", "no line of the form"),
        ("0 (Bunny)", "no line of the form"),
        ("Frank is on screen, and so is Anna", "names another character"),
        ('{"answer": 1}', "no line of the form"),
        ('{"index": ' + "[" * 300 + "1" + "]" * 300 + "}", "no line of the form"),
        (r'{"index": "\ud83d"}', 'not "\N{REPLACEMENT CHARACTER}"'),
        ("[Number]how many[Index]number,number[Others]how many", "numbers separated by commas"),
        # nobody is not the same as not known
        ("Unknown", "no line of the form"),
        ("[Number]0[Index]unclear", "numbers separated by commas"),
        ("[Number]unknown[Index]0", "as a number"),
        # not on the sheet
        ("[Number]2[Index]1,6", "numbers 1 to 5"),
        # contradictions
        ("[Number]2[Index]1,1", "says 2, but [Index] lists 1"),
        ("[Number]1[Index]0", "says 1, but [Index] lists 0"),
        ("[Number]1[Index]2 (Bunny), 4 (Frank)", "says 1, but [Index] lists 2"),
        ("[Number]1[Index]2 = rabbit, 4 = man", "names another character"),
        ("[Number]1[Index]2 (behind Frank)", "names another character"),
        ("[Number]1[Index]2 (Frank)", "the number 2 is bunny, but the reply calls it frank"),
        ("2 (Frank)", "the number 2 is bunny, but the reply calls it frank"),
        ("9 (Bunny)", "numbers 1 to 5"),
        ("[Number]1[Index]1 [Number]1[Index]2", "contradict"),
        ("[Number]1[Index]1[Others]1[Others]2", "contradict"),
        ('{"number": 1, "index": [1]} {"number": 1, "index": [2]}', "contradict"),
        # unclear numbers
        ("[Number]3[Index]1-3", "not as a range"),
        ("[Number]1[Index]1st", "numbers separated by commas"),
        ("[Number]1[Index]rabbit", "numbers separated by commas"),
        ("[Number]many[Index]1,2", "as a number"),
        ("[Number]1[Index]1[Others]many", "After [Others] must stand"),
    ],
)
def test_an_ambiguous_answer_is_refused(text: str, fault: str) -> None:
    with pytest.raises(TagError) as caught:
        parse_who(text, CAST)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("[Number]1[Index]Kiki (child)", (2,)),
        ("[Number]1[Index]2 (Kiki (child))", (2,)),
        ("[Number]1[Index]Kiki (child) (2)", (2,)),
        ("[Number]2[Index]Kiki (child), Kiki[Others]0", (1, 2)),
        ("[Number]1[Index]Kiki (1)", (1,)),
        ("[Number]1[Index]Jiji (on the broom)", (3,)),
        ('{"number": 1, "index": ["Kiki (child)"]}', (2,)),
    ],
)
def test_a_name_with_brackets_is_not_the_name_before_them(text: str, indices: tuple[int, ...]) -> None:
    assert parse_who(text, ("Kiki", "Kiki (child)", "Jiji")).indices == indices


@pytest.mark.parametrize("text", ["Kiki(child)", "Kiki (child", "1 (Kiki (kid))", "1, with Kiki (kid)"])
def test_a_name_with_other_words_in_brackets_is_refused(text: str) -> None:
    with pytest.raises(TagError, match="unclear which character the reply calls kiki"):
        parse_who(f"[Number]1[Index]{text}", ("Kiki", "Kiki (child)", "Jiji"))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "unit",
    ["<think>", "[Number]1[Index]1 " + " " * 500, "[1,", "Bunny ", "1 (", "1 (" + "Bunny" * 11 + ") ",
     "(" * 10_000 + ")" * 10_000, '{"a":[', "[" * 50 + "number: "],
)  # fmt: skip
def test_hostile_replies_are_read_quickly(unit: str) -> None:
    text = (unit * (300_000 // len(unit) + 1))[:300_000]
    with suppress(TagError):
        parse_who(text, CAST)
