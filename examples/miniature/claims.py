"""Claims and drift steps: games along the held-out stories, played by every trained model, named by the recogniser.

OUT/claims/NAME.json    by dataset, `val` or `unseen`: a figure with its 95% interval for each field of the turns
                        played
OUT/drift/NAME.json     `turns 1-10`, `turns 11-20`, ... of games of 50 turns: the same

The models are `model`, `no-adaptation`, and the existing models of the step `variants`. The file of `model` also has
the figures of

- turns played without past turns, and without guidance;
- the recorded clips: the margin of recogniser and optical flow;
- their reconstructions by the autoencoder: the upper bound of what can be drawn;
- the turns played, exchanged at random: the figures by chance.

A game of 50 turns plays two held-out stories in a row, the second one cut off. Raincoats and flags of the first story
may stay in the second, whose script does not know them: those fields are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from examples.miniature.figures import figures_of
from examples.miniature.games import SETS, Shown, Story, exchanged, played, read_stories, reconstructed_turns, recorded
from examples.miniature.measured_models import MAIN, SHORT, MeasuredModel, measure, measured_models
from examples.miniature.recogniser_network import Recogniser
from models.engine import Engine
from models.turns import TurnMaker

GAMES, TURNS, AT_ONCE = 4, 50, 10
MODELS = (MAIN, SHORT)
FIELDS = ("as asked", "who", "where", "what", "level predicted", "level drawn", "states")


def measure_claims(out: Path, seed: int = 0) -> None:
    """Measure all models that have not been measured."""
    stories = {name: read_stories(out, data, split) for name, data, split in SETS}

    def figures(model: MeasuredModel, recogniser: Recogniser) -> tuple[Any, str]:
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
            found[name] = {kind: figures_of(turns, recogniser, maker.window_turns) for kind, turns in shown.items()}
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


def measure_drift(out: Path, seed: int = 0) -> None:
    """Measure the existing models of `MODELS` that have not been measured."""
    games = list(long_games(read_stories(out, "dataset", "val")))

    def figures(model: MeasuredModel, recogniser: Recogniser) -> tuple[Any, str]:
        maker = model.maker()
        shown = [list(played(game, maker, seed + number)) for number, game in enumerate(games)]
        found = {}
        for start in range(0, TURNS, AT_ONCE):
            part = [turn for game in shown for turn in game[start : start + AT_ONCE]]
            every = figures_of(part, recogniser, maker.window_turns)
            found[f"turns {start + 1}-{start + AT_ONCE}"] = {field: every[field] for field in FIELDS}
        tens = ", ".join(f"{each['as asked']['mean']:.1%}" for each in found.values())
        return found, f"turns as asked, ten by ten: {tens}"

    measure(out, "drift", seed, (model for model in measured_models(out) if model.name in MODELS), figures)


def long_games(stories: Sequence[Story]) -> Iterator[Story]:
    """Yield games of `TURNS` turns, each of two stories in a row."""
    for game in range(GAMES):
        first, second = (stories[(2 * game + number) % len(stories)] for number in (0, 1))
        yield [replace(turn, game=game) for turn in (*first, *second)[:TURNS]]
