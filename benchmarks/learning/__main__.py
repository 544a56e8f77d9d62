"""Learning benchmark: claims that training works, measured with tiny networks on a CPU in minutes.

`make bench-learning` runs all, `--only motion` one claim. Painted figures move over painted grounds
(`examples/world/shapes.py`); the clips form an ordinary dataset (`examples/world/learning_films.py`) and all
training is by `TrainingRun`. Each measurement is compared with the aim of its claim. This shows that every part can
memorise training clips; it does not show how good the method is on films.

    autoencoder   clips are reconstructed recognisably
    shots         joint training memorises eight clips
    motion        a greater motion scope gives more motion in the drawn clip
    game          the game model memorises twenty turns
    history       without the past, the loss on turns that depend on it is higher
    free-text     trained on several phrasings, the game model understands sentences that it has never seen
    adaptation    the shot decoder adapts to predicted shot tokens
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.learning.bench import Bench, Finding
from benchmarks.learning.claims import (
    adaptation_claim,
    autoencoder_claim,
    free_text_claim,
    game_claim,
    history_claim,
    motion_claim,
    shots_claim,
)
from examples.world.shapes import FRAMES, HEIGHT, WIDTH
from flows.console.terminal import say

CLAIMS: Mapping[str, Callable[[Bench], Finding]] = {
    "autoencoder": autoencoder_claim,
    "shots": shots_claim,
    "motion": motion_claim,
    "game": lambda bench: game_claim(bench.game),
    "history": lambda bench: history_claim(bench.game, bench.game_from(bench.shots.after, history=False)),
    "free-text": lambda bench: free_text_claim(bench.worded(0.5), bench.worded(0.0)),
    "adaptation": adaptation_claim,
}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench-learning"), help="folder for everything")
    parser.add_argument("--only", action="append", choices=tuple(CLAIMS), help="only this claim; may be repeated")
    options = parser.parse_args()
    started, bench, findings = time.monotonic(), Bench(options.out), {}
    for name in options.only or CLAIMS:
        findings[name] = CLAIMS[name](bench)
        say(f"{name}: {findings[name].measured} (after {time.monotonic() - started:.0f} s)")
    Console(width=120).print(table_of(findings))
    for finding in findings.values():
        for picture in finding.pictures:
            say(f"to look at: {picture}")
    say(f"{time.monotonic() - started:.0f} s in all, on {torch.get_num_threads()} CPU threads")


def table_of(findings: Mapping[str, Finding]) -> Table:
    """Return a table with a row for each claim."""
    table = Table(
        title=f"learning by tiny networks, painted clips of {FRAMES} frames, {WIDTH}x{HEIGHT}", show_lines=True
    )
    for heading in ("claim", "aim", "measured", "reached"):
        table.add_column(heading)
    for name, finding in findings.items():
        table.add_row(name, finding.aim, finding.measured, "yes" if finding.reached else "NO")
    return table


if __name__ == "__main__":
    main()
