"""Report: correct numbers, and a page that works in a real Chromium in phone and desktop sizes."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from pipeline.core.records import Caption, RecordError
from pipeline.core.store import Dataset
from pipeline.pages.report import write_report
from pipeline.pages.summary import summarise
from pipeline.publish.coverage import totals
from pipeline.publish.samples import kept_clips
from pipeline.publish.shards import write_shards
from tests.support.chromium import wait_until
from tests.support.made_dataset import CAST, MODEL, make_dataset

WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}
HOSTILE = "</script><script>document.title='owned'</script>\"' onload=alert(1)\n<img src=x onerror=alert(2)> &amp;"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Data set of two films, 20 clips of which 15 are kept, 3 damaged seconds, model captions, shards, and a report."""
    dataset = make_dataset(tmp_path_factory.mktemp("made"), captioner=MODEL, damaged_seconds=1.5)
    write_shards(dataset, summarise(dataset).config.shards)
    write_report(dataset)
    return dataset


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


def shown(page: Page) -> str:
    return page.locator("#shown").inner_text()


def test_the_coverage_adds_up_to_the_length_of_the_films(made: Dataset) -> None:
    page = (made.root / "report.html").read_text(encoding="utf-8")
    table = page[page.index('id="ledger-title"') :].split("</section>")[0]
    rows = dict(re.findall(r'<tr data-fate="([^"]+)">.*?<td class="number total">([\d.,]+)</td>', table))

    assert set(rows) == {
        "kept", "dropped: dark", "dropped: text", "dropped: near-duplicate", "dropped: scene edge",
        "dropped: shorter than a clip", "failed: 12 packets could not be decoded",
    }  # fmt: skip
    assert rows["kept"] == "30.0"
    assert rows["failed: 12 packets could not be decoded"] == "3.0"
    length = sum(folder.film.duration_seconds for folder in made.folders())
    assert sum(map(float, rows.values())) == pytest.approx(length, abs=0.05 * len(rows))
    assert f'id="ledger-sum">{length:.1f}<' in table
    for film in summarise(made).films:
        assert sum(totals(film.spans).values()) == pytest.approx(film.film.duration_seconds, abs=1 / 24)


def test_the_numbers_are_those_of_the_data_set(made: Dataset) -> None:
    page = (made.root / "report.html").read_text(encoding="utf-8")

    figures = dict(re.findall(r"<dt>([A-Z][\w ]+)</dt><dd>([\d,]+)<small>", page))
    assert figures == {"Films": "2", "Scenes": "10", "Clips cut": "20", "Kept": "15", "Dropped": "5", "Samples": "15"}
    level_rows = re.findall(r'<tr data-level="\d">(.*?)</tr>', page)
    levels = [re.findall(r'<td class="number">(.*?)</td>', row) for row in level_rows]
    assert sum(int(kept) for *_, kept, _ in levels) == 15
    assert [int(cut) for *_, cut in levels] == [4, 4, 4, 4, 4]
    cast = page[page.index('data-tag="characters"') :].split("</table>")[0]
    assert [name for name in CAST if name in cast] == list(CAST)
    assert "made by rules" not in page
    assert str(made.root) not in page


def test_the_splits_are_those_of_the_shards(made: Dataset) -> None:
    summary = summarise(made)
    samples = [
        one.sample for folder in made.folders() for one in kept_clips(folder, made.record, summary.config.shards)
    ]
    assert {clip.clip.clip_id: clip.split for clip in summary.kept} == {one.clip_id: one.split for one in samples}
    assert {one.split for one in samples} == {"train", "val"}


def test_thumbnails_are_small_pictures_of_the_clips(made: Dataset) -> None:
    page = (made.root / "report.html").read_text(encoding="utf-8")
    pictures = page.split('id="pictures">')[1].split("</script>")[0].split("\n")

    assert len(pictures) == 20
    target = made.root / "thumbnail.jpg"
    target.write_bytes(base64.b64decode(pictures[0]))
    picture_HWC = np.asarray(Image.open(target))
    assert picture_HWC.shape == (112, 168, 3)
    corners = picture_HWC[[2, 2, -3, -3], [2, -3, 2, -3]].astype(int)
    assert np.ptp(corners, axis=0).max() < 12, "a plain ground with a square on it"


def test_the_same_data_set_gives_the_same_bytes(made: Dataset) -> None:
    first = (made.root / "report.html").read_bytes()
    assert write_report(made).read_bytes() == first


def test_rules_are_announced_and_an_unfinished_data_set_has_a_report(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1, scenes=2)
    dataset.folders()[0].table_path("verdicts").unlink()
    page = write_report(dataset).read_text(encoding="utf-8")

    assert "made by rules, not by a language model" in page
    assert 'data-fate="dropped: not judged yet"' in page


def test_clips_count_as_judged_while_they_have_verdicts(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1, scenes=2)
    dataset.folders()[0].forget_stage("captions")
    assert [clip.fate for clip in summarise(dataset).clips] == ["kept", "kept", "kept", "dropped"]


def test_a_film_that_failed_last_time_is_shown_with_its_samples_and_a_warning(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1)
    folder = dataset.folders()[0]
    before = summarise(dataset).films[0]
    folder.save_failure(RecordError(folder.film_id, "the file is gone"))
    [seen] = summarise(dataset).films
    assert (seen.clips, seen.spans, seen.scenes) == (before.clips, before.spans, before.scenes)
    warning = "shown as an earlier build left it, because the last one failed: the file is gone"
    assert seen.warnings == (*before.warnings, warning)
    page = write_report(dataset).read_text(encoding="utf-8")
    assert f"<li>{warning}</li>" in page
    assert "failed: the file is gone" not in page.replace(warning, "")

    folder.table_path("verdicts").unlink()
    [seen] = summarise(dataset).films
    assert (seen.clips, seen.warnings) == ((), before.warnings)
    assert [(span.fate, span.reason) for span in seen.spans] == [("failed", "the file is gone")]


def test_a_film_used_in_part_still_adds_up(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1)
    folder = dataset.folders()[0]
    record = folder.stage_record("cut")
    assert record is not None
    folder.save_stage_record(record.model_copy(update={"ingredients": {"film": {"end_seconds": 13.5}}}))
    page = write_report(dataset).read_text(encoding="utf-8")

    assert re.search(r'data-fate="dropped: past --end">.*?total">9.0<', page)
    assert 'id="ledger-sum">22.5<' in page
    assert 'data-seconds="13.5"' in page, "the strip shows the part that was used"
    assert "used up to 0:14" in page


def test_unmeasured_tags_are_named_once(tmp_path: Path) -> None:
    page = write_report(make_dataset(tmp_path, captioner="rules")).read_text(encoding="utf-8")

    assert set(re.findall(r'<table data-tag="(\w+)">', page)) == {"MD", "MA"}
    assert "Measured in none of them: cast on screen, subject, environment, characters interact" in page


def test_an_empty_data_set_has_a_report(tmp_path: Path) -> None:
    assert "No film has been added yet" in write_report(Dataset(tmp_path)).read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("device", ["desktop", pytest.param("phone", marks=pytest.mark.slow)])
def test_filters_narrow_the_sheet(chromium: Browser, made: Dataset, device: str) -> None:
    with opened(chromium, address(made), *WIDTHS[device]) as page:
        assert shown(page) == "20 of 20 clips, 15 kept"
        if device == "phone":
            page.get_by_text("Filters", exact=True).click()
        assert page.evaluate("document.documentElement.scrollWidth") == WIDTHS[device][0], "no sideways scrolling"

        page.get_by_label("Verdict", exact=True).select_option("dropped")
        assert shown(page) == "5 of 20 clips, 0 kept"
        page.get_by_label("Reason").select_option(label="near-duplicate")
        assert shown(page) == "1 of 20 clips, 0 kept"
        page.get_by_role("button", name="Clear").click()
        page.get_by_label("Motion level").select_option("5")
        assert shown(page) == "4 of 20 clips, 4 kept"
        page.get_by_label("Film", exact=True).select_option(label="海の話.mp4")
        assert shown(page) == "2 of 20 clips, 2 kept"
        page.get_by_role("button", name="Clear").click()
        page.get_by_label("Character").select_option(label="Hana")
        page.get_by_label("Search words").fill("NIGHT broom")
        matching = int(shown(page).split()[0])
        assert 0 < matching < 6
        page.locator("#grid li").first.scroll_into_view_if_needed()
        cards = page.locator("#grid li")
        assert cards.count() == matching
        assert all("night sky" in text for text in cards.all_inner_texts())


@pytest.mark.slow
@pytest.mark.browser
def test_orders_by_motion(chromium: Browser, made: Dataset) -> None:
    with opened(chromium, address(made, "#sheet?order=most&verdict=kept")) as page:
        prints = page.locator(".print").all_inner_texts()
        scopes = [float(text.split()[-2]) for text in prints]
        assert scopes == sorted(scopes, reverse=True)
        assert len(scopes) == 15


@pytest.mark.slow
@pytest.mark.browser
def test_links_in_the_tables_filter_the_sheet(chromium: Browser, made: Dataset) -> None:
    with opened(chromium, address(made)) as page:
        page.get_by_role("link", name="dropped: dark").click()
        assert shown(page) == "2 of 20 clips, 0 kept"
        assert page.evaluate("document.getElementById('sheet').getBoundingClientRect().top") < 400
        page.go_back()
        page.locator(".strip").nth(1).click(position={"x": 2, "y": 10})
        assert shown(page) == "10 of 20 clips, 7 kept"
        assert page.evaluate("document.activeElement.closest('li').dataset.position") == "0"


@pytest.mark.browser
@pytest.mark.parametrize("device", ["desktop", pytest.param("phone", marks=pytest.mark.slow)])
def test_a_clip_plays_in_place_muted(chromium: Browser, made: Dataset, device: str) -> None:
    with opened(chromium, address(made, "#sheet?verdict=kept"), *WIDTHS[device]) as page:
        page.locator(".frame").nth(1).click()
        wait_until(page, "(document.querySelector('#grid video')?.currentTime ?? 0) > 0.2")
        state = page.evaluate(
            "(({muted, loop, videoWidth}) => [muted, loop, videoWidth])(document.querySelector('#grid video'))"
        )
        assert state == [True, True, 96]
        page.locator(".frame").nth(1).click()
        assert page.locator("#grid video").count() == 0


@pytest.mark.browser
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
        assert page.locator("#viewer-place").inner_text() == "20 of 20"
        page.keyboard.press("ArrowLeft")
        assert page.locator("#viewer-place").inner_text() == "19 of 20"
        page.keyboard.press("Escape")
        wait_until(page, "document.activeElement.closest('li')?.getAttribute('aria-posinset') === '19'")
        assert not page.locator("#viewer").is_visible()


@pytest.mark.browser
def test_hostile_names_are_shown_as_text(chromium: Browser, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, scenes=2, captioner=MODEL, names=(HOSTILE, "x" * 200 + ".mkv"))
    folder = dataset.folders()[0]
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
    with opened(chromium, address(dataset), width=320) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 320, "long names wrap"


@pytest.mark.slow
@pytest.mark.browser
def test_missing_clips_and_lost_films_are_named_and_do_not_break_the_page(chromium: Browser, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, scenes=2)
    first, second = dataset.folders()
    clip = first.path / "clips" / sorted(path.name for path in (first.path / "clips").iterdir())[0]
    clip.write_bytes(b"not a film")
    second.save_failure(RecordError(second.film_id, "the decoder crashed"))
    second.table_path("verdicts").unlink()
    write_report(dataset)
    with opened(chromium, address(dataset, "#sheet?level=")) as page:
        assert shown(page) == "4 of 4 clips, 3 kept"
        assert page.locator(".missing").count() == 1
        assert "the decoder crashed" in page.locator(".film").nth(1).inner_text()
        assert page.locator('tr[data-fate="failed: the decoder crashed"]').count() == 1


@pytest.mark.browser
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
        assert shown(page) == "20,000 of 20,000 clips, 15,000 kept"
        load = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
        filtering = page.evaluate(
            """() => { const start = performance.now();
            for (const level of ["1", "2", "3", ""]) setFilters({level, text: level && "sky"});
            return (performance.now() - start) / 4; }"""
        )
        page.evaluate("scrollTo(0, document.getElementById('grid').getBoundingClientRect().bottom - innerHeight)")
        wait_until(page, "document.querySelector('#grid li[aria-posinset=\"20000\"]') !== null")
        assert page.locator("#grid li").count() < 80, "only the cards in sight exist"
        print(f"{large.stat().st_size / 1e6:.0f} MB: {load:.0f} ms to load, {filtering:.0f} ms to filter")
        assert load < 8000
        assert filtering < 300
