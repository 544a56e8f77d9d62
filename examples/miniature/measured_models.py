"""Trained models of the miniature, and the files with their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.miniature.games import SETS, MakerWithoutPast
from examples.miniature.recogniser_network import Recogniser
from flows.console.terminal import say
from models.checkpoint import Checkpoint, identity_of
from models.config import MINI_SAMPLING
from models.engine import Engine
from models.engine_options import EngineOptions
from models.turns import TurnMaker
from pipeline.core.atomic import write_json
from pipeline.core.errors import UserError
from pipeline.core.ingredients import ResultNotes
from training.baselines.agents import load_baseline
from training.baselines.folder import BaselineFolder
from training.data.shards import open_shards
from training.data.turns import Catalog

MAIN, WITHOUT_ADAPTATION, SHORT = "model", "no-adaptation", "short"
"""Main model, the main model before its last phase, and a model of fewer steps."""
RESEARCH = "research"
"""Model that has not seen the held-out pairs."""
GC = "gc"
"""Baseline without memory or motion level: it draws each instruction by itself."""
VARIANTS = "variants"
SEEDS = (MAIN, "seed-1", "seed-2")
"""Runs that differ by their seed alone."""
_VERSION = 5
"""Version of the measures, raised when they give other figures."""


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

    def engine(self, guidance: float = MINI_SAMPLING.guidance) -> Engine:
        """Load a checkpoint as `play` loads the model of the package."""
        return Engine.load(self.trained.folder, EngineOptions("cpu", MINI_SAMPLING.steps, guidance, speed="best"))


def measured_models(out: Path) -> list[MeasuredModel]:
    """Return the finished models in a folder of the miniature: the main one first, then the variants by name."""
    run, variants = out / MAIN, sorted((out / VARIANTS).glob("*"))
    folders = {MAIN: run / "adapt" / "result", WITHOUT_ADAPTATION: run / "game" / "result"}
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
        raise UserError(f"no trained model in {out}: run the step `model` first, or `unpack` for the package's model")
    recogniser = Recogniser.open(out / "recogniser" / "result")
    made_from = {
        "version": _VERSION,
        "seed": seed,
        "sampler": [MINI_SAMPLING.steps, MINI_SAMPLING.guidance],
        "recogniser": identity_of(sorted((out / "recogniser" / "result").iterdir())),
        "data": [Catalog.read(open_shards(out / data, split)).fingerprint for _, data, split in SETS],
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
