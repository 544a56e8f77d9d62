"""Report of an evaluation in a real Chromium, at desktop and phone width, and its table of figures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from pipeline.core.errors import UserError
from tests.support.datasets.made_evaluation import make_evaluation
from training.evaluation.figures import Figures
from training.evaluation.report.charts import ticks_over
from training.evaluation.report.page import write_report

HOSTILE = "run</td><script>document.title='owned'</script><img src=x onerror=alert(1)>"


@pytest.mark.browser
def test_the_page_shows_tables_curves_and_games_at_both_widths(tmp_path: Path, chromium: Browser) -> None:
    evaluation = make_evaluation(tmp_path, motion=HOSTILE)
    path = write_report(evaluation)
    for width in (1280, 390):
        page = chromium.new_context(viewport={"width": width, "height": 844}).new_page()
        faults: list[str] = []
        page.on("console", lambda message, faults=faults: faults.append(message.text))
        page.on(
            "request", lambda asked, faults=faults: asked.url.startswith(("file:", "data:")) or faults.append(asked.url)
        )
        page.goto(path.as_uri())
        assert page.title() == "evaluation · evaluation"
        assert page.evaluate("document.documentElement.scrollWidth") == width, "no sideways scrolling"
        table = page.get_by_label("The paper's table").get_by_role("row")
        assert [row.inner_text().split()[0] for row in table.all()][1:4] == ["ours", "gc", "others"]
        assert "0.8132" in table.filter(has_text="AnimeGamer").inner_text()
        assert page.locator("tr.published").count() == 4
        assert page.locator("figure svg").count() == 5
        assert page.locator("figure").first.locator(".line").count() == 3
        assert page.locator(".strip img").count() == 3 * 3 * 4 - 1
        assert page.get_by_text("not played").count() == 1
        assert page.evaluate("[...document.images].every(one => one.naturalWidth === 168)")
        assert (path.parent / str(page.locator(".strip a").first.get_attribute("href"))).exists()
        assert "Worst turns by CLIP-T" in page.locator("#games").inner_text()
        assert faults == []
        page.context.close()
    assert write_report(evaluation).read_bytes() == path.read_bytes(), "the same bytes every time"


def test_the_table_of_figures_holds_every_mean_and_slope(tmp_path: Path) -> None:
    evaluation = make_evaluation(tmp_path, games=2, turns=2)
    write_report(evaluation)
    figures = Figures.model_validate_json(evaluation.figures.read_bytes())
    with (evaluation.path / "figures.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(figures.figures) + len(figures.slopes)
    assert float(rows[0]["value"]) == figures.figures[0].value
    assert rows[-1]["turn"] == "per turn"


def test_without_figures_the_command_that_makes_them_is_named(tmp_path: Path) -> None:
    evaluation = make_evaluation(tmp_path, games=2, turns=2)
    evaluation.figures.unlink()
    with pytest.raises(UserError, match="animegamer evaluate run"):
        write_report(evaluation)
    evaluation.figures.write_text(json.dumps({"agents": []}))
    with pytest.raises(UserError, match="damaged"):
        write_report(evaluation)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.5, 0.5), (0.0, 0.0), (-3e-7, 2e-7), (1.2e9, 3.4e9)])
def test_ticks_are_round_and_span_the_values(low: float, high: float) -> None:
    ticks = ticks_over(low, high)
    assert 2 <= len(ticks) <= 7
    slack = 1e-9 * max(abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
