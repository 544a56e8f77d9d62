"""Reply cache: replies found again across runs, changes and kills, and never paid for twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pipeline.captions.cast import Cast
from pipeline.captions.reply_cache import load_replies
from pipeline.core.records import RecordError
from pipeline.core.stage import perform
from pipeline.core.store import StoreError
from tests.support.media.painted_clips import captions_of, clip_ids, make_cast, make_screened_film, stage_for
from tests.support.servers.caption_server import (
    Answer,
    CaptionServer,
    Request,
    expect_good,
    good_answer,
)


def test_a_rerun_sends_no_question_and_needs_no_server(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 5)
    with CaptionServer(lambda request: Answer("no") if request.number == 1 else good_answer(request)) as server:
        stage = stage_for(server.address, cast)
        first = captions_of(stage, folder)
    assert not perform(stage, folder)
    (folder.path / "captions.json").unlink()
    assert captions_of(stage, folder) == first


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"model": "other"}, (2, 2)),
        ({"revision": "abc"}, (2, 2)),
        ({"temperature": 0.5}, (2, 2)),
        ({"repairs": 5}, (0, 0)),
    ],
)
def test_a_change_repeats_dependent_questions_and_reverting_it_none(
    tmp_path: Path, cast: Cast, changes: dict[str, Any], asked: tuple[int, int]
) -> None:
    folder = make_screened_film(tmp_path, 2)
    with CaptionServer(good_answer) as server:
        first = captions_of(stage_for(server.address, cast), folder)
        server.requests.clear()
        captions_of(stage_for(server.address, cast, ask_again=True, **changes), folder)
        assert (len(server.asked("who")), len(server.asked("what"))) == asked
    assert captions_of(stage_for(server.address, cast), folder) == first


def test_another_cast_repeats_the_question_about_characters_and_what_follows_from_its_answer(
    tmp_path: Path, cast: Cast
) -> None:
    folder = make_screened_film(tmp_path, 3)
    with CaptionServer(good_answer) as server:
        perform(stage_for(server.address, cast), folder)
        server.requests.clear()
        captions = captions_of(stage_for(server.address, make_cast(tmp_path / "cast", "Lisa"), ask_again=True), folder)
        assert sorted(server.asked("who")) == [0, 1, 2]
        assert sorted(server.asked("what")) == [0, 1, 2]  # the names found are others
        server.requests.clear()
        captions_of(stage_for(server.address, make_cast(tmp_path / "cast", "Zoe"), ask_again=True), folder)
        assert sorted(server.asked("who")) == [0, 1, 2]
        assert server.asked("what") == []  # the names found are the same
    assert [caption.characters for caption in captions] == [("Lisa",), ("Ponyo",), ("Lisa",)]


def test_other_levels_repeat_only_the_action_question_of_their_clips(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 3)
    with CaptionServer(good_answer) as server:
        perform(stage_for(server.address, cast), folder)
        other = make_screened_film(tmp_path / "other", 3, levels=[3, 5, 3])
        other.table_path("screened").replace(folder.table_path("screened"))
        (folder.path / "captions.json").unlink()
        server.requests.clear()
        perform(stage_for(server.address, cast, ask_again=True), folder)
        assert (server.asked("who"), server.asked("what")) == ([], [1])


def test_more_repairs_continue_the_cached_conversation(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 1)
    with CaptionServer(lambda request: good_answer(request) if request.turn == 2 else Answer("no")) as server:
        with pytest.raises(RecordError):
            perform(stage_for(server.address, Cast(), repairs=1), folder)
        assert captions_of(stage_for(server.address, Cast(), repairs=2), folder)[0].S == "apple"
        assert [request.turn for request in server.requests] == [0, 1, 2]


def test_another_reading_of_replies_makes_the_captions_anew_and_asks_nothing(
    tmp_path: Path, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_screened_film(tmp_path, 2)
    with CaptionServer(good_answer) as server:
        stage = stage_for(server.address, cast)
        assert perform(stage, folder)
        assert not perform(stage, folder)
        server.requests.clear()
        monkeypatch.setattr("pipeline.captions.server_captioner.READING", 99)
        assert perform(stage, folder)
        assert server.requests == []


def test_a_damaged_reply_file_is_named(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 1)
    path = folder.path / "replies" / f"{clip_ids(folder)[0]}.json"
    path.parent.mkdir()
    path.write_text("{")
    with CaptionServer(good_answer) as server, pytest.raises(StoreError, match="delete it to send the question again"):
        perform(stage_for(server.address, cast), folder)


RUN = """
    import sys
    from pathlib import Path
    from pipeline.captions.stage import WriteCaptions
    from pipeline.captions.cast import load_cast
    from pipeline.core.config import CaptionSettings
    from pipeline.core.stage import perform
    from pipeline.core.store import FilmFolder
    settings = CaptionSettings(captioner="server", endpoint=sys.argv[1], model="test-model", concurrency=2)
    perform(WriteCaptions(settings, load_cast(Path(sys.argv[3]))), FilmFolder(Path(sys.argv[2])))
"""


@pytest.mark.slow
def test_after_a_kill_only_requests_in_flight_are_repeated(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 8)
    process: subprocess.Popen[bytes]

    def kills(request: Request) -> Answer:
        if len(server.requests) > 8 and request is server.requests[8]:
            os.kill(process.pid, signal.SIGKILL)
            return Answer(delay_seconds=0.2)
        return Answer(good_answer(request).text, delay_seconds=0.02)

    with CaptionServer(kills) as server:
        arguments = [server.address, str(folder.path), str(tmp_path / "cast")]
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(RUN), *arguments])
        assert process.wait(60) == -signal.SIGKILL
        before = [(request.kind, request.number) for request in server.requests]
        kept = {
            (exchange.request, number)
            for number, clip_id in enumerate(clip_ids(folder))
            for exchange in load_replies(folder, clip_id).exchanges.values()
        }
        assert len(kept) >= 9 - 4  # two at a time, and two replies that are being written
        server.requests.clear()
        server.answer = good_answer
        for number, caption in enumerate(captions_of(stage_for(server.address, cast), folder)):
            expect_good(caption, number)
        after = {(request.kind, request.number) for request in server.requests}
    assert len(before) <= 10
    assert len(after) == 16 - len(kept)
    assert not after & kept


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_requests_at_once(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 3)
    process: subprocess.Popen[bytes]

    def interrupts(request: Request) -> Answer:
        if request is server.requests[0]:
            os.kill(process.pid, signal.SIGINT)
        return Answer(good_answer(request).text, delay_seconds=30)

    with CaptionServer(interrupts) as server:
        arguments = [server.address, str(folder.path), str(tmp_path / "cast")]
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(RUN), *arguments], stderr=subprocess.PIPE)
        _, said = process.communicate(timeout=25)  # before any answer
    assert b"KeyboardInterrupt" in said
    assert process.returncode == -signal.SIGINT
    assert folder.stage_record("captions") is None
