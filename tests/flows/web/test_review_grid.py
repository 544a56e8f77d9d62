"""Grid of the review page in a real Chromium: few nodes, videos and requests, and pictures for every clip in view."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.support.servers.chromium import wait_for, wait_until
from tests.support.servers.played_page import opened
from tests.support.servers.reviewed_page import reviewing, small_dataset

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PICTURES_SHOWN = """
[...document.querySelectorAll(".tile:not([hidden]) video")].every((video) => !video.hidden && video.readyState >= 2)
"""
SCROLL_ON = """
async () => {
  const counts = [];
  for (let place = 0; place < 12; place++) {
    grid.scrollTop = (place / 12) * grid.scrollHeight;
    grid.dispatchEvent(new Event("scroll"));
    counts.push([document.querySelectorAll("*").length, document.querySelectorAll("video").length]);
    await new Promise((next) => setTimeout(next));  // requests go out; due before the grid's rest, however slow all is
  }
  return counts;
}
"""
"""Scrolls by twelfths without a rest, and gives nodes and videos at each."""
SCROLL_TO_ROW = "row => { grid.scrollTop = row * document.querySelector('.tile').offsetHeight; }"


def test_nodes_videos_and_requests_are_bounded(chromium: Browser, tmp_path: Path) -> None:
    with reviewing(tmp_path, small_dataset(3000)) as review, opened(chromium, review) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if request.url.endswith(".mp4") else None)
        expect(page.locator(".tile:visible").first).to_be_visible()
        wait_until(page, PICTURES_SHOWN)
        counts = page.evaluate(SCROLL_ON)
        wait_until(page, PICTURES_SHOWN)
        assert max(nodes for nodes, _ in counts) < 1200
        assert max(videos for _, videos in counts) < 60
        assert len(asked) < 100, "tiles that were scrolled past ask for nothing"
        page.locator("#level").select_option("3")
        page.keyboard.press("Escape")
        page.keyboard.press("End")
        wait_until(page, "document.querySelector('.tile.current video').readyState >= 2")
        assert page.evaluate("document.querySelectorAll('*').length") < 1200


@pytest.mark.parametrize("way", ["filter", "scroll"])
def test_clips_get_pictures_when_all_that_were_loading_go_out_of_view(
    chromium: Browser, tmp_path: Path, way: str
) -> None:
    held: list[Route] = []
    slow = threading.Event()

    def reply(route: Route) -> None:
        if slow.is_set() and len(held) < 4:
            held.append(route)
        else:
            route.continue_()

    with (
        reviewing(tmp_path, small_dataset(3000)) as review,
        opened(chromium, review, routes={"**/*.mp4": reply}) as page,
    ):
        expect(page.locator(".tile:visible").first).to_be_visible()
        page.evaluate(SCROLL_TO_ROW, 5)
        wait_until(page, PICTURES_SHOWN)
        slow.set()
        page.evaluate(SCROLL_TO_ROW, 10)
        wait_for(page, lambda: len(held) == 4, "as many videos as load at once")
        if way == "filter":
            page.locator("#text").fill("swim sea slowly")
            expect(page.locator(".tile:visible")).to_have_count(6)
            page.keyboard.press("Escape")
            page.keyboard.press("End")
            expect(page.locator(".tile.current")).to_be_visible()
        else:
            page.evaluate(SCROLL_TO_ROW, 100)  # other clips in the tiles that were loading
        wait_until(page, PICTURES_SHOWN)
