"""Real Chromium for the tests of pages: the one installed on the machine, without a screen and without a network."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

WAIT_SECONDS = 20
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@contextmanager
def launched() -> Iterator[Browser]:
    """Launch the browser; where there is none, the test is skipped, and in CI it fails."""
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have Chromium (apt-get install chromium)")
        pytest.skip("needs Chromium: apt-get install chromium")
    expect.set_options(timeout=1000 * WAIT_SECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def wait_until(page: Page, expression: str) -> None:
    """Wait until the expression is true; playwright's own wait needs `eval` in the page, which our policies forbid."""
    wait_for(page, lambda: bool(page.evaluate(expression)), expression)


def wait_for(page: Page, is_so: Callable[[], bool], words: str) -> None:
    """Wait until a function returns True, while the page goes on.

    Raises:
        AssertionError: it has not for `WAIT_SECONDS`; `words` say what it waited for.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s for {words}"
        page.wait_for_timeout(50)
