"""Repeats: no good caption is asked for again without leave, and old captions are kept, flagged, on request."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.captions.cast import Cast
from pipeline.captions.stage import WriteCaptions
from pipeline.core.errors import UserError
from pipeline.core.progress import silent
from pipeline.core.records import Caption
from pipeline.core.stage import make, perform, staleness_of
from pipeline.core.store import FilmFolder
from tests.support.media.painted_clips import captions_of, clip_ids, make_cast, make_screened_film, stage_for
from tests.support.servers.caption_server import Answer, CaptionServer, Request, expect_good, good_answer


def refused(stage: WriteCaptions, folder: FilmFolder) -> str:
    """Reason for which the stage asks nothing."""
    with pytest.raises(UserError) as caught:
        perform(stage, folder)
    return str(caught.value)


def second_fails(request: Request) -> Answer:
    return Answer("no") if request.number == 1 else good_answer(request)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "other"}, 'model ("test-model" to "other"): 3 clips'),
        ({"revision": "abc"}, 'revision ("" to "abc"): 3 clips'),
        ({"temperature": 0.5, "max_tokens": 99}, "max_tokens (256 to 99): 3 clips, temperature (0.0 to 0.5): 3 clips"),
    ],
)
def test_a_changed_setting_is_named_and_nothing_is_asked(
    tmp_path: Path, cast: Cast, changes: dict[str, Any], reason: str
) -> None:
    folder = make_screened_film(tmp_path, 3)
    with CaptionServer(good_answer) as server:
        first = captions_of(stage_for(server.address, cast), folder)
        server.requests.clear()
        said = refused(stage_for(server.address, cast, **changes), folder)
        assert server.requests == []
        assert captions_of(stage_for(server.address, cast), folder) == first
    assert f"3 clips with a good caption would be captioned again ({reason}). Nothing was sent" in said
    assert "Pass --ask-again to caption again; `[captions] keep_old = true` keeps" in said


def test_another_cast_and_another_level_are_named(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 3)
    with CaptionServer(good_answer) as server:
        perform(stage_for(server.address, cast), folder)
        other = make_screened_film(tmp_path / "other", 3, levels=[3, 5, 3])
        other.table_path("screened").replace(folder.table_path("screened"))
        (folder.path / "captions.json").unlink()
        assert "(level (3 to 5): 1 clip)" in refused(stage_for(server.address, cast), folder)
        assert "(cast: 3 clips)" in refused(stage_for(server.address, make_cast(tmp_path / "cast", "Lisa")), folder)


def test_a_first_cast_repeats_what_was_asked_without_one(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 2)
    with CaptionServer(good_answer) as server:
        perform(stage_for(server.address, Cast()), folder)
        server.requests.clear()
        assert "(cast (none before): 2 clips)" in refused(stage_for(server.address, cast), folder)
        assert server.requests == []
        captions_of(stage_for(server.address, cast, ask_again=True), folder)
        assert sorted(server.asked("what")) == [0, 1]


def test_more_repairs_for_unknown_characters_are_no_repeat(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 1)

    def learns(request: Request) -> Answer:
        return Answer("everybody") if request.kind == "who" and request.turn < 2 else good_answer(request)

    with CaptionServer(learns) as server:
        assert captions_of(stage_for(server.address, cast, repairs=1), folder)[0].characters is None
        expect_good(captions_of(stage_for(server.address, cast, repairs=2), folder)[0], 0)


def test_clips_without_a_good_caption_are_asked_without_a_word(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 3)
    with CaptionServer(second_fails) as server:
        perform(stage_for(server.address, cast, repairs=0, failed_limit=1), folder)
        changed = stage_for(server.address, cast, model="other")
        assert "2 clips with a good caption" in refused(changed, folder)
        changed.run_batch(folder, [clip_ids(folder)[1]])
        server.answer = good_answer
        with pytest.raises(UserError, match="2 clips with a good caption"):
            changed.run_batch(folder, clip_ids(folder)[:1])
        assert {request.number for request in server.requests if request.body["model"] == "other"} == {1}


def test_replies_that_no_table_has_yet_count_as_paid(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 3)
    with CaptionServer(good_answer) as server:
        stage_for(server.address, cast).run_batch(folder, clip_ids(folder)[:2])
        changed = stage_for(server.address, cast, temperature=1)
        assert "2 clips with a good caption" in refused(changed, folder)
        kept = refused(stage_for(server.address, cast, temperature=1, keep_old=True), folder)
    assert "or captions not in the table yet" in kept


@pytest.mark.parametrize("changes", [{}, {"temperature": 1}])
def test_a_film_copied_without_its_replies_keeps_its_captions(
    tmp_path: Path, cast: Cast, changes: dict[str, Any]
) -> None:
    folder = make_screened_film(tmp_path, 3)
    with CaptionServer(second_fails) as server:
        first = captions_of(stage_for(server.address, cast, repairs=0, failed_limit=1), folder)
        shutil.rmtree(folder.path / "replies")
        server.requests.clear()
        server.answer = good_answer
        later = stage_for(server.address, cast, repairs=0, **changes)
        for batch in staleness_of(later, folder).pending.batches:
            later.run_batch(folder, batch)
        make(later, folder, silent)
        assert set(server.asked("who")) == {1}, "the one without a good caption"
        captions = folder.read("captions", Caption)
        expect_good(captions[1], 1)
        for number in (0, 2):
            assert captions[number].sentence == first[number].sentence
            assert kept_flags(captions[number]) == ["kept: replies"]
        assert staleness_of(later, folder).reason is None
        assert staleness_of(stage_for(server.address, cast, repairs=0, **changes, ask_again=True), folder).pending.ids


def test_captions_whose_replies_are_gone_are_not_replaced_by_another_model_without_leave(
    tmp_path: Path, cast: Cast
) -> None:
    folder = make_screened_film(tmp_path, 3)
    with CaptionServer(good_answer) as server:
        perform(stage_for(server.address, cast), folder)
        shutil.rmtree(folder.path / "replies")
        assert "(stored replies (gone): 3 clips)" in refused(stage_for(server.address, cast, model="other"), folder)
        captions = captions_of(stage_for(server.address, cast, model="other", ask_again=True), folder)
        assert {caption.source for caption in captions} == {"other"}


def test_old_captions_are_kept_and_flagged(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 3)
    with CaptionServer(second_fails) as server:
        perform(stage_for(server.address, cast, repairs=0, failed_limit=1), folder)
        server.requests.clear()
        server.answer = good_answer
        keeps = stage_for(server.address, cast, temperature=1, keep_old=True)
        captions = captions_of(keeps, folder)
        assert set(server.asked("who")) == {1}
        for number, caption in enumerate(captions):
            expect_good(caption, number)
        assert [kept_flags(caption) for caption in captions] == [["kept: temperature"], [], ["kept: temperature"]]
        assert [caption.is_kept for caption in captions] == [True, False, True]
        assert staleness_of(keeps, folder).reason is None
        later = captions_of(stage_for(server.address, cast, temperature=1, max_tokens=99, keep_old=True), folder)
        assert [kept_flags(caption) for caption in later] == [
            ["kept: max_tokens, temperature"],
            ["kept: max_tokens"],
            ["kept: max_tokens, temperature"],
        ]
        assert "3 clips" in refused(stage_for(server.address, cast, temperature=1, max_tokens=99), folder)
        both = stage_for(server.address, cast, temperature=1, max_tokens=99, keep_old=True, ask_again=True)
        assert not any(caption.is_kept for caption in captions_of(both, folder))


def kept_flags(caption: Caption) -> list[str]:
    """Flags besides the doubts, which are raised anew."""
    assert len(set(caption.flags)) == len(caption.flags)
    return [flag for flag in caption.flags if flag.startswith("kept: ")]


def test_captions_of_another_model_are_not_kept(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 2)
    with CaptionServer(good_answer) as server:
        perform(stage_for(server.address, cast), folder)
        said = refused(stage_for(server.address, cast, model="other", keep_old=True), folder)
    assert "`[captions] keep_old` cannot keep captions of another model" in said
