"""Filling of feature caches: shared folders, shares of the processes, disk space, networks loaded and hashed once."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from models.checkpoint import Checkpoint
from models.config import full_config
from pipeline.core.config import ShardSettings
from pipeline.core.errors import DiskError, NoRoomError, UserError
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.small_run import small_recipe
from tests.support.networks.tiny_models import copy_of_tiny, tiny_checkpoint
from training.data.definitions import FROZEN, TRAINED, bytes_per_clip, made_by_base, open_cache, remembered
from training.data.encoding import Encoder
from training.data.feature_cache import Feature, FeatureCache, readable, share_of, share_out, space_needed
from training.data.shards import open_shards
from training.data.turns import Catalog, PackedTurn
from training.recipes import tiny

PIXELS = Feature("pixels", (16, 24, 3), torch.float32, {"scale": "1"})


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> list[Catalog]:
    """Catalogs of `train` and `val`, two films in shards of about three clips."""
    root = tmp_path_factory.mktemp("dataset")
    write_shards(make_dataset(root, scenes=4, clips=2, captioner=MODEL), ShardSettings(samples=3, val_share=0.3))
    return [Catalog.read(open_shards(root, split)) for split in ("train", "val")]


def first_pixels(turns: Sequence[PackedTurn]) -> Tensor:
    return torch.stack([turn.frames(16, 24)[0].float() for turn in turns])


def filled(folder: Path, catalog: Catalog, feature: Feature = PIXELS, *, shared: bool = True) -> int:
    """Fill a cache; return the number of clips that were encoded."""
    return FeatureCache(folder, catalog, [feature], shared=shared).fill_from_videos(
        "pixels", first_pixels, batch_size=2
    )


# --- a folder shared by several runs


def test_runs_with_equal_networks_and_clips_share_files(tmp_path: Path, catalogs: list[Catalog]) -> None:
    catalog = catalogs[0]
    assert filled(tmp_path, catalog) == len(catalog)
    assert filled(tmp_path, catalog) == 0
    other = replace(PIXELS, ingredients={"scale": "2"})
    assert filled(tmp_path, catalog, other) == len(catalog)
    assert filled(tmp_path, catalog) == 0, "the other network must not make these stale"
    assert len(list((tmp_path / "pixels").iterdir())) == 2
    part = Catalog.read(catalog.shards[:1])
    assert filled(tmp_path, part) == 0, "a data set with some of the shards shares those"
    cache = FeatureCache(tmp_path, catalog, [PIXELS], shared=True)
    assert cache.get("pixels", catalog.turns[0].clip_id).shape == (16, 24, 3)


def test_names_of_films_and_splits_do_not_matter(tmp_path: Path, catalogs: list[Catalog]) -> None:
    shard = catalogs[0].shards[0]
    renamed = replace(shard, entry=shard.entry.model_copy(update={"name": "train/renamed-000000.tar"}))
    assert filled(tmp_path, Catalog.read([shard])) > 0
    assert filled(tmp_path, Catalog.read([renamed])) == 0


def test_frames_of_another_size_are_other_features(tmp_path: Path, catalogs: list[Catalog]) -> None:
    checkpoint = Checkpoint.open(tiny_checkpoint())
    shot = checkpoint.config.shot_decoder.model_copy(update={"height": 32, "width": 48})
    small = Checkpoint(checkpoint.folder, checkpoint.config.replaced(shot_decoder=shot))
    caches = [
        open_cache(tmp_path, catalogs[0], each, tiny(), ("patches",), shared=True) for each in (checkpoint, small)
    ]
    assert caches[0].features["patches"].shape == caches[1].features["patches"].shape
    assert caches[0].features["patches"] != caches[1].features["patches"]


def _fill_slowly(
    folder: Path, catalog: Catalog, encoded: multiprocessing.Queue[str], ready: Barrier, delay: float
) -> None:
    def encode(turns: Sequence[PackedTurn]) -> Tensor:
        time.sleep(0.1)
        for turn in turns:
            encoded.put(turn.clip_id)
        return first_pixels(turns)

    ready.wait(timeout=120)
    time.sleep(delay)
    FeatureCache(folder, catalog, [PIXELS], shared=True).fill_from_videos("pixels", encode, batch_size=1)


@pytest.mark.nightly
def test_two_runs_that_fill_a_folder_at_once_leave_the_files_of_one(tmp_path: Path, catalogs: list[Catalog]) -> None:
    context = multiprocessing.get_context("spawn")
    encoded, ready = context.Queue(), context.Barrier(2)
    given = tmp_path / "both", catalogs[0], encoded, ready
    runs = [context.Process(target=_fill_slowly, args=(*given, delay)) for delay in (0.0, 0.5)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [run.exitcode for run in runs] == [0, 0]
    filled(tmp_path / "alone", catalogs[0])
    both, alone = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "both", tmp_path / "alone")
    )
    assert both == alone
    times = Counter(encoded.get(timeout=5) for _ in range(encoded.qsize()))
    assert times.keys() == {turn.clip_id for turn in catalogs[0].turns}
    assert min(times.values()) == 1, "the later run skips the shards that the first has finished"


# --- shares of the processes


def test_missing_shards_are_shared_out_evenly(tmp_path: Path, catalogs: list[Catalog]) -> None:
    caches = [FeatureCache(tmp_path, catalog, [PIXELS]) for catalog in catalogs]
    first = catalogs[0].shards[::2]
    caches[0].fill_from_videos("pixels", first_pixels, batch_size=2, shards=first)
    missing = [sorted(cache.faults("pixels")) for cache in caches]
    shares = [share_of(caches, missing, rank, 2) for rank in range(2)]
    given = [shard.name for share in shares for shards in share.values() for shard in shards]
    assert sorted(given) == sorted(name for names in missing for name in names)
    clips = [sum(shard.entry.samples for shards in share.values() for shard in shards) for share in shares]
    largest = max(shard.entry.samples for catalog in catalogs for shard in catalog.shards)
    assert min(clips) > 0
    assert max(clips) - min(clips) <= largest


def test_the_space_is_named_and_a_full_disk_refused_before_encoding(tmp_path: Path, catalogs: list[Catalog]) -> None:
    caches = [FeatureCache(tmp_path / "new/folder", catalog, [PIXELS]) for catalog in catalogs]
    needed = sum(cache.bytes_to_make("pixels") for cache in caches)
    line = space_needed(caches, ("pixels",), 5_000_000_000)
    assert line.startswith(f"features to make: {needed / 1e6:.1f} MB (pixels {needed / 1e6:.1f} MB), ")
    assert line.endswith("new/folder; later phases add 5.0 GB")
    huge = FeatureCache(tmp_path, catalogs[0], [replace(PIXELS, shape=(1 << 50,))])
    with pytest.raises(
        NoRoomError, match=r"of features to make \(pixels .*GB are free: make room, or name .*--features"
    ):
        space_needed([huge], ("pixels",))
    for catalog in catalogs:
        filled(tmp_path / "new/folder", catalog, shared=False)
    assert space_needed(caches, ("pixels",)) == ""


def test_a_folder_of_features_that_cannot_be_written_is_named(tmp_path: Path, catalogs: list[Catalog]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        with pytest.raises(NoRoomError, match=r"encoded/.*: cannot be written: File too large; make room"):
            filled(tmp_path / "encoded", catalogs[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "encoded").rglob("*.*")) == []
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="file: cannot be used: Not a directory"):
        open_cache(tmp_path / "file", catalogs[0], Checkpoint.open(tiny_checkpoint()), tiny(), ["text"])


def test_stale_files_count_as_room_for_new_ones(tmp_path: Path, catalogs: list[Catalog]) -> None:
    filled(tmp_path, catalogs[0], shared=False)
    cache = FeatureCache(tmp_path, catalogs[0], [replace(PIXELS, ingredients={"scale": "2"})])
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    assert cache.bytes_to_replace("pixels") == on_disk > 0


def test_the_published_model_needs_80_gb_for_20_000_clips() -> None:
    assert readable(20_000 * bytes_per_clip((*FROZEN, *TRAINED), full_config())) == "80.2 GB"


# --- networks


class _Loads(Checkpoint):
    """Checkpoint that notes the loading of networks."""

    loaded: list[str]

    def __getattribute__(self, name: str) -> object:
        if name in ("autoencoder", "image_encoder", "text_encoder"):
            object.__getattribute__(self, "loaded").append(name)
        return object.__getattribute__(self, name)


@pytest.mark.slow
def test_each_network_is_loaded_once_for_all_splits(tmp_path: Path, catalogs: list[Catalog]) -> None:
    opened = Checkpoint.open(tiny_checkpoint())
    checkpoint = _Loads(opened.folder, opened.config)
    object.__setattr__(checkpoint, "loaded", [])
    caches = [open_cache(tmp_path, catalog, checkpoint, tiny(), FROZEN) for catalog in catalogs]
    encoder = Encoder(checkpoint, tiny())
    for _ in range(2):
        work = share_out(caches, FROZEN, Accelerator())
        for name in FROZEN:
            encoder.make(name, work[name])
    assert checkpoint.loaded == ["autoencoder", "image_encoder", "text_encoder"]
    assert [cache.faults(name) for cache in caches for name in FROZEN] == [{}] * 6


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


def test_tiles_are_part_of_what_latents_are_made_from(tmp_path: Path, catalogs: list[Catalog]) -> None:
    checkpoint = Checkpoint.open(tiny_checkpoint())
    plain, tiled = (
        open_cache(tmp_path, catalogs[0], checkpoint, small_recipe(features={"tiled": tiled}), FROZEN).features
        for tiled in (False, True)
    )
    assert tiled["latents"].ingredients == {**plain["latents"].ingredients, "tiles": "360x240"}
    assert (tiled["patches"], tiled["text"]) == (plain["patches"], plain["text"])


def test_a_gpu_without_room_is_an_error_with_a_remedy(tmp_path: Path, catalogs: list[Catalog]) -> None:
    checkpoint = Checkpoint.open(tiny_checkpoint())
    cache = open_cache(tmp_path, catalogs[0], checkpoint, tiny(), ("latents",))

    class Small(Encoder):
        def _latents(self):  # type: ignore[no-untyped-def]
            def encode(*_: object) -> Tensor:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")

            return encode

    with pytest.raises(UserError, match=r"latents cannot be encoded: CUDA out of memory.*set features\.tiled"):
        Small(checkpoint, tiny()).make("latents", {cache: catalogs[0].shards})
