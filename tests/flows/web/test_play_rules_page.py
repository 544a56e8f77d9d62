"""Game under rules in a real Chromium: suggestions, wishes, a tired character, the end, and playing on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from flows.web.rules import SHIPPED, Rules, read_rules
from models.config import ModelConfig
from models.shipped import PACKED
from tests.support.servers.chromium import wait_until
from tests.support.servers.played_page import CONTRASTS, Served, opened, served

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CONFIG = ModelConfig.read(PACKED)
HOSTILE, WISHED = "<b>Bo</b>b", "to <i>wave</i>"


@contextmanager
def ruled(folder: Path, config: ModelConfig = CONFIG, **changed: object) -> Iterator[Served]:
    rules = Rules.model_validate({**read_rules(SHIPPED).model_dump(), **changed})
    with served(folder, config=config, rules=rules) as game:
        yield game


def turns(page: Page, number: int) -> None:
    """Wait until a branch has so many turns and the page is ready for the next one."""
    expect(page.locator("#strip li")).to_have_count(number)
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_enabled()


def test_a_story_from_a_suggestion_to_its_end_and_on(chromium: Browser, tmp_path: Path, size: tuple[int, int]) -> None:
    with (
        ruled(tmp_path, turns=3, wishes=[{"wants": WISHED, "motion": "wave"}]) as game,
        opened(chromium, game, size) as page,
    ):
        suggestions = page.get_by_role("group", name="Suggestions").get_by_role("button")
        expect(suggestions).to_have_count(3)
        expect(page.locator("#card")).to_contain_text("A story of 3 turns")
        expect(page.locator("#values")).to_be_hidden()
        other = suggestions.filter(has_not_text="wave").last  # a motion that just was is not suggested for a wish
        chosen = other.locator(".told").inner_text()
        other.click()
        turns(page, 1)
        expect(page.locator("#subtitle")).to_have_text(chosen)
        actor = re.split("[,·]", chosen)[0].strip()
        card = page.locator(".person.shown").first
        expect(card).to_contain_text(actor)
        expect(page.get_by_role("meter", name=f"stamina of {actor}")).to_have_attribute(
            "aria-valuenow", re.compile(r"\d")
        )
        wishes = page.get_by_role("list", name="Wishes").get_by_role("listitem")
        expect(wishes.last).to_contain_text(f"wants {WISHED}")
        for place in ("#shot", "#play", "#surprise"):
            expect(page.locator(place)).to_be_in_viewport(ratio=0.9)
        page.locator("#play").focus()
        expect(suggestions.first).to_contain_text("'s wish")
        page.keyboard.press("1")
        page.keyboard.press("1")
        turns(page, 2)
        expect(page.locator("#branches")).to_be_hidden()  # two quick presses play one turn
        expect(wishes.first).to_contain_text("came true")
        expect(page.locator("#granted-now")).to_contain_text(f"wants {WISHED}")
        expect(page.locator("#strip li").last).to_contain_text("a wish came true")
        page.get_by_role("button", name="Surprise me").click()
        end = page.get_by_role("region", name="The end")
        expect(end).to_contain_text("3 turns")
        expect(page.locator("#fields")).to_be_hidden()
        page.keyboard.press("1")
        expect(page.locator("#strip li")).to_have_count(3)  # nothing is played by a key at the end
        end.get_by_role("button", name="Watch the film").click()
        wait_until(page, "!shot.loop && shot.duration > 5")
        expect(page.locator("#subtitle")).to_have_text("The film of your game")
        page.reload()
        end.get_by_role("button", name="Play on").click()
        expect(end).to_be_hidden()
        suggestions.first.click()
        turns(page, 4)
        expect(end).to_be_hidden()
        page.locator("#strip button").nth(2).click()
        expect(end).to_be_hidden()  # the story went on
        page.get_by_role("button", name="New game").click()
        expect(page.locator(".person")).to_have_count(0)
        expect(suggestions).to_have_count(3)


def test_two_pages_of_one_story_share_values_wishes_and_its_end(chromium: Browser, tmp_path: Path) -> None:
    wave = [{"wants": WISHED, "motion": "wave"}]
    with ruled(tmp_path, turns=2, wishes=wave) as game, opened(chromium, game) as one:
        one.get_by_role("group", name="Suggestions").get_by_role("button").filter(has_not_text="wave").last.click()
        turns(one, 1)
        with opened(chromium, game, place=one.url.removeprefix(game.address)) as two:
            turns(two, 1)
            for page in (one, two):
                expect(page.locator("#suggestions button").first).to_contain_text("'s wish")
            game.engine.go.clear()
            one.locator("#suggestions button").first.click()
            expect(one.locator("#leader")).to_be_visible()
            two.locator("#surprise").click()
            expect(two.get_by_role("alert")).to_contain_text("being drawn already")
            game.engine.go.set()
            for page in (one, two):
                expect(page.locator("#strip li")).to_have_count(2)
                expect(page.locator("#granted li.granted")).to_contain_text(f"wants {WISHED}")
                expect(page.locator("#complaint")).to_be_hidden()
            assert one.locator("#people").inner_text() == two.locator("#people").inner_text()
            one.get_by_role("button", name="Play on").click()
            expect(two.get_by_role("region", name="The end")).to_be_visible()
            one.locator("#surprise").click()
            turns(one, 3)
            two.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            turns(two, 3)
            expect(two.get_by_role("region", name="The end")).to_be_hidden()


def name(page: Page, character: str, wanted: bool) -> None:
    """Name a character, or not, by its chip, once the page has stopped moving."""
    box = page.get_by_role("checkbox", name=character)
    if box.is_checked() != wanted:
        page.locator("label").filter(has=box).click()
    expect(box).to_be_checked(checked=wanted)


def test_hugs_of_one_character_and_runs_of_two_are_marked(chromium: Browser, tmp_path: Path) -> None:
    with ruled(tmp_path) as game, opened(chromium, game) as page:
        hug, run = (page.locator("#motions").get_by_role("button", name=name, exact=True) for name in ("hug", "run"))
        said = page.locator("#unmet")
        name(page, "Haru", True)
        expect(hug).to_have_class(re.compile("unmet"))
        hug.click()
        expect(said).to_have_text("It takes two to hug: one character alone may be drawn twice.")
        name(page, "Mika", True)
        expect(hug).not_to_have_class(re.compile("unmet"))
        expect(said).to_be_hidden()
        run.click()
        expect(run).to_have_class(re.compile("unmet"))
        expect(said).to_have_text("Characters run alone: a second one may not show.")
        hug.click()
        page.locator("#places").get_by_role("button", name="meadow").click()
        page.get_by_role("button", name="Play", exact=True).click()
        turns(page, 1)
        name(page, "Haru", False)
        name(page, "Mika", False)
        expect(hug).not_to_have_class(re.compile("unmet"))  # both stay in the picture


def test_a_tired_character_is_marked_and_does_something_else(chromium: Browser, tmp_path: Path) -> None:
    with ruled(tmp_path, CONFIG.replaced(other_words={}), wishes=[]) as game, opened(chromium, game) as page:
        for number in (1, 2):
            name(page, "Haru", True)
            page.locator("#motions").get_by_role("button", name="run", exact=True).click()
            page.locator("#places").get_by_role("button", name="beach", exact=True).click()
            page.get_by_role("button", name="Play", exact=True).click()
            turns(page, number)
        run = page.locator("#motions").get_by_role("button", name="run", exact=True)
        expect(run).to_have_class(re.compile("hindered"))
        run.click()
        said = "Haru is too tired to run: stamina is 12, and 25 is needed."
        expect(page.locator("#hindrance")).to_contain_text(said)
        page.get_by_role("button", name="Play", exact=True).click()
        turns(page, 3)
        expect(page.locator("#subtitle")).to_contain_text("Haru · walk")
        expect(page.locator("#hint")).to_contain_text(said)
        name(page, "Haru", False)
        expect(page.locator("#hint")).to_be_empty()  # read, and the player writes the next turn
        page.get_by_label("Another character's name").fill(HOSTILE)
        page.locator("#motions").get_by_role("button", name="wave", exact=True).click()
        page.get_by_role("button", name="Play", exact=True).click()
        turns(page, 4)
        expect(page.locator(".person.shown")).to_contain_text(HOSTILE)
        assert page.locator("#people b b").count() == 0
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert {words: contrast for words, contrast in page.evaluate(CONTRASTS) if contrast < 4.5} == {}
