"""Claims step: games of every trained model along the held-out stories, named by the judge.

OUT/claims/NAME.json    by data set, `val` or `unseen`: a figure with its 95 % interval for each field, of the turns
                        played, of the same without past turns, of the recorded clips (the margin of judge and
                        optical flow), of these as the autoencoder reconstructs them (the most that can be drawn),
                        and by chance: of the turns played, exchanged at random

The models are `model`, `no-adaptation`, and those of the step `variants` that are there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.demos.miniature.measured.figures import figures_of
from flows.demos.miniature.measured.games import exchanged, played, read_stories, reconstructed_turns, recorded
from flows.demos.miniature.measured.judge_network import Judge
from flows.demos.miniature.measured.measured_models import MeasuredModel, measure
from flows.demos.miniature.measured.reconstructions import SETS


def measure_claims(out: Path, seed: int = 0) -> None:
    """Measure all models that have not been measured."""
    stories = {name: read_stories(out, data, split) for name, data, split in SETS}

    def figures(model: MeasuredModel, judge: Judge) -> tuple[Any, str]:
        engine, found = model.engine(), {}
        for name, of_set in stories.items():
            clips = [recorded(turn, engine.config) for story in of_set for turn in story]
            shown = {
                "recorded": clips,
                "reconstructed": reconstructed_turns(clips, engine.autoencoder),
                "played": [turn for story in of_set for turn in played(story, engine, seed)],
                "played without past": [turn for story in of_set for turn in played(story, engine, seed, past=False)],
            }
            shown["by chance"] = exchanged(shown["played"], seed)
            found[name] = {kind: figures_of(turns, judge, engine.window_turns) for kind, turns in shown.items()}
        right = (f"{name} {each['played']['as asked']['mean']:.1%}" for name, each in found.items())
        return found, "turns as asked: " + ", ".join(right)

    measure(out, "claims", seed, figures)
