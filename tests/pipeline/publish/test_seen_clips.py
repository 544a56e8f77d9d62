"""Choice of clips: each condition, their combination, and the known values in the error about an unknown one."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from pipeline.core.config import ShardSettings
from pipeline.core.records import Caption, Reviewed, Verdict
from pipeline.core.store import Dataset
from pipeline.publish.seen_clips import ChoiceError, ClipChoice, SeenClip, parse_levels, parse_tag, seen_clips
from pipeline.publish.shards import write_shards
from tests.support.datasets.dialogue import line, write_dialogue
from tests.support.datasets.made_dataset import CAST, MODEL, make_dataset

KIKI, SEA = "Kiki's Café (1989).mkv", "海の話.mp4"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    made = make_dataset(tmp_path_factory.mktemp("choice"), captioner=MODEL)
    write_shards(made, ShardSettings())
    return made


def chosen(dataset: Dataset, choice: ClipChoice) -> list[SeenClip]:
    return choice.of(dataset.record, seen_clips(dataset))


def expected(dataset: Dataset, **conditions: object) -> int:
    """Clips with these properties, by the tables alone."""
    count = 0
    for folder, name in zip(dataset.folders(), (KIKI, SEA), strict=True):
        captions = {row.clip_id: row for row in folder.read("captions", Caption)}
        for verdict in folder.read("verdicts", Verdict):
            caption = captions.get(verdict.clip_id)
            facts = {"film": name, "keep": verdict.keep, "level": verdict.level, "EV": caption and caption.EV}
            count += all(facts[key] == value for key, value in conditions.items())
    return count


def test_without_conditions_all_clips_are_chosen(dataset: Dataset) -> None:
    clips = chosen(dataset, ClipChoice())
    assert clips == seen_clips(dataset)
    assert len(clips) == expected(dataset) == 20
    assert {seen.split for seen in clips} == {"train", "val"}


@pytest.mark.parametrize("film", [KIKI, KIKI.upper(), "Kiki's Café (1989)", "kiki-s-cafe-1989"])
def test_film_by_its_names(dataset: Dataset, film: str) -> None:
    for spelling in (film, unicodedata.normalize("NFD", film)):
        clips = chosen(dataset, ClipChoice(films=(spelling,)))
        assert {seen.clip.film_id for seen in clips} == {dataset.record.films[0].film_id}
        assert len(clips) == expected(dataset, film=KIKI)


def test_levels(dataset: Dataset) -> None:
    count = expected(dataset, level=4) + expected(dataset, level=5)
    assert len(chosen(dataset, ClipChoice(levels=parse_levels("4-5")))) == count == 8
    assert len(chosen(dataset, ClipChoice(levels=parse_levels("4")))) == expected(dataset, level=4)


def test_several_characters_must_all_be_there(dataset: Dataset) -> None:
    one = chosen(dataset, ClipChoice(characters=("hana",)))
    both = chosen(dataset, ClipChoice(characters=("hana", "SØREN")))
    assert one
    assert both == [seen for seen in one if seen.caption and len(seen.caption.characters or ()) > 1]


def test_tag_has_its_whole_value(dataset: Dataset) -> None:
    clips = chosen(dataset, ClipChoice(tags=(parse_tag("ev=Night sky"),)))
    assert len(clips) == expected(dataset, EV="night sky") > 0
    negative = chosen(dataset, ClipChoice(tags=(parse_tag("ST=-1"), parse_tag("EV=night sky"))))
    assert negative == [seen for seen in clips if seen.caption and seen.caption.ST == -1]


def test_clips_with_a_flag_are_left_out(dataset: Dataset) -> None:
    folder = dataset.folders()[0]
    verdicts = folder.read("verdicts", Verdict)
    flagged = [row.clip_id for row in verdicts if row.keep][:2]
    folder.write(
        "verdicts", [row.model_copy(update={"flags": ("logo",) * (row.clip_id in flagged)}) for row in verdicts]
    )
    try:
        kept = {seen.clip.clip_id for seen in chosen(dataset, ClipChoice(verdict="kept"))}
        unmarked = {seen.clip.clip_id for seen in chosen(dataset, ClipChoice(without=("Logo", "text"), verdict="kept"))}
        assert kept - unmarked == {*flagged}
        assert len(chosen(dataset, ClipChoice(without=("text",)))) == len(seen_clips(dataset))
    finally:
        folder.write("verdicts", verdicts)


def test_words_are_found_by_their_beginnings(dataset: Dataset) -> None:
    everything = chosen(dataset, ClipChoice(verdict="kept"))
    assert chosen(dataset, ClipChoice(words="BROOM rid", verdict="kept")) == everything
    assert chosen(dataset, ClipChoice(words="room", verdict="kept")) == []
    assert [seen.reasons for seen in chosen(dataset, ClipChoice(words="dark"))] == [("dark",)] * 2
    assert len(chosen(dataset, ClipChoice(words="kiki"))) == expected(dataset, film=KIKI)


@pytest.mark.parametrize("words", [".*", "(?!x)", "[", "__import__('os')", "level > 3", "\\"])
def test_words_are_no_expression(dataset: Dataset, words: str) -> None:
    assert chosen(dataset, ClipChoice(words=words)) == []


def test_reviewed_values_count_and_a_quarantined_reply_does_not(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1, captioner=MODEL)
    folder = dataset.folders()[0]
    first, second, *others = folder.read("captions", Caption)
    folder.write("captions", [first, second.model_copy(update={"fault": "no tags"}), *others])
    folder.write("reviewed", [Reviewed(clip_id=first.clip_id, fields=("EV",), keep=None, EV="harbour")])
    assert [seen.clip.clip_id for seen in chosen(dataset, ClipChoice(tags=(("EV", "harbour"),)))] == [first.clip_id]
    with_subject = [*chosen(dataset, ClipChoice(tags=(("S", "fox"),))), *chosen(dataset, ClipChoice(words="girl"))]
    assert second.clip_id not in {seen.clip.clip_id for seen in with_subject}


@pytest.mark.parametrize(
    ("choice", "known"),
    [
        (ClipChoice(films=("ponyo",)), (KIKI, SEA)),
        (ClipChoice(characters=("Ponyo",)), CAST),
        (ClipChoice(tags=(("EV", "sky"),)), ("night sky", "--search")),
        (ClipChoice(tags=(("EV", "nigt sky"),)), ("there is night sky;",)),
        (ClipChoice(tags=(("MA", "forest"),)), ("barely", "wildly")),
        (ClipChoice(tags=(("actor", "Hana"),)), ("no clip has this tag",)),
    ],
)
def test_an_unknown_value_is_an_error_with_the_known_ones(
    dataset: Dataset, choice: ClipChoice, known: tuple[str, ...]
) -> None:
    with pytest.raises(ChoiceError) as caught:
        chosen(dataset, choice)
    assert all(name in str(caught.value) for name in known)


def test_rules_name_no_characters(tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match="build with --cast"):
        chosen(make_dataset(tmp_path), ClipChoice(characters=("Ponyo",)))


@pytest.mark.parametrize("text", ["", "0", "6", "4-", "5-4", "1-9", "four", "4 or 5"])
def test_what_is_no_range_of_levels(text: str) -> None:
    with pytest.raises(ChoiceError, match="4-5"):
        parse_levels(text)


@pytest.mark.parametrize("text", ["", "EV", "EV=", "=forest", "XX=forest", "level=4"])
def test_what_is_no_tag(text: str) -> None:
    with pytest.raises(ChoiceError, match="EV=forest"):
        parse_tag(text)


def test_words_are_found_in_the_dialogue(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1)
    [folder] = dataset.folders()
    write_dialogue(folder, line(2.5, 3.5, "お母さん、宗介はどこ?", speaker="Ponyo"))
    [seen] = chosen(dataset, ClipChoice(words="宗介 ponyo"))
    assert seen.clip.start_seconds < 3 < seen.clip.end_seconds
    assert chosen(dataset, ClipChoice(words="onyo")) == []
    assert chosen(dataset, ClipChoice(words="宗助")) == []
