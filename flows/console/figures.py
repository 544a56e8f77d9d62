"""Figures of an evaluation on the terminal: the main metrics of every agent, as the report shows them."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Column, Table

from training.evaluation.figures import Figures
from training.evaluation.published import PAPER_METRICS
from training.evaluation.report.tables import by_metric

MAIN = (*PAPER_METRICS, "identity", "cast_shown")


def figures_table(figures: Figures) -> Table:
    """Table with a row per metric that was measured and a column per agent; the best value of a metric is bold."""
    means = by_metric(figures, [metric for metric in figures.metrics if metric.name in MAIN])
    agents = (Column(escape(name), justify="right", overflow="fold") for name in means.heads)
    table = Table("", *agents, box=None, pad_edge=False, header_style="bold")
    for row in means.rows:
        table.add_row(row.name, *(f"[bold]{cell.value}[/]" if cell.is_best else cell.value for cell in row.cells))
    return table
