"""Films that are cut again: the build first says how many captions and reviews still match."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from examples.world.barcode import paint_stripes
from pipeline.core.progress import Unwatched, watcher
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import draft_plan
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.reviews.decisions import REVIEW_FILE, append_decisions
from tests.support.builds.rebuilt_films import redone, request_for
from tests.support.datasets.built_dataset import SMALL
from tests.support.media.films import make_film
from tests.support.records import decision
from tests.support.servers.caption_server import CaptionServer, good_answer

pytestmark = pytest.mark.slow


@dataclass
class Listener(Unwatched):
    """Watcher that keeps each line, with the questions sent and the clip files on disk when it was said."""

    server: CaptionServer
    clips: Path
    said: list[tuple[str, int, int]] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.said.append((line, len(self.server.requests), len(list(self.clips.glob("*.mp4")))))


def test_a_film_that_is_cut_again_first_says_what_still_matches(tmp_path: Path) -> None:
    film = make_film(
        tmp_path / "film.mp4",
        frames=200,
        size=(360, 240),
        barcode=False,
        paint=lambda _, picture: paint_stripes(picture, 1),
    )
    with CaptionServer(good_answer) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model"}

        def requested(seconds: float) -> BuildRequest:
            return request_for(
                film, out=tmp_path / "data", captions=captions, clips={**SMALL["clips"], "seconds": seconds}
            )

        redone(requested(2.0))
        (folder,) = Dataset(tmp_path / "data").folders()
        starts, content = (0.083, 2.083, 2.1, 4.083, 60.0), folder.film.sha256
        reviews = [
            decision("MD", "run", film_sha256=content, start_seconds=start, end_seconds=start + 2) for start in starts
        ]
        append_decisions(tmp_path / "data" / REVIEW_FILE, reviews)

        def cut_again(seconds: float) -> tuple[str, list[tuple[str, int, int]]]:
            """Cut again; return the notice of the plan, and what the build has said."""
            (folder.path / "cut.json").unlink()
            request = requested(seconds)
            notices = draft_plan(request, Workspace(request.out, tmp_path / "scratch")).notices
            token = watcher.set(listener := Listener(server, folder.path / "clips"))
            try:
                redone(request)
            finally:
                watcher.reset(token)
            return next(notice for notice in notices if "cut again" in notice), listener.said

        notice = "film.mp4 will be cut again; it has 4 captions and 4 reviews"
        needs = "still match; a caption needs the same clip, a review 90% of its time"
        assert cut_again(2.0) == (
            notice,
            [(f"film.mp4 is cut again: 4 of 4 captions and 4 of 4 reviews {needs}", 4, 4)],
        )
        # clips 2 and 3 start 0.125 s and 0.25 s later, and clip 4 is no more
        assert cut_again(2.125) == (
            notice,
            [(f"film.mp4 is cut again: 1 of 4 captions and 3 of 4 reviews {needs}", 4, 6)],
        )
        assert len(server.requests) == 6, "only clips that moved are asked about"
