"""Understanding of a player's words, by the words of the packaged model."""

from __future__ import annotations

import pytest

from examples.miniature.other_words import OTHER_WORDS
from examples.world.characters import CAST
from examples.world.puppet_motions import MOTIONS
from examples.world.scenery import PLACES
from flows.web.understanding import Reader, Reading, stems_of
from models.config import ModelConfig
from models.shipped import PACKED
from models.turns import TIMES
from pipeline.captions.rules import ADVERBS

CONFIG = ModelConfig.read(PACKED)
READER = Reader(CONFIG)


@pytest.mark.parametrize(
    ("written", "understood"),
    [
        ("The boy with the blue hair sprints to the sea", "Character: Haru; Motion: run; Background: daytime beach."),
        (
            "Mika slowly walks along the beach at night",
            "Character: Mika; Motion: slightly walk; Background: night beach.",
        ),
        ("Kuro and Haru HUG on the night beach!", "Character: Kuro, Haru; Motion: hug; Background: night beach."),
        (
            "Yuki is dancing wildly in the snow",
            "Character: Yuki; Motion: intensely dance; Background: daytime snowy hill.",
        ),
        ("she puts on her raincoat", "Motion: put on a raincoat."),
        ("Mika flies", "Character: Mika; Motion: fly on a broom."),
        ("haru jumps in the medow", "Character: Haru; Motion: jump; Background: daytime meadow."),
    ],
)
def test_free_text_is_understood_as_fields(written: str, understood: str) -> None:
    assert READER.read(written, first=True) == Reading(understood)


def test_only_the_first_turn_is_told_its_time_of_day() -> None:
    line = "Character: Mika; Motion: walk; Background: beach."
    assert READER.read(line, first=False).instruction == line
    assert READER.read(line, first=True).instruction == "Character: Mika; Motion: walk; Background: daytime beach."
    night = "Character: Mika; Motion: walk; Background: night beach."
    assert READER.read(night, first=True).instruction == night


def test_what_is_understood_but_not_played_is_named() -> None:
    line = "Character: Haru; Motion: walk."
    assert READER.read("Haru walks and jumps at night", first=True) == Reading(line, (), ("jump", "night"))


@pytest.mark.parametrize(
    ("written", "unknown"),
    [
        ("Mika walks in the forest", "forest"),
        ("in the rain, Mika walks", "rain"),
        ("Mika walks to the right", "right"),
        ("Mika reaches out and walks", "reaches"),
        ("Mika stands, then walks", "stands"),
        ("Mika brushes, then walks", "brushes"),
        ("Mika walks to the shop", "shop"),
        ("Mika sadly walks", "sadly"),
    ],
)
def test_another_word_is_not_taken_for_one_that_is_spelt_alike(written: str, unknown: str) -> None:
    reading = READER.read(written, first=False)
    assert reading.instruction == "Character: Mika; Motion: walk."
    assert unknown in reading.unknown


def test_unknown_words_are_named_and_change_nothing_without_a_motion() -> None:
    text = "A dragon roars over Osaka, a dragon!"
    assert READER.read(text, first=True) == Reading(text, ("dragon", "roars", "osaka"))
    assert READER.read("Mika talks", first=False).unknown == ("talks",), "no walk"
    assert READER.read("Qiqi walks", first=False) == Reading("Motion: walk.", ("qiqi",))
    assert READER.read("🏃 <b>...</b>", first=True) == Reading("🏃 <b>...</b>", ("b",))


def test_a_checkpoint_without_other_words_reads_nothing_into_a_text() -> None:
    config = CONFIG.replaced(other_words={})
    assert Reader(config).read("the dragon sprints", first=True) == Reading("the dragon sprints")


def test_each_other_word_of_the_packaged_model_means_something() -> None:
    meant = {*CONFIG.characters, *CONFIG.motions, *CONFIG.places, *TIMES, *ADVERBS.values()}
    assert set(CONFIG.other_words.values()) <= meant


def test_the_packaged_model_has_all_other_words() -> None:
    assert CONFIG.other_words == OTHER_WORDS


def test_each_other_word_means_something_and_none_is_read_like_another() -> None:
    meant = {*CAST, *MOTIONS, *PLACES, *TIMES, *ADVERBS.values()}
    assert set(OTHER_WORDS.values()) <= meant
    stems = [stems_of(phrase) for phrase in (*OTHER_WORDS, *MOTIONS)]
    assert len(stems) == len(set(stems)), "two that are read alike"
