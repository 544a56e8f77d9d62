"""Cast page in a real Chromium: from nothing to named clips by keys alone, and back by undo."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from flows.web.cast_app import CastPage, CastTask, make_app
from flows.web.page_server import PageServer
from pipeline.core.store import Dataset
from pipeline.reviews.casting.names import read_cast_file
from pipeline.reviews.decisions import read_decisions
from tests.support.datasets.embedded import LEFT, RIGHT, embedded_dataset
from tests.support.servers.played_page import CONTRASTS, opened, serving

SIZE = (1280, 900)
COUNT_OPEN_ROWS = """() => {
  window.most = 0;
  const count = () => (window.most = Math.max(window.most, document.querySelectorAll(".row.open").length));
  new MutationObserver(count).observe(document.getElementById("rows"), { childList: true });
}"""


@dataclass
class Cast:
    address: str
    page: CastPage


@contextmanager
def casting(dataset: Dataset, root: Path) -> Iterator[Cast]:
    page = CastPage.of(dataset, CastTask("anna", root / "review.jsonl", root / "cast"))
    with serving(PageServer(make_app(page), lambda: None), 0) as address:
        yield Cast(address, page)


def keys(page: Page, *pressed: str) -> None:
    """Press keys one after the other; type what follows an equals sign; wait for what follows a question mark."""
    for key in pressed:
        if key.startswith("="):
            page.keyboard.type(key[1:])
        elif key.startswith("?"):
            expect(page.locator("#said")).to_contain_text(key[1:])
        else:
            page.keyboard.press(key)


@pytest.mark.browser
@pytest.mark.slow
def test_figures_are_named_split_merged_and_written_by_keys_alone(chromium: Browser, tmp_path: Path) -> None:
    dataset = embedded_dataset(tmp_path, [LEFT, RIGHT])
    with casting(dataset, tmp_path) as cast, opened(chromium, cast, SIZE) as page:
        expect(page.locator(".row.current")).to_be_visible()
        rows = page.locator(".row.open")
        before, figures = rows.count(), len(cast.page.figures.items)
        sizes = [len(row.figures) for row in cast.page.casting.rows()]
        keys(page, "Enter", "=Hana", "Enter", "?saved")  # 1. A new name goes to the whole row.
        expect(page.locator("#progress")).to_have_text(f"{sizes[0]} of {figures} figures decided")
        keys(
            page, "n", "=ha", "Tab", "=, Søren", "Enter", "?saved", "1", "?saved"
        )  # 2. Completion, two names, a number.
        expect(rows).to_have_count(before - 3)
        keys(page, "Space", "Space", "x", "?saved: 2", "z", "?undone")  # 3. Marked pictures alone, and undo.
        keys(page, "s", "?saved")  # 4. Split, merge again, nobody.
        expect(rows).to_have_count(before - 2)
        keys(page, "m", "?another row", "ArrowDown", "m", "?saved", "0", "?saved")
        assert {line.does for line in read_cast_file(dataset.root / "cast.jsonl").actions()} == {"name", "group"}
        for _ in range(rows.count()):
            keys(page, "2", "?saved")
        expect(rows).to_have_count(0)
        keys(page, "w", "?clips have their characters")  # 5. Characters of clips, and pictures of single characters.
        written = [line.value for line in read_decisions(tmp_path / "review.jsonl").decisions]
        assert len(written) == len({figure.clip.clip_id for figure in cast.page.figures.items})
        assert set(written) <= {("Hana",), ("Hana", "Søren"), ("Søren",), ()}
        assert sorted(path.name for path in (tmp_path / "cast").iterdir()) == ["Hana", "Søren"]
        page.reload()
        expect(page.locator("#progress")).to_have_text(f"{figures} of {figures} figures decided")
        keys(page, "?", "Escape")
        assert [found for found in page.evaluate(CONTRASTS) if found[1] < 4.5] == []


@pytest.mark.browser
@pytest.mark.slow
def test_keys_that_are_faster_than_the_disk_reach_what_is_on_the_screen(chromium: Browser, tmp_path: Path) -> None:
    dataset = embedded_dataset(tmp_path, [LEFT, RIGHT])
    with casting(dataset, tmp_path) as cast, opened(chromium, cast, SIZE) as page:
        expect(page.locator(".row.current")).to_be_visible()
        first, second, third, fourth, *_ = (row.figures for row in cast.page.casting.rows())
        slow_disk = cast.page.casting._lock
        with slow_disk:
            keys(page, "n", "=Søren", "Enter", "n", "=Ha")
        keys(page, "?saved", "=na", "Enter")  # 1. A reply leaves the field for a name alone.
        expect(page.locator("#names")).to_contain_text("Hana")
        with slow_disk:
            keys(page, "1", "Space")
        keys(page, "?saved")  # 2. And the marks; with Shift, a name is one of several.
        expect(page.locator(".marked")).to_have_count(1)
        keys(page, "Shift+Digit2", "1", "?saved", "ArrowLeft")
        if len(fourth) > 1:
            expect(page.locator(".row.current .label small").last).to_have_text(f"{len(fourth) - 1} figures")
        with slow_disk:
            keys(page, "0", "x")
            page.evaluate(COUNT_OPEN_ROWS)
        expect(page.locator(".row.done .label b", has_text="discarded")).to_have_count(1)
        # 3. The reply to the first of two actions did not bring the row of the second one back.
        assert page.evaluate("most") == page.locator(".row.open").count()
        said = {figure: standing.names for figure, standing in enumerate(cast.page.casting.standings()) if standing}
        named = [said[row[-1]] for row in (first, second, third)] + [said[fourth[0]]]
        assert named == [("Søren",), ("Hana",), ("Søren",), ("Hana", "Søren")]


def test_rows_that_somebody_else_changed_are_not_acted_on(tmp_path: Path) -> None:
    dataset = embedded_dataset(tmp_path)
    with casting(dataset, tmp_path) as cast, httpx.Client(base_url=cast.address, verify=False) as http:
        found = http.get("/api/rows").json()
        act = {"does": "name", "names": ["Hana"], "rows": [found["rows"][0]["figures"][0]], "version": found["version"]}
        assert http.post("/api/actions", json=act).json()["names"] == [["Hana", len(found["rows"][0]["figures"])]]
        assert http.post("/api/actions", json=act).status_code == 409
        wrong = [{"rows": [10**6]}, {"figures": [-1]}, {"names": ["a/b"]}, {"does": "paint"}]
        for change in wrong:
            assert http.post("/api/actions", json=act | {"version": 1} | change).status_code == 422
        assert http.get("/api/figures/0.jpg").headers["content-type"] == "image/jpeg"
        assert http.get("/api/figures/999999.jpg").status_code == 404
        cast.page.dataset.folders()[0].clip_path(cast.page.figures.items[-1].clip.clip_id).unlink()
        assert http.get(f"/api/figures/{len(cast.page.figures.items) - 1}.jpg").status_code == 404


@pytest.mark.slow
def test_a_killed_server_loses_no_name(tmp_path: Path) -> None:
    dataset = embedded_dataset(tmp_path)
    command = [sys.executable, "-m", "flows.cli", "cast", str(dataset.root), "--port", "0", "--reviewer", "anna"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout
        address = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
        with httpx.Client(base_url=address, verify=False) as http:
            act = {"does": "name", "names": ["Hana"], "figures": [0, 1], "version": 0}
            assert http.post("/api/actions", json=act).status_code == 200
        server.send_signal(signal.SIGKILL)
    assert CastPage.of(dataset, CastTask("anna", tmp_path / "r.jsonl", tmp_path / "cast")).casting.names() == [
        ("Hana", 2)
    ]
