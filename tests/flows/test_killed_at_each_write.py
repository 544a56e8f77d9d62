"""Builds killed just before a complete file is renamed into place: the next build ends with the same bytes.

Every file of a dataset is written under a temporary name and renamed (`pipeline/core/atomic.py`), so counting renames
counts writes. The gate kills at every twelfth write, the nightly tests at each. A build runs in a fork of a process
that has imported the program; `probe` and `cut`, otherwise in child processes, run in that fork too.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.config import checked
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.request import BuildRequest
from pipeline.publish.verify import verify
from pipeline.stages import cut, probe
from tests.support.builds.real_builds import contents, differences, leftovers, numbered_film
from tests.support.datasets.built_dataset import SMALL, build_here
from tests.support.media.films import make_film
from tests.support.media.painted_clips import make_cast
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer

pytestmark = pytest.mark.slow
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])


def run(request: BuildRequest, kill_at: int = 0, below: str = "") -> int:
    """Build in a separate process and return its exit code.

    Args:
        request: request of the build.
        kill_at: number of the rename before which the build is killed, counted from 1; 0: never.
        below: count only files whose path has this folder in it.
    """
    process = _FORKS.Process(target=_build, args=(request, kill_at, below))
    process.start()
    process.join(120)
    process.kill()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _build(request: BuildRequest, kill_at: int, below: str) -> None:
    for module in (probe, cut):
        module.call_in_child = _call_here
    seen = 0

    def count_renames(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event == "os.rename" and below in str(arguments[1]):
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count_renames)
    build_here(request)


def _call_here(work: Callable[..., Any], argument: Any, record_id: str, progress: Any) -> Any:
    return work(argument, progress)


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_build_after_a_kill_at_any_write_ends_with_the_same_bytes(tmp_path: Path, every: int) -> None:
    film = make_film(tmp_path / "film.mp4", frames=60, size=(360, 240))

    def request(name: str) -> BuildRequest:
        return BuildRequest(films=(film,), out=tmp_path / name, config=checked(SMALL, "test"))

    assert run(request("reference")) == 0
    assert verify(Dataset(tmp_path / "reference")) == []
    reference = contents(tmp_path / "reference")
    for number in count(1, every):
        data, when = tmp_path / str(number), f"after a kill at write {number}"
        if (code := run(request(data.name), kill_at=number)) == 0:
            break
        assert code == -signal.SIGKILL
        made = {path: path.stat().st_mtime_ns for path in data.glob("films/*/*.json") if path.stem in STAGE_NAMES}
        assert run(request(data.name)) == 0, when
        assert differences(contents(data), reference) == [], when
        assert leftovers(data) == [], when
        assert {path: path.stat().st_mtime_ns for path in made} == made, f"made twice {when}"
    assert number > 20, "most files of a dataset were never written"


def test_a_kill_while_a_reply_is_stored_repeats_its_question_and_at_most_the_one_in_flight(tmp_path: Path) -> None:
    film, asked, kills = numbered_film(tmp_path / "film.mp4", 0), list[tuple[str, int]](), 0
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")

    def note(question: Request) -> Answer:
        if question.kind in ("who", "what"):
            asked.append((question.kind, question.number))
        return good_answer(question)

    with CaptionServer(note) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", "concurrency": 1}
        config = checked({**SMALL, "captions": captions}, "test")
        request = BuildRequest(films=(film,), out=tmp_path / "data", config=config, cast=tmp_path / "cast")
        while (code := run(request, kill_at=2, below="replies")) != 0:
            assert code == -signal.SIGKILL
            kills += 1
    assert kills > 2
    assert len(set(asked)) == 8
    assert 8 + kills <= len(asked) <= 8 + 2 * kills  # the next request is sent while a reply is stored
