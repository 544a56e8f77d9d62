"""Engine without a server: flows and tasks end in the same states as in Prefect's, with the same retries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prefect import State, flow, task
from prefect.client.schemas.objects import TaskRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Failed

from flows.engine import run
from pipeline.core.progress import Progress, silent, watcher
from pipeline.core.records import Clip
from tests.support import records


class BusyError(Exception):
    """An error worth a retry."""


def is_busy(_: object, __: TaskRun | None, state: State[object]) -> bool:
    return isinstance(state.result(raise_on_failure=False), BusyError)


@pytest.fixture(params=["without a server", pytest.param("with a server", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "with a server":
        request.getfixturevalue("prefect")
        yield
        return
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        yield


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("busy", "calls", "ends_well"), [(0, 1, True), (2, 3, True), (9, 3, False)])
def test_a_task_is_run_again_on_the_errors_that_it_retries(busy: int, calls: int, ends_well: bool) -> None:
    made: list[int] = []

    @task(retries=2, retry_delay_seconds=[0, 0], retry_condition_fn=is_busy)
    def work(answer: int) -> int:
        made.append(answer)
        if len(made) <= busy:
            raise BusyError
        return answer

    state = run(work, 7)
    assert (len(made), state.is_completed()) == (calls, ends_well)
    result = state.result(raise_on_failure=False)
    assert result == 7 if ends_well else isinstance(result, BusyError)


@pytest.mark.usefixtures("engine")
def test_another_error_is_not_retried_and_ends_no_other_run() -> None:
    made: list[int] = []

    @task(retries=2, retry_delay_seconds=0, retry_condition_fn=is_busy)
    def work() -> None:
        made.append(1)
        raise ZeroDivisionError("a bug")

    state = run(work)
    assert (made, state.is_failed()) == ([1], True)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        state.result()


@pytest.mark.usefixtures("engine")
def test_a_flow_may_return_its_own_state() -> None:
    @flow(persist_result=False)
    def build(films: int) -> State[None]:
        return Failed(message=f"{films} films failed")

    state = run(build, 2)
    assert (state.is_failed(), state.message) == (True, "2 films failed")


class Listed:
    """Watcher that lists the subjects of the work, and its lines; stopped, it acts as Ctrl-C does."""

    def __init__(self, *, stopped: bool = False) -> None:
        self.stopped = stopped
        self.subjects: list[str] = []
        self.lines: list[str] = []

    def begin(self, subject: str, name: str) -> Progress:  # noqa: ARG002
        self.subjects.append(subject)
        return self._stop if self.stopped else silent

    def _stop(self, *_: float) -> None:
        raise KeyboardInterrupt

    def end(self, subject: str, name: str, outcome: str) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)


@contextmanager
def watched_by(listed: Listed) -> Iterator[None]:
    token = watcher.set(listed)
    try:
        with temporary_settings(restore_defaults={PREFECT_API_URL}):
            yield
    finally:
        watcher.reset(token)


def test_the_pause_before_a_retry_names_the_run_that_waits_and_why() -> None:
    @task(task_run_name="{clip.clip_id}-{name}", retries=1, retry_delay_seconds=0)
    def named(clip: Clip, name: str) -> None:
        raise BusyError("it wants fewer requests")

    @task(retries=1, retry_delay_seconds=0)
    def plain() -> None:
        raise BusyError

    with watched_by(listed := Listed()):
        run(named, records.clip("ponyo-01234567"), "captions, batch 1")
        run(plain)
    assert listed.subjects == ["ponyo-01234567-000000000-captions, batch 1", "plain"]
    assert listed.lines[0] == f"{listed.subjects[0]}: it wants fewer requests; retrying in 0 s"


def test_an_interrupt_is_not_a_failure_of_the_work() -> None:
    @task
    def work() -> None:
        raise KeyboardInterrupt

    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(KeyboardInterrupt):
        run(work)


def test_a_stopped_build_ends_in_the_pause_before_a_retry() -> None:
    @task(retries=1, retry_delay_seconds=600)
    def work() -> None:
        raise BusyError

    with watched_by(Listed(stopped=True)), pytest.raises(KeyboardInterrupt):
        run(work)
