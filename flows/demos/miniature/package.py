"""Pack and unpack steps: the trained model as the checkpoint of the package, in `models/mini`, and back.

OUT/unpacked                                   the model of the package; OUT/model/adapt/result is a link to it
OUT/autoencoder/clips/result                   its autoencoder beside the trained image encoder: a start for `variants`

Without the hours of `autoencoder` and `model`, the judge, claims and drift then measure the package's model.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from flows.console.terminal import say
from flows.demos.miniature.measured.measured_models import FITTED, MAIN
from models.checkpoint import Checkpoint
from models.checkpoint_writer import link_or_copy, writing
from models.config import inside_id
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
    """Put the packed model where the steps `autoencoder` and `model` put trained ones.

    Raises:
        UserError: one of them has begun here, or the image encoder is not trained.
    """
    unpacked, start, trained = out / "unpacked", out / FITTED, out / MAIN / "adapt" / "result"
    for step in ("autoencoder", MAIN):
        # folders alone are what a killed unpacking leaves
        if not trained.is_symlink() and any(not path.is_dir() for path in (out / step).rglob("*")):
            raise UserError(f"{out / step} holds a training: name another --out for the model of the package")
    encoder = out / "image_encoder" / "result"
    if not encoder.exists():
        raise UserError(f"{encoder} is not there: run the step `image-encoder` first")
    if not unpacked.exists():
        unpack(packed, unpacked)
    if not trained.is_symlink():  # before the start, since it tells an interrupted unpacking from a training
        trained.parent.mkdir(parents=True, exist_ok=True)
        trained.symlink_to(os.path.relpath(unpacked, trained.parent), target_is_directory=True)
    if start.is_symlink():  # by an earlier version: to the trained model
        start.unlink()
    if not start.exists():
        _write_start(start, encoder, unpacked / inside_id("autoencoder"))
    say(f"the model of the package is in {unpacked}; judge, claims and drift measure it")


def _write_start(start: Path, encoder: Path, autoencoder: Path) -> None:
    """Write the checkpoint of the trained image encoder with another autoencoder."""
    with writing(start) as part:
        shutil.copytree(encoder, part, copy_function=link_or_copy, dirs_exist_ok=True)
        replaced = part / inside_id("autoencoder")
        shutil.rmtree(replaced)
        shutil.copytree(autoencoder, replaced, copy_function=link_or_copy)
