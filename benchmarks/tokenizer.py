"""The paper's ablation of the tokenizer: real clips drawn again from their shot tokens, by a row for each variant.

    make bench-tokenizer DATA=data/ OUT=rows/ [RECIPE=one-film] [CONFIG=FILE] [MEASURE="--cast cast/ --clip ID ..."]

OUT/NAME         phase a of a variant: the start of each row, and its result
OUT/features     encoded clips, shared by the rows
OUT/games.jsonl  all held-out clips
OUT/evaluation   the rows as agents of `animegamer evaluate`, with a report

The same command resumes it. MEASURE has options of `animegamer evaluate run`. The authors measured their rows on 400
held-out clips of one film, by their own networks: compare the order of the rows, not the figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.commands import run_command
from training.evaluation.figures import Figures
from training.evaluation.report.tables import ABLATION_METRICS, TOKENIZER, comparison

ROWS = ("full", "random-frame", "linear", "addition", "cross-attention", "no-warm-up", "no-motion-scope")
"""Ablations of `animegamer train`, after the recipe without any."""


def measured_rows(
    data: str,
    out: Path,
    training: Sequence[str] = (),
    measuring: Sequence[str] = (),
    rows: Sequence[str] = ROWS,
    animegamer: Callable[..., object] = run_command,
) -> Figures:
    """Train phase a of every row, let the rows draw all held-out clips, and return their figures.

    Args:
        training: further options of `animegamer train`.
        measuring: further options of `animegamer evaluate run`.
        animegamer: runs one of its commands.
    """
    # 1. Train the rows one after the other; finished rows are skipped.
    for row in rows:
        ablated = () if row == "full" else ("--ablation", row)
        animegamer(
            "train", "shot", "--data", data, "--out", out / row, "--features", out / "features", *training, *ablated
        )
    # 2. Take every held-out clip as a game of one turn, since the game model takes no part.
    animegamer("benchmark", "from-data", data, "--out", out / "games.jsonl", "--turns", "1")
    # 3. Draw the clips again from their own shot tokens, and measure them.
    agents = [word for row in rows for word in ("--agent", f"{row}=tokens:{out / row / 'joint' / 'result'}")]
    games = ("--benchmark", out / "games.jsonl", "--data", data)
    animegamer("evaluate", "run", out / "evaluation", *games, *agents, *measuring)
    return Figures.model_validate_json((out / "evaluation" / "figures.json").read_bytes())


def table_of(figures: Figures) -> Table:
    """Return the table of the rows beside the paper's."""
    compared = comparison(figures, ABLATION_METRICS, TOKENIZER)
    table = Table("", *compared.heads, box=None, pad_edge=False, header_style="bold")
    for row in compared.rows:
        name = f"[dim]paper: {row.name}[/]" if row.is_published else row.name
        table.add_row(name, *(f"[bold]{cell.value}[/]" if cell.is_best else cell.value for cell in row.cells))
    return table


def main() -> None:
    """Train and measure all rows, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="dataset folder with a split `val`")
    parser.add_argument("--out", type=Path, required=True, help="folder of all rows")
    parser.add_argument("--recipe", default="one-film", help="recipe of `animegamer train`")
    parser.add_argument("--config", help="changes of the recipe, for every row")
    given, measuring = parser.parse_known_args()
    training = ["--recipe", given.recipe, *(["--config", given.config] if given.config else [])]
    Console().print(table_of(measured_rows(given.data, given.out, training, measuring)))


if __name__ == "__main__":
    main()
