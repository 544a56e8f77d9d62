"""Review page served on loopback from this process, over a dataset with known captions and small clips.

`reviewing` serves it; `opened` of `played_page` opens it in a browser; `in_time_order` goes to the first clip there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from benchmarks.review_dataset import write_dataset
from flows.web.page_server import PageServer
from flows.web.review_app import make_app
from flows.web.review_clips import ReviewedClips, ReviewTask
from pipeline.core.store import Dataset
from pipeline.reviews.clips import reviewable
from pipeline.reviews.decisions import Decision, Value, append_decisions, read_decisions
from tests.support.servers.played_page import serving
from tests.support.shared_folders import shared_folder

if TYPE_CHECKING:
    from playwright.sync_api import Page

SMALL = (64, 96)


@dataclass
class Reviewed:
    """Running review page."""

    address: str
    dataset: Dataset
    task: ReviewTask

    @property
    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, verify=False)

    @property
    def ids(self) -> list[str]:
        """Ids of all clips in time order."""
        return [clip.clip_id for clip in reviewable(self.dataset, self.task.file)]

    def lines(self) -> list[tuple[str, str, Value | str]]:
        """Reviewer, field and value of every line of the file, in order."""
        found = read_decisions(self.task.file)
        assert found.faults == ()
        return [(line.reviewer, line.field, "withdrawn" if line.withdraws else line.value) for line in found.decisions]


def small_dataset(clips: int = 60) -> Dataset:
    """Dataset of one film, shared by the tests of a run: write decisions elsewhere."""
    return Dataset(shared_folder(f"review-{clips}", lambda root: write_dataset(root, clips, 1, SMALL)))


@contextmanager
def reviewing(
    folder: Path,
    dataset: Dataset | None = None,
    *,
    reviewer: str = "anna",
    clip_ids: Sequence[str] | None = None,
    blind: bool = False,
    port: int = 0,
) -> Iterator[Reviewed]:
    """Serve the page on a free port; decisions go to `review.jsonl` in the folder."""
    dataset = dataset or small_dataset()
    task = ReviewTask(folder / "review.jsonl", reviewer, clip_ids, blind)
    with serving(PageServer(make_app(ReviewedClips(dataset, task)), lambda: None), port) as address:
        yield Reviewed(address, dataset, task)


def decide(page: Reviewed, place: int, reviewer: str, field: str, value: Value) -> None:
    """Append a decision of another reviewer about the clip at this place of the film, as another process would."""
    clip = reviewable(page.dataset, page.task.file)[place]
    decision = Decision.model_validate(
        {
            "time": "2026-11-22T10:11:12.345Z",
            "reviewer": reviewer,
            "film_sha256": clip.film_sha256,
            "start_seconds": clip.start_seconds,
            "end_seconds": clip.end_seconds,
            "field": field,
            "value": value,
        }
    )
    append_decisions(page.task.file, [decision])


def in_time_order(page: Page) -> None:
    """Show all clips from the first one on, with the keys on the grid."""
    from playwright.sync_api import expect  # tests over HTTP need no playwright

    expect(page.locator(".tile.current")).to_be_visible()  # before that, the page does not listen
    page.locator("#order").select_option("time")
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    expect(page.locator("#grid")).to_be_focused()


def saved(page: Page) -> None:
    """Wait until the page shows that every decision is on the server's disk."""
    from playwright.sync_api import expect

    expect(page.locator("#saved")).to_have_text("saved")
