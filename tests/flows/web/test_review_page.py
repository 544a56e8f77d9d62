"""Review page in a real Chromium: worked on by keys alone, in bulk, by two reviewers, on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.review_dataset import CAST
from pipeline.core.config import EmbedSettings
from pipeline.core.measurements import Looks
from pipeline.publish.similar_clips import search
from pipeline.reviews.clips import reviewable
from pipeline.video.sound_files import read_sound
from tests.support.datasets.dialogue import line, write_dialogue
from tests.support.datasets.embedded import embed, embedded_dataset
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.datasets.sounds import keep_sound
from tests.support.media.beeping_films import beeps_in
from tests.support.onnx_networks import SIZE, word_encoder
from tests.support.servers.chromium import wait_until
from tests.support.servers.played_page import CONTRASTS, SIZES, opened
from tests.support.servers.reviewed_page import (
    Reviewed,
    decide,
    in_time_order,
    reviewing,
    saved,
    small_dataset,
)

pytestmark = [pytest.mark.browser, pytest.mark.slow]
GERMAN_SLASH = """tile => tile.dispatchEvent(new KeyboardEvent("keydown",
    { key: "/", code: "Digit7", shiftKey: true, bubbles: true, cancelable: true }))"""


def value(page: Page, field: str) -> str:
    return page.locator(f"[data-field={field}] .value").inner_text()


def keys(page: Page, *pressed: str) -> None:
    """Press keys one after the other; type what follows an equals sign."""
    for key in pressed:
        if key.startswith("="):
            page.keyboard.type(key[1:])
        else:
            page.keyboard.press(key)


def current(page: Page) -> str:
    return str(page.locator(".tile.current").get_attribute("data-clip"))


def test_every_field_is_corrected_by_keys_alone(chromium: Browser, review: Reviewed) -> None:
    with opened(chromium, review) as page:
        in_time_order(page)
        words = {"S": "old man", "EV": "night sea", "MA": "bravely", "MD": "row a boat"}
        for key, text in [*zip("seam", words.values(), strict=True), ("o", "3"), ("t", "He rows & sings <b>.")]:
            keys(page, key, f"={text}", "Enter")
        keys(page, "c", "=lis", "Tab", "=, tok", "ArrowDown", "Enter", "Enter", "2", "Shift+Digit3", *"iifffrkx")
        saved(page)
        assert review.lines() == [
            *(("anna", field, text) for field, text in words.items()),
            ("anna", "others", 3),
            ("anna", "sentence", "He rows & sings <b>."),
            ("anna", "characters", ("Lisa", "Toki")),
            ("anna", "characters", ("Lisa", "Toki", "Sosuke")),
            ("anna", "actor", "Lisa"),
            *(("anna", "SC", 1), ("anna", "SC", 0), ("anna", "ET", 1), ("anna", "ET", 0), ("anna", "ET", None)),
            *(("anna", "ST", 1), ("anna", "keep", True), ("anna", "keep", False)),
        ]  # fmt: skip
        expect(page.locator(".tile.current .line")).to_have_text("Lisa, Toki, Sosuke · bravely row a boat · night sea")
        expect(page.locator("#progress")).to_have_text("1 of 60 reviewed")
        keys(page, *"zzz")
        saved(page)
        undone = [("anna", "keep", True), ("anna", "keep", "withdrawn"), ("anna", "ST", "withdrawn")]
        assert review.lines()[-3:] == undone


def test_an_empty_field_cannot_be_said_and_shift_delete_withdraws(chromium: Browser, review: Reviewed) -> None:
    with opened(chromium, review) as page:
        in_time_order(page)
        before = value(page, "EV")
        keys(page, "e", "Delete", "Enter")
        assert value(page, "EV") == "cannot be said"
        expect(page.locator("[data-field=EV] .was")).to_have_text(before)
        keys(page, "e", "Shift+Delete")
        saved(page)
        assert (value(page, "EV"), review.lines()) == (before, [("anna", "EV", None), ("anna", "EV", "withdrawn")])
        keys(page, "e", "=no § word", "Enter")
        expect(page.get_by_role("alert")).to_contain_text("plain words")
        page.locator(f"[data-clip='{review.ids[1]}']").click()
        expect(page.locator("#edit-EV")).to_have_count(0)  # unusable text is not carried to the next clip
        assert len(review.lines()) == 2


def test_enter_confirms_and_goes_on_to_where_one_left_off(chromium: Browser, review: Reviewed) -> None:
    with opened(chromium, review) as page:
        in_time_order(page)
        ids = [current(page)]
        for _ in range(3):
            page.keyboard.press("Enter")
            ids.append(current(page))
        saved(page)
        for box, place in enumerate((1, 2, 4, 5)):
            video = page.locator(".neighbour").nth(box).locator("video")
            expect(video).to_have_attribute("src", f"api/clips/{review.ids[place]}.mp4")
        assert ids == review.ids[:4]
        assert {name for name, *_ in review.lines()} == {"anna"}
        expect(page.locator("#progress")).to_have_text("3 of 60 reviewed")
        page.reload()
        expect(page.locator(f'.tile.current[data-clip="{ids[3]}"]')).to_be_visible()
        expect(page.locator("#order")).to_have_value("time")
        page.keyboard.press("b")
        expect(page.locator("#undone")).to_contain_text("no unreviewed clip before")
    with opened(chromium, review) as another:
        expect(another.locator(f'.tile.current[data-clip="{ids[2]}"]')).to_be_visible()  # from the file


def test_a_selection_is_corrected_at_once_and_undone_at_once(chromium: Browser, review: Reviewed) -> None:
    with opened(chromium, review) as page:
        in_time_order(page)
        page.keyboard.press("Control+a")
        expect(page.locator("#about")).to_have_text("60 clips selected")
        keys(page, "e", "=harbour at night", "Enter")
        saved(page)
        assert review.lines() == [("anna", "EV", "harbour at night")] * 60
        page.keyboard.press("z")
        saved(page)
        assert review.lines()[60:] == [("anna", "EV", "withdrawn")] * 60
        keys(page, "Escape", "Home", "Shift+ArrowRight", "Shift+ArrowRight", "x")
        saved(page)
        assert review.lines()[120:] == [("anna", "keep", False)] * 3
        page.reload()
        expect(page.locator(".tile.current")).to_be_visible()
        page.keyboard.press("z")  # undone after a reload too
        expect(page.locator("#undone")).to_have_text("undone: Verdict")
        saved(page)
        assert review.lines()[123:] == [("anna", "keep", "withdrawn")] * 3


def test_a_character_who_acts_is_on_screen(chromium: Browser, review: Reviewed) -> None:
    with opened(chromium, review) as page:
        in_time_order(page)
        page.locator(".tile.current").evaluate(GERMAN_SLASH)  # searches; 7 would be a name
        expect(page.locator("#text")).to_be_focused()
        page.keyboard.press("Escape")
        keys(page, "c", f"={CAST[1]}", "Enter", "Shift+Digit1")
        saved(page)
        assert review.lines()[1:] == [("anna", "actor", CAST[0]), ("anna", "characters", (CAST[1], CAST[0]))]
        page.keyboard.press("z")
        saved(page)
        assert review.lines()[3:] == [("anna", "characters", (CAST[1],)), ("anna", "actor", "withdrawn")]


def test_a_filter_lets_through_what_it_says(chromium: Browser, review: Reviewed) -> None:
    filters: dict[str, tuple[str, Callable[[dict[str, Any]], bool]]] = {
        "level": ("2", lambda row: row["level"] == 2),
        "character": ("=Ponyo", lambda row: "Ponyo" in row["machine"].get("characters", ())),
        "verdict": ("drop", lambda row: not row["machine"]["keep"]),
        "flag": ("any", lambda row: bool(row["flags"])),
        "tag": ("md run", lambda row: row["machine"].get("MD") == "run"),
        "text": ("near SLOWLY", lambda row: all(w in str(row["machine"]).lower() for w in ("slowly", "near"))),
    }
    rows = review.http.get("/api/clips").json()["clips"]
    with opened(chromium, review) as page:
        expect(page.locator("#found")).to_have_text("60 clips")
        for name, (text, passes) in filters.items():
            wanted = {row["id"] for row in rows if passes(row)}
            assert 0 < len(wanted) < len(rows)
            if name in ("tag", "text"):
                page.locator(f"#{name}").fill(text)
                page.locator(f"#{name}").press("Tab")
            else:
                page.locator(f"#{name}").select_option(text)
            expect(page.locator("#found")).to_have_text(f"{len(wanted)} of 60 clips")
            shown = page.locator(".tile:visible").evaluate_all("tiles => tiles.map((tile) => tile.dataset.clip)")
            assert set(shown) <= wanted, name
            page.locator("#clear").click()
            expect(page.locator("#found")).to_have_text("60 clips")


def test_the_most_doubtful_come_first_and_reviewed_ones_can_be_left_out(chromium: Browser, review: Reviewed) -> None:
    doubts = {row["id"]: row["doubt"] for row in review.http.get("/api/clips").json()["clips"]}
    with opened(chromium, review) as page:
        expect(page.locator("#found")).to_have_text("60 clips")
        first = current(page)
        shown = page.locator(".tile:visible").evaluate_all("tiles => tiles.map((tile) => tile.dataset.clip)")
        assert [doubts[clip] for clip in shown[:4]] == sorted(doubts.values(), reverse=True)[:4]
        page.keyboard.press("k")
        saved(page)
        page.locator("#state").select_option("unreviewed")
        expect(page.locator("#found")).to_have_text("59 of 60 clips")
        assert current(page) != first
        page.locator("#text").fill("nothing like it")
        expect(page.locator("#nothing")).to_be_visible()


def test_two_reviewers_disagree_and_one_settles(chromium: Browser, review: Reviewed) -> None:
    for place, motion in ((4, "swim"), (9, "dive")):
        decide(review, place, "ben", "MD", motion)
        decide(review, place, "anna", "MD", "fly")
    with opened(chromium, review) as page:
        in_time_order(page)
        page.locator("#state").select_option("conflict")
        expect(page.locator("#found")).to_have_text("2 of 60 clips")
        expect(page.locator(".voice")).to_have_count(2)
        page.keyboard.press("Escape")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            contrasts = page.evaluate(CONTRASTS)
            assert len(contrasts) > 40
            assert {words: contrast for words, contrast in contrasts if contrast < 4.5} == {}
        keys(page, "v", "1")
        expect(page.locator(".voice")).to_have_count(0)
        saved(page)
        assert review.lines()[-1] == ("settled: anna", "MD", "swim")
        assert value(page, "MD") == "swim"
        page.keyboard.press("z")
        expect(page.locator(".voice")).to_have_count(2)
        keys(page, "v", "2", "v")
        assert current(page) == review.ids[9]
        page.locator(".voice").nth(0).click()
        page.keyboard.press("u")
        expect(page.locator("#nothing")).to_be_visible()
        saved(page)
        assert review.lines()[-1] == ("settled: anna", "MD", "dive")


def test_hostile_text_is_shown_as_text(chromium: Browser, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)></span><script>document.title='owned'</script> &amp; " + "M" * 140
    with reviewing(tmp_path, reviewer="<b>anna</b> 🏃") as review:
        decide(review, 0, "אבגד עברית", "sentence", "هذا نص يكتب من اليمين إلى اليسار")
        decide(review, 0, "<i>ben</i>", "sentence", hostile)
        with review.task.file.open("a") as file:
            file.write("<script>alert(2)</script>\n")
        with opened(chromium, review, SIZES["phone"]) as page:
            expect(page.locator("#progress")).to_contain_text("of 60 reviewed")
            page.locator("#filters-button").click()
            page.locator("#text").fill("<img")
            page.locator(".tile:visible").first.click()
            page.locator("[data-field=sentence]").scroll_into_view_if_needed()
            expect(page.locator(".voice")).to_have_count(2)
            expect(page.locator(".voice").nth(1)).to_contain_text("<img src=x")
            assert page.locator("img, #fields script, #fields i, #fields img").count() == 0
            assert page.locator("script").count() == 1
            expect(page.locator("#notices")).to_contain_text("1 line malformed")


def test_a_phone_opens_a_clip_decides_and_goes_back(chromium: Browser, review: Reviewed) -> None:
    with opened(chromium, review, SIZES["phone"]) as page:
        expect(page.locator("#progress")).to_contain_text("of 60 reviewed")
        page.locator("#filters-button").click()
        page.locator("#order").select_option("time")
        page.locator("#filters-button").click()
        page.locator(".tile:visible").first.click()
        place = review.ids.index(current(page))
        expect(page.locator("#clip")).to_be_in_viewport()
        wait_until(page, "document.getElementById('clip').videoWidth === 96")
        page.locator("[data-field=keep]").get_by_text("drop").click()
        page.locator(".chip", has_text=CAST[1]).click()
        page.locator("#after").click()
        page.get_by_role("button", name="All right").click()
        page.locator("#close").click()
        expect(page.locator("#panel")).to_be_hidden()
        expect(page.locator("#progress")).to_have_text("2 of 60 reviewed")
        saved(page)  # progress counts decisions that are still on their way
        assert review.http.get("/api/reviews").json()["reviews"].keys() == set(review.ids[place : place + 2])


def test_a_blind_audit_shows_no_answer(chromium: Browser, tmp_path: Path) -> None:
    ids = [clip.clip_id for clip in reviewable(small_dataset(), tmp_path / "review.jsonl")]
    with (
        reviewing(tmp_path, clip_ids=[ids[40], ids[7], ids[8]], blind=True) as review,
        opened(chromium, review) as page,
    ):
        tiles = page.locator(".tile:visible")
        expect(tiles).to_have_count(3)
        assert [tile.get_attribute("data-clip") for tile in tiles.all()] == [ids[40], ids[7], ids[8]]
        assert page.locator(".tile .line").all_inner_texts()[:3] == ["", "", ""]
        assert {value(page, field) for field in ("S", "MD", "EV", "MA", "characters", "sentence")} == {"not known"}
        keys(page, "i", "Enter")
        saved(page)
        assert (review.lines(), current(page)) == ([("anna", "SC", 1)], ids[7])
        page.keyboard.press(",")
        expect(page.locator("#confirm")).to_be_disabled()
        page.keyboard.press("x")
        assert len(review.lines()) == 1, "a neighbour is not in the sample"


def test_a_key_switches_the_sound_on_and_off(chromium: Browser, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data", captioner=MODEL)
    keep_sound(dataset)
    with reviewing(tmp_path, dataset) as review, opened(chromium, review) as page:
        in_time_order(page)
        video = page.locator("#clip")
        for place in (0, 1):
            source = f"api/heard/{review.ids[place]}.mp4"
            expect(video).to_have_attribute("src", source)
            heard = tmp_path / "heard.mp4"
            heard.write_bytes(review.http.get(f"/{source}").content)
            assert beeps_in(read_sound(heard)) == pytest.approx([0.0], abs=0.005)
            assert video.evaluate("video => video.muted") is (place == 0)  # a clip later, it is still on
            if place == 0:
                page.keyboard.press("l")
            wait_until(page, "!document.querySelector('#clip').muted")
            wait_until(page, "document.querySelector('#clip').webkitAudioDecodedByteCount > 0")
            wait_until(page, "document.querySelector('#clip').currentTime > 0.2")
            page.keyboard.press("ArrowRight")
        page.keyboard.press("l")
        assert video.evaluate("video => video.muted")


def test_dialogue_is_shown_and_found(chromium: Browser, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data", captioner=MODEL)
    folder = dataset.folders()[0]
    write_dialogue(folder, line(2.5, 3.5, "宗介、<b>ham</b>!", speaker="Ponyo"))
    quality = {"sharpness": 0.69, "blockiness": 1.25, "banding": 0.5}
    folder.write("looks", [row.model_copy(update=quality) for row in folder.read("looks", Looks)])
    with reviewing(tmp_path, dataset) as review, opened(chromium, review) as page:
        in_time_order(page)
        expect(page.locator("#dialogue li")).to_have_count(0)
        page.locator("#text").fill("宗介")
        expect(page.locator("#found")).to_have_text(f"1 of {len(review.ids)} clips")
        page.keyboard.press("Escape")
        assert current(page) == review.ids[1]
        expect(page.locator("#dialogue li")).to_have_text("Ponyo: 宗介、<b>ham</b>!")
        for place in ("#where", "#film-name"):
            expect(page.locator(place)).to_be_visible()
            assert page.locator(place).evaluate("it => it.getBoundingClientRect().right <= innerWidth"), place


def test_clips_like_one_and_like_words_are_searched(chromium: Browser, tmp_path: Path) -> None:
    dataset = embedded_dataset(tmp_path)
    word_encoder(tmp_path, np.eye(5, SIZE, dtype=np.float32))
    settings = EmbedSettings(pictures=str(tmp_path / "pictures.onnx"), words=str(tmp_path))
    embed(dataset, settings)
    with reviewing(tmp_path, dataset) as review, opened(chromium, review) as page:
        in_time_order(page)
        keys(page, "ArrowRight", "q")
        asked = review.ids[1]
        expect(page.locator("#alike")).to_be_visible()
        likest = [asked, *search(dataset, asked, None)]
        tiles = page.locator(".tile")
        assert current(page) == asked
        keys(page, "ArrowRight")
        assert current(page) == max(likest[1:], key=lambda clip: search(dataset, asked, None)[clip])
        keys(page, "Escape")
        expect(page.locator("#alike")).to_be_hidden()
        keys(page, "/", "=~red field", "Enter")
        expect(page.locator("#alike")).to_contain_text("red field")
        found = search(dataset, None, "red field")
        expect(tiles.first).to_have_attribute("data-clip", max(found, key=lambda clip: found[clip]))
