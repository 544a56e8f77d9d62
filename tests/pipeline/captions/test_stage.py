"""Captions by a model server: paired by clip, repaired, quarantined."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.captions.cast import Cast, load_cast
from pipeline.captions.endpoint import EndpointDownError
from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import CaptionSettings, Config
from pipeline.core.progress import silent
from pipeline.core.records import Clip, RecordError
from pipeline.core.stage import perform
from pipeline.plan.film_stages import planned_stages
from pipeline.plan.request import BuildRequest
from tests.support.datasets.dialogue import line, write_dialogue
from tests.support.media.painted_clips import (
    captions_of,
    clip_ids,
    make_cast,
    make_screened_film,
    read_moment,
    stage_for,
)
from tests.support.servers.caption_server import (
    Answer,
    CaptionServer,
    Request,
    expect_good,
    good_answer,
)


def test_both_questions_have_the_right_pictures(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 1, levels=[4])
    with CaptionServer(good_answer) as server:
        expect_good(captions_of(stage_for(server.address, cast, max_tokens=99), folder)[0], 0)
        who, what = server.requests
    assert (who.kind, what.kind) == ("who", "what")
    assert "1 = Ponyo\n2 = Sosuke" in who.text
    sheet, grid = who.pictures
    assert sheet.shape == (448, 896, 3)
    halves = [half for row in np.vsplit(grid, 2) for half in np.hsplit(row, 2)]
    assert [half.shape for half in halves] == [(448, 448, 3)] * 4
    assert [round(read_moment(half)) for half in halves] == [3, 7, 11, 15]
    assert "of this clip is 4" in what.text
    assert [round(read_moment(picture)) for picture in what.pictures] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert {picture.shape for picture in what.pictures} == {(448, 448, 3)}  # one tile each, so no key is needed
    assert [tiles_of(request) for request in (who, what)] == [[2, 4], [None] * 8]
    assert [labels_of(request) for request in (who, what)] == [
        ["Image-1: ", "Image-2: "],
        [f"Frame-{number}: " for number in range(1, 9)],
    ]
    assert (what.body["model"], what.body["max_tokens"], what.body["temperature"]) == ("test-model", 99, 0)


def parts_of(request: Request, kind: str) -> list[Any]:
    return [part[kind] for part in request.body["messages"][0]["content"] if part["type"] == kind]


def tiles_of(request: Request) -> list[int | None]:
    return [url.get("max_dynamic_patch") for url in parts_of(request, "image_url")]


def labels_of(request: Request) -> list[str]:
    return parts_of(request, "text")[:-1]


def test_a_large_cast_is_shown_on_several_sheets(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 1)
    cast = make_cast(tmp_path / "cast", *[f"N{number:02}" for number in range(13)])
    with CaptionServer(good_answer) as server:
        captions_of(stage_for(server.address, cast), folder)
        who = server.requests[0]
    assert [picture.shape[:2] for picture in who.pictures] == [(3 * 448, 3 * 448), (2 * 448, 3 * 448), (896, 896)]
    assert tiles_of(who) == [9, 6, 4]
    assert labels_of(who) == ["Image-1: ", "Image-2: ", "Image-3: "]


def test_tiles_are_not_mentioned_to_servers_that_refuse_them(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 1)
    with CaptionServer(good_answer) as server:
        captions_of(stage_for(server.address, cast, tiles=False), folder)
        assert "max_dynamic_patch" not in json.dumps([request.body for request in server.requests])


def test_answers_are_matched_to_clips_in_any_order(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 12)
    delays = random.Random(3)

    def late(request: Request) -> Answer:
        return Answer(good_answer(request).text, delay_seconds=1.0 if request.number == 0 else delays.random() / 10)

    with CaptionServer(late) as server:
        captions = captions_of(stage_for(server.address, cast, concurrency=8), folder)
        assert 1 < server.most_open <= 8
        assert server.asked("what") != list(range(12))  # otherwise the test would prove nothing
    for number, (caption, clip_id) in enumerate(zip(captions, clip_ids(folder), strict=True)):
        assert caption.clip_id == clip_id
        expect_good(caption, number)


def test_without_a_cast_characters_are_not_asked_about(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 2)
    with CaptionServer(good_answer) as server:
        captions = captions_of(stage_for(server.address, load_cast(None)), folder)
        assert server.asked("who") == []
    assert [(caption.characters, caption.raw_who, caption.S) for caption in captions] == [
        (None, None, "apple"),
        (None, None, "boat"),
    ]


def test_a_bad_reply_is_repaired_with_its_fault_named(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 3)

    def learns(request: Request) -> Answer:
        if request.turn == 0 and request.number == 1:
            return Answer("[Number]1[Index]7" if request.kind == "who" else "<S>girl</S><SC>5</SC>")
        if request.turn == 1:
            wanted = (
                ("numbers 1 to 2",) if request.kind == "who" else ("<MD> is missing", '<SC> must be 0 or 1, not "5"')
            )
            assert all(fault in request.text for fault in wanted)
            assert request.body["messages"][1]["role"] == "assistant"
            assert len(request.body["messages"][0]["content"]) > 2  # the pictures are still there
        return good_answer(request)

    with CaptionServer(learns) as server:
        for number, caption in enumerate(captions_of(stage_for(server.address, cast), folder)):
            expect_good(caption, number)
        assert len(server.requests) == 8


def test_a_reply_that_was_cut_off_is_asked_for_again_although_it_can_be_read(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 2)

    def cut_off(request: Request) -> Answer:
        if request.turn or request.number or request.kind == "who":
            assert request.turn == 0 or "was cut off before its end" in request.text
            return good_answer(request)
        return Answer(good_answer(request).text.replace("</ST>", ""), finish_reason="length")

    with CaptionServer(cut_off) as server:
        for number, caption in enumerate(captions_of(stage_for(server.address, cast), folder)):
            expect_good(caption, number)
        assert sorted(server.asked("what")) == [0, 0, 1]


def test_a_clip_without_a_usable_reply_is_quarantined_with_the_reply(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 6)

    def babbles(request: Request) -> Answer:
        if request.number == 2 and request.kind == "what":
            return Answer(f"a nice picture, {request.turn}")
        return good_answer(request)

    with CaptionServer(babbles) as server:
        stage = stage_for(server.address, cast, repairs=2, failed_limit=0.5)
        captions = captions_of(stage, folder)
        assert server.asked("what").count(2) == 3
    for number in (0, 1, 3, 4, 5):
        expect_good(captions[number], number)
    bad = captions[2]
    assert "`what` in 3 tries" in str(bad.fault)
    assert "<S> is missing" in str(bad.fault)
    assert bad.raw_what == "a nice picture, 2"
    tags = (bad.S, bad.MD, bad.EV, bad.MA, bad.SC, bad.ET, bad.ST, bad.characters, bad.actor, bad.others, bad.sentence)
    assert tags == (None,) * 11
    record = folder.stage_record("captions")
    assert record is not None
    assert [failure.record_id for failure in record.failures] == [bad.clip_id]


def test_where_the_characters_stay_unknown_the_rest_is_asked(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 3)

    def blind(request: Request) -> Answer:
        return Answer("everybody") if (request.kind, request.number) == ("who", 1) else good_answer(request)

    with CaptionServer(blind) as server:
        captions = captions_of(stage_for(server.address, cast, repairs=1), folder)
        assert server.asked("who").count(1) == 2
        assert server.asked("what").count(1) == 1
    expect_good(captions[0], 0)
    unknown = captions[1]
    assert (unknown.fault, unknown.raw_who) == (None, "everybody")
    assert (unknown.characters, unknown.others) == (None, None)
    assert (unknown.actor, unknown.S) == ("boat", "boat")
    assert unknown.flags == (
        "characters unknown: no usable reply to `who` in 2 tries; the last: "
        "The reply has no line of the form [Number]how many[Index]number,number[Others]how many.",
    )


def test_too_many_quarantined_clips_fail_the_film(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 4)

    def half(request: Request) -> Answer:
        return Answer("no") if request.number < 2 else good_answer(request)

    with CaptionServer(half) as server:
        with pytest.raises(
            RecordError, match=r"2 of 4 clips got no usable caption; .* at most 12 requests; first: .*<S> is missing"
        ) as caught:
            perform(stage_for(server.address, cast, failed_limit=0.4), folder)
        assert caught.value.record_id == folder.film_id
        perform(stage_for(server.address, cast, failed_limit=0.5), folder)


def test_an_unreadable_clip_is_quarantined(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 6)
    folder.clip_path(clip_ids(folder)[5]).write_bytes(b"gone")
    with CaptionServer(good_answer) as server:
        captions = captions_of(stage_for(server.address, cast), folder)
    assert "cannot be read" in str(captions[5].fault)
    expect_good(captions[0], 0)


def test_a_clip_with_unknown_motion_is_not_asked_about(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 6, levels=[None])
    with CaptionServer(good_answer) as server:
        captions = captions_of(stage_for(server.address, cast), folder)
        assert 0 not in server.asked("who") + server.asked("what")
    assert "motion was not measured" in str(captions[0].fault)


def test_a_service_that_is_down_stops_the_stage_and_keeps_its_replies(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 6)
    answered = []

    def dies(request: Request) -> Answer:
        answered.append(request)
        return good_answer(request) if len(answered) <= 4 else Answer(status=503, raw=b"shutting down")

    with CaptionServer(dies, models_status=503) as server:
        stage = stage_for(server.address, cast, concurrency=1)
        with pytest.raises(EndpointDownError, match="start it with `animegamer caption-server`"):
            perform(stage, folder)
        kept = {(request.kind, request.number) for request in answered[:4]}
        server.requests.clear()
        server.answer, server.models_status = good_answer, 200
        for number, caption in enumerate(captions_of(stage, folder)):
            expect_good(caption, number)
        assert not kept & {(request.kind, request.number) for request in server.requests}
        assert len(server.requests) == 8


def test_the_key_is_in_no_file(tmp_path: Path, cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANIMEGAMER_API_KEY", "sk-a-secret-key")
    folder = make_screened_film(tmp_path, 2)
    with CaptionServer(good_answer) as server:
        perform(stage_for(server.address, cast), folder)
        assert server.requests[0].headers["authorization"] == "Bearer sk-a-secret-key"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"sk-a-secret-key" in path.read_bytes()]


def test_progress_counts_all_clips(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 3)
    seen: list[tuple[float, float]] = []
    two_done = threading.Event()

    def report(done: float, total: float) -> None:
        seen.append((done, total))
        if done == 2:
            two_done.set()

    def late(request: Request) -> Answer:
        assert request.number != 2 or two_done.wait(30)
        return good_answer(request)

    with CaptionServer(late) as server:
        stage = stage_for(server.address, Cast(), timeout_seconds=60)
        stage.run_batch(folder, clip_ids(folder)[:1], silent)
        stage.run(folder, report)
    assert list(dict.fromkeys(seen)) == [(1, 3), (2, 3), (3, 3)]


def test_a_clip_of_few_frames_has_the_stated_number_of_pictures(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 1, frames=5)
    with CaptionServer(good_answer) as server:
        expect_good(captions_of(stage_for(server.address, cast), folder)[0], 0)
        who, what = server.requests
    assert "You see 5 pictures" in what.text
    assert [round(read_moment(picture)) for picture in what.pictures] == [0, 1, 2, 3, 4]
    assert who.pictures[1].shape == (896, 896, 3)


def test_dialogue_is_shown_if_wanted_and_is_part_of_the_question(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 2)
    first, second = folder.read("clips", Clip)
    write_dialogue(folder, line(first.start_seconds + 0.5, first.start_seconds + 1, 'Say "ham"!', speaker="Ponyo"))
    with CaptionServer(good_answer) as server:
        captions_of(stage_for(server.address, cast), folder)
        assert not any("spoken" in request.text for request in server.requests)
        shown = stage_for(server.address, cast, dialogue=True)
        assert shown.repeats(folder).changes.keys() == {first.clip_id}  # the other clip is silent
        assert "dialogue" in shown.repeats(folder).reasons()
        server.requests.clear()
        captions_of(replace(shown, ask_again=True), folder)
        [what] = server.requests
    assert '0.5 "Ponyo: Say \\"ham\\"!"' in what.text
    assert second.clip_id not in shown.repeats(folder).changes


def test_the_stage_needs_the_dialogue_only_if_it_shows_it() -> None:
    assert "dialogue" not in WriteCaptions.needs
    settings = CaptionSettings(captioner="server", dialogue=True)
    stages = planned_stages(BuildRequest(films=(), out="data", config=Config(captions=settings)), (1, 2, 3, 4))
    assert "dialogue" in stages[-1].needs
