"""Descriptions of a clip: read where they cannot be mistaken, refused where they can."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from prompts.tags import EXAMPLE, TagError, WhatReply, format_what
from prompts.what_replies import parse_what

GIRL = WhatReply(
    S="girl", MD="run up the hill", EV="forest", MA="slowly", SC=0, ET=1, ST=-1, sentence="A girl runs up a hill."
)
LINE = format_what(GIRL)
CAST = ("Ponyo", "Sosuke")


def as_json(changed: Mapping[str, str]) -> str:
    """Return a reply in JSON with these values."""
    values = {"S": "girl", "MD": "run up the hill", "EV": "forest", "MA": "slowly", "SC": 0, "ET": 1, "ST": -1}
    return json.dumps({**values, **changed})


def value_read(tag: str, written: str) -> str:
    reply = parse_what(LINE.replace(f"<{tag}>{getattr(GIRL, tag)}<", f"<{tag}>{written}<"))
    return str(getattr(reply, tag))


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        LINE.upper().replace("A GIRL RUNS UP A HILL.", "A girl runs up a hill."),
        f"Sure! Here is the description:\n```xml\n{LINE}\n```\nI hope this helps: 1 < 2.",
        f"<think>perhaps <S>boy</S>?</think>{LINE}",
        LINE.replace("<MD>", "<MD>\n  ").replace("run up", "run \n up"),
        LINE.replace("<", "< ").replace("</", "</ ").replace(">", " >"),
        LINE.replace("<", "＜").replace(">", "＞"),
        LINE.replace("<", "&lt;").replace(">", "&gt;"),
        LINE.replace("</S>", "").replace("</MD>", "").replace("</ST>", "").replace("</SE>", ""),
        LINE + "\nThe girl is tired.",
        LINE.replace("<SC>", "<ML>3</ML><SC>"),
        LINE.replace("<ST>-1", "<ST>−1"),
        LINE.replace("<ET>1", "<ET>+1").replace("girl<", "The girl<").replace("forest", "a Forest."),
        LINE + "\n" + LINE,
        LINE.replace("</S><MD>", "</S>, <MD>"),
        LINE.replace("A girl runs up a hill.", '"a girl runs  up a\nhill"'),
        json.dumps({"S": "girl", "MD": "run up the hill", "EV": "forest", "MA": "slowly", "SC": 0, "ET": 1, "ST": -1,
                    "SE": "A girl runs up a hill."}),
        '```json\n{"s": "Girl", "md": "runs up the hill", "ev": "the forest", "ma": "slow", "sc": false, "et": true, '
        '"st": "-1", "se": "A girl runs up a hill"}\n```',
    ],
)  # fmt: skip
def test_form_does_not_matter(text: str) -> None:
    assert parse_what(text) == GIRL


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("running up the hill", "run up the hill"),
        ("is running up the hill.", "run up the hill"),
        ("Runs and jumps", "run and jump"),
        ("throws rocks and sticks", "throw rocks and sticks"),
        ("runs, jumps and falls", "run, jump and fall"),
        ("saws wood", "saw wood"),
        ("lies in bed", "lie in bed"),
        ("is slowly running", "slowly run"),
        ("flies", "fly"),
        ("walks, slowly, waves", "walk, slowly, wave"),
        ("saw wood", "saw wood"),
        ("no motion", "stay still"),
        ("There is no visible movement.", "stay still"),
        ("still", "stay still"),
        ("is not moving", "stay still"),
    ],
)
def test_a_motion_has_one_form_in_the_present_tense(written: str, read: str) -> None:
    assert value_read("MD", written) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("very slow", "very slowly"),
        ("almost imperceptible", "almost imperceptibly"),
        ("happy", "happily"),
        ("Slowly.", "slowly"),
        ("fast", "fast"),
        ("not very", "not very"),
    ],
)
def test_a_manner_is_an_adverb(written: str, read: str) -> None:
    assert value_read("MA", written) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [("in the forest", "forest"), ("Café", "cafe"), ("night sky", "night sky"), ("at the sea", "sea")],
)
def test_a_place_is_a_bare_noun(written: str, read: str) -> None:
    assert value_read("EV", written) == read


@pytest.mark.parametrize("written", ["old man", "cat girl", "girl scout", "one girl", "crowd", "seven"])
def test_a_subject_of_two_words_is_one(written: str) -> None:
    assert value_read("S", written) == written


@pytest.mark.parametrize(
    ("tag", "actor"),
    [
        ("<AC>Ponyo</AC>", "Ponyo"),
        ("<AC>sosuke.</AC>", "Sosuke"),
        ("<AC>none</AC>", None),
        ("<AC>the girl</AC>", None),
        ("<AC>none of them</AC>", None),
        ("<AC>the Ponyo</AC>", "Ponyo"),
    ],
)
def test_the_actor_is_one_of_the_characters_named_or_none(tag: str, actor: str | None) -> None:
    assert parse_what(LINE.replace("<SE>", f"{tag}<SE>"), CAST).actor == actor
    assert parse_what(LINE.replace("<SE>", f"{tag}<SE>")).actor is None  # nobody was named
    assert parse_what(LINE.replace("<S>girl", "<S>Ponyo"), CAST).actor == "Ponyo"


@pytest.mark.parametrize("written", ["", "Oh.", "少女が走る。", "<b>run", "x" * 400, EXAMPLE.sentence])
def test_an_unusable_sentence_is_left_out(written: str) -> None:
    reply = parse_what(LINE.replace("A girl runs up a hill.", written))
    assert reply == replace(GIRL, sentence=None)
    assert parse_what(LINE[: LINE.index("<SE>")]).sentence is None
    assert parse_what(LINE.replace("A girl", " a girl")).raw_sentence == "a girl runs up a hill."


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("I cannot help with that.", "<S> is missing"),
        ("", "<ST> is missing"),
        (LINE.replace("<EV>forest</EV>", ""), "<EV> is missing"),
        (LINE.replace("girl", "?!"), "<S> says nothing"),
        (LINE.replace("girl", "no one"), "<S> says nothing"),
        (LINE.replace("girl", "none visible"), "<S> says nothing"),
        (LINE.replace("<S>girl", "<S>she"), "<S> must be a noun"),
        (LINE.replace("slowly", "Not."), "<MA> says nothing"),
        (LINE.replace("forest", "not visible"), "<EV> says nothing"),
        (LINE.replace("<S>girl", "<S>girl, boy"), "<S> must be one subject"),
        (LINE.replace("<S>girl", "<S>girl and boy"), "<S> must be one subject"),
        (LINE.replace("<S>girl", "<S>two girls"), "<S> must be one subject"),
        (LINE.replace("<S>girl", "<S>girl boy"), "<S> must be one subject"),
        (LINE.replace("girl", "the young happy girl"), "<S> is too long"),
        (LINE.replace("run", "run " * 13), "<MD> is too long"),
        (LINE.replace("run", "r" * 90), "<MD> is too long"),
        (LINE.replace("girl", "少女"), "<S> must be in English"),
        (LINE.replace("girl", "<b>girl"), "<S> must hold plain words"),
        (LINE.replace("forest", "for\x00est"), "<EV> must hold plain words"),
        (LINE.replace("forest", "for\u202eest"), "<EV> must hold plain words"),
        (LINE.replace("<SC>0", "<SC>2"), "<SC> must be 0 or 1, not \"2\""),
        (LINE.replace("<ST>-1", "<ST>" + "9" * 5000), "<ST> must be 1 or -1"),
        (LINE + LINE.replace("girl", "boy"), "<S> is given several values"),
        (LINE + '{"S": "boy"}', "<S> is given several values"),
        (format_what(EXAMPLE), "repeats the example"),
    ],
)  # fmt: skip
def test_faults_are_named(text: str, fault: str) -> None:
    with pytest.raises(TagError) as caught:
        parse_what(text)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (LINE, "Tag <AC> is missing"),
        (LINE.replace("<SE>", "<AC>Lisa</AC><SE>"), 'Tag <AC> must be Ponyo, Sosuke or none, not "lisa"'),
        (LINE.replace("<SE>", "<AC>Ponyo, Sosuke</AC><SE>"), "Tag <AC> must be"),
        (LINE.replace("<SE>", "<AC>Ponyo</AC><AC>Sosuke</AC><SE>"), "<AC> is given several values"),
    ],
)
def test_an_actor_that_was_not_named_is_refused(text: str, fault: str) -> None:
    with pytest.raises(TagError) as caught:
        parse_what(text, CAST)
    assert fault in str(caught.value)


def test_all_faults_come_in_one_message_of_bounded_length() -> None:
    with pytest.raises(TagError) as caught:
        parse_what("".join(f"<{tag}>{'<' + 'x' * 2_000}</{tag}>" for tag in ("S", "MD", "EV", "MA", "SC", "ET", "ST")))
    assert all(f"<{tag}>" in str(caught.value) for tag in ("S", "MD", "EV", "MA", "SC", "ET", "ST"))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("key", ["SE", "MD"])
def test_half_of_a_surrogate_pair_in_json_can_be_stored(key: str) -> None:
    text = as_json({"SE": "A girl runs.", key: "run \ud83d"})
    assert text.isascii()
    if key == "SE":
        reply = parse_what(text)
        assert (reply.S, reply.sentence, reply.raw_sentence) == ("girl", None, "run \N{REPLACEMENT CHARACTER}")
    else:
        with pytest.raises(TagError, match="<MD> must hold plain words only") as caught:
            parse_what(text)
        assert str(caught.value).encode()


@pytest.mark.parametrize("levels", [100, 3000])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_deeply_nested_json_is_no_reply(levels: int, brackets: tuple[str, str]) -> None:
    text = as_json({"S": "?"}).replace('"?"', brackets[0] * levels + '"girl"' + brackets[1] * levels)
    with pytest.raises(TagError, match="<S> is missing"):
        parse_what(text)
    assert parse_what(LINE + text) == GIRL


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["<think>", "< ", "<S>", "&lt;S &gt;", "[1,", "<S> " * 50 + "\n", '{"S": ', '{"S":[['])
def test_hostile_replies_are_read_quickly(unit: str) -> None:
    text = (unit * (300_000 // len(unit) + 1))[:300_000]
    with suppress(TagError):
        parse_what(text)
