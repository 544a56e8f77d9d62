"""Builds killed at each of their writes in turn: the next build ends with the same bytes and repeats no question.

The gate kills at every twelfth write, the nightly tests at each. Random moments, whole commands and
Prefect's server are in `test_killed.py`.
"""

from __future__ import annotations

import signal
from itertools import count
from pathlib import Path

import pytest

from pipeline.core.config import checked
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.request import BuildRequest
from pipeline.publish.verify import verify
from tests.support.builds.real_builds import contents, differences, leftovers, numbered_film
from tests.support.builds.stopped_builds import run
from tests.support.datasets.built_dataset import SMALL
from tests.support.media.films import make_film
from tests.support.media.painted_clips import make_cast
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_build_after_a_kill_at_any_write_ends_with_the_same_bytes(tmp_path: Path, every: int) -> None:
    film = make_film(tmp_path / "film.mp4", frames=60, size=(360, 240))

    def request(name: str) -> BuildRequest:
        return BuildRequest(films=(film,), out=tmp_path / name, config=checked(SMALL, "test"))

    assert run(request("reference")) == 0
    assert verify(Dataset(tmp_path / "reference")) == []
    reference = contents(tmp_path / "reference")
    for number in count(1, every):
        data = tmp_path / str(number)
        if (code := run(request(data.name), kill_at=number)) == 0:
            break
        assert code == -signal.SIGKILL
        made = {path: path.stat().st_mtime_ns for path in data.glob("films/*/*.json") if path.stem in STAGE_NAMES}
        assert run(request(data.name)) == 0, f"after a kill at write {number}"
        assert differences(contents(data), reference) == [], f"after a kill at write {number}"
        assert leftovers(data) == [], f"after a kill at write {number}"
        assert {path: path.stat().st_mtime_ns for path in made} == made, f"made twice after a kill at write {number}"
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
