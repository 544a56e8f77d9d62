"""Engine of flows and tasks: Prefect's where a server is named, otherwise a plain call of their functions.

Without PREFECT_API_URL Prefect would start a temporary server for every command. It costs more CPU time than the stages
of a short film, and what it records ends with the command. Functions, retries and final states are the same either way.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Iterator
from typing import Any

from prefect import Flow, State, Task
from prefect.settings import PREFECT_API_URL
from prefect.states import Completed, Failed

from pipeline.core.errors import memory_fault
from pipeline.core.progress import watched, watcher

Work = Flow[..., Any] | Task[..., Any]


def has_server() -> bool:
    """Return True if a Prefect server is named: by PREFECT_API_URL, or by the profile."""
    return bool(PREFECT_API_URL.value())


def run(work: Work, *arguments: object) -> State[Any]:
    """Run a flow or task to its end, a task with its retries, and return the final state."""
    if has_server():
        recorded: Any = work(*arguments, return_state=True)
        assert isinstance(recorded, State), "a coroutine only inside a running event loop"
        return recorded
    state = _attempt(work, arguments)
    for seconds in _delays(work):
        if state.is_completed() or not _is_retryable(work, state):
            break
        name, error = _run_name(work, arguments), state.result(raise_on_failure=False)
        watcher.get().say(f"{name}: {error}; tried again in {seconds:.0f} s")
        _pause(name, seconds)
        state = _attempt(work, arguments)
    return state


def _attempt(work: Work, arguments: tuple[object, ...]) -> State[Any]:
    try:
        result = work.fn(*arguments)
    except Exception as error:  # noqa: BLE001 - as in Prefect: a bug, too, ends this run and no other
        return Failed(message=memory_fault(error) or f"{type(error).__name__}: {error}", data=error)
    return result if isinstance(result, State) else Completed(data=result)


def _delays(work: Work) -> Iterator[float]:
    """Seconds before each retry of a task, with jitter."""
    delays = work.retry_delay_seconds
    jitter = getattr(work, "retry_jitter_factor", None) or 0.0
    for number in range(work.retries or 0):
        delay = delays[min(number, len(delays) - 1)] if isinstance(delays, list) else delays or 0.0
        yield delay * (1 + jitter * random.random())


def _is_retryable(work: Work, state: State[Any]) -> bool:
    condition = getattr(work, "retry_condition_fn", None)
    return condition is None or bool(condition(work, None, state))


def _run_name(work: Work, arguments: tuple[object, ...]) -> str:
    """Name of this run of a task, as Prefect's pages show it; without a template, the name of the work."""
    template = getattr(work, "task_run_name", None)
    if not isinstance(template, str):
        return work.name
    return template.format(**dict(zip(inspect.signature(work.fn).parameters, arguments, strict=False)))


def _pause(name: str, seconds: float) -> None:
    """Wait in steps of a second; a build that is being stopped ends here."""
    with watched(name, "waiting to try again") as watch:
        watch.changed = False
        for _ in range(round(seconds)):
            watch(0, 0)
            time.sleep(1)
