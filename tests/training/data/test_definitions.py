"""Definitions of features: what they are made from, the networks' identities, and the room that they take."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from models.checkpoint import Checkpoint
from models.config import full_config
from tests.support.networks.small_run import small_dataset, small_recipe
from tests.support.networks.tiny_models import copy_of_tiny, tiny_checkpoint
from training.data.definitions import (
    FROZEN,
    TRAINED,
    bytes_per_clip,
    made_by_base,
    made_by_files,
    open_cache,
    remembered,
)
from training.data.feature_cache import (
    readable,
)
from training.data.shards import open_shards
from training.data.turns import Catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.read(open_shards(small_dataset(), "train"))


def test_the_published_model_needs_80_gb_for_20_000_clips() -> None:
    assert readable(20_000 * bytes_per_clip((*FROZEN, *TRAINED), full_config())) == "80.2 GB"


def test_the_hash_of_a_base_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    base = Checkpoint.open(copy_of_tiny(tmp_path / "model")).base("autoencoder")

    def known(folder: Path) -> dict[str, str]:
        with remembered(folder) as sha256:
            return made_by_base("autoencoder", base, sha256)

    before = known(tmp_path)
    assert before == made_by_base("autoencoder", base)
    weights = next(Path(base.id).glob("*.safetensors"))
    status, content = weights.stat(), weights.read_bytes()
    weights.write_bytes(bytes(len(content)))
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert known(tmp_path) == before, "the file was read again"
    weights.write_bytes(content[:-1])
    assert known(tmp_path) != before


def test_tiles_are_part_of_what_latents_are_made_from(tmp_path: Path, catalog: Catalog) -> None:
    checkpoint = Checkpoint.open(tiny_checkpoint())
    plain, tiled = (
        open_cache(tmp_path, catalog, checkpoint, small_recipe(features={"tiled": tiled}), FROZEN).features
        for tiled in (False, True)
    )
    assert tiled["latents"].ingredients == {**plain["latents"].ingredients, "tiles": "360x240"}
    assert (tiled["patches"], tiled["text"]) == (plain["patches"], plain["text"])


def test_an_encoder_is_identified_by_its_files_in_any_folder(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "model"))
    base = checkpoint.base("autoencoder")
    before = made_by_base("autoencoder", base)
    assert before == made_by_base("autoencoder", Checkpoint.open(tiny_checkpoint()).base("autoencoder"))
    shutil.copytree(base.id, tmp_path / "elsewhere")
    assert before == made_by_base("autoencoder", base.model_copy(update={"id": str(tmp_path / "elsewhere")}))
    weights = next(Path(base.id).glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    assert made_by_base("autoencoder", base) != before
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"1")
    other.write_bytes(b"2")
    assert made_by_files("x", one, other) != made_by_files("x", other, one)
    assert made_by_files("x", one)["x"] != made_by_files("x", other)["x"]


def test_a_base_on_the_hub_is_identified_by_its_commit() -> None:
    base = full_config().bases["autoencoder"].model_copy(update={"revision": "0123456789" * 4})
    known = made_by_base("autoencoder", base)
    assert known == {"autoencoder": f"zai-org/CogVideoX-2b@{'0123456789' * 4} vae"}
    assert made_by_base("autoencoder", base.model_copy(update={"revision": "9876543210" * 4})) != known
