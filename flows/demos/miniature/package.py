"""Pack step: the trained model into `models/mini`, the checkpoint that `play` takes if none is named."""

from __future__ import annotations

from pathlib import Path

from flows.console.terminal import say
from models.checkpoint import Checkpoint
from models.shipped import PACKED, pack

_ABOUT = (
    "This model has seen nothing but a small world drawn by code: the characters, motions and places above. It knows "
    "few other words. A turn shows one character in action, perhaps with another one beside. It remembers the last "
    "four turns: the time of day, a raincoat that was put on, a flag that was planted."
)


def pack_model(out: Path, packed: Path = PACKED) -> None:
    """Write the trained model in half precision, in the place of the one packed before."""
    trained = Checkpoint.open(out / "model" / "adapt" / "result")
    start = Checkpoint.open(out / "autoencoder" / "clips" / "result")
    described = Checkpoint(trained.folder, trained.config.replaced(about=_ABOUT))
    pack(described, start, packed)
    size = sum(path.stat().st_size for path in packed.rglob("*") if path.is_file())
    say(f"{packed}: {size / 1e6:.1f} MB")
