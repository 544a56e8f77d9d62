"""Writing on the game page in a real Chromium: fields, words to click, free text, and what the page says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.servers.played_page import CONFIG, GradientEngine, Served, opened, play, served

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_words_of_the_training_data_are_clicked(chromium: Browser, tmp_path: Path) -> None:
    places = ("beach", "night beach", "town", "daytime town", "night sky")
    known = {"motions": ("walk", "fly on a broom"), "places": places, "about": "Only dogs & <cats>."}
    with served(tmp_path, config=CONFIG.replaced(**known)) as game, opened(chromium, game) as page:
        expect(page.get_by_text(known["about"])).to_be_visible()
        motions, places = (page.get_by_role("group", name=name) for name in ("Known motions", "Known places"))
        page.locator(".chip", has_text="Ponyo").first.click()
        motions.get_by_role("button", name="walk").click()
        motions.get_by_role("button", name="fly on a broom").click()
        expect(places.get_by_role("button")).to_have_text(["beach", "town", "night sky"])
        places.get_by_role("button", name="beach").click(click_count=2)  # the second click changes nothing
        preview = page.locator("#preview")
        expect(preview).to_have_text("Character: Ponyo; Motion: fly on a broom; Background: daytime beach.")
        pressed = [button.get_attribute("aria-pressed") for button in motions.get_by_role("button").all()]
        assert pressed == ["false", "true"]
        page.locator("#times").get_by_text("night").click()
        play(page, "walk")
        assert game.engine.seen[0][1] == "Character: Ponyo; Motion: walk; Background: night beach."
        expect(page.get_by_role("radio", name="unchanged")).to_be_checked()
        play(page, "fly on a broom")
        assert game.engine.seen[1][1] == "Character: Ponyo; Motion: fly on a broom; Background: beach."
        page.get_by_text("Free text").click()
        page.get_by_role("group", name="Insert a word").get_by_role("button", name="beach", exact=True).click()
        assert page.get_by_role("textbox", name="Instruction").input_value().endswith("beach ")


def test_the_film_stays_in_view_with_the_button_and_all_choices(
    chromium: Browser, tmp_path: Path, size: tuple[int, int]
) -> None:
    motions = tuple(f"motion {number}" for number in range(60))
    with (
        served(tmp_path, config=CONFIG.replaced(motions=motions, places=("beach", "night beach"))) as game,
        opened(chromium, game, size) as page,
    ):
        for motion in ("walk", "run", "a very long motion " * 6):
            play(page, motion)
            for name in ("#shot", "#play"):
                expect(page.locator(name)).to_be_in_viewport(ratio=0.9)
        page.locator("#times").scroll_into_view_if_needed()
        expect(page.locator("#shot")).to_be_in_viewport(ratio=0.9)
        last = page.locator("#motions button").last
        last.scroll_into_view_if_needed()
        expect(last).to_be_in_viewport()
        assert page.evaluate("strip.clientHeight") >= 90
        page.evaluate("number.textContent = 'turn 9999'")
        assert page.evaluate("edge.clientHeight") < 32, "one line"
        assert page.evaluate("motions.scrollHeight > motions.clientHeight"), "and a shadow says so"


def test_a_player_can_ask_for_a_new_shot_where_the_model_continues_the_last_one(
    chromium: Browser, tmp_path: Path
) -> None:
    shot = CONFIG.shot_decoder.model_copy(update={"continues": "place"})
    engine, box = GradientEngine(continues=True), "New shot"
    with served(tmp_path, engine, config=CONFIG.replaced(shot_decoder=shot)) as game, opened(chromium, game) as page:
        expect(page.get_by_label(box)).to_be_hidden()
        play(page, "walk")
        page.get_by_label(box).check()
        play(page, "run")
        expect(page.get_by_label(box)).not_to_be_checked()
        play(page, "jump")
        assert [state.last is not None for state, _ in engine.seen] == [False, False, True]
        assert engine.seen[2][0].last.ending_CHW.flatten().tolist() == [2.0, 2.0]
        with page.expect_response("**/turns"):
            page.get_by_role("button", name="Draw again").click()
        expect(page.locator("#takes")).to_contain_text("take 2 of 2")
        assert engine.seen[3][0].last is not None


def test_pairs_that_training_never_showed_are_marked(chromium: Browser, tmp_path: Path) -> None:
    together = {"Ponyo": ("run", "sea"), "Sosuke": ("walk", "town"), "run": ("night sea",), "walk": ("town", "sea")}
    known = {"motions": ("run", "walk", "nod"), "places": ("sea", "night sea", "town", "sky"), "together": together}
    with served(tmp_path, config=CONFIG.replaced(**known)) as game, opened(chromium, game) as page:
        marked = page.locator("#composer .unmet")
        expect(marked).to_have_count(0)
        page.locator(".chip", has_text="Ponyo").first.click()
        expect(marked).to_have_text(["walk", "town"])
        page.locator("#motions").get_by_role("button", name="walk").click()
        page.locator("#places").get_by_role("button", name="sea").click()
        expect(page.locator("#unmet")).to_contain_text("may not show: Ponyo with walk.")
        page.locator(".chip", has_text="Sosuke").first.click()
        expect(page.locator("#unmet")).to_contain_text("may not show: Sosuke with sea.")
        page.locator("#motion-text").fill("dive")
        page.locator("#background-text").fill("cave")
        expect(page.locator("#unmet")).to_be_hidden()


def test_other_words_are_understood_and_unknown_ones_named(chromium: Browser, tmp_path: Path) -> None:
    known = {"motions": ("run",), "places": ("sea", "daytime sea", "night sea"), "other_words": {"sprint": "run"}}
    with served(tmp_path, config=CONFIG.replaced(**known)) as game, opened(chromium, game) as page:
        page.get_by_text("Free text").click()
        page.locator("#free-text").fill("Ponyo sprints along the sea to a dragon")
        said = "Understood as: Ponyo · run · daytime sea. Not known here: dragon."
        expect(page.locator("#understood")).to_have_text(said)
        page.locator("#free-text").press("Enter")
        expect(page.locator("#subtitle")).to_have_text("Ponyo · run · daytime sea")
        assert game.engine.seen[0][1] == "Character: Ponyo; Motion: run; Background: daytime sea."


def test_the_length_is_shown_while_writing(chromium: Browser, game: Served) -> None:
    with opened(chromium, game) as page:
        page.locator("#motion-text").fill("walk along the shore")
        expect(page.locator("#length")).to_have_text("5 of 200 tokens")
        page.get_by_text("Free text").click()
        page.locator("#free-text").fill("word " * 201)
        expect(page.locator("#length")).to_contain_text("201 tokens, at most 200 fit")


def test_free_text_takes_over_the_fields_and_gives_them_back(chromium: Browser, game: Served) -> None:
    with opened(chromium, game) as page:
        page.locator(".chip", has_text="Ponyo").first.click()
        page.locator("#motion-text").fill("run")
        page.locator("#background-text").fill("waves")
        page.get_by_text("Free text").click()
        text = page.get_by_role("textbox", name="Instruction")
        expect(text).to_have_value("Character: Ponyo; Motion: run; Background: waves.")
        text.fill("Character: Sosuke, Gran Mamare; Motion: swim; Background: sea.")
        page.get_by_text("Fields", exact=True).click()
        expect(page.get_by_role("checkbox", name="Gran Mamare")).to_be_checked()
        expect(page.get_by_role("checkbox", name="Ponyo")).not_to_be_checked()
        assert page.locator("#background-text").input_value() == "sea"
        page.get_by_text("Free text").click()
        text.fill("He dives,")
        page.get_by_role("button", name="Ponyo").click()
        expect(text).to_have_value("He dives, Ponyo ")
        text.press("End")
        text.press("Shift+Enter")
        text.type("follows")
        text.press("Enter")
        expect(page.locator("#strip li")).to_have_count(1)
        assert game.engine.seen[0][1] == "He dives, Ponyo follows"
        expect(text).to_have_value("")
        page.reload()
        expect(page.get_by_role("radio", name="Free text")).to_be_checked()
