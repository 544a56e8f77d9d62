"""Definitions of the cached features: shape of a clip's tensor, and the ingredients that it is made from.

The first three features come from frozen networks and are shared by all runs on the same data; the other two depend on
a trained network. `training/data/encoding.py` has the table of the features and computes them. A network is identified
by its commit on the hub, or by the hash of its files. `remembered` keeps these hashes in the folder of the features, by
size, modification time and inode, so that gigabytes of weights are read for this only once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from models.checkpoint import SHOT_ENCODER, Checkpoint
from models.config import Base, Component, ModelConfig
from models.engine import TILE
from models.frames import LATENT_CHANNELS
from models.hub import pinned
from models.shot_decoder import SPATIAL_COMPRESSION
from pipeline.core.errors import disk_errors
from pipeline.core.hashes import Hashes
from pipeline.publish.shards import file_sha256
from training.config import Recipe
from training.data.feature_cache import Feature, FeatureCache, storage_dtype
from training.data.turns import Catalog

Name = Literal["latents", "patches", "text", "shot_tokens", "predictions"]
FROZEN: tuple[Name, ...] = ("latents", "patches", "text")
TRAINED: tuple[Name, ...] = ("shot_tokens", "predictions")
_COMMIT = re.compile("[0-9a-f]{40}")
Sha256 = Callable[[Path], str]


def open_cache(
    folder: Path,
    catalog: Catalog,
    checkpoint: Checkpoint,
    recipe: Recipe,
    names: Sequence[Name],
    *,
    rollout: bool = False,
    shared: bool = False,
) -> FeatureCache:
    """Open a cache of features, defined by the networks of a checkpoint; nothing is encoded yet."""
    with remembered(folder) as sha256:
        defined = _Definitions(catalog, checkpoint, recipe, rollout, sha256, shared)
        features = [defined.feature(name) for name in names]
    return FeatureCache(folder, catalog, features, shared=shared)


def bytes_per_clip(names: Sequence[Name], config: ModelConfig) -> int:
    """Return the disk space of features of one clip."""
    sizes = (torch.Size(_shape(name, config)).numel() for name in names)
    return sum(sizes) * storage_dtype(config).itemsize


def made_in_tiles(tiled: bool) -> dict[str, str]:
    """Return the size of the tiles as an ingredient of latents; empty if clips are encoded whole."""
    return {"tiles": f"{TILE['tile_sample_min_width']}x{TILE['tile_sample_min_height']}"} if tiled else {}


@dataclass(frozen=True)
class _Definitions:
    """Definitions of features by the networks of a checkpoint."""

    catalog: Catalog
    checkpoint: Checkpoint
    recipe: Recipe
    rollout: bool
    sha256: Sha256
    shared: bool

    def feature(self, name: Name) -> Feature:
        config = self.checkpoint.config
        return Feature(name, _shape(name, config), storage_dtype(config), self._ingredients(name))

    def _ingredients(self, name: Name) -> dict[str, str]:
        """Return the ingredients of a feature, and of the features that it depends on."""
        checkpoint, recipe = self.checkpoint, self.recipe
        if name == "latents":
            return self._base("autoencoder") | made_in_tiles(recipe.features.tiled)
        if name == "patches":
            shot = checkpoint.config.shot_decoder
            seen = {"frames": f"{shot.frames} {shot.width}x{shot.height}"}  # equal for all features of one run
            return self._base("image_encoder") | {"frame": recipe.shot.frame} | (seen if self.shared else {})
        if name == "text":
            return self._base("text_encoder")
        inputs = self._ingredients("patches") | self._ingredients("text")
        shot_tokens = inputs | self._files("shot_encoder", checkpoint.folder / SHOT_ENCODER)
        if name == "shot_tokens":
            return shot_tokens
        return {
            **shot_tokens,
            **self._base("language_model"),
            **self._files("game_model", *checkpoint.game_model_files()),
            "conventions": checkpoint.config.conventions.model_dump_json(),
            "windows": recipe.game.windows.model_dump_json(),
            "turns": self.catalog.fingerprint,
            **({"past": "predicted, unmeasured values hidden"} if self.rollout else {}),
        }

    def _base(self, component: Component) -> dict[str, str]:
        return made_by_base(component, self.checkpoint.base(component), self.sha256)

    def _files(self, name: str, *files: Path) -> dict[str, str]:
        return made_by_files(name, *files, sha256=self.sha256)


def _shape(name: Name, config: ModelConfig) -> tuple[int, ...]:
    shot, encoder = config.shot_decoder, config.shot_encoder
    height, width = shot.height // SPATIAL_COMPRESSION, shot.width // SPATIAL_COMPRESSION
    tokens = (encoder.shot_tokens, encoder.width)
    shapes: dict[Name, tuple[int, ...]] = {
        "latents": (2, shot.latent_frames, LATENT_CHANNELS, height, width),
        "patches": (encoder.image_tokens, encoder.image_width),
        "text": (encoder.text_tokens, encoder.text_width),
        "shot_tokens": tokens,
        "predictions": tokens,
    }
    return shapes[name]


def made_by_base(name: str, base: Base, sha256: Sha256 = file_sha256) -> dict[str, str]:
    """Return a frozen base as an ingredient: its commit on the hub, or the hash of all files in its folder.

    Args:
        sha256: hash of a file; `remembered` gives a function that reads each file once.

    Raises:
        UserError: there is no such base, or it is on the hub and its commit is neither configured nor cached.
    """
    found = base if _COMMIT.fullmatch(base.revision or "") else pinned(base)
    subfolders = sorted({found.subfolder, found.tokenizer_subfolder or found.subfolder})
    if not Path(found.id).is_dir():
        return {name: f"{found.id}@{found.revision} {' '.join(subfolders)}".rstrip()}
    folders = [Path(found.id) / subfolder for subfolder in subfolders]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return made_by_files(name, *files, sha256=sha256)


def made_by_files(name: str, *paths: Path, sha256: Sha256 = file_sha256) -> dict[str, str]:
    """Return weight files as an ingredient: the hash of their names and contents."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {sha256(path)}\n".encode())
    return {name: digest.hexdigest()}


@contextmanager
def remembered(folder: Path) -> Iterator[Sha256]:
    """Yield a hash of files that remembers them in a folder. DiskError if the folder cannot be used."""
    with disk_errors(folder):
        hashes = Hashes(folder / ".hashes.json")
    yield hashes.of
    hashes.save()
