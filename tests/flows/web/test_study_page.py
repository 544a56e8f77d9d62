"""Study page in a real Chromium: ranking by keys and by touch, reload, kill -9 of the server, hostile text, films."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Browser, Page, expect

from flows.web.page_server import lan_address
from pipeline.core.errors import UserError
from tests.support.servers.chromium import wait_until
from tests.support.servers.played_page import CONTRASTS, SIZES, Served, opened
from tests.support.servers.study_page import AGENTS, Studied, painted_evaluation, studied
from training.evaluation.study import CRITERIA, read_answers

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "<img src=x onerror=alert(1)></li><script>document.title='owned'</script>\u202e =1+1 &amp; 🏃 " + "M" * 300


@contextmanager
def study_page(
    chromium: Browser, page: Studied, size: tuple[int, int] = SIZES["desk"], place: str = "/", motion: str = "reduce"
) -> Iterator[Page]:
    """Open the first participant's link past its introduction; by default the films stand still."""
    with opened(chromium, cast("Served", page), size, place, motion) as tab:
        expect(tab.locator("#criteria li").first).to_be_visible()
        if tab.locator("#help").is_visible():
            tab.keyboard.press("Enter")  # its button has the focus
        expect(tab.locator("#help")).to_be_hidden()
        yield tab


def saved(tab: Page) -> None:
    expect(tab.locator("#saved")).to_have_text("saved")


def test_a_whole_study_is_ranked_by_keys_alone(chromium: Browser, tmp_path: Path, size: tuple[int, int]) -> None:
    with studied(painted_evaluation(tmp_path)) as page, study_page(chromium, page, size) as tab:
        for game in range(2):
            expect(tab.locator("#game")).to_have_text(f"Game {game + 1} of 2")
            for number, criterion in enumerate(CRITERIA):
                expect(tab.locator("#criteria [aria-current] .title")).to_have_text(criterion.title)
                for key in ("dba", "ABC", "cab", "bda", "acd", "dcb")[number]:
                    tab.keyboard.press(key.lower())
                expect(tab.locator("#criteria [aria-current]")).to_have_class("complete")
                tab.keyboard.press("Enter")
        expect(tab.locator("#all-done")).to_be_visible()
        saved(tab)
        expect(tab.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "2")
        assert len(page.answers) == 12
        for answer in page.answers:
            assert answer.is_complete
            letters = "".join("ABCD"[answer.shown.index(agent)] for agent in answer.order)
            names = [criterion.name for criterion in CRITERIA]
            assert letters == ("DBAC", "ABCD", "CABD", "BDAC", "ACDB", "DCBA")[names.index(answer.criterion)]


def test_choices_are_taken_back_and_every_step_is_on_disk(chromium: Browser, tmp_path: Path) -> None:
    with studied(painted_evaluation(tmp_path)) as page, study_page(chromium, page) as tab:
        for keys, order in (
            ("d", "D"), ("b", "DB"), ("d", "B"), ("a", "BA"), ("c", "BACD"), ("Backspace", "BA"), ("Backspace", "B"),
            ("Backspace", ""), ("Backspace", ""), ("j", ""), ("a", "A"), ("Control+b", "A"),
        ):  # fmt: skip
            tab.keyboard.press(keys)
            saved(tab) if order else None
            expect(tab.locator("#criteria [aria-current] .slot:not(.free)")).to_have_text(list(order))
        (answer,) = page.answers
        assert answer.order == answer.shown[:1]
        places = tab.locator("#films .place")
        expect(places).to_have_text(["1st", "", "", ""])


def test_a_reload_goes_on(chromium: Browser, tmp_path: Path, size: tuple[int, int]) -> None:
    with studied(painted_evaluation(tmp_path)) as page, study_page(chromium, page, size) as tab:
        tab.keyboard.press("PageDown")
        for key in "cadb":  # b follows by itself, and its key takes it back
            tab.keyboard.press(key)
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("d")
        saved(tab)
        tab.reload()
        expect(tab.locator("#game")).to_have_text("Game 2 of 2")
        expect(tab.locator("#help")).to_be_hidden()
        rows = tab.locator("#criteria li")
        expect(rows.nth(0).locator(".slot:not(.free)")).to_have_text(["C", "A", "D"])
        expect(rows.nth(1).locator(".slot:not(.free)")).to_have_text(["D"])
        tab.keyboard.press("b")
        expect(rows.nth(0)).to_have_class("complete")


def test_a_finger_ranks_on_a_phone(chromium: Browser, tmp_path: Path) -> None:
    with studied(painted_evaluation(tmp_path)) as page, study_page(chromium, page, SIZES["phone"]) as tab:
        tab.get_by_role("button", name="Rank film C next").click()
        tab.get_by_role("button", name="Film A: 2nd").click()
        tab.get_by_role("button", name="Take back", exact=True).click()
        tab.get_by_role("button", name="Film D: 2nd").click()
        tab.get_by_role("button", name="Film B: 3rd").click()
        expect(tab.get_by_role("button", name="Overall, ranked C, D, B, A")).to_be_visible()
        tab.get_by_role("button", name="Next question").click()
        expect(tab.locator("#criteria [aria-current] .title")).to_have_text("Instruction following")
        tab.get_by_role("button", name="State update").click()
        for letter in "ABC":
            button = tab.get_by_role("button", name=re.compile(f"Film {letter}: "))
            button.click()
        saved(tab)
        top = "e => e.getBoundingClientRect().top"
        question = tab.locator("#criteria [aria-current]").evaluate(top)
        films = tab.locator("#stage").evaluate("e => e.getBoundingClientRect().bottom")
        assert question >= films, "the films do not cover the question"
        assert {answer.criterion for answer in page.answers if answer.is_complete} == {"overall", "state"}


def test_films_play_together_and_turns_have_their_instructions(chromium: Browser, tmp_path: Path) -> None:
    with studied(painted_evaluation(tmp_path)) as page, study_page(chromium, page, motion="no-preference") as tab:
        wait_until(tab, "[...document.querySelectorAll('video')].every(e => e.currentTime > 0.2)")
        tab.keyboard.press("Space")
        wait_until(tab, "[...document.querySelectorAll('video')].every(e => e.paused)")
        tab.keyboard.press("ArrowRight")
        tab.keyboard.press("ArrowRight")
        tab.keyboard.press("ArrowRight")
        expect(tab.locator("#turn")).to_have_text("Turn 3 of 3")
        expect(tab.locator("#instructions [aria-current]")).to_have_text(
            "Character: Ponyo; Motion: look at the waves; Background: sea shore."
        )
        wait_until(tab, "[...document.querySelectorAll('video')].every(e => Math.abs(e.currentTime - 2) < 0.1)")
        tab.keyboard.press("Space")  # to the end, and again from the start
        wait_until(tab, "[...document.querySelectorAll('video')].every(e => !e.paused && e.currentTime < 1)")
        tab.keyboard.press("Shift+C")
        expect(tab.locator("figure:visible")).to_have_count(1)
        tab.keyboard.press("Shift+C")
        expect(tab.locator("figure:visible")).to_have_count(4)
        assert [
            name for name in (*AGENTS, "game-0") if f'"{name}' in tab.content() or f"/{name}" in tab.content()
        ] == []


def test_hostile_text_is_shown_as_text(chromium: Browser, tmp_path: Path, size: tuple[int, int]) -> None:
    with studied(painted_evaluation(tmp_path, words=HOSTILE)) as page, study_page(chromium, page, size) as tab:
        expect(tab.locator("#now")).to_contain_text("<img src=x")
        assert tab.locator("img").count() == 0
        assert tab.locator("script").count() == 1
        assert tab.title() == "Study"
        expect(tab.locator("#instructions li")).to_have_count(3)


@dataclass
class Killable:
    """The real command on a port of its own."""

    evaluation: Path
    port: int

    @contextmanager
    def running(self) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Run it; yield the process and the first link without its last slash."""
        command = [
            sys.executable,
            "-m",
            "flows.cli",
            "evaluate",
            "study",
            str(self.evaluation),
            "--port",
            str(self.port),
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr
            yield server, next(found[0] for line in server.stderr if (found := re.search(r"http://\S+(?=/)", line)))
            server.send_signal(signal.SIGKILL)


def test_kill_9_of_the_server_loses_nothing_shown_as_saved_and_keeps_the_rest(
    chromium: Browser, tmp_path: Path
) -> None:
    evaluation = painted_evaluation(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        command = Killable(evaluation.path, probe.getsockname()[1])
    with chromium.new_context(reduced_motion="reduce") as context:
        tab = context.new_page()
        with command.running() as (_, link):
            tab.goto(link + "/")
            tab.get_by_role("button", name="Start").click()
            for key in "dba":
                tab.keyboard.press(key)
            saved(tab)
        on_disk = read_answers(evaluation.path / "study").current
        assert [answer.is_complete for answer in on_disk.values()] == [True]
        tab.keyboard.press("ArrowDown")
        for key in "abc":
            tab.keyboard.press(key)
        expect(tab.locator("#saved")).to_contain_text("Not saved. The study's server does not answer.")
        expect(tab.get_by_role("button", name="Save again")).to_be_visible()
        assert len(read_answers(evaluation.path / "study").current) == 1
        with command.running() as (_, link):
            other = context.new_page()  # as after the browser was closed: what was not saved is sent by itself
            other.goto(link + "/")
            saved(other)
            expect(other.locator("#criteria li.complete")).to_have_count(2)
            tab.get_by_role("button", name="Save again").click()
            saved(tab)
        answers = read_answers(evaluation.path / "study")
        assert (len(answers.current), answers.faults) == (2, 0)


def test_two_tabs_of_a_participant_lose_nothing_and_the_later_answer_counts(chromium: Browser, tmp_path: Path) -> None:
    with studied(painted_evaluation(tmp_path)) as page, chromium.new_context(reduced_motion="reduce") as context:
        early, late = context.new_page(), context.new_page()
        early.route("**/api/answers", lambda route: route.abort())
        for tab in (early, late):
            tab.goto(page.address + "/")
            tab.get_by_role("button", name="Start").click()
        for key in ("d", "b", "a", "ArrowDown", "a", "b", "c"):
            early.keyboard.press(key)
        expect(early.locator("#saved")).to_contain_text("Not saved.")
        for key in "bad":
            late.keyboard.press(key)
        saved(late)
        (answer,) = page.answers
        early.get_by_role("button", name="Save again").click()
        expect(early.locator("#saved")).to_contain_text("Not saved.")
        early.close()
        after = context.new_page()
        after.goto(page.address + "/")
        saved(after)
        assert len(page.answers) == 2, "one is from the closed tab alone"
        assert answer in page.answers, "the later of the two about one question"


def test_unsaved_answers_about_films_that_changed_hold_no_other_up_and_are_dropped_when_the_page_opens(
    chromium: Browser, tmp_path: Path
) -> None:
    evaluation = painted_evaluation(tmp_path, turns=1)
    with chromium.new_context(reduced_motion="reduce") as context:
        tab = context.new_page()
        with studied(evaluation) as page:
            tab.goto(page.address + "/")
            tab.get_by_role("button", name="Start").click()
            first, second = page.games.study.games_of(0, ["game-0", "game-1"])
        for key in ("d", "PageDown", "a"):
            tab.keyboard.press(key)
        expect(tab.locator("#saved")).to_contain_text("Not saved. The study's server does not answer.")
        (evaluation.games / "gc" / first / "turns.jsonl").unlink()
        with studied(evaluation, names=(), port=int(page.root.rpartition(":")[2])) as page:
            tab.get_by_role("button", name="Save again").click()
            expect(tab.locator("#saved")).to_contain_text("reload it, and rank that game again")
            (answer,) = page.answers
            assert (answer.game, answer.order) == (second, answer.shown[:1])
            other = context.new_page()
            other.goto(page.address + "/")
            expect(other.locator("#dropped")).to_contain_text("Answers dropped: 1.")
            expect(other.locator("#game")).to_have_text("Game 1 of 1")
            expect(other.locator("#criteria li").first.locator(".slot:not(.free)")).to_have_text(["A"])
            other.keyboard.press("b")
            saved(other)
            other.reload()
            expect(other.locator("#criteria li").first).to_be_visible()
            expect(other.locator("#dropped")).to_be_hidden()
        assert {each.game for each in page.answers} == {second}


def test_the_page_works_at_the_address_in_the_network_and_a_stranger_sees_nothing(
    chromium: Browser, tmp_path: Path
) -> None:
    try:
        host = lan_address()
    except UserError as error:
        pytest.skip(f"needs a local network: {error}")
    with studied(painted_evaluation(tmp_path), host=host) as page:
        with study_page(chromium, page, SIZES["phone"], motion="no-preference") as tab:
            wait_until(tab, "[...document.querySelectorAll('video')].every(e => e.currentTime > 0.2)")
            for key in "bda":
                tab.keyboard.press(key)
            saved(tab)
        assert page.answers[0].is_complete
        stranger = chromium.new_page()
        for address in (page.root, f"{page.root}/{'x' * 32}/"):
            reply = stranger.goto(address)
            assert reply
            assert reply.status in (403, 404)
            assert stranger.locator("video, script").count() == 0
        stranger.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_and_controls_have_names(chromium: Browser, tmp_path: Path, scheme: str) -> None:
    with studied(painted_evaluation(tmp_path)) as page, chromium.new_context(color_scheme=scheme) as context:  # type: ignore[arg-type]
        tab = context.new_page()
        tab.goto(page.address + "/")
        expect(tab.locator("#help")).to_be_visible()
        assert [pair for pair in tab.evaluate(CONTRASTS) if pair[1] < 4.5] == []
        tab.keyboard.press("Escape")
        for key in "dba":
            tab.keyboard.press(key)
        tab.keyboard.press("Enter")
        saved(tab)
        assert [pair for pair in tab.evaluate(CONTRASTS) if pair[1] < 4.5] == []
        unnamed = tab.evaluate(
            "[...document.querySelectorAll('button, a, video')].filter(e => e.checkVisibility() && "
            "!(e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)"
        )
        assert unnamed == []
