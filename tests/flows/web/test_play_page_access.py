"""Access to the game page in a real Chromium: hostile text, keyboard, reduced motion, contrast."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.support.servers.played_page import CAST, CONTRASTS, SIZES, Served, opened, play

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "<img src=x onerror=alert(1)></span><script>document.title='owned'</script> 🏃‍♀️ &amp; " + "M" * 300


def test_hostile_text_is_shown_as_text(chromium: Browser, game: Served) -> None:
    with opened(chromium, game, SIZES["phone"]) as page:
        page.get_by_label("Another character's name").fill(HOSTILE[:150])
        page.get_by_label("Another character's name").press("Enter")
        play(page, "walk")
        page.get_by_text("Free text").click()
        page.locator("#free-text").fill(HOSTILE)
        page.locator("#free-text").press("Enter")
        expect(page.locator("#strip li")).to_have_count(2)
        assert "<img src=x" in page.locator("#subtitle").inner_text()
        assert game.engine.seen[1][1] == HOSTILE
        assert page.locator("img[src=x]").count() == 0
        assert page.locator("script").count() == 1
        assert page.title().startswith("2. <img src=x")
        page.get_by_role("button", name="New game").click()
        expect(page.get_by_role("link", name="2 turns")).to_be_visible()


def test_the_keyboard_plays_a_whole_turn_with_visible_focus(chromium: Browser, game: Served) -> None:
    with opened(chromium, game) as page:
        expect(page.get_by_role("checkbox", name="Qiqi")).to_be_attached()
        page.keyboard.press("Tab")  # the name of the game
        seen = []
        for _ in range(8):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate(
                    "[document.activeElement.id || document.activeElement.value, "
                    "[document.activeElement, document.activeElement.nextElementSibling]"
                    ".some(e => e && getComputedStyle(e).outlineStyle === 'solid')]"
                )
            )
            if seen[-1][0] == "Ponyo":
                page.keyboard.press("Space")
            if seen[-1][0] == "motion-text":
                page.keyboard.type("jump")
        assert [name for name, _ in seen] == ["fields", *CAST, "someone", "motion-text", "background-text"]
        assert all(outlined for _, outlined in seen)
        page.keyboard.press("Enter")
        expect(page.locator("#strip li")).to_have_count(1)
        assert game.engine.seen[0][1] == "Character: Ponyo; Motion: jump."
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, a, input, textarea, video')].filter(e => e.checkVisibility() && "
            "!(e.labels?.length || e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)"
        )
        assert unnamed == []


def test_reduced_motion_is_respected(chromium: Browser, game: Served) -> None:
    with opened(chromium, game, motion="reduce") as page:
        play(page, "walk")
        assert page.evaluate("getComputedStyle(document.querySelector('.value i')).transitionDuration") == "0s"
        assert page.evaluate("shot.paused"), "the video does not start by itself"
        page.get_by_role("button", name="Play the shot").click()
        expect(page.get_by_role("button", name="Pause the shot")).to_be_visible()
        assert not page.evaluate("shot.paused")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_light_and_dark(chromium: Browser, game: Served, scheme: str) -> None:
    context = chromium.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(game.address)
    play(page, "walk")
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 15
    assert {words: contrast for words, contrast in contrasts if contrast < 4.5} == {}
    context.close()
