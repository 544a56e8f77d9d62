"""Steps of the encoders: the image encoder trained on frames against captions, the autoencoder fitted to the clips.

OUT/start                         untrained checkpoint of size mini
OUT/image_encoder/result          the same with the trained image encoder
OUT/image_encoder/curve.jsonl     its learning curve: held-out frames that retrieve their caption, over CPU seconds
OUT/image_encoder/random          the random encoder, measured in the same way: only the projections are trained
OUT/autoencoder/...               the autoencoder fitted to stills, and to clips for two fifths of the recipe's steps
OUT/autoencoder/more/...          the same network fitted for the other steps, at half the rate
OUT/autoencoder/more/clips/result     checkpoint with the trained image encoder and the fitted autoencoder
OUT/autoencoder/**/curve.jsonl    learning curves: PSNR of whole held-out clips over CPU seconds

The fit has two steps, because a step takes at most two hours.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from flows.console.terminal import say
from models.checkpoint import Checkpoint
from models.config import mini_config
from models.untrained import new_checkpoint
from training.config import FitSettings, LoopSettings
from training.phase_folder import MADE_FROM
from training.phases.autoencoder import fit_autoencoder
from training.phases.image_encoder import fit_image_encoder
from training.recipes import mini
from training.trainer import StepReport, StepWatcher

_VALIDATION = "val/"
LOOP = LoopSettings(
    steps=1500, batch_size=64, micro_batch=64, learning_rate=1e-3, rate_warm_up=100, weight_decay=0.05,
    save_every=250, validate_every=250,
)  # fmt: skip
_CURVE = "curve.jsonl"
SEEN = Path("image_encoder", "result")
"""Checkpoint with the trained image encoder."""
FITTED = Path("autoencoder", "more", "clips", "result")
"""Checkpoint with the fitted autoencoder, which all models start from."""
_FIRST_SHARE = 0.4
"""Share of the steps on clips in the first of the two fits."""


class LearningCurve:
    """Watcher of steps that appends a line for every validation, and then calls another watcher."""

    def __init__(self, path: Path, watch: StepWatcher | None = None) -> None:
        """Continue from the lines of a file, if it exists."""
        self.path, self._watch = path, watch
        points = read_curve(path)
        self._earlier = float(points[-1]["cpu_seconds"]) if points else 0.0
        self._begun = time.process_time()

    def __call__(self, report: StepReport) -> None:
        """Append the measures of a step that was followed by a validation."""
        found = {
            name.removeprefix(_VALIDATION): round(value, 4)
            for name, value in report.figures.items()
            if name.startswith(_VALIDATION)
        }
        if found:
            spent = self._earlier + time.process_time() - self._begun
            point = {"phase": report.phase, "step": report.step, "cpu_seconds": round(spent, 1), **found}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(point) + "\n")
        if self._watch:
            self._watch(report)


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Return the points of a learning curve; none if there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def train_image_encoder(out: Path, loop: LoopSettings = LOOP, watch: StepWatcher | None = None) -> Path:
    """Train the image encoder, and the projections of the random one. Return the folder of the checkpoint."""
    start, folder = start_of(out), out / "image_encoder"
    if is_restored(out, SEEN):
        return out / SEEN
    result = start
    for part, frozen in ((folder / "random", True), (folder, False)):
        curve = LearningCurve(part / _CURVE, watch)
        result = fit_image_encoder(start, out / "dataset", part, loop, curve, frozen=frozen)
        name = "random" if frozen else "trained"
        for last in read_curve(curve.path)[-1:]:
            say(
                f"image encoder, {name}: {last['retrieved']:.0%} of held-out frames retrieve their own caption "
                f"among {last['captions']:.0f}, {last['retrieved_in_5']:.0%} in the nearest five"
            )
    return result.folder


def is_restored(out: Path, result: Path) -> bool:
    """Return whether a result comes from the kept networks, not from a training here."""
    is_here = (out / result).exists() and not any((out / result.parts[0]).rglob(MADE_FROM))
    if is_here:
        say(f"{result.parts[0]}: from the kept networks")
    return is_here


def start_of(out: Path) -> Checkpoint:
    """Return the untrained checkpoint, written by the first call."""
    start = out / "start"
    return Checkpoint.open(start) if start.exists() else new_checkpoint(start, mini_config())


def train_autoencoder(out: Path, settings: FitSettings | None = None, watch: StepWatcher | None = None) -> Path:
    """Fit the autoencoder to stills and, for the first steps, to clips. Return the folder of the checkpoint."""
    if is_restored(out, FITTED):
        return out / FITTED
    settings = settings or mini().autoencoder or FitSettings()
    clips = settings.clips.model_copy(update={"steps": round(_FIRST_SHARE * settings.clips.steps)})
    return _fit(out, SEEN, out / "autoencoder", settings.model_copy(update={"clips": clips}), watch)


def train_autoencoder_more(out: Path, settings: FitSettings | None = None, watch: StepWatcher | None = None) -> Path:
    """Fit the autoencoder for the other steps. Return the folder of the checkpoint."""
    if is_restored(out, FITTED):
        return out / FITTED
    settings = settings or mini().autoencoder or FitSettings()
    steps = settings.clips.steps - round(_FIRST_SHARE * settings.clips.steps)
    clips = settings.clips.model_copy(update={"steps": steps, "learning_rate": settings.clips.learning_rate / 2})
    none = settings.stills.model_copy(update={"steps": 0})
    settings = settings.model_copy(update={"stills": none, "clips": clips})
    return _fit(out, Path("autoencoder", "clips", "result"), out / "autoencoder" / "more", settings, watch)


def _fit(out: Path, start: Path, folder: Path, settings: FitSettings, watch: StepWatcher | None) -> Path:
    curve = LearningCurve(folder / _CURVE, watch)
    fitted = fit_autoencoder(Checkpoint.open(out / start), out / "dataset", folder, settings, curve)
    say("autoencoder: " + ", ".join(f"{split} {decibels:.1f} dB" for split, decibels in fitted.after.items()))
    return fitted.checkpoint.folder
