"""New attempts: a server that was bad and is good now saves a failed film, and a finished film asks nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import EndpointLostError
from pipeline.captions.reply_cache import load_replies
from pipeline.captions.trial import try_captions
from pipeline.core.progress import silent
from pipeline.core.records import Caption, RecordError, Verdict
from pipeline.core.stage import make, staleness_of
from pipeline.core.store import FilmFolder
from tests.support.media.painted_clips import clip_ids, make_screened_film, stage_for
from tests.support.servers.caption_server import Answer, CaptionServer, Request, expect_good, good_answer

CLIPS = 6
WRONG = Answer("no tags at all")


def bad(_: Request) -> Answer:
    return WRONG


def bad_about(*numbers: int) -> Any:
    return lambda request: WRONG if request.number in numbers else good_answer(request)


@pytest.fixture
def server() -> Iterator[CaptionServer]:
    with CaptionServer(bad) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> FilmFolder:
    return make_screened_film(tmp_path, CLIPS)


def build(server: CaptionServer, folder: FilmFolder, cast: Cast, **changes: Any) -> int:
    """Run the stage as a build does, batch by batch; return the number of requests.

    Raises:
        RecordError: the film fails.
    """
    stage = stage_for(server.address, cast, repairs=1, **changes)
    server.requests.clear()
    found = staleness_of(stage, folder)
    for batch in found.pending.batches:
        stage.run_batch(folder, batch)
    if found.stale_reason or stage.pending(folder, current=True).uncollected:
        make(stage, folder, silent)
    return len(server.requests)


def captions(folder: FilmFolder) -> list[Caption]:
    return folder.read("captions", Caption)


def test_a_rerun_asks_again_if_the_film_would_fail(server: CaptionServer, folder: FilmFolder, cast: Cast) -> None:
    for _ in range(2):  # the server stays bad: each build makes one attempt at both questions, and no more
        with pytest.raises(RecordError, match=r"6 of 6 clips .*; the next build asks again, with at most 24 requests"):
            build(server, folder, cast)
        assert sorted(server.asked("who")) == sorted(server.asked("what")) == sorted([*range(CLIPS)] * 2)
    server.answer = good_answer
    assert build(server, folder, cast) == 2 * CLIPS
    assert {request.turn for request in server.requests} == {0}
    for number, caption in enumerate(captions(folder)):
        expect_good(caption, number)
    kept = load_replies(folder, clip_ids(folder)[0])
    (who,) = (exchange for exchange in kept.exchanges.values() if exchange.request == "who")
    assert who.replies[:4] == (WRONG.text,) * 4
    assert who.anew == (2, 4)
    assert build(server, folder, cast) == 0


def test_a_finished_film_asks_again_only_with_leave(server: CaptionServer, folder: FilmFolder, cast: Cast) -> None:
    server.answer = bad_about(2)
    assert build(server, folder, cast) == 2 * CLIPS + 2
    server.answer = good_answer
    assert build(server, folder, cast) == 0
    assert build(server, folder, cast, ask_again=True) == 2
    expect_good(captions(folder)[2], 2)
    assert build(server, folder, cast, ask_again=True) == 0


@pytest.mark.slow
@pytest.mark.parametrize("ask_again", [False, True])
def test_clips_asked_unequally_often_are_all_asked_again(
    server: CaptionServer, folder: FilmFolder, cast: Cast, ask_again: bool
) -> None:
    """Characters that are found make another question `what`, which was asked less often than those of other clips."""
    with pytest.raises(RecordError):
        build(server, folder, cast)
    server.answer = lambda request: good_answer(request) if request.kind == "who" and request.number < 3 else WRONG
    with pytest.raises(RecordError, match="with at most 18 requests"):
        build(server, folder, cast)
    server.answer = good_answer
    assert build(server, folder, cast, ask_again=ask_again) == 3 + 2 * 3
    assert all(caption.fault is None for caption in captions(folder))


def test_a_build_stopped_within_the_last_clip_asks_only_what_is_left(
    server: CaptionServer, folder: FilmFolder, cast: Cast
) -> None:
    with pytest.raises(RecordError):
        build(server, folder, cast)
    stage = stage_for(server.address, cast, repairs=1, concurrency=1)
    [batch] = stage.pending(folder, current=False).batches
    stopped_at = 4 * CLIPS
    server.requests.clear()

    def stop_late(*_: object) -> None:
        if len(server.requests) >= stopped_at:
            raise KeyboardInterrupt

    server.answer = lambda _: Answer(WRONG.text, delay_seconds=0 if len(server.requests) < stopped_at else 5)
    with pytest.raises(KeyboardInterrupt):
        stage.run_batch(folder, batch, stop_late)
    server.answer = bad
    with pytest.raises(RecordError, match="6 of 6 clips"):
        build(server, folder, cast)
    assert (server.asked("who"), server.asked("what")) == ([], [CLIPS - 1])


def test_a_killed_build_has_not_paid_in_vain(server: CaptionServer, folder: FilmFolder, cast: Cast) -> None:
    """Also the retry of a batch asks about none of its clips a second time."""
    with pytest.raises(RecordError):
        build(server, folder, cast)
    stage = stage_for(server.address, cast, repairs=1, batch=3)
    first, _ = stage.pending(folder, current=False).batches
    stage.run_batch(folder, first)
    server.requests.clear()
    stage.run_batch(folder, first)
    assert server.requests == []
    server.answer = good_answer
    with pytest.raises(RecordError, match="3 of 6 clips"):
        build(server, folder, cast)
    assert sorted(server.asked("what")) == [3, 4, 5]
    assert build(server, folder, cast) == 6


def test_a_trial_asks_again(server: CaptionServer, folder: FilmFolder, cast: Cast) -> None:
    with pytest.raises(RecordError):
        build(server, folder, cast)
    server.answer = good_answer
    stage = stage_for(server.address, cast, repairs=1)
    trial = try_captions([(folder, folder.read("screened", Verdict))], stage, 3, silent)
    assert (trial.asked, trial.usable_share, trial.left) == (3, 1, 3)
    assert build(server, folder, cast) == 2 * 3
    assert all(caption.fault is None for caption in captions(folder))


@pytest.mark.slow
def test_a_batch_that_runs_twice_in_a_build_makes_one_attempt(
    server: CaptionServer, folder: FilmFolder, cast: Cast
) -> None:
    """Trials before have made more attempts at some of the clips."""
    with pytest.raises(RecordError):
        build(server, folder, cast)
    stage = stage_for(server.address, cast, repairs=1)
    for _ in range(2):
        try_captions([(folder, folder.read("screened", Verdict))], stage, 3, silent)
    [batch] = stage.pending(folder, current=False).batches
    stage.run_batch(folder, batch)
    server.requests.clear()
    stage.run_batch(folder, batch)
    assert server.requests == []


def test_a_batch_whose_server_was_lost_goes_on_without_a_new_attempt(
    server: CaptionServer, folder: FilmFolder, cast: Cast
) -> None:
    closed = {0, 1, 2}

    def lost(request: Request) -> Answer:
        return WRONG if request.number in closed else Answer(status=503, delay_seconds=1)

    server.answer = lost
    stage = stage_for(server.address, cast, repairs=1)
    [batch] = stage.pending(folder, current=False).batches
    with pytest.raises(EndpointLostError):
        stage.run_batch(folder, batch)
    assert sorted(server.asked("what")[:6]) == [0, 0, 1, 1, 2, 2]
    server.answer = bad
    server.requests.clear()
    stage.run_batch(folder, batch)
    assert {request.number for request in server.requests} == {3, 4, 5}


def test_a_build_asks_again_what_a_trial_asked_in_vain(server: CaptionServer, folder: FilmFolder, cast: Cast) -> None:
    with pytest.raises(RecordError):
        build(server, folder, cast)
    stage = stage_for(server.address, cast, repairs=1)
    trial = try_captions([(folder, folder.read("screened", Verdict))], stage, 3, silent)
    assert (trial.asked, trial.left) == (3, CLIPS)
    server.answer = good_answer
    assert build(server, folder, cast) == 2 * CLIPS
    assert all(caption.fault is None for caption in captions(folder))
