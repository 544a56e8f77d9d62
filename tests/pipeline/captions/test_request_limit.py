"""Request limit: it opens slowly, halves once per round of refusals, and pauses, probes and isolates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from pipeline.captions.request_limit import Place, RequestLimit


def limit_of(most: int = 32) -> RequestLimit:
    return RequestLimit(most, first_pause_seconds=0.01)


async def answered(limit: RequestLimit, count: int) -> None:
    for _ in range(count):
        async with limit.place() as place:
            limit.answered(place)


async def places(limit: RequestLimit, count: int) -> list[Place]:
    """Places of requests that are in flight at the same time."""
    all_in = asyncio.Barrier(count)

    async def hold() -> Place:
        async with limit.place() as place:
            await all_in.wait()
            return place

    return await asyncio.gather(*[hold() for _ in range(count)])


def running(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))


def test_the_limit_opens_by_one_an_answer_and_never_beyond_the_bound() -> None:
    async def work() -> None:
        limit = limit_of(10)
        assert limit.limit == 8
        await answered(limit, 1)
        assert limit.limit == 9
        await answered(limit, 50)
        assert limit.limit == 10

    running(work)


def test_refusals_of_one_round_halve_the_limit_once_and_it_grows_by_one_a_round() -> None:
    async def work() -> None:
        limit = limit_of()
        for place in await places(limit, 8):
            limit.refused(place, 0)
        assert (limit.limit, limit.troubles) == (4, 1)
        await answered(limit, 4)
        assert 4.9 < limit.limit < 5
        assert limit.troubles == 0

    running(work)


def test_a_refusal_pauses_every_request() -> None:
    async def work() -> None:
        limit = limit_of()
        [place] = await places(limit, 1)
        limit.refused(place, 0.3)
        start = time.monotonic()
        await asyncio.gather(*[answered(limit, 1) for _ in range(3)])
        assert 0.25 < time.monotonic() - start < 5

    running(work)


@pytest.mark.parametrize(("asked", "pause"), [(300.0, 300), (1e6, 600)])
def test_a_long_pause_that_the_server_asks_for_is_kept_up_to_ten_minutes(asked: float, pause: float) -> None:
    async def work() -> None:
        limit = limit_of()
        [place] = await places(limit, 1)
        limit.refused(place, asked)
        assert pause - 1 < limit._resumes_at - time.monotonic() <= pause

    running(work)


def test_after_silence_one_request_probes() -> None:
    async def work() -> None:
        limit = limit_of()
        for place in await places(limit, 8):
            limit.unanswered(place)
        assert (limit.limit, limit.troubles) == (1, 1)
        await answered(limit, 3)
        assert limit.limit == 4

    running(work)


def test_one_silent_request_among_answered_ones_changes_nothing() -> None:
    async def work() -> None:
        limit = limit_of(8)
        silent, other = await places(limit, 2)
        limit.answered(other)
        limit.unanswered(silent)
        assert (limit.limit, limit.troubles) == (8, 0)

    running(work)


def test_answers_that_become_slow_lower_the_limit() -> None:
    async def work() -> None:
        limit = limit_of(8)
        for seconds in (*[1.0] * 100, *[8.0] * 10):
            async with limit.place() as place:
                limit.answered(Place(place.started - seconds, place.epoch))
        assert limit.limit < 8

    running(work)


def test_a_suspect_runs_alone_and_before_the_others() -> None:
    async def work() -> None:
        limit, open_now, order = limit_of(), 0, []

        async def request(name: str, *, alone: bool) -> None:
            nonlocal open_now
            async with limit.place(alone=alone):
                open_now += 1
                order.append(name)
                await asyncio.sleep(0.02)
                assert not alone or open_now == 1
                open_now -= 1

        first = asyncio.create_task(request("first", alone=False))
        await asyncio.sleep(0.01)
        others = [request(f"other {number}", alone=False) for number in range(5)]
        await asyncio.gather(request("suspect", alone=True), *others, first)
        assert order[:2] == ["first", "suspect"]

    running(work)


def test_a_cancelled_request_leaves_its_place() -> None:
    async def work() -> None:
        limit = limit_of(1)
        async with limit.place():
            waiting = asyncio.create_task(answered(limit, 1))
            await asyncio.sleep(0.01)
            waiting.cancel()
        await answered(limit, 3)

    running(work)


def test_a_closed_limit_gives_no_place() -> None:
    async def work() -> None:
        limit = limit_of(1)
        async with limit.place():
            waiting = asyncio.create_task(answered(limit, 1))
            await asyncio.sleep(0.01)
            limit.close(ValueError("no more"))
            with pytest.raises(ValueError, match="no more"):
                await waiting
        with pytest.raises(ValueError, match="no more"):
            await answered(limit, 1)

    running(work)
