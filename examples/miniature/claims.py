"""Claims and drift steps: games along the held-out stories, played by every trained model, named by the recogniser.

OUT/claims/val/NAME.json       held-out stories: a figure with its 95% interval for each field of the turns played
OUT/claims/unseen/NAME.json    stories of held-out pairs: the same
OUT/drift/NAME.json            `turns 1-10`, `turns 11-20`, ... of games of 50 turns: the same; `changes` is how far the
                               last of them differ from the first, of the main model also `changes, reconstructed`: the
                               same of its turns' recorded clips, reconstructed, since other turns show other things

The models are `model`, `distilled`, `no-adaptation`, and the existing models of the step `variants`. Each has its own
sampling. The file of `model` also has the figures of

- turns played without past turns, and without guidance;
- the recorded clips: the margin of recogniser and optical flow;
- their reconstructions by the autoencoder: the upper bound of what can be drawn;
- the turns played, exchanged at random: the figures by chance.

A game of 50 turns plays two held-out stories in a row, the second one cut off. Raincoats and flags of the first story
may stay in the second, whose script does not know them: those fields are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from examples.miniature.figures import changes_of, figures_of, values_by_game
from examples.miniature.games import (
    SETS,
    MakerWithoutPast,
    Shown,
    Story,
    exchanged,
    played,
    read_stories,
    reconstructed_turns,
    recorded,
)
from examples.miniature.recogniser_network import Recogniser
from flows.console.terminal import say
from models.checkpoint import Checkpoint, identity_of
from models.engine import Engine
from models.engine_options import EngineOptions
from models.turns import TurnMaker
from pipeline.core.atomic import write_json
from pipeline.core.errors import UserError
from pipeline.core.ingredients import ResultNotes
from training.baselines.agents import load_baseline
from training.baselines.folder import BaselineFolder
from training.data.shards import open_shards
from training.data.turns import fingerprint_of

MAIN, WITHOUT_ADAPTATION, SHORT = "model", "no-adaptation", "short"
"""Main model after adaptation and before it, and a model of fewer steps."""
DISTILLED = "distilled"
"""Main model with the decoder of few steps."""
RESEARCH = "research"
"""Model that has not seen the held-out pairs."""
GC = "gc"
"""Baseline without memory or motion level: it draws each instruction by itself."""
VARIANTS = "variants"
SEEDS = (MAIN, "seed-1", "seed-2")
"""Runs that differ by their seed alone."""
_VERSION = 11
"""Version of the measures, raised when they give other figures."""
GAMES, TURNS, AT_ONCE = 7, 50, 10
MODELS = (MAIN, DISTILLED, SHORT)
FIELDS = ("as asked", "who", "where", "what", "level predicted", "level drawn", "states", "saturation", "sharpness")
CHANGES, WITHOUT_DRIFT = "changes", "changes, reconstructed"
CHANGING = ("as asked", "saturation", "sharpness")


def measure_claims(out: Path, seed: int = 0) -> None:
    """Measure all models that have not been measured."""
    for name, data, split in SETS:
        _measure_set(out, name, read_stories(out, data, split), seed)


def _measure_set(out: Path, name: str, stories: Sequence[Story], seed: int) -> None:
    def figures(model: MeasuredModel, recogniser: Recogniser) -> tuple[Any, str]:
        maker = model.maker()
        shown = {"played": list(_games(stories, maker, seed))}
        if model.name == MAIN:
            without_guidance = model.engine(guidance=1.0)
            shown |= {
                "played without past": list(_games(stories, maker, seed, past=False)),
                "played without guidance": list(_games(stories, without_guidance, seed)),
                **_bounds(stories, without_guidance, shown["played"], seed),
            }
        found = {
            kind: figures_of(values_by_game(turns, recogniser, maker.window_turns)) for kind, turns in shown.items()
        }
        return found, f"turns as asked: {found['played']['as asked']['mean']:.1%}"

    measure(out, f"claims/{name}", seed, measured_models(out), figures)


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
        engine = model.engine()
        tens = _by_tens([list(played(game, engine, seed + number)) for number, game in enumerate(games)])
        parts = {
            f"turns {AT_ONCE * number + 1}-{AT_ONCE * (number + 1)}": values_by_game(
                ten, recogniser, engine.window_turns
            )
            for number, ten in enumerate(tens)
        }
        found: dict[str, Any] = {
            name: {field: each for field, each in figures_of(part).items() if field in FIELDS}
            for name, part in parts.items()
        }
        first, *_, last = parts.values()
        found[CHANGES] = changes_of(first, last, CHANGING)
        if model.name == MAIN:
            found[WITHOUT_DRIFT] = _without_drift(tens, engine, recogniser)
        shares = ", ".join(f"{found[name]['as asked']['mean']:.1%}" for name in parts)
        return found, f"turns as asked, ten by ten: {shares}"

    measure(out, "drift", seed, (model for model in measured_models(out) if model.name in MODELS), figures)


def _by_tens(games: Sequence[Sequence[Shown]]) -> list[list[Shown]]:
    """Return the first ten turns of all games, the second ten, and so on."""
    starts = range(0, TURNS, AT_ONCE)
    return [[turn for game in games for turn in game[start : start + AT_ONCE]] for start in starts]


def _without_drift(tens: Sequence[Sequence[Shown]], engine: Engine, recogniser: Recogniser) -> Any:
    """Return how far the reconstructed clips of the last ten turns differ from those of the first ten."""
    ends = [
        reconstructed_turns([recorded(turn.scripted, engine.config) for turn in ten], engine.autoencoder)
        for ten in (tens[0], tens[-1])
    ]
    first, last = (values_by_game(turns, recogniser, engine.window_turns) for turns in ends)
    return changes_of(first, last, CHANGING)


def long_games(stories: Sequence[Story]) -> Iterator[Story]:
    """Yield games of `TURNS` turns, each of two stories in a row."""
    for game in range(GAMES):
        first, second = (stories[(2 * game + number) % len(stories)] for number in (0, 1))
        yield [replace(turn, game=game) for turn in (*first, *second)[:TURNS]]


@dataclass(frozen=True)
class MeasuredModel:
    """Trained checkpoint or baseline with a name."""

    name: str
    trained: Checkpoint | BaselineFolder

    def maker(self) -> TurnMaker:
        """Load it as a maker of turns."""
        if isinstance(self.trained, BaselineFolder):
            return MakerWithoutPast(load_baseline(self.trained.folder, device="cpu"))
        return self.engine()

    def engine(self, guidance: float | None = None) -> Engine:
        """Load a checkpoint as `play` loads it; None: with its own guidance."""
        return Engine.load(self.trained.folder, EngineOptions("cpu", guidance=guidance))


def measured_models(out: Path) -> list[MeasuredModel]:
    """Return the finished models in a folder of the miniature: the main one first, then the variants by name."""
    run, variants = out / MAIN, sorted((out / VARIANTS).glob("*"))
    phases = {MAIN: "adapt", DISTILLED: "distill", WITHOUT_ADAPTATION: "game"}
    folders = {name: run / phase / "result" for name, phase in phases.items()}
    folders |= {variant.name: variant / "adapt" / "result" for variant in variants if variant.name != GC}
    models = [MeasuredModel(name, Checkpoint.open(folder)) for name, folder in folders.items() if folder.exists()]
    baseline = out / VARIANTS / GC / GC / "result"
    return [*models, *([MeasuredModel(GC, BaselineFolder.open(baseline))] if baseline.exists() else [])]


def measure(
    out: Path,
    step: str,
    seed: int,
    models: Iterable[MeasuredModel],
    figures: Callable[[MeasuredModel, Recogniser], tuple[Any, str]],
) -> None:
    """Write OUT/STEP/NAME.json for every model that is new or has changed.

    Figures by another recogniser, or of other clips, are deleted first, so that all files are comparable.

    Args:
        figures: function that measures a model, and returns the content of the file and a summary.
    """
    models = list(models)
    if not models:
        raise UserError(f"no trained model in {out}: run the steps to `adapt`, or `unpack` for the package's model")
    recogniser = Recogniser.open(out / "recogniser" / "result")
    made_from = {
        "version": _VERSION,
        "seed": seed,
        "recogniser": identity_of(sorted((out / "recogniser" / "result").iterdir())),
        "data": [fingerprint_of(open_shards(out / data, split)) for _, data, split in SETS],
    }
    notes = ResultNotes(out / step / "made.json")
    if notes.renew("measured by", made_from, list):
        for earlier in (out / step).glob("*.json"):
            if earlier != notes.path:
                notes.forget(earlier.stem)
                earlier.unlink()
    for model in models:

        def write(model: MeasuredModel = model) -> list[Path]:
            found, words = figures(model, recogniser)
            path = out / step / f"{model.name}.json"
            write_json(path, found)
            say(f"{step}, {model.name}: {words}")
            return [path]

        notes.renew(model.name, made_from | {"model": model.trained.identity()}, write)
