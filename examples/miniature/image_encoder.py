"""Image encoder step: untrained checkpoint of size mini, and its image encoder trained on frames against captions.

OUT/start                         the untrained checkpoint
OUT/image_encoder/result          the same with the trained image encoder
OUT/image_encoder/curve.jsonl     its learning curve: held-out frames that retrieve their caption, over CPU seconds
OUT/image_encoder/random          the random encoder as it is, measured alike: only the projections are trained
"""

from __future__ import annotations

from pathlib import Path

from examples.miniature.learning_curve import LearningCurve, read_curve
from flows.console.terminal import say
from models.checkpoint import Checkpoint
from models.config import mini_config
from models.untrained import new_checkpoint
from training.config import LoopSettings
from training.phases.image_encoder import fit_image_encoder

LOOP = LoopSettings(
    steps=1500,
    batch_size=64,
    micro_batch=64,
    learning_rate=1e-3,
    rate_warm_up=100,
    weight_decay=0.05,
    save_every=250,
    validate_every=250,
)
_CURVE = "curve.jsonl"


def train_image_encoder(out: Path, loop: LoopSettings = LOOP) -> Path:
    """Train the image encoder, and the projections of the random one. Return the folder of the checkpoint."""
    start, folder = _start_of(out), out / "image_encoder"
    result = start
    for part, frozen in ((folder / "random", True), (folder, False)):
        curve = LearningCurve(part / _CURVE)
        result = fit_image_encoder(start, out / "dataset", part, loop, curve, frozen=frozen)
        name = "random" if frozen else "trained"
        for last in read_curve(curve.path)[-1:]:
            say(
                f"image encoder, {name}: {last['retrieved']:.0%} of held-out frames retrieve their own caption "
                f"among {last['captions']:.0f}, {last['retrieved_in_5']:.0%} in the nearest five"
            )
    return result.folder


def _start_of(out: Path) -> Checkpoint:
    """Return the untrained checkpoint, written by the first call."""
    start = out / "start"
    return Checkpoint.open(start) if start.exists() else new_checkpoint(start, mini_config())
