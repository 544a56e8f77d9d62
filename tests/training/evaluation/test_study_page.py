"""Study page opened from disk in a real Chromium: orders, ranking by keys and touch, reload, CSV, hostile text."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.painted_games import AGENTS, painted_evaluation
from tests.support.servers.chromium import wait_until
from tests.support.servers.played_page import CONTRASTS, SIZES
from training.evaluation.study import CRITERIA, Study, read_answers, write_study

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = (
    "</script><img src=x onerror=alert(1)></li><script>document.title='owned'</script>\u202e =1+1 &amp; 🏃" + "M" * 300
)


@contextmanager
def study_page(
    chromium: Browser, folder: Path, query: str = "?participant=3", size: str = "desk", motion: str = "reduce"
) -> Iterator[Page]:
    """Open the page from disk; on exit, check that nothing failed and nothing outside the folder was asked for."""
    width, height = SIZES[size]
    context = chromium.new_context(viewport={"width": width, "height": height}, reduced_motion=motion)  # type: ignore[arg-type]
    page, faults, root = context.new_page(), [], folder.resolve().as_uri()
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith((root, "data:", "blob:")) or faults.append(asked.url))
    page.goto(f"{root}/index.html{query}")
    yield page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the window"
    context.close()
    assert faults == []


def save(page: Page, path: Path) -> list[list[str]]:
    """Press the button that saves, and return the rows of the file."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Save answers").click()
    assert download.value.suggested_filename == "answers-3.csv"
    download.value.save_as(path)
    return list(csv.reader(path.read_text().splitlines()))


def shown_films(page: Page) -> list[str]:
    return [str(source).removeprefix("films/").removesuffix(".mp4")
            for source in page.locator("video").evaluate_all("all => all.map(e => e.getAttribute('src'))")]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ranking"


@pytest.fixture
def study(tmp_path: Path, folder: Path) -> Study:
    return write_study(painted_evaluation(tmp_path), folder)


def test_a_whole_study_is_ranked_by_keys_and_the_saved_file_is_read_back(
    chromium: Browser, folder: Path, study: Study, tmp_path: Path
) -> None:
    orders = ("dba", "ABC", "cab", "bda", "acd", "dcb")
    with study_page(chromium, folder) as page:
        for number, game in enumerate(study.games_of(3)):
            expect(page.locator("#title")).to_have_text(f"Game {number + 1} of 2")
            assert shown_films(page) == [study.games[game][agent] for agent in study.shown(3, game)]
            for keys in orders:
                for key in keys:
                    page.keyboard.press(key)
                page.keyboard.press("Enter")
        expect(page.locator("#progress")).to_contain_text("All games ranked.")
        rows = save(page, tmp_path / "answers-3.csv")
    assert len(rows) == 13
    answers = read_answers(study, [tmp_path / "answers-3.csv"])
    assert len(answers) == 12
    for answer in answers:
        letters = "".join("ABCD"[answer.shown.index(agent)] for agent in answer.order)
        expected = dict(zip([each.name for each in CRITERIA], orders, strict=True))[answer.criterion].upper()
        assert letters[:3] == expected


def test_another_participant_sees_another_order_and_a_wrong_number_is_asked_again(
    chromium: Browser, folder: Path, study: Study
) -> None:
    with study_page(chromium, folder) as page:
        third = shown_films(page)
    with study_page(chromium, folder, "?participant=4") as page:
        game = study.games_of(4)[0]
        assert shown_films(page) == [study.games[game][agent] for agent in study.shown(4, game)] != third
    with study_page(chromium, folder, "?participant=97") as page:
        expect(page.locator("#failed")).to_contain_text("participants 1 to 96")
        page.get_by_role("spinbutton").fill("3")
        page.get_by_role("button", name="Begin").click()
        expect(page.locator("#title")).to_have_text("Game 1 of 2")
        assert shown_films(page) == third


def test_a_reload_goes_on_and_choices_are_taken_back(
    chromium: Browser, folder: Path, study: Study, tmp_path: Path
) -> None:
    with study_page(chromium, folder) as page:
        first = page.locator("#criteria button").first
        for key, order in (
            ("d", "D"), ("b", "D B"), ("d", "B"), ("a", "B A"), ("c", "B A C D"), ("Backspace", "B A"),
            ("j", "B A"), ("Control+c", "B A"), ("Backspace", "B"), ("Backspace", "–"), ("Backspace", "–"), ("c", "C"),
        ):  # fmt: skip
            page.keyboard.press(key)
            expect(first).to_have_text(f"Overall: {order}")
        page.get_by_role("button", name="Rank film A").click()
        page.keyboard.press("Space")  # plays; it does not press the clicked button again
        expect(first).to_have_text("Overall: C A")
        page.keyboard.press("ArrowDown")
        for key in "dab":
            page.keyboard.press(key)
        page.reload()
        expect(first).to_have_text("Overall: C A")
        expect(page.locator("#criteria button").nth(1)).to_have_text("Instruction following: D A B C")
        assert [row[2] for row in save(page, tmp_path / "answers.csv")[1:]] == ["instruction"], "only whole orders"
        expect(page.locator(".place")).to_have_text(["2", "", "1", ""])
        page.evaluate("Object.keys(localStorage).forEach((key) => (localStorage[key] = '['))")
        page.reload()
        expect(page.locator("#failed")).to_contain_text("cannot read the answers")


def test_a_finger_ranks_on_a_phone_and_films_play_together(chromium: Browser, folder: Path, study: Study) -> None:
    with study_page(chromium, folder, size="phone", motion="no-preference") as page:
        wait_until(page, "[...document.querySelectorAll('video')].every(e => e.currentTime > 0.2)")
        page.get_by_role("button", name="Pause").click()
        wait_until(page, "[...document.querySelectorAll('video')].every(e => e.paused)")
        for letter in "CAD":
            page.get_by_role("button", name=f"Rank film {letter}").click()
        expect(page.get_by_role("button", name="Overall: C A D B")).to_be_visible()
        page.get_by_role("button", name="State update").click()
        expect(page.locator(".values").first).to_have_text("stamina -1, social +1, entertainment 0")
        page.get_by_role("button", name="Next turn").click()
        page.get_by_role("button", name="Next turn").click()
        expect(page.locator("#turn")).to_have_text("Turn 3 of 3")
        expect(page.locator("#instructions [aria-current]")).to_contain_text("look at the waves")
        wait_until(page, "[...document.querySelectorAll('video')].every(e => Math.abs(e.currentTime - 2) < 0.1)")
        assert [name for name in (*AGENTS, "game-0") if f'"{name}' in page.content()] == []


def test_hostile_instructions_are_shown_as_text(chromium: Browser, folder: Path, tmp_path: Path) -> None:
    write_study(painted_evaluation(tmp_path, words=HOSTILE), folder)
    with study_page(chromium, folder, size="phone") as page:
        expect(page.locator("#instructions")).to_contain_text("<img src=x")
        assert (page.locator("img").count(), page.locator("script").count(), page.title()) == (0, 1, "Study")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_and_controls_have_names(chromium: Browser, folder: Path, study: Study, scheme: str) -> None:
    with study_page(chromium, folder) as page:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for key in "dba":
            page.keyboard.press(key)
        assert [pair for pair in page.evaluate(CONTRASTS) if pair[1] < 4.5] == []
        unnamed = "e => !(e.ariaLabel || e.textContent.trim())"
        assert page.evaluate(f"[...document.querySelectorAll('button, video')].filter({unnamed}).length") == 0
