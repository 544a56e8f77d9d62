"""The whole way of a builder: a film to a dataset, corrected and audited by keys on the pages, to its card."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.support.builds.real_builds import numbered_films

COMMAND = [sys.executable, "-m", "flows.cli"]


def animegamer(folder: Path, *arguments: object) -> str:
    """Run a command in the builder's folder and return what it prints."""
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def page_of(browser: Browser, folder: Path, *arguments: str) -> Iterator[Page]:
    """Page of a running `review` or `audit`, with the keys on its grid; on exit all is saved, and Ctrl-C stops it."""
    command = [*COMMAND, *arguments, "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        lines = iter(process.stderr.readline, "")
        address = next((found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line))), None)
        assert address, "the command ended before it served its page"
        page = browser.new_page()
        page.goto(address)
        expect(page.locator("#grid")).to_be_focused()
        yield page
        expect(page.locator("#saved")).to_have_text("saved")
        page.close()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def press(page: Page, key: str, text: str) -> None:
    """Type the value of a field by its key."""
    page.keyboard.press(key)
    page.keyboard.type(text)
    page.keyboard.press("Enter")


@pytest.mark.slow
@pytest.mark.browser
def test_from_a_film_to_an_audited_card_by_keys_alone(chromium: Browser, tmp_path: Path) -> None:
    numbered_films(tmp_path, count=2)
    (tmp_path / "cast" / "Hana").mkdir(parents=True)
    Image.new("RGB", (64, 64), "teal").save(tmp_path / "cast" / "Hana" / "1.png")
    build = ("build", "film-0.mp4", "film-1.mp4", "--cast", "cast", "--out", "data")
    animegamer(tmp_path, *build)
    assert "above" in animegamer(tmp_path, "calibrate", "data")
    animegamer(tmp_path, *build)
    with page_of(chromium, tmp_path, "review", "data", "--reviewer", "anna") as page:
        for place in range(8):
            press(page, "s", "girl")
            page.keyboard.press("1" if place else "0")
            page.keyboard.press("Enter")
    animegamer(tmp_path, *build)
    with page_of(chromium, tmp_path, "audit", "data", "--blind", "--reviewer", "ben") as page:
        for place in range(8):
            press(page, "s", "girl" if place else "fox")
            page.keyboard.press("Enter")
    assert re.search(r"\nS +exact +87\.5%", animegamer(tmp_path, "audit", "data", "--results"))
    assert "8 clips labelled; reviewers: anna" in animegamer(
        tmp_path, "audit", "data", "--against", "data/review.jsonl"
    )
    animegamer(tmp_path, "report", "data")
    card = (tmp_path / "data" / "README.md").read_text()
    assert "| Hana | 7 |" in card
    assert "| S | 8 | 100.0 % |" in card, "reviewed"
    assert "| S | exact | 87.5% | 87.5 to 87.5% | 8 | 8 |" in card, "audited"
    animegamer(tmp_path, "verify", "data")
