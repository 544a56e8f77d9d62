"""Labels of Big Buck Bunny: every line is a decision about the film, complete, in the words of the guide."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from examples.bunny.cast import PORTRAITS, fetch_cast
from examples.bunny.film import FILM_SECONDS, FILM_SHA256
from pipeline.captions.cast import load_cast
from pipeline.reviews.decisions import CAPTION_FIELDS, KEEP, read_decisions

ROOT = Path(__file__).parents[2]
LABELS = ROOT / "examples/bunny/labels.jsonl"
SECOND_READING = ROOT / "examples/bunny/second_reading.jsonl"
GUIDE = ROOT / "examples/bunny/labels.md"
Span = tuple[float, float]


def labels() -> dict[Span, dict[str, Any]]:
    """Values of each labelled span, by field."""
    found: dict[Span, dict[str, Any]] = defaultdict(dict)
    for decision in read_decisions(LABELS).decisions:
        fields = found[decision.start_seconds, decision.end_seconds]
        assert decision.field not in fields, f"{decision.field} is labelled twice at {decision.start_seconds} s"
        fields[decision.field] = decision.value
    return found


def words(tag: str) -> set[str]:
    """Words that the guide lists for a tag, without the remarks in brackets."""
    listed = re.search(rf"^\* \*\*{tag}\*\* (.*?)\.\n(?=\n|\*)", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    assert listed
    plain = re.sub(r"\([^)]*\)|level|\d:", "", listed[1].replace("\n", " "))
    return {" ".join(word.split()) for word in re.split(r"[,;:]", plain)}


def test_every_line_is_a_decision_about_the_film_and_says_whose() -> None:
    reading = read_decisions(LABELS)
    assert not reading.faults
    assert {decision.film_sha256 for decision in reading.decisions} == {FILM_SHA256}
    assert {decision.reviewer for decision in reading.decisions} == {"AI assistant, from stills"}


def test_every_span_is_a_clip_with_every_field_of_a_caption() -> None:
    spans = labels()
    assert len(spans) > 200
    for (start, end), fields in spans.items():
        assert end - start == pytest.approx(2.0, abs=0.002)
        assert end <= FILM_SECONDS
        assert set(CAPTION_FIELDS) <= fields.keys() <= {KEEP, *CAPTION_FIELDS}


def test_the_second_reading_is_of_sixty_labelled_clips_by_another_reader() -> None:
    reading = read_decisions(SECOND_READING)
    assert not reading.faults
    assert {decision.reviewer for decision in reading.decisions} == {"AI assistant, second reading"}
    spans = {(decision.start_seconds, decision.end_seconds) for decision in reading.decisions}
    assert len(spans) == 60
    assert spans <= labels().keys()


def test_characters_are_the_cast_and_the_sentence_names_those_on_screen() -> None:
    for start, fields in labels().items():
        assert set(fields["characters"]) <= PORTRAITS.keys()
        assert fields["actor"] is None or fields["actor"] in fields["characters"]
        named = {name for name in PORTRAITS if re.search(rf"\b{name}\b", fields["sentence"])}
        assert named == set(fields["characters"]), start


@pytest.mark.parametrize("tag", ["EV", "MA"])
def test_places_and_manners_are_words_of_the_guide(tag: str) -> None:
    assert {fields[tag] for fields in labels().values()} - {None} <= words(tag)


def test_motions_begin_with_a_verb_of_the_guide() -> None:
    verbs = {word.removeprefix("and with an object").strip() for word in words("MD")}
    motions = {fields["MD"] for fields in labels().values()}
    assert {motion for motion in motions if not any(f"{motion} ".startswith(f"{verb} ") for verb in verbs)} == set()
    assert max(len(motion.split()) for motion in motions) <= 4


@pytest.mark.film
def test_the_cast_is_cut_out_of_the_film_and_shows_every_labelled_character() -> None:
    cast = load_cast(fetch_cast())
    assert not cast.warnings
    assert set(cast.names) == {name for fields in labels().values() for name in fields["characters"]}
