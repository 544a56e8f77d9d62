"""Tables of an evaluation: the main metrics of every agent, and the scores that a judge or people gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.console.terminal import say

if TYPE_CHECKING:
    from training.evaluation.figures import Figures
    from training.evaluation.ratings import CriterionScores


def figures_table(figures: Figures) -> Table:
    """Table with a row per metric that was measured and a column per agent; the best value of a metric is bold."""
    from training.evaluation.report.tables import PAPER_METRICS, by_metric

    main = {*PAPER_METRICS, "identity", "cast_shown"}
    means = by_metric(figures, [metric for metric in figures.metrics if metric.name in main])
    agents = (Column(escape(name), justify="right", overflow="fold") for name in means.heads)
    table = Table("", *agents, box=None, pad_edge=False, header_style="bold")
    for row in means.rows:
        table.add_row(row.name, *(f"[bold]{cell.value}[/]" if cell.is_best else cell.value for cell in row.cells))
    return table


def print_scores(
    agents: Sequence[str],
    heads: Sequence[str],
    criteria: Sequence[CriterionScores],
    titles: Sequence[str],
    cells: Sequence[Sequence[str]],
) -> None:
    """Print a row per criterion: its title, the score of each agent, then the cells under further heads."""
    rows = [
        [title, *(number(each.scores.get(agent)) for agent in agents), *more]
        for each, title, more in zip(criteria, titles, cells, strict=True)
    ]
    columns = list(zip(["", *agents, *heads], *rows, strict=True))
    heading, *others = ([cell.rjust(max(map(len, column))) for cell in column] for column in columns)
    left = [title.strip().ljust(len(title)) for title in heading]
    for row in zip(left, *others, strict=True):
        typer.echo("  ".join(row))


def warn_of_order(what: str, criteria: Sequence[CriterionScores], titles: Sequence[str]) -> None:
    """Print the criteria that the order moves; `what` is the position in words, such as `the letter of a film`."""
    from training.evaluation.ratings import NOTED_P_VALUE

    for each, title in zip(criteria, titles, strict=True):
        if each.order_p_value is not None and each.order_p_value < NOTED_P_VALUE:
            effects = " / ".join(f"{effect:+.2f}" for effect in each.position_effects or ())
            said = f"{what} moves it, by position: {effects} (p = {each.order_p_value:.3f})"
            say(f"{title}: {said}", "yellow")


def number(value: float | None) -> str:
    """Return a value with two digits after the point, or `-`."""
    return "-" if value is None else f"{value:.2f}"
