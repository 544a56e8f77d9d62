"""Captions of an export: forms, trigger word, other names, and the words that are refused."""

from __future__ import annotations

import pytest

from pipeline.core.errors import UserError
from pipeline.core.records import Caption
from pipeline.publish.export.captions import CaptionForm, CaptionStyle, check_style, parse_names

PONYO = Caption(
    clip_id="clip",
    source="model",
    S="girl",
    MD="run",
    EV="forest",
    MA="slowly",
    characters=("Ponyo", "Ponyo's Mother"),
    actor="Ponyo",
    sentence="Ponyo runs past Ponyo's Mother\nthrough Ponyoville.",
)


def test_the_subject_is_a_tag_if_no_character_acts() -> None:
    nobody = PONYO.model_copy(update={"characters": (), "actor": "fox"})
    assert CaptionStyle(CaptionForm.tags).of(nobody) == "fox, run, slowly, forest"


def test_trigger_and_names() -> None:
    names = {"Ponyo": "p0ny0", "Ponyo's Mother": "mama"}
    said = {form: CaptionStyle(form, "ghbl", names).of(PONYO) for form in CaptionForm}
    assert said == {
        "instruction": "ghbl, Character: p0ny0, mama; Motion: slowly run; Background: forest.",
        "sentence": "ghbl, p0ny0 runs past mama through Ponyoville.",
        "tags": "ghbl, p0ny0, mama, run, slowly, forest",
    }


@pytest.mark.parametrize(
    "caption", [None, Caption(clip_id="clip", source="rules"), PONYO.model_copy(update={"fault": "not a reply"})]
)
def test_a_trigger_alone_is_no_caption(caption: Caption | None) -> None:
    for form in CaptionForm:
        assert CaptionStyle(form, "ghbl").of(caption) is None


@pytest.mark.parametrize("text", ["Ponyo", "=p0ny0", "Ponyo="])
def test_other_names_need_both(text: str) -> None:
    assert parse_names([" Ponyo = p0ny0 "]) == {"Ponyo": "p0ny0"}
    with pytest.raises(UserError, match="Ponyo=p0ny0"):
        parse_names([text])
    with pytest.raises(UserError, match="twice"):
        parse_names(["Ponyo=one", "Ponyo=two"])


@pytest.mark.parametrize(
    ("style", "reason"),
    [
        (CaptionStyle(CaptionForm.sentence, names={"Kiki": "k1k1"}), "no chosen clip has this character"),
        (CaptionStyle(CaptionForm.sentence, "two\nlines"), "one line"),
        (CaptionStyle(CaptionForm.tags, "a, b"), "comma.*--trigger"),
        (CaptionStyle(CaptionForm.sentence, names={"Ponyo": "Sosuke"}), "Ponyo and Sosuke would both be Sosuke"),
        (CaptionStyle(CaptionForm.tags, names={"Ponyo": "girl, red"}), "comma.*--name"),
    ],
)
def test_words_that_trainers_would_misread_are_refused(style: CaptionStyle, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        check_style(style, ["Ponyo", "Sosuke"])
    check_style(CaptionStyle(CaptionForm.sentence, "a, b", {"Ponyo": "girl, red"}), ["Ponyo"])
