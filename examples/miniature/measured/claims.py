"""Claims step: games of every trained model along the held-out stories, named by the judge.

OUT/claims/NAME.json    by data set, `val` or `unseen`: a figure with its 95 % interval for each field of the turns
                        played

The models are `model`, `no-adaptation`, and those of the step `variants` that are there. That of `model` also has the
figures of turns played without past turns and without guidance, of the recorded clips (the margin of judge and optical
flow), of these as the autoencoder reconstructs them (the most that can be drawn), and by chance: of the turns played,
exchanged at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from examples.miniature.measured.figures import figures_of
from examples.miniature.measured.games import (
    Shown,
    Story,
    exchanged,
    played,
    read_stories,
    reconstructed_turns,
    recorded,
)
from examples.miniature.measured.judge_network import Judge
from examples.miniature.measured.measured_models import MAIN, MeasuredModel, measure, measured_models
from examples.miniature.measured.reconstructions import SETS
from models.engine import Engine
from models.turns import TurnMaker


def measure_claims(out: Path, seed: int = 0) -> None:
    """Measure all models that have not been measured."""
    stories = {name: read_stories(out, data, split) for name, data, split in SETS}

    def figures(model: MeasuredModel, judge: Judge) -> tuple[Any, str]:
        maker, found = model.maker(), {}
        without_guidance = model.engine(guidance=1.0) if model.name == MAIN else None
        for name, of_set in stories.items():
            shown = {"played": list(_games(of_set, maker, seed))}
            if without_guidance:
                shown |= {
                    "played without past": list(_games(of_set, maker, seed, past=False)),
                    "played without guidance": list(_games(of_set, without_guidance, seed)),
                    **_bounds(of_set, without_guidance, shown["played"], seed),
                }
            found[name] = {kind: figures_of(turns, judge, maker.window_turns) for kind, turns in shown.items()}
        right = (f"{name} {each['played']['as asked']['mean']:.1%}" for name, each in found.items())
        return found, "turns as asked: " + ", ".join(right)

    measure(out, "claims", seed, measured_models(out), figures)


def _games(stories: Sequence[Story], maker: TurnMaker, seed: int, *, past: bool = True) -> Iterator[Shown]:
    for number, story in enumerate(stories):
        yield from played(story, maker, seed + number, past=past)


def _bounds(stories: Sequence[Story], engine: Engine, shown: Sequence[Shown], seed: int) -> dict[str, list[Shown]]:
    """Return what no model can surpass, and what a model without any skill reaches."""
    clips = [recorded(turn, engine.config) for story in stories for turn in story]
    return {
        "recorded": clips,
        "reconstructed": reconstructed_turns(clips, engine.autoencoder),
        "by chance": exchanged(shown, seed),
    }
