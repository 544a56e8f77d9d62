"""Table of the main figures of an evaluation, as in the report."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from flows.commands.evaluate import figures_table
from tests.support.datasets.made_evaluation import make_evaluation
from training.evaluation.figures import Figures


def test_the_table_has_the_main_metrics_of_every_agent_as_in_the_report(tmp_path: Path) -> None:
    evaluation = make_evaluation(tmp_path, games=2, turns=2)
    figures = Figures.model_validate_json(evaluation.figures.read_bytes())
    console = Console(file=io.StringIO(), width=100)
    console.print(figures_table(figures))
    assert isinstance(console.file, io.StringIO)
    head, *rows = (line.split() for line in console.file.getvalue().splitlines())
    assert head == ["ours", "gc", "others"]
    means = {
        (each.agent, each.metric): f"{each.value:.4f}"
        for each in figures.figures
        if not each.turn and not each.character
    }
    named = {"CLIP-I": "clip_i", "CLIP-T": "clip_t", "MAE-F": "mae_f"}
    assert rows == [
        [title, "↓" if title == "MAE-F" else "↑", *(means[agent, metric] for agent in head)]
        for title, metric in named.items()
    ]
