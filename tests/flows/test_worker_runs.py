"""Run of a film at a worker while the Prefect server fails; the rest is in `test_deploy.py`, with a real server."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import httpx
import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.states import Completed

from flows import deployments as film_runs
from pipeline.core.progress import Watch, silent

RUN = SimpleNamespace(id=UUID(int=1), name="film-01234567", state=None, work_pool_name="animegamer")


class TroubledServer:
    """Server that answers queries about a run with these replies in turn."""

    def __init__(self, *answers: Exception | object) -> None:
        self._answers: Iterator[Exception | object] = iter(answers)

    def read_flow_run(self, _: UUID) -> object:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def status_error(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://127.0.0.1/api")
    return httpx.HTTPStatusError(str(code), request=request, response=httpx.Response(code, request=request))


def end_of(*answers: Exception | object) -> Any:
    client = cast(SyncPrefectClient, TroubledServer(*answers))
    return film_runs._final_state(client, cast(FlowRun, RUN), Watch(silent))


def test_a_failing_server_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film_runs, "ASK_SECONDS", 0)
    ended = SimpleNamespace(**{**vars(RUN), "state": Completed()})
    assert end_of(status_error(503), httpx.ConnectError("refused"), status_error(500), ended).is_completed()


def test_a_refusal_is_not_retried() -> None:
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        end_of(status_error(401))
