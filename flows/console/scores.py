"""Scores of agents by criterion, as a judge or people gave them: a table, and a warning where the order moves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import typer

from flows.console.terminal import say


@dataclass(frozen=True)
class ScoredCriterion:
    """A criterion with the mean score of each agent, further cells, and the effect of the order."""

    title: str
    scores: Mapping[str, float]
    cells: tuple[str, ...]
    position_effects: tuple[float, ...] | None
    order_p_value: float | None


def print_scores(agents: Sequence[str], heads: Sequence[str], criteria: Sequence[ScoredCriterion]) -> None:
    """Print a row per criterion: the score of each agent, then the cells under further heads."""
    rows = [[each.title, *(number(each.scores.get(agent)) for agent in agents), *each.cells] for each in criteria]
    columns = list(zip(["", *agents, *heads], *rows, strict=True))
    titles, *others = ([cell.rjust(max(map(len, column))) for cell in column] for column in columns)
    titles = [title.strip().ljust(len(title)) for title in titles]
    for cells in zip(titles, *others, strict=True):
        typer.echo("  ".join(cells))


def warn_of_order(what: str, criteria: Sequence[ScoredCriterion]) -> None:
    """Print the criteria that the order moves; `what` is the position in words, such as `the letter of a film`."""
    from training.evaluation.ratings import NOTED_P_VALUE

    for each in criteria:
        if each.order_p_value is not None and each.order_p_value < NOTED_P_VALUE:
            effects = " / ".join(f"{effect:+.2f}" for effect in each.position_effects or ())
            said = f"{what} moves it, by position: {effects} (p = {each.order_p_value:.3f})"
            say(f"{each.title}: {said}", "yellow")


def number(value: float | None) -> str:
    """Return a value with two digits after the point, or `-`."""
    return "-" if value is None else f"{value:.2f}"
