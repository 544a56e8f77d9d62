"""Asking loop: it ends early and cleanly, keeps what was paid for, and gives up only what kills a server."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path

import pytest

from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import BudgetError, counted
from pipeline.captions.reply_cache import load_replies
from pipeline.captions.stage import WriteCaptions
from pipeline.captions.trial import try_captions
from pipeline.core.errors import UserError
from pipeline.core.progress import silent
from pipeline.core.records import Caption, Verdict
from pipeline.core.stage import is_current, make, perform
from pipeline.core.store import FilmFolder
from tests.support.media.painted_clips import captions_of, clip_ids, make_screened_film, stage_for
from tests.support.servers.caption_server import Answer, CaptionServer, Request, expect_good, good_answer
from tests.support.servers.hard_server import Faults, hard_server, paint_code, subject_of


def replies_kept(folder: FilmFolder) -> int:
    kept = [load_replies(folder, clip_id).exchanges.values() for clip_id in clip_ids(folder)]
    return sum(len(exchange.replies) for exchanges in kept for exchange in exchanges)


def test_generations_that_fail_stop_after_a_few_clips_and_are_no_replies(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 12)
    words = "internal error happened, status code ResponseType.INTERNAL_ENGINE_ERROR"
    with CaptionServer(lambda _: Answer(words, finish_reason="error")) as server:
        stage = stage_for(server.address, Cast(), concurrency=1, attempts=2)
        with pytest.raises(UserError, match=r"5 clips in a row failed.*INTERNAL_ENGINE_ERROR"):
            stage.run_batch(folder, clip_ids(folder))
        assert {request.turn for request in server.requests} == {0}
        assert len(server.requests) <= 2 * (5 + 5)  # those begun
        assert replies_kept(folder) == 0
        server.answer = good_answer
        assert [caption.fault for caption in build(stage, folder)] == [None] * 12


def build(stage: WriteCaptions, folder: FilmFolder) -> list[Caption]:
    """Caption a film as a build does: the batches, then the stage."""
    current = is_current(stage, folder)
    for batch in stage.pending(folder, current=current).batches:
        stage.run_batch(folder, batch)
    if not current or stage.pending(folder, current=True).uncollected:
        make(stage, folder, silent)
    return folder.read("captions", Caption)


def test_a_clip_that_is_rejected_is_asked_about_once_in_a_build_and_again_in_the_next(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 12)

    def every_other(request: Request) -> Answer:
        return Answer(status=400, raw=b"no") if request.number % 2 else good_answer(request)

    with CaptionServer(every_other) as server:
        stage = stage_for(server.address, Cast(), concurrency=1, failed_limit=0.6, batch=6)
        captions = build(stage, folder)
        assert [caption.fault is None for caption in captions] == [True, False] * 6
        assert "rejects the request" in str(captions[1].fault)
        assert sorted(server.asked("what")) == list(range(12))
        server.requests.clear()
        assert build(stage, folder) == captions, "six in a row, but each of them has failed before"
        assert sorted(server.asked("what")) == [1, 3, 5, 7, 9, 11]
        server.answer = good_answer
        assert [caption.fault for caption in build(stage, folder)] == [None] * 12


def test_clips_at_which_a_build_stopped_do_not_stop_the_next_and_come_last(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 12)
    with CaptionServer(lambda _: Answer(status=400, raw=b"not allowed")) as server:
        stage = stage_for(server.address, Cast(), concurrency=1, failed_limit=0.6)
        with pytest.raises(UserError, match=r"5 clips in a row failed.*not allowed"):
            build(stage, folder)
        refused = set(server.asked("what"))
        server.requests.clear()
        server.answer = lambda request: (
            Answer(status=400, raw=b"not allowed") if request.number in refused else good_answer(request)
        )
        captions = build(stage, folder)
        again = server.asked("what")
    assert {number for number, caption in enumerate(captions) if caption.fault} == refused
    assert sorted(again) == list(range(12))
    assert again[0] not in refused
    assert again[-1] in refused


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 401])
def test_a_server_that_rejects_one_film_is_asked_about_no_other_film_of_the_build(tmp_path: Path, status: int) -> None:
    films = [make_screened_film(tmp_path / name, 12) for name in ("one", "other")]
    with CaptionServer(lambda _: Answer(status=status, raw=b"wrong form")) as server:
        stage = stage_for(server.address, Cast(), concurrency=1)
        with counted():
            with pytest.raises(UserError, match="wrong form"):
                build(stage, films[0])
            asked = len(server.requests)
            words = r"nothing more is asked.*wrong form.*12 of 12 clips of this film are still to be asked"
            with pytest.raises(BudgetError, match=words):
                build(stage, films[1])
            assert len(server.requests) == asked <= 6
        server.answer = good_answer
        assert [caption.fault for caption in build(stage, films[1])] == [None] * 12


def test_a_failure_under_other_settings_hides_no_reply(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 2)
    with CaptionServer(good_answer) as server:
        first = build(stage_for(server.address, Cast()), folder)
        server.answer = lambda _: Answer(status=400, raw=b"no")
        build(stage_for(server.address, Cast(), temperature=1, failed_limit=1, ask_again=True), folder)
        assert build(stage_for(server.address, Cast()), folder) == first


def test_a_refused_key_ends_requests_in_flight_with_their_replies(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 6)
    all_in = threading.Barrier(4, timeout=20)
    first = threading.Lock()

    def locks_out(request: Request) -> Answer:
        all_in.wait()
        if first.acquire(blocking=False):
            return Answer(status=401, raw=b"expired")
        return Answer(good_answer(request).text, delay_seconds=1)  # in flight when the key is refused

    with CaptionServer(locks_out) as server:
        with pytest.raises(UserError, match="expired"):
            perform(stage_for(server.address, Cast(), concurrency=4, timeout_seconds=30), folder)
        assert len(server.requests) == 4
    assert replies_kept(folder) == 3


def test_the_budget_ends_a_build_with_its_replies_kept_and_the_rest_said(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 6)
    with CaptionServer(good_answer) as server:
        stage = stage_for(server.address, cast, most_requests=5, concurrency=2)
        waiting = stage.pending(folder, current=False).ids
        with counted():
            with pytest.raises(BudgetError, match=r"the 5 requests.*\d of 6 clips of this film are still to be asked"):
                stage.run_batch(folder, waiting)
            with pytest.raises(BudgetError):
                stage.run_batch(folder, waiting)  # of the same build
        assert len(server.requests) == 5
        assert replies_kept(folder) == 5
        with pytest.raises(BudgetError):
            stage.run_batch(folder, waiting)
        for number, caption in enumerate(captions_of(stage, folder)):  # the third build has two to go
            expect_good(caption, number)
        assert len(server.requests) == 12


def test_the_budget_of_a_trial_counts_the_films_together(tmp_path: Path, cast: Cast) -> None:
    folder = make_screened_film(tmp_path, 2)
    other = FilmFolder(Path(shutil.copytree(folder.path, folder.path.with_name("film-89abcdef"))))
    other.save_film(folder.film.model_copy(update={"film_id": other.film_id}))
    with CaptionServer(good_answer) as server:
        stage = stage_for(server.address, cast, most_requests=6, concurrency=1)
        with pytest.raises(BudgetError, match="the 6 requests"):
            try_captions([(film, film.read("screened", Verdict)) for film in (folder, other)], stage, 4, silent)
        assert len(server.requests) == 6


def test_a_server_with_another_model_is_named(tmp_path: Path) -> None:
    folder = make_screened_film(tmp_path, 6)
    with CaptionServer(lambda request: Answer(good_answer(request).text, model="other-model")) as server:
        with pytest.raises(UserError, match="other-model answers instead of test-model"):
            perform(stage_for(server.address, Cast(), concurrency=1), folder)
        assert replies_kept(folder) == 0
        server.answer = lambda request: Answer(good_answer(request).text, model="hub/Test-Model-2026-01-01")
        for number, caption in enumerate(captions_of(stage_for(server.address, Cast()), folder)):
            assert (caption.fault, caption.S is not None) == (None, True), number


@pytest.mark.parametrize("every", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_frequent_refusals_slow_a_stage_and_do_not_end_it(tmp_path: Path, every: int) -> None:
    folder = make_screened_film(tmp_path, 12)
    count = 0

    def busy(request: Request) -> Answer:
        nonlocal count
        count += 1
        return Answer(status=429, headers={"Retry-After": "0"}) if count % every == 0 else good_answer(request)

    with CaptionServer(busy) as server:
        stage = stage_for(server.address, Cast(), attempts=4, concurrency=4)
        assert all(caption.fault is None for caption in captions_of(stage, folder))


@pytest.mark.parametrize(
    ("count", "stalls_after"),
    [
        pytest.param(120, 50, marks=pytest.mark.slow),
        pytest.param(10_000, 150, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)]),
    ],
)
def test_a_server_that_does_everything_wrong_leaves_every_other_clip_done(
    tmp_path: Path, count: int, stalls_after: int
) -> None:
    deadly, foreign, impostor = random.Random(count).sample(range(count), 3)
    faults = Faults(deadly, foreign, impostor, stalls_after)
    folder = make_screened_film(tmp_path, count, paint=paint_code)
    with hard_server(tmp_path, faults) as address:
        stage = stage_for(address, Cast(), attempts=8, timeout_seconds=5, repairs=1)
        captions = build(stage, folder)
        starts = (tmp_path / "starts").read_text(encoding="utf-8").splitlines()
    done = {number: caption for number, caption in enumerate(captions) if caption.fault is None}
    assert {number: caption.S for number, caption in done.items()} == {n: subject_of(n) for n in done}  # none is wrong
    faulty = {number: str(caption.fault) for number, caption in enumerate(captions) if caption.fault}
    assert set(faulty) == faults.clips
    assert "died twice" in faulty[deadly]
    assert "English" in faulty[foreign] or "missing" in faulty[foreign]
    assert "some-other-model answers instead" in faulty[impostor]
    assert len(starts) == 3  # the first, and one after each death
    assert (tmp_path / "stalled").exists()
    record = folder.stage_record("captions")
    assert record is not None
    named = {failure.record_id for failure in record.failures}
    assert named == {captions[number].clip_id for number in faults.clips}
