"""Game page in a real Chromium: played by pointer and keyboard, hostile text, reduced motion, contrast."""

from __future__ import annotations

import re
from pathlib import Path

import av
import pytest
from playwright.sync_api import Browser, Request, Route, expect

from tests.support.servers.chromium import wait_until
from tests.support.servers.played_page import CAST, CONTRASTS, SIZES, Served, meter, opened, play, served

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def late(route: Route, milliseconds: int) -> None:
    """Let a request through after a while."""
    route.request.frame.page.wait_for_timeout(milliseconds)
    route.continue_()


def test_a_game_from_the_first_choice_to_the_film(
    chromium: Browser, game: Served, size: tuple[int, int], tmp_path: Path
) -> None:
    with opened(chromium, game, size) as page:
        expect(page.get_by_role("heading", name="Say what happens")).to_be_visible()
        for name in ("Qiqi", "Kiki & Jiji"):
            page.locator(".chip", has_text=name).first.click()
        page.get_by_label("Another character's name").fill("Totoro")
        page.get_by_label("Background").fill("beach at dusk")
        play(page, "hug level 4")

        instruction = "Character: Qiqi, Kiki & Jiji, Totoro; Motion: hug level 4; Background: beach at dusk."
        assert game.engine.seen[0][1] == instruction
        expect(page.get_by_role("img", name="Motion level 4 of 5")).to_be_visible()
        expect(page.locator("#subtitle")).to_have_text("Qiqi, Kiki & Jiji, Totoro · hug level 4 · beach at dusk")
        assert [meter(page, name) for name in ("Stamina", "Social", "Entertainment")] == ["45", "55", "50"]
        assert page.locator(".change").all_inner_texts() == ["−5", "+5", ""]
        assert page.evaluate("shot.muted && shot.loop && shot.playsInline")
        wait_until(page, "!shot.paused && shot.videoWidth === 96")  # it plays
        play(page, "sleep")
        assert (meter(page, "Stamina"), page.locator("#background-text").input_value()) == ("50", "beach at dusk")
        page.get_by_role("button", name="Keep").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Film as MP4").click()
        assert download.value.suggested_filename == "animegamer-2-turns.mp4"
        download.value.save_as(tmp_path / "film.mp4")
    with av.open(str(tmp_path / "film.mp4")) as film:
        assert sum(1 for _ in film.decode(video=0)) == 34


def test_progress_and_cancel(chromium: Browser, game: Served) -> None:
    with opened(chromium, game, SIZES["phone"]) as page:
        play(page, "walk")
        game.engine.go.clear()
        page.locator("#motion-text").fill("run")
        page.get_by_role("button", name="Play", exact=True).click()
        dial = page.get_by_role("progressbar", name="Drawing the shot")
        expect(dial).to_have_attribute("aria-valuenow", re.compile("^(49|50|51)$"))
        expect(dial).to_be_in_viewport()
        expect(page.locator("#left")).to_have_text("a moment left")
        expect(page.get_by_role("button", name="Cancel")).to_be_focused()
        page.reload()
        expect(page.get_by_role("progressbar", name="Drawing the shot")).to_be_visible()
        page.get_by_role("button", name="Cancel").press("Enter")
        expect(page.locator("#hint")).to_have_text("Cancelled. Nothing has changed.")
        expect(page.locator("#strip li")).to_have_count(1)
        assert meter(page, "Stamina") == "45"
        game.engine.go.set()
        play(page, "run")
        assert meter(page, "Stamina") == "40"


def test_the_first_frames_play_over_the_last_shot_until_the_turn_is_there(chromium: Browser, game: Served) -> None:
    with opened(chromium, game) as page:
        play(page, "walk")
        early = page.locator("#early")
        expect(early).to_be_hidden()
        game.engine.rest.clear()
        page.locator("#motion-text").fill("run")
        page.get_by_role("button", name="Play", exact=True).click()
        expect(early).to_be_visible()
        assert page.evaluate("early.naturalWidth") == 96
        expect(page.get_by_role("button", name="Cancel")).to_be_visible()
        game.engine.rest.set()
        expect(page.locator("#strip li")).to_have_count(2)
        expect(early).to_be_hidden()
        expect(page.locator("#waited")).to_have_text("first frame 0.1 s")
        expect(page.locator("#waited")).to_have_attribute("title", re.compile("95% of 2 turns .* on a brush"))
    with opened(chromium, game, motion="reduce") as page:
        game.engine.rest.clear()
        page.locator("#motion-text").fill("run")
        page.get_by_role("button", name="Play", exact=True).click()
        expect(page.locator("#part")).to_have_text("Developing the film")
        page.wait_for_timeout(300)
        expect(early := page.locator("#early")).to_be_hidden()
        assert not early.get_attribute("src")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#hint")).to_have_text("Cancelled. Nothing has changed.")


def test_a_double_click_before_the_page_is_ready_plays_once(chromium: Browser, game: Served) -> None:
    wait = {"GET": 400, "POST": 900}
    routes = {"**/api/*": lambda route: late(route, wait[route.request.method])}
    with opened(chromium, game, routes=routes) as page:
        sent: list[Request] = []
        page.on("request", lambda request: sent.append(request))
        page.locator("#motion-text").fill("walk")
        page.get_by_role("button", name="Play", exact=True).dblclick()
        expect(page.locator("#strip li")).to_have_count(1)
        expect(page.locator("#complaint")).to_be_hidden()
        made = [request.url.rpartition("/")[2] for request in sent if request.method == "POST"]
        assert [name for name in made if name != "readings"] == ["games", "turns"]


def test_two_pages_of_one_game(chromium: Browser, game: Served) -> None:
    with opened(chromium, game) as one:
        play(one, "walk")
        with opened(chromium, game, place=one.url.removeprefix(game.address)) as two:
            expect(two.locator("#strip li")).to_have_count(1)
            game.engine.go.clear()
            one.locator("#motion-text").fill("run")
            one.locator("#motion-text").press("Enter")
            expect(one.locator("#leader")).to_be_visible()
            two.locator("#motion-text").fill("swim")
            two.locator("#motion-text").press("Enter")
            expect(two.get_by_role("alert")).to_contain_text("being drawn already")
            game.engine.go.set()
            for page in (one, two):
                expect(page.locator("#strip li")).to_have_count(2)
                expect(page.locator("#complaint")).to_be_hidden()
            expect(two.locator("#motion-text")).to_have_value("swim")
            play(one, "sleep")
            two.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            expect(two.locator("#strip li")).to_have_count(3)


def test_a_late_reply_does_not_change_another_view(chromium: Browser, game: Served) -> None:
    held: list[Route] = []

    def hold_run(route: Route) -> None:
        held.append(route) if "run" in str(route.request.post_data) else route.continue_()

    with opened(chromium, game, routes={"**/turns": hold_run}) as page:
        play(page, "walk")
        page.locator("#motion-text").fill("run")
        with page.expect_request("**/turns"):
            page.locator("#motion-text").press("Enter")
        page.get_by_role("button", name="New game").click()
        with page.expect_response("**/turns"):
            held[0].continue_()
        page.wait_for_timeout(200)
        expect(page.locator("#leader, #complaint").filter(visible=True)).to_have_count(0)
        page.get_by_role("link", name="1 turn").click()
        expect(page.locator("#strip li")).to_have_count(2)


def test_a_lost_end_of_a_drawing_is_recovered(chromium: Browser, game: Served) -> None:
    none = {"content_type": "text/event-stream", "body": 'data: {"status": "none"}\n\n'}
    routes = {"**/drawing": lambda route: route.fulfill(**none), "**/api/games/*": lambda route: late(route, 500)}
    with opened(chromium, game, routes=routes) as page:
        page.locator("#motion-text").fill("walk")
        page.locator("#motion-text").press("Enter")
        expect(page.locator("#strip li")).to_have_count(1)
        expect(page.locator("#complaint")).to_be_hidden()


def test_looking_back_and_branching(chromium: Browser, game: Served) -> None:
    with opened(chromium, game) as page:
        page.locator("#background-text").fill("town")
        for motion in ("walk", "hug", "sleep"):
            play(page, motion)
        expect(page.get_by_role("navigation", name="Branches")).to_be_hidden()
        page.locator("#strip button").nth(0).click()
        expect(page.locator("#looking p")).to_have_text("You look back at turn 1 of 3.")
        page.get_by_role("button", name="Back to the newest").click()
        expect(page.locator("#number")).to_have_text("turn 3")
        page.locator("#strip button").nth(0).click()
        page.get_by_role("button", name="Continue from here").click()
        expect(page.locator("#fork")).to_contain_text("A new branch begins after turn 1.")
        play(page, "play")
        branches = page.get_by_role("navigation", name="Branches").get_by_role("button")
        expect(branches).to_have_count(2)
        assert [text.split("\n")[0] for text in branches.all_inner_texts()] == ["A", "B"]
        assert page.locator("#strip .told").all_inner_texts() == ["walk · town", "play · town"]
        assert meter(page, "Entertainment") == "55"
        here = page.url
        branches.nth(0).click()
        expect(page.locator("#strip li")).to_have_count(3)
        assert (meter(page, "Entertainment"), meter(page, "Social")) == ("50", "55")
        play(page, "sing")
        assert ["hug" in text for text in branches.all_inner_texts()] == [True, False], "a branch keeps its letter"
        page.goto(here)
        page.reload()
        expect(page.locator("#strip li")).to_have_count(2)
        assert meter(page, "Entertainment") == "55"


def test_a_turn_is_drawn_again_and_takes_are_chosen_from(chromium: Browser, game: Served) -> None:
    with opened(chromium, game) as page:
        for motion in ("walk", "run"):
            play(page, motion)
        takes = page.get_by_role("group", name="Takes of this turn")
        expect(takes).to_have_text("Draw again", use_inner_text=True)
        takes.get_by_role("button", name="Draw again").click()
        expect(takes).to_contain_text("take 2 of 2")
        assert [text for _, text in game.engine.seen] == ["Motion: walk.", "Motion: run.", "Motion: run."]
        expect(page.locator("#strip li")).to_have_count(2)
        taken = page.url
        play(page, "sleep")
        page.goto(taken)
        page.reload()
        takes.get_by_role("button", name="Take before").click()
        expect(takes).to_contain_text("take 1 of 2")
        expect(takes.get_by_role("button", name="Take before")).to_be_disabled()
        play(page, "jump")
        branches = page.get_by_role("navigation", name="Branches").get_by_role("button")
        assert [text.split("\n")[-1] for text in branches.all_inner_texts()] == ["3 turns", "3 turns"]
        page.locator("#motion-text").fill("explode")
        page.get_by_role("button", name="Play", exact=True).click()
        expect(page.get_by_role("alert")).to_be_visible()


def test_reload_and_a_new_server_keep_the_game(chromium: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as game:
        port = int(game.address.rpartition(":")[2])
        context = chromium.new_context()
        page = context.new_page()
        page.goto(game.address)
        play(page, "walk")
        page.reload()
        expect(page.locator("#number")).to_have_text("turn 1")
        game.engine.go.clear()
        page.locator("#motion-text").fill("run")
        page.locator("#motion-text").press("Enter")
        expect(page.locator("#leader")).to_be_visible()
    with served(tmp_path, port=port) as game:
        expect(page.locator("#leader")).to_be_hidden(timeout=15_000)
        expect(page.locator("#strip li")).to_have_count(1)
        play(page, "run")
        assert meter(page, "Stamina") == "40"
        page.get_by_role("button", name="New game").click()
        expect(page.get_by_role("heading", name="Say what happens")).to_be_visible()
        assert meter(page, "Stamina") == "50"
        page.get_by_role("link", name="2 turns").click()
        expect(page.locator("#number")).to_have_text("turn 2")
        page.go_back()
        expect(page.get_by_role("heading", name="Say what happens")).to_be_visible()
        page.goto(f"{game.address}/#AAAAAAAAAAAAAAAAAAAAAA")
        expect(page.get_by_role("alert")).to_have_text("There is no such game here.")
    page.locator("#motion-text").fill("fly")
    page.locator("#motion-text").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("server does not answer")
    context.close()


def test_faults_are_shown_at_the_field(chromium: Browser, game: Served) -> None:
    with opened(chromium, game) as page:
        page.get_by_role("button", name="Play", exact=True).click()
        expect(page.get_by_role("alert")).to_have_text("Say under Motion what happens.")
        expect(page.locator("#motion-text")).to_be_focused()
        expect(page.locator("#motion-text")).to_have_attribute("aria-invalid", "true")
        play(page, "walk")
        expect(page.locator("#complaint")).to_be_hidden()
        page.get_by_text("Free text").click()
        faults = {"": "The instruction is empty", "word " * 300: "at most 200 fit", "explode": "memory <b>now</b>"}
        for text, words in faults.items():
            page.locator("#free-text").fill(text)
            page.get_by_role("button", name="Play", exact=True).click()
            expect(page.get_by_role("alert")).to_contain_text(words)
            expect(page.locator("#free-text")).to_have_value(text)
        expect(page.locator("#strip li")).to_have_count(1)


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


FOCUSED = """
[document.activeElement, document.activeElement.nextElementSibling]
  .some((e) => e && getComputedStyle(e).outlineStyle === 'solid')
  && (document.activeElement.id || document.activeElement.value)
"""
"""Focused element, false without a visible outline."""


def test_the_keyboard_plays_a_whole_turn_with_visible_focus(chromium: Browser, game: Served) -> None:
    with opened(chromium, game) as page:
        expect(page.get_by_role("checkbox", name="Qiqi")).to_be_attached()
        page.keyboard.press("Tab")  # the name of the game
        seen = []
        for _ in range(9):
            page.keyboard.press("Tab")
            seen.append(page.evaluate(FOCUSED))
            if seen[-1] == "Ponyo":
                page.keyboard.press("Space")
            if seen[-1] == "motion-text":
                page.keyboard.type("jump")
        assert seen == ["keep", "fields", *CAST, "someone", "motion-text", "background-text"]
        page.keyboard.press("Enter")
        expect(page.locator("#strip li")).to_have_count(1)
        assert game.engine.seen[0][1] == "Character: Ponyo; Motion: jump."
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, a, input, textarea, video')].filter(e => e.checkVisibility() && "
            "!(e.labels?.length || e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)"
        )
        assert unnamed == []


def test_text_has_contrast_and_reduced_motion_is_respected(chromium: Browser, game: Served) -> None:
    with opened(chromium, game, motion="reduce") as page:
        play(page, "walk")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            contrasts = page.evaluate(CONTRASTS)
            assert len(contrasts) > 15
            assert {words: contrast for words, contrast in contrasts if contrast < 4.5} == {}
        assert page.evaluate("shot.paused"), "the video does not start by itself"
        page.get_by_role("button", name="Play the shot").click()
        expect(page.get_by_role("button", name="Pause the shot")).to_be_visible()
