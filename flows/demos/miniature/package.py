"""Pack and unpack steps: the trained model as the checkpoint of the package, in `models/mini`, and back.

OUT/autoencoder/clips/result, OUT/model/adapt/result    links to the unpacked checkpoint: the judge, claims and drift of
                                                        the package's model, without a training
"""

from __future__ import annotations

from pathlib import Path

from flows.console.terminal import say
from flows.demos.miniature.measured.measured_models import FITTED, MAIN
from models.checkpoint import Checkpoint
from models.shipped import PACKED, pack, unpack
from pipeline.core.errors import UserError

_ABOUT = (
    "This model has seen nothing but a small world drawn by code: the characters, motions and places above. It knows "
    "few other words. A turn shows one character in action, perhaps with another one beside: who and where as asked, "
    "the motion in seven of eight turns. It remembers the time of day, raincoats half of the time, flags hardly."
)


def pack_model(out: Path, packed: Path = PACKED) -> None:
    """Write the trained model in half precision, in the place of the one packed before."""
    trained = Checkpoint.open(out / MAIN / "adapt" / "result")
    start = Checkpoint.open(out / FITTED)
    described = Checkpoint(trained.folder, trained.config.replaced(about=_ABOUT))
    pack(described, start, packed)
    size = sum(path.stat().st_size for path in packed.rglob("*") if path.is_file())
    say(f"{packed}: {size / 1e6:.1f} MB")


def unpack_model(out: Path, packed: Path = PACKED) -> None:
    """Put the packed model where the steps `autoencoder` and `model` put a trained one.

    Raises:
        UserError: one of them has begun here.
    """
    folder = out / "unpacked"
    if not folder.exists():
        unpack(packed, folder)
    for step, result in (("autoencoder", "clips/result"), (MAIN, "adapt/result")):
        link = out / step / result
        if link.is_symlink():
            continue
        if (out / step).exists():
            raise UserError(f"{out / step} holds a training: name another --out for the model of the package")
        link.parent.mkdir(parents=True)
        link.symlink_to(folder.resolve(), target_is_directory=True)
    say(f"the model of the package is in {folder}; data, judge, claims and drift measure it")
