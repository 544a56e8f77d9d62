"""Phrasings: what is said is the caption, drawn by position, and free text for measuring is never trained on."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from models.tokens import instruction_ids, shipped_tokenizer
from pipeline.publish.samples import instruction_of
from tests.support.networks.small_run import small_dataset
from training.data.order import Position, chooser
from training.data.phrasing import HELD_OUT, as_typed, phrasing, rephrased, third_person
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn
from training.data.windows import Window

KNOWN: dict[str, Any] = {"characters": ("Qiqi",), "MD": "fly over the sea", "MA": "slowly", "EV": "morning sky"}


@cache
def recorded() -> RecordedTurn:
    return Catalog.read(open_shards(small_dataset(), "train")).turns[0]


def turn(**changes: Any) -> RecordedTurn:
    """A turn whose caption has some parts of `KNOWN` changed or removed."""
    known = KNOWN | changes
    sample = recorded().sample
    empty = dict.fromkeys(("S", "MD", "EV", "MA", "characters", "actor", "sentence"))
    caption = sample.caption.model_copy(update={**empty, **known})
    text = instruction_of(caption)
    return RecordedTurn(sample=sample.model_copy(update={"caption": caption}), instruction=text, shard="train/a.tar")


def said(turn: RecordedTurn, times: int = 2000) -> list[str]:
    return [phrasing(turn, chooser(0, Position(0, item))) for item in range(times)]


def test_an_instruction_is_said_in_fields_and_in_sentences_with_parts_left_out() -> None:
    found = Counter(said(turn()))
    assert {
        "Background: morning sky; Motion: slowly fly over the sea; Character: Qiqi.",
        "Motion: fly over the sea; Character: Qiqi; Background: morning sky.",
        "Qiqi slowly flies over the sea in the morning sky.",
        "Let Qiqi fly over the sea slowly.",
        "Slowly fly over the sea at the morning sky.",
    } <= found.keys()
    assert all("over the sea" in text for text in found)
    assert 0.4 < sum("Motion:" in text for text in found.elements()) / found.total() < 0.6
    assert 0.8 < sum("Qiqi" in text for text in found.elements()) / found.total() < 0.95
    tokenizer = shipped_tokenizer()
    assert all(instruction_ids(tokenizer, text) for text in found)


def test_the_sentence_of_the_captioner_is_one_of_the_phrasings() -> None:
    sentence = "A witch called Qiqi crosses the morning sky."
    assert 0.3 < said(turn(sentence=sentence)).count(sentence) / 2000 < 0.37


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "We are in the morning sky, and Qiqi flies over the sea slowly."),
        (
            {"characters": ("Ann", "Bo"), "actor": "Bo"},
            "We are in the morning sky, and Bo and Ann fly over the sea slowly.",
        ),
        ({"characters": None, "S": "witch", "MA": None}, "We are in the morning sky, and witch flies over the sea."),
        ({"characters": None, "EV": None}, "Fly over the sea slowly."),
        ({"MD": None, "MA": "slowly"}, "We are in the morning sky, and Qiqi."),
        ({"EV": None}, "And Qiqi flies over the sea slowly."),
    ],
)
def test_unknown_parts_are_not_said(changes: dict[str, Any], sentence: str) -> None:
    (typed,) = as_typed(Window((turn(**changes),))).turns
    assert typed.instruction == sentence


def test_a_turn_without_motion_keeps_its_instruction() -> None:
    assert set(said(turn(MD=None), 20)) == {"Character: Qiqi; Background: morning sky."}


@pytest.mark.parametrize(
    ("motion", "expected"),
    [
        ("go home", "goes home"),
        ("fly", "flies"),
        ("play", "plays"),
        ("watch the rain", "watches the rain"),
        ("rides a broom", "rides a broom"),
        ("riding a broom", "riding a broom"),
        ("sing", "sings"),
        ("pass by", "passes by"),
        ("be still", "is still"),
    ],
)
def test_the_verb_of_one_who_acts_has_an_s(motion: str, expected: str) -> None:
    assert third_person(motion) == expected


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_of_the_instructions_is_in_other_words(share: float) -> None:
    whole = turn()
    places = [Position(0, item) for item in range(500)]
    texts = [rephrased(Window((whole,)), share, 0, place).target.instruction for place in places]
    assert texts.count(whole.instruction) / len(texts) == pytest.approx(1 - share, abs=0.06)
    assert rephrased(Window((whole,)), share, 0, places[0]).target.sample is whole.sample


def test_free_text_for_measuring_is_never_trained_on() -> None:
    trained = set(said(turn(), 3000))
    window = Window((turn(),))
    typed = {as_typed(window, number).target.instruction for number in range(len(HELD_OUT))}
    assert len(typed) == len(HELD_OUT)
    assert not typed & trained
    texts = [each.instruction for each in as_typed(Window((turn(),) * 3), 5).turns]
    assert len(set(texts)) == 3
    assert texts[-1] == as_typed(window, 5).target.instruction
