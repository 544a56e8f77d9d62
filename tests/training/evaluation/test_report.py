"""Report of an evaluation in a real Chromium, at desktop and phone width."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.datasets.made_evaluation import make_evaluation
from training.evaluation.figures import AgentNote, Figure, Figures
from training.evaluation.folder import EvaluationFolder
from training.evaluation.measures import Metric
from training.evaluation.report.page import write_report
from training.evaluation.report.tables import by_metric


def figures_of(evaluation: EvaluationFolder) -> Figures:
    return Figures.model_validate_json(evaluation.figures.read_bytes())


HOSTILE = "run</td><script>document.title='owned'</script><img src=x onerror=alert(1)>"


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_shows_tables_curves_and_games_at_both_widths(tmp_path: Path, chromium: Browser) -> None:
    evaluation = make_evaluation(tmp_path, motion=HOSTILE)
    path = write_report(evaluation, figures_of(evaluation))
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
        assert page.locator("tr.published").count() == 4 + 5
        ablations = page.get_by_label("Beside the paper's ablations")
        assert not ablations.is_visible()
        page.get_by_text("Beside the paper's ablations").first.click()
        assert "1.2190" in ablations.get_by_role("row").filter(has_text="without motion scope").inner_text()
        assert page.locator("figure svg").count() == 5
        assert page.locator("figure").first.locator(".line").count() == 3
        assert page.locator(".strip img").count() == 3 * 3 * 4 - 1
        assert page.get_by_text("not played").count() == 1
        assert page.evaluate("[...document.images].every(one => one.naturalWidth === 168)")
        assert (path.parent / str(page.locator(".strip a").first.get_attribute("href"))).exists()
        assert "Worst turns by CLIP-T" in page.locator("#games").inner_text()
        assert faults == []
        page.context.close()
    assert write_report(evaluation, figures_of(evaluation)).read_bytes() == path.read_bytes(), (
        "the same bytes every time"
    )


def test_random_networks_are_never_marked_as_the_best() -> None:
    metric = Metric(name="clip_t", title="CLIP-T", meaning="likeness", better="higher")
    values = {"random": 0.9, "ours": 0.5, "other": 0.4}
    figures = Figures(
        benchmark_sha256="a",
        agents=tuple(AgentNote(name=name, kind="checkpoint", is_untrained=name == "random") for name in values),
        metrics=(metric,),
        figures=tuple(Figure(agent=name, metric="clip_t", value=value, count=1) for name, value in values.items()),
    )
    [row] = by_metric(figures, [metric]).rows
    assert [cell.is_best for cell in row.cells] == [False, True, False]
    [row] = by_metric(figures.model_copy(update={"has_random_networks": True}), [metric]).rows
    assert not any(cell.is_best for cell in row.cells)
