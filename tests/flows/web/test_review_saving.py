"""Saving of the review page in a real Chromium: decisions on their way to the server, through failures of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.servers.reviewed_page import Reviewed, in_time_order, reviewing, saved

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_failure_is_shown_and_nothing_is_lost(chromium: Browser, review: Reviewed) -> None:
    room = threading.Event()
    full = {"status": 507, "json": {"message": "The disk is full: make room there, then save again."}}
    page = chromium.new_context().new_page()  # `opened` takes a reply of 507 for a fault
    page.route("**/api/decisions", lambda route: route.continue_() if room.is_set() else route.fulfill(**full))
    page.goto(review.address)
    in_time_order(page)
    for key in ("i", "ArrowRight", "x"):
        page.keyboard.press(key)
    expect(page.locator("#saved")).to_have_text(
        "2 decisions not saved. The disk is full: make room there, then save again."
    )
    expect(page.locator("#retry")).to_be_visible()
    assert review.lines() == []
    page.once("dialog", lambda dialog: dialog.accept())
    page.reload()
    expect(page.locator("#saved")).to_contain_text("2 decisions not saved")
    room.set()
    page.locator("#retry").click()
    saved(page)
    assert review.lines() == [("anna", "SC", 1), ("anna", "keep", False)]
    page.context.close()


def test_discarding_a_refused_decision_keeps_the_others(chromium: Browser, review: Reviewed) -> None:
    reached = threading.Event()
    page = chromium.new_context().new_page()  # `opened` takes a request that fails for a fault
    page.route("**/api/decisions", lambda route: route.continue_() if reached.is_set() else route.abort())
    page.goto(review.address)
    in_time_order(page)
    for key in ("i", "x", "f"):
        page.keyboard.press(key)
    expect(page.locator("#saved")).to_contain_text("3 decisions not saved")
    page.evaluate("""() => {
        const [key] = Object.keys(localStorage).filter((one) => one.startsWith("unsaved") && one.endsWith(" keep"));
        const kept = JSON.parse(localStorage.getItem(key));
        kept.change.value = "neither";
        localStorage.setItem(key, JSON.stringify(kept));
    }""")
    reached.set()
    page.once("dialog", lambda dialog: dialog.accept())
    page.reload()
    expect(page.locator("#saved")).to_contain_text("2 decisions not saved")
    page.locator("#discard").click()
    saved(page)
    assert review.lines() == [("anna", "SC", 1), ("anna", "ET", 1)]
    page.context.close()


def test_two_tabs_of_a_reviewer_lose_nothing_and_the_later_decision_counts(chromium: Browser, review: Reviewed) -> None:
    with chromium.new_context() as context:  # `opened` takes a request that fails for a fault
        early, late = context.new_page(), context.new_page()
        early.route("**/api/decisions", lambda route: route.abort())
        for page in (early, late):
            page.goto(review.address)
            in_time_order(page)
        for key in ("x", "i", "ArrowRight", "x"):
            early.keyboard.press(key)
        expect(early.locator("#saved")).to_contain_text("3 decisions not saved")
        late.keyboard.press("k")
        saved(late)
        assert review.lines() == [("anna", "keep", True)], "of the clip that the other tab drops"
        early.locator("#retry").click()
        expect(early.locator("#saved")).to_contain_text("2 decisions not saved")
        early.close()
        after = context.new_page()
        after.goto(review.address)
        saved(after)
        assert review.lines() == [("anna", "keep", True), ("anna", "SC", 1), ("anna", "keep", False)]


def test_a_new_server_takes_what_the_killed_one_did_not(chromium: Browser, tmp_path: Path) -> None:
    with reviewing(tmp_path) as review:
        port = int(review.address.rpartition(":")[2])
        context = chromium.new_context()
        page = context.new_page()
        page.goto(review.address)
        in_time_order(page)
    page.keyboard.press("x")
    expect(page.locator("#saved")).to_contain_text("The server does not answer")
    with reviewing(tmp_path, port=port) as review:
        page.locator("#retry").click()
        saved(page)
        assert review.lines() == [("anna", "keep", False)]
    context.close()
