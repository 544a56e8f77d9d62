"""Menu to keep a game, and the crossfade between turns in one place, in a real Chromium."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.servers.chromium import wait_until
from tests.support.servers.played_page import SIZES, Served, opened, play

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_game_is_saved_and_opened_and_its_film_taken_with_captions(
    chromium: Browser, game: Served, tmp_path: Path
) -> None:
    with opened(chromium, game, SIZES["phone"]) as page:
        keep = page.get_by_role("button", name="Keep")
        keep.click()
        expect(page.get_by_role("button", name="Save game")).to_be_disabled()
        page.keyboard.press("Escape")
        play(page, "walk")
        keep.click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save game").click()
        download.value.save_as(tmp_path / download.value.suggested_filename)
        page.get_by_label("Captions in the film").check()
        with page.expect_download() as download:
            page.get_by_role("button", name="Film as GIF").click()
        assert download.value.suggested_filename == "animegamer-1-turn.gif"
        expect(page.locator("#kept")).to_have_text("The film is made.")
        menu = page.locator("#keeping").bounding_box()
        assert menu
        assert menu["x"] >= 0
        assert menu["x"] + menu["width"] <= SIZES["phone"][0]
        one = page.url
        (tmp_path / "holiday.animegame").write_bytes(b"no game")
        page.get_by_label("Open game").set_input_files(tmp_path / "holiday.animegame")
        expect(page.locator("#kept")).to_contain_text("no saved game")
        page.get_by_label("Open game").set_input_files(tmp_path / "animegamer-1-turn.animegame")
        expect(page.locator("#keeping")).to_be_hidden()
        wait_until(page, f"location.href !== {json.dumps(one)} && location.hash.length > 20")
        expect(page.locator("#strip li")).to_have_count(1)
        play(page, "run")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_turns_in_one_place_fade_into_each_other(chromium: Browser, game: Served, motion: str) -> None:
    with opened(chromium, game, motion=motion) as page:
        for place, text in (("beach", "walk"), ("beach", "run"), ("shrine", "sleep")):
            page.get_by_label("Background").fill(place)
            play(page, text)
        page.evaluate("window.faded = []; addEventListener('animationstart', (event) => faded.push(event.target.id))")
        for number in (1, 2, 3):
            page.locator("#strip button").nth(number - 1).click()
            wait_until(page, "document.getElementById('shot').readyState >= 2")
            wait_until(page, "document.getElementById('before').hidden")
        assert page.evaluate("faded") == ([] if motion == "reduce" else ["shot"])
        assert page.evaluate("getComputedStyle(document.getElementById('shot')).opacity") == "1"
