"""Report page in a real Chromium, in phone and desktop sizes."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pipeline.core.records import Caption, RecordError, Verdict
from pipeline.core.store import Dataset
from pipeline.pages.report import write_report
from tests.support import records
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.servers.chromium import wait_until

pytestmark = pytest.mark.browser

WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}
HOSTILE = "</script><script>document.title='owned'</script>\"' onload=alert(1)\n<img src=x onerror=alert(2)> &amp;"


@contextmanager
def opened(browser: Browser, address: str, width: int = 1280, height: int = 900) -> Iterator[Page]:
    """Open the page in a new window; on exit, check that no error was logged and no network request was made."""
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else faults.append(request.url)
    )
    page.on("dialog", lambda dialog: faults.append(dialog.message))
    page.goto(address)
    yield page
    context.close()
    assert faults == []


def address(dataset: Dataset, place: str = "") -> str:
    return (dataset.root / "report.html").as_uri() + place


def expect_shown(page: Page, text: str) -> None:
    """Wait for the text about the clips shown: after a link, the page changes with a delay."""
    expect(page.locator("#shown")).to_have_text(text)


@pytest.mark.parametrize("device", ["desktop", pytest.param("phone", marks=pytest.mark.slow)])
def test_filters_narrow_the_sheet(chromium: Browser, made: Dataset, device: str) -> None:
    with opened(chromium, address(made), *WIDTHS[device]) as page:
        expect_shown(page, "20 of 20 clips, 15 kept")
        if device == "phone":
            page.get_by_text("Filters", exact=True).click()
        assert page.evaluate("document.documentElement.scrollWidth") == WIDTHS[device][0], "no sideways scrolling"

        page.get_by_label("Verdict", exact=True).select_option("dropped")
        expect_shown(page, "5 of 20 clips, 0 kept")
        page.get_by_label("Reason").select_option(label="near-duplicate")
        expect_shown(page, "1 of 20 clips, 0 kept")
        page.get_by_role("button", name="Clear").click()
        page.get_by_label("Motion level").select_option("5")
        expect_shown(page, "4 of 20 clips, 4 kept")
        page.get_by_label("Film", exact=True).select_option(label="海の話.mp4")
        expect_shown(page, "2 of 20 clips, 2 kept")
        page.get_by_role("button", name="Clear").click()
        page.get_by_label("Character").select_option(label="Hana")
        page.get_by_label("Search words").fill("NIGHT broom")
        matching = int(page.locator("#shown").inner_text().split()[0])
        assert 0 < matching < 6
        page.locator("#grid li").first.scroll_into_view_if_needed()
        cards = page.locator("#grid li")
        assert cards.count() == matching
        assert all("night sky" in text for text in cards.all_inner_texts())

        page.get_by_role("button", name="Clear").click()
        page.get_by_role("link", name="dropped: dark").click()
        expect_shown(page, "2 of 20 clips, 0 kept")
        page.go_back()
        page.locator(".strip").nth(1).click(position={"x": 2, "y": 10})
        expect_shown(page, "10 of 20 clips, 7 kept")
        assert page.evaluate("document.activeElement.closest('li').dataset.position") == "0"


@pytest.mark.parametrize("device", ["desktop", pytest.param("phone", marks=pytest.mark.slow)])
def test_a_season_has_a_row_for_each_episode_and_a_click_leads_to_its_clips(
    chromium: Browser, tmp_path: Path, device: str
) -> None:
    dataset = make_dataset(tmp_path, films=3, names=("second.mkv", "first.mkv", "Ponyo.mkv"))
    for folder, episode in zip(dataset.folders(), (2, 1, None), strict=True):
        named = {"series": "Kiki <b>", "season": 1, "episode": episode} if episode else {}
        folder.save_film(folder.film.model_copy(update=named))
        rows = folder.read("verdicts", Verdict)
        opening = rows[0].model_copy(update={"keep": False, "reasons": ("opening",)})
        folder.write("verdicts", [opening, *rows[1:]] if episode else rows)
    write_report(dataset)
    with opened(chromium, address(dataset), *WIDTHS[device]) as page:
        season = page.get_by_role("region", name="Kiki <b>, episode by episode")
        assert season.locator(".episode span").all_inner_texts() == ["1x01", "1x02", ""]
        strips = season.locator(".strip")
        titles = strips.nth(0).locator("title")
        assert [text.split(":")[0] for text in titles.all_text_contents()] == ["kept", "opening"]
        assert page.evaluate("document.documentElement.scrollWidth") == WIDTHS[device][0], "no sideways scrolling"
        strips.nth(0).click(position={"x": 2, "y": 9})
        expect_shown(page, "10 of 30 clips, 6 kept")
        assert page.get_by_label("Film", exact=True).input_value() == "1", "the first episode was added second"
        season.get_by_role("link", name="opening").click()
        expect_shown(page, "2 of 30 clips, 0 kept")


def test_clips_are_ordered_by_motion_and_play_in_place(chromium: Browser, made: Dataset) -> None:
    with opened(chromium, address(made, "#sheet?order=most&verdict=kept")) as page:
        scopes = [float(text.split()[-2]) for text in page.locator(".print").all_inner_texts()]
        assert scopes == sorted(scopes, reverse=True)
        assert len(scopes) == 15
        page.locator(".frame").nth(1).click()
        wait_until(page, "(document.querySelector('#grid video')?.currentTime ?? 0) > 0.2")
        video = page.locator("#grid video")
        assert video.evaluate("({muted, loop, videoWidth}) => [muted, loop, videoWidth]") == [True, True, 96]
        page.locator(".frame").nth(1).click()
        assert video.count() == 0


def test_the_keyboard_reaches_every_clip_and_its_facts(chromium: Browser, made: Dataset) -> None:
    with opened(chromium, address(made, "#sheet?level=")) as page:
        page.locator(".frame").first.focus()
        for _ in range(19):
            page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.closest('li').getAttribute('aria-posinset')") == "20"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        facts = page.locator("#viewer-facts")
        assert "海の話.mp4" in facts.inner_text()
        assert facts.evaluate("list => list.getBoundingClientRect().bottom <= innerHeight"), "all facts are in view"
        assert page.locator("#viewer-place").inner_text() == "20 of 20"
        page.keyboard.press("ArrowLeft")
        assert page.locator("#viewer-place").inner_text() == "19 of 20"
        page.keyboard.press("Escape")
        wait_until(page, "document.activeElement.closest('li')?.getAttribute('aria-posinset') === '19'")
        assert not page.locator("#viewer").is_visible()


def test_hostile_names_lost_films_and_missing_clips_are_shown_as_text(chromium: Browser, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, scenes=2, captioner=MODEL, names=(HOSTILE, "x" * 200 + ".mkv"))
    folder, lost = dataset.folders()
    sorted((folder.path / "clips").iterdir())[0].write_bytes(b"not a film")
    lost.save_failure(RecordError(lost.film_id, HOSTILE))
    lost.table_path("verdicts").unlink()
    captions = folder.read("captions", Caption)
    folder.write(
        "captions", [caption.model_copy(update={"S": HOSTILE, "characters": (HOSTILE,)}) for caption in captions]
    )
    write_report(dataset)
    with opened(chromium, address(dataset, "#sheet?verdict=kept")) as page:
        assert page.title().startswith("Two small films")
        assert page.locator("h3").nth(0).inner_text() == " ".join(HOSTILE.split())
        assert page.locator("script").count() == 3
        assert page.locator("img[src=x]").count() == 0
        assert HOSTILE.split("\n")[0] in page.locator("#grid .tell").first.inner_text()
        page.locator(".tell").first.click()
        assert HOSTILE.split("\n")[0] in page.locator("#viewer-facts").inner_text()
        page.keyboard.press("Escape")
        assert page.locator(".missing").count() == 1
        assert "<img src=x" in page.locator(".film").nth(1).inner_text()
    with opened(chromium, address(dataset), width=320) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 320, "long names wrap"


def test_a_reviewed_clip_shows_the_words_of_the_machine_beside_the_review(chromium: Browser, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1, captioner=MODEL)
    [folder] = dataset.folders()
    first, second, _, dark = folder.read("verdicts", Verdict)[:4]
    rows = [
        records.reviewed(first.clip_id, S=HOSTILE, MA="barely", EV=None),
        records.reviewed(second.clip_id, keep=False),
        records.reviewed(dark.clip_id, keep=True, characters=()),
    ]
    folder.write("reviewed", rows)
    folder.write("verdicts", [first, dark.model_copy(update={"keep": True})])
    write_report(dataset)
    with opened(chromium, address(dataset, "#sheet?level=")) as page:
        page.locator(".tell").first.click()
        facts, seen = page.locator("#viewer-facts"), []
        for _ in range(4):
            seen.append(facts.inner_text().partition("Review\n")[2])
            page.get_by_role("button", name="After").click()
    hostile = " ".join(HOSTILE.split("\n"))
    assert " ".join(seen[0].split()) == (
        f"EV nothing (machine: 夏の海) · MA barely (confirmed) · S {hostile} (machine: fox)"
    )
    assert seen[1:] == ["dropped", "", "characters nobody (machine: nothing) · kept against dark"]


def test_near_duplicates_are_shown_in_pairs_that_play(chromium: Browser, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, scenes=20)
    one, other = dataset.folders()
    originals = [verdict.clip_id for verdict in one.read("verdicts", Verdict)]
    repeats = [
        verdict.model_copy(update={"duplicate_of": original})
        for verdict, original in zip(other.read("verdicts", Verdict), originals, strict=True)
    ]
    other.write("verdicts", repeats)
    write_report(dataset)
    with opened(chromium, address(dataset), *WIDTHS["phone"]) as page:
        pairs, more = page.locator("#pairs li"), page.get_by_role("button", name="Show more pairs")
        assert pairs.count() == 30
        more.click()
        assert pairs.count() == len(repeats) == 40
        assert not more.is_visible()
        left, right = pairs.last.locator("div").all_inner_texts()
        assert left.startswith("Kiki's Café (1989).mkv, 0:01:27.6")
        assert right.startswith("海の話.mp4, 0:01:27.6")
        pairs.last.locator("button").last.click()
        wait_until(page, "(document.querySelector('#pairs video')?.currentTime ?? 0) > 0.2")
        assert other.film_id in (page.locator("#pairs video").get_attribute("src") or "")
        assert page.evaluate("document.documentElement.scrollWidth") == WIDTHS["phone"][0], "no sideways scrolling"


@pytest.mark.slow
def test_a_page_of_twenty_thousand_clips_stays_fast(chromium: Browser, made: Dataset, tmp_path: Path) -> None:
    page_text = (made.root / "report.html").read_text(encoding="utf-8")
    head, rest = page_text.split('id="data">')
    data_text, rest = rest.split("</script>", 1)
    between, rest = rest.split('id="pictures">')
    _, tail = rest.split("</script>", 1)
    data: dict[str, Any] = json.loads(data_text)
    data["clips"] = [[0, f"{number:09d}", *clip[2:]] for number in range(1000) for clip in data["clips"]]
    picture = base64.b64encode(b"\xff\xd8\xff" + os.urandom(2400)).decode()  # the size of a real thumbnail
    blob = json.dumps(data).replace("<", "\\u003c")
    large = tmp_path / "large.html"
    large.write_text(
        f'{head}id="data">{blob}</script>{between}id="pictures">' + "\n".join([picture] * 20_000) + f"</script>{tail}"
    )

    with opened(chromium, large.as_uri()) as page:
        expect_shown(page, "20,000 of 20,000 clips, 15,000 kept")
        assert page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd") < 8000
        filtering = page.evaluate(
            """() => { const start = performance.now();
            for (const level of ["1", "2", "3", ""]) setFilters({level, text: level && "sky"});
            return (performance.now() - start) / 4; }"""
        )
        page.evaluate("scrollTo(0, document.getElementById('grid').getBoundingClientRect().bottom - innerHeight)")
        wait_until(page, "document.querySelector('#grid li[aria-posinset=\"20000\"]') !== null")
        assert page.locator("#grid li").count() < 80, "only the cards in sight exist"
        assert filtering < 300
