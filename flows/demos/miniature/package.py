"""Networks of the miniature that come with the package: trained once, stored in half precision in `models/mini`.

models/mini/config.json             configuration of size mini
models/mini/bases/autoencoder/      in the hub's format, as in every checkpoint
models/mini/bases/image_encoder/
models/mini/judge/                  judge_network.Judge.open
"""

from __future__ import annotations

import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

import models
from flows.console.terminal import say
from flows.demos.miniature.autoencoder import start_of
from models.checkpoint import Checkpoint, copy_rest, link_or_copy, save_config, writing
from models.config import Component, inside_id
from pipeline.core.errors import UserError

PACKAGED = Path(models.__file__).parent / "mini"
_NETWORKS: tuple[Component, ...] = ("autoencoder", "image_encoder")


def pack_networks(out: Path, packaged: Path = PACKAGED) -> None:
    """Write the networks trained so far in half precision, in the place of those that came with the package."""
    fitted = Checkpoint.open(_result(out))
    shutil.rmtree(packaged, ignore_errors=True)
    with writing(packaged) as part:
        save_config(part, fitted.config)
        for name in _NETWORKS:
            _halve(fitted.folder / inside_id(name), part / inside_id(name))
        _halve(out / "judge" / "result", part / "judge")
    size = sum(path.stat().st_size for path in packaged.rglob("*") if path.is_file())
    say(f"{packaged}: {size / 1e6:.1f} MB")


def unpack_networks(out: Path, packaged: Path = PACKAGED) -> Checkpoint:
    """Put the packaged networks in the place of those that `judge`, `autoencoder` and `image-encoder` would train.

    Raises:
        UserError: the package has none, or one of these has begun to train here.
    """
    if not packaged.exists():
        raise UserError(f"{packaged}: no such folder; train the networks here by `all`")
    start, result = start_of(out), _result(out)
    with writing(out / "judge" / "result") as part:
        _copy(packaged / "judge", part)
    with writing(result) as part:
        save_config(part, start.config)
        copy_rest(start, part, {inside_id(name) for name in _NETWORKS})
        for name in _NETWORKS:
            _copy(packaged / inside_id(name), part / inside_id(name))
    return Checkpoint.open(result)


def _result(out: Path) -> Path:
    return out / "image_encoder" / "result"


def _halve(source: Path, target: Path) -> None:
    """Copy a folder, weights in half precision."""
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.suffix == ".safetensors":
            save_file({name: value.half() for name, value in load_file(path).items()}, target / path.name)
        elif path.is_file():
            link_or_copy(path, target / path.name)


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        link_or_copy(path, target / path.name)
