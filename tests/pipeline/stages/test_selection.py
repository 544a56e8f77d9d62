"""Verdicts from facts: each rule, their order, what counts as failed, and which of two near-duplicates stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from pipeline.core.config import (
    ClipSettings,
    CropSettings,
    FilmSettings,
    LooksSettings,
    SceneSettings,
    SelectionSettings,
)
from pipeline.core.measurements import Box, Looks, Motion
from pipeline.core.records import Caption, Clip, Failure, Reviewed, Verdict
from pipeline.core.stage import perform
from pipeline.core.store import FilmFolder
from pipeline.stages.crop import FindCrop
from pipeline.stages.cut import Cut
from pipeline.stages.looks import MeasureLooks
from pipeline.stages.selection import FilmFacts, Screen, copy_rank, film_facts, is_better, verdicts_of
from tests.support import records
from tests.support.datasets.made_dataset import EDGES, MODEL, make_dataset
from tests.support.media.films import planned

DEFAULT = SelectionSettings()
BOX = Box(left=600, top=20, right=680, bottom=60)


def shot(seed: int) -> tuple[str, ...]:
    """Hashes of a shot unlike any with another seed."""
    return (np.random.default_rng(seed).bytes(32).hex(),) * 16


def facts(film: str, rows: Sequence[Mapping[str, Any]], **changes: Any) -> FilmFacts:
    """A film with a clip for each row; a row names what differs from a fine clip."""
    clips = tuple(records.clip(film, 200.0 * index, scene=index, index=index) for index in range(len(rows)))
    looks = {
        clip.clip_id: records.looks(clip.clip_id, **{"hashes": shot(crc32(clip.clip_id.encode())), **row})
        for clip, row in zip(clips, rows, strict=True)
    }
    levels = {clip.clip_id: 3 for clip in clips}
    plain = FilmFacts(film_id=film, clips=clips, looks=looks, levels=levels, captions=None, failures={})
    return replace(plain, **changes)


def reasons_for(row: Mapping[str, Any], settings: SelectionSettings = DEFAULT) -> tuple[str, ...]:
    (verdict,) = verdicts_of([facts("film", [row])], settings)["film"]
    assert verdict.keep == (not verdict.reasons)
    return verdict.reasons


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, ()),
        ({"contrast": 5.9}, ("blank",)),
        ({"light": 15.9}, ("dark",)),
        ({"dark_share": 0.98}, ("dark",)),
        ({"text_share": 0.011, "text_lines": 1}, ("text",)),
        ({"text_share": 0.01, "text_lines": 3}, ()),
        ({"text_share": 0.001, "text_lines": 4}, ("credits",)),
        ({"text_share": None, "text_lines": None}, ()),
        ({"subtitle_lines": 1}, ("text",)),
        ({"logo_boxes": (BOX,)}, ("logo",)),
        ({"logo_boxes": ()}, ()),
        ({"still_share": 1.0}, ()),
        ({"two_groups": 0.36}, ("two scenes",)),
        ({"two_groups": 0.35}, ()),
        ({"two_groups": None}, ()),
        ({"light": 2.0, "contrast": 1.0, "text_share": 0.2, "text_lines": 9}, ("blank", "dark", "credits", "text")),
    ],
)
def test_each_fact_has_its_reason_in_a_fixed_order(row: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert reasons_for(row) == expected


def test_text_and_logos_are_noted_if_asked() -> None:
    settings = SelectionSettings(text="flag", logo="flag")
    film = facts("film", [{"logo_boxes": (BOX,), "subtitle_lines": 1}, {"logo_boxes": (BOX,), "light": 1.0}])
    first, second = verdicts_of([film], settings)["film"]
    assert (first.keep, first.reasons, first.flags) == (True, (), ("text", "logo"))
    assert (second.keep, second.reasons, second.flags) == (False, ("dark",), ("logo",))


def test_still_clips_are_dropped_only_if_asked() -> None:
    assert reasons_for({"still_share": 0.9}, SelectionSettings(max_still_share=0.8)) == ("too still",)
    assert reasons_for({"still_share": 0.8}, SelectionSettings(max_still_share=0.8)) == ()
    assert reasons_for({}, SelectionSettings(min_level=4)) == ("too still",)
    assert reasons_for({}, SelectionSettings(min_level=3)) == ()


def test_a_clip_that_could_not_be_measured_failed_and_was_not_dropped() -> None:
    film = facts("film", [{}, {}, {}])
    ids = [clip.clip_id for clip in film.clips]
    film = facts(
        "film",
        [{}, {}, {}],
        looks={key: row for key, row in film.looks.items() if key != ids[0]},
        levels={ids[0]: 2, ids[1]: 3},
        failures={ids[0]: "the clip file cannot be read"},
    )
    broken, fine, unmeasured = verdicts_of([film], DEFAULT)["film"]
    assert broken.reasons == ("failed: the clip file cannot be read",)
    assert broken.level == 2
    assert fine.keep
    assert unmeasured.reasons == ("failed: not measured",)
    assert unmeasured.level is None


def test_of_two_films_the_first_keeps_the_shot_they_share() -> None:
    shared = {"hashes": shot(1)}
    one, two = facts("one", [{}, shared]), facts("two", [shared, {}])
    verdicts = verdicts_of([one, two], DEFAULT)
    assert all(verdict.keep for verdict in verdicts["one"])
    assert verdicts["two"][0].reasons == ("near-duplicate",)
    assert verdicts["two"][0].duplicate_of == one.clips[1].clip_id
    assert verdicts["two"][1].keep
    turned = verdicts_of([two, one], DEFAULT)
    assert [verdict.keep for verdict in turned["one"]] == [True, False]
    assert all(verdict.keep for verdict in turned["two"])


def test_a_clip_with_work_in_it_stays_and_its_repeats_go() -> None:
    shared = {"hashes": shot(5)}
    films = [facts(name, [shared]) for name in ("one", "two", "three")]

    def kept(**work: int) -> list[bool]:
        rows = [replace(film, work={film.clips[0].clip_id: work.get(film.film_id, 0)}) for film in films]
        return [verdict.keep for verdicts in verdicts_of(rows, DEFAULT).values() for verdict in verdicts]

    assert kept() == kept(one=1, two=1, three=1) == [True, False, False]
    assert kept(two=1, three=1) == [False, True, False]
    assert kept(two=1, three=2) == [False, False, True]


def test_the_better_copy_is_kept_if_quality_is_preferred() -> None:
    fine = {"hashes": shot(6), "sharpness": 0.6, "blockiness": 0.0}
    first = facts("one", [fine], lines=1080)
    quality = SelectionSettings(prefer="quality")

    def keeps_the_second(lines: int, settings: SelectionSettings = quality, **changes: Any) -> bool:
        other = facts("two", [{**fine, **changes}], lines=lines)
        films = [
            replace(film, captions={clip.clip_id: Caption(clip_id=clip.clip_id, source="model") for clip in film.clips})
            for film in (first, other)
        ]
        [one], [two] = verdicts_of(films, settings).values()
        assert one.keep != two.keep
        assert {one.duplicate_of, two.duplicate_of} == {None, (two if two.keep else one).clip_id}
        return two.keep

    assert keeps_the_second(1080, sharpness=0.66)
    assert keeps_the_second(720, sharpness=0.66), "no clip shows more than 480 lines"
    assert not keeps_the_second(320, sharpness=0.66)
    assert not keeps_the_second(1080, sharpness=0.601), "equal: the first stays"
    assert not keeps_the_second(1080, text_share=0.008, sharpness=0.66)
    assert not keeps_the_second(1080, DEFAULT, sharpness=0.66)
    better = facts("two", [{**fine, "sharpness": 0.9}], lines=1080, captions={})
    for source, takes in (("rules", False), ("model", True)):
        clip_id = first.clips[0].clip_id
        captioned = replace(first, captions={clip_id: Caption(clip_id=clip_id, source=source)})
        [one], [two] = verdicts_of([captioned, better], quality).values()
        assert (one.keep, two.keep) == (not takes, takes), "a clip without a caption takes only a model's"


def test_a_copy_that_a_review_keeps_displaces_a_better_one() -> None:
    fine = {"hashes": shot(6), "sharpness": 0.6}
    poor, better = facts("one", [fine]), facts("two", [{**fine, "sharpness": 0.9}])
    films = [
        replace(film, captions={clip.clip_id: Caption(clip_id=clip.clip_id, source="model") for clip in film.clips})
        for film in (poor, better)
    ]
    clip_id = poor.clips[0].clip_id
    films[0] = replace(films[0], reviewed={clip_id: Reviewed(clip_id=clip_id, fields=(), keep=True)})
    [one], [two] = verdicts_of(films, SelectionSettings(prefer="quality")).values()
    assert (one.keep, two.keep, two.duplicate_of) == (True, False, clip_id)


def test_a_copy_is_better_only_by_a_whole_step() -> None:
    def rank(**changes: Any) -> tuple[float, ...]:
        film = facts("one", [{"sharpness": 0.57053, "blockiness": 0.0, **changes}], lines=480)
        return copy_rank(film.clips[0], film.looks[film.clips[0].clip_id], film.lines)

    assert not is_better(rank(sharpness=0.57065), rank())
    assert not is_better(rank(), rank(blockiness=0.06))
    assert is_better(rank(), rank(blockiness=0.3))
    assert is_better(rank(sharpness=0.61, blockiness=0.9), rank())


def test_work_is_a_review_or_a_caption_by_a_model(tmp_path: Path) -> None:
    for captioner, captioned in (("rules", 0), (MODEL, 1)):
        folder = make_dataset(tmp_path / captioner, films=1, captioner=captioner).folders()[0]
        captions = folder.read("captions", Caption)
        faulty, reviewed, plain = captions[0], captions[1], captions[2]
        folder.write("captions", [faulty.model_copy(update={"fault": "no reply"}), *captions[1:]])
        folder.write("reviewed", [records.reviewed(reviewed.clip_id, MD="run")])
        work = film_facts(folder, folder.read("reviewed", Reviewed), DEFAULT).work
        assert [work.get(row.clip_id, 0) for row in (faulty, reviewed, plain)] == [0, 2, captioned]
        folder.table_path("captions").write_bytes(b"damaged")
        assert perform(Screen(DEFAULT, EDGES), folder), "the table is made again later"


def test_a_repeat_of_a_dropped_clip_is_kept_and_becomes_the_original() -> None:
    shared = {"hashes": shot(2)}
    film = facts("film", [{**shared, "text_share": 0.3}, shared, shared])
    first, second, third = verdicts_of([film], DEFAULT)["film"]
    assert first.reasons == ("text",)
    assert second.keep
    assert third.duplicate_of == second.clip_id


def test_a_clip_without_a_usable_caption_is_dropped_unless_told_otherwise() -> None:
    film = facts("film", [{}, {}, {}, {"light": 1.0}])
    ids = [clip.clip_id for clip in film.clips]
    captions = {
        ids[0]: Caption(clip_id=ids[0], source="rules"),
        ids[1]: Caption(clip_id=ids[1], source="model", fault="no <S> tag"),
    }
    film = facts("film", [{}, {}, {}, {"light": 1.0}], captions=captions)
    expected = [(), ("no caption",), ("no caption",), ("dark",)]
    assert [verdict.reasons for verdict in verdicts_of([film], DEFAULT)["film"]] == expected
    kept = verdicts_of([film], SelectionSettings(uncaptioned="keep"))["film"]
    assert [verdict.keep for verdict in kept] == [True, True, True, False]


def test_a_review_overrules_every_reason_but_a_motion_that_is_not_measured() -> None:
    film = facts("film", [{}, {"light": 1.0}, {"light": 1.0}, {}])
    ids = [clip.clip_id for clip in film.clips]
    reviewed = {ids[0]: False, ids[1]: True, ids[2]: False, ids[3]: True}
    film = replace(
        film,
        levels=dict.fromkeys(ids[:3], 3),
        reviewed={name: records.reviewed(name, keep) for name, keep in reviewed.items()},
    )
    verdicts = verdicts_of([film], DEFAULT)["film"]
    assert [(verdict.keep, verdict.reasons) for verdict in verdicts] == [
        (False, ("review",)),
        (True, ("dark",)),
        (False, ("dark", "review")),
        (False, ("failed: not measured",)),
    ]


def test_a_repeat_takes_the_place_of_a_clip_that_a_review_drops() -> None:
    shared = {"hashes": shot(4)}
    film = facts("film", [shared, shared, shared])
    first, second, third = (clip.clip_id for clip in film.clips)
    reviewed = {first: records.reviewed(first, keep=False), third: records.reviewed(third, keep=True)}
    verdicts = verdicts_of([replace(film, reviewed=reviewed)], DEFAULT)["film"]
    assert [verdict.keep for verdict in verdicts] == [False, True, True]
    assert (verdicts[2].reasons, verdicts[2].duplicate_of) == (("near-duplicate",), second)


def test_a_reviewed_caption_is_a_caption() -> None:
    film = facts("film", [{}, {}, {}], captions={})
    first, second, _ = (clip.clip_id for clip in film.clips)
    reviewed = {first: records.reviewed(first, S="fox"), second: records.reviewed(second, keep=True)}
    verdicts = verdicts_of([replace(film, reviewed=reviewed)], DEFAULT)["film"]
    assert [(verdict.keep, verdict.reasons) for verdict in verdicts] == [
        (True, ()),
        (True, ("no caption",)),
        (False, ("no caption",)),
    ]


def film_folder(root: Path) -> FilmFolder:
    return make_dataset(root, films=1).folders()[0]


def test_the_stage_writes_a_verdict_and_a_level_for_every_clip(tmp_path: Path) -> None:
    folder = film_folder(tmp_path)
    assert perform(Screen(DEFAULT, EDGES), folder)
    rows = folder.read("screened", Verdict)
    clips, motion = folder.read("clips", Clip), folder.read("motion", Motion)
    assert [row.clip_id for row in rows] == [clip.clip_id for clip in clips]
    assert [row.level for row in rows] == [1 + sum(row.scope_px > edge for edge in EDGES) for row in motion]
    assert {row.clip_id: row.reasons for row in rows if not row.keep} == {
        clips[3].clip_id: ("dark",),
        clips[7].clip_id: ("text",),
    }


def test_screening_again_depends_on_thresholds_and_edges_but_not_on_captions(tmp_path: Path) -> None:
    folder = film_folder(tmp_path)
    perform(Screen(DEFAULT, EDGES), folder)
    assert not perform(Screen(SelectionSettings(uncaptioned="keep"), EDGES), folder)
    assert perform(Screen(SelectionSettings(min_light=20), EDGES), folder)
    assert perform(Screen(SelectionSettings(min_light=20), (1.0, 2.0, 3.0, 4.0)), folder)


def test_failures_come_from_the_records_of_the_stages(tmp_path: Path) -> None:
    folder = film_folder(tmp_path)
    lost = folder.read("looks", Looks)[0].clip_id
    folder.write("looks", folder.read("looks", Looks)[1:])
    record = folder.stage_record("looks")
    assert record is not None
    folder.save_stage_record(
        record.model_copy(update={"failures": (Failure(record_id=lost, reason="cannot be read"),)})
    )
    perform(Screen(DEFAULT, EDGES), folder)
    assert folder.read("screened", Verdict)[0].reasons == ("failed: cannot be read",)


def cut_and_looked_at(root: Path, source: Path, end_seconds: float | None = None) -> FilmFacts:
    folder = planned(root, source)
    for stage in (
        FindCrop(CropSettings()),
        Cut(FilmSettings(end_seconds=end_seconds), SceneSettings(), ClipSettings()),
        MeasureLooks(LooksSettings(), threads=2),
    ):
        perform(stage, folder)
    clips = tuple(folder.read("clips", Clip))
    looks = {row.clip_id: row for row in folder.read("looks", Looks)}
    return FilmFacts(folder.film_id, clips, looks, {clip.clip_id: 3 for clip in clips}, None, {})


CREDITS_SECONDS = (490.7, 579.2)
"""From the first card to the last line of Big Buck Bunny's credits; after them one more scene follows."""
LOGO_SECONDS = 50.0
"""The trailer shows nothing but a logo from here."""


@pytest.mark.film
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_the_films_credits_are_dropped_and_its_trailer_is_recognised(
    bunny: Path, bunny_trailer: Path, tmp_path: Path
) -> None:
    film = cut_and_looked_at(tmp_path, bunny)
    trailer = cut_and_looked_at(tmp_path, bunny_trailer)
    verdicts = verdicts_of([film, trailer], DEFAULT)
    begin, end = CREDITS_SECONDS
    pairs = list(zip(film.clips, verdicts[film.film_id], strict=True))
    rolling = [verdict for clip, verdict in pairs if clip.start_seconds >= begin and clip.end_seconds <= end]
    story = [verdict for clip, verdict in pairs if clip.start_seconds < begin - 2 or clip.start_seconds > end]
    assert len(rolling) > 20
    assert sum("credits" in v.reasons or "text" in v.reasons for v in rolling) >= 0.95 * len(rolling)
    assert sum("text" in v.reasons for v in story) <= 0.03 * len(story)  # the title and the card before it
    assert sum("near-duplicate" in v.reasons for v in story) <= 0.01 * len(story)
    # the title that fades out of a scene looks like another scene
    assert sum("two scenes" in v.reasons and "text" not in v.reasons for v in story + rolling) <= 1
    repeats = [
        v for clip, v in zip(trailer.clips, verdicts[trailer.film_id], strict=True) if clip.end_seconds < LOGO_SECONDS
    ]
    assert len(repeats) >= 15
    recognised = sum("near-duplicate" in verdict.reasons for verdict in repeats)
    assert recognised >= 0.8 * len(repeats)
    assert not any(verdict.keep for verdict in repeats)
