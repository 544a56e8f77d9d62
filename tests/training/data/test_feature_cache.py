"""Feature cache: stale files named, killed runs continued, folders shared by runs, work shared by processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from models.checkpoint import Checkpoint
from pipeline.core.config import ShardSettings
from pipeline.core.errors import DiskError, NoRoomError, UserError
from pipeline.core.records import Caption
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.tiny_models import tiny_checkpoint
from training.data.definitions import (
    FROZEN,
    open_cache,
)
from training.data.encoding import Encoder
from training.data.feature_cache import Feature, FeatureCache, share_of, share_out, space_needed
from training.data.shards import open_shards
from training.data.turns import Catalog, PackedTurn
from training.recipes import tiny

PIXELS = Feature("pixels", (16, 24, 3), torch.float32, {"scale": "1"})


def first_pixels(turns: Sequence[PackedTurn]) -> Tensor:
    """Small encoder: the pixels of the first frame."""
    return torch.stack([turn.frames(16, 24)[0].float() for turn in turns])


@pytest.fixture(scope="module")
def catalog(catalogs: list[Catalog]) -> Catalog:
    return catalogs[0]


def filled(folder: Path, catalog: Catalog, feature: Feature = PIXELS) -> FeatureCache:
    cache = FeatureCache(folder, catalog, [feature])
    cache.fill_from_videos(feature.name, first_pixels, batch_size=2)
    return cache


def filled_shared(folder: Path, catalog: Catalog, feature: Feature = PIXELS) -> int:
    """Fill a cache that runs share; return the number of clips that were encoded."""
    return FeatureCache(folder, catalog, [feature], shared=True).fill_from_videos("pixels", first_pixels, batch_size=2)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_second_run_encodes_nothing_and_progress_counts_clips(tmp_path: Path, catalog: Catalog) -> None:
    cache = FeatureCache(tmp_path, catalog, [PIXELS])
    seen: list[tuple[int, int]] = []
    done = cache.fill_from_videos(
        "pixels", first_pixels, batch_size=2, progress=lambda done, total: seen.append((done, total))
    )
    assert done == len(catalog)
    assert seen[-1] == (len(catalog), len(catalog))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    before = contents(tmp_path)
    assert cache.fill_from_videos("pixels", first_pixels, batch_size=2) == 0
    assert contents(tmp_path) == before


def test_returned_features_can_be_changed_without_harm(tmp_path: Path, catalog: Catalog) -> None:
    cache = filled(tmp_path, catalog)
    clip_id = catalog.turns[0].clip_id
    before = cache.get("pixels", clip_id).clone()
    cache.get("pixels", clip_id).zero_()
    assert before.any()
    assert torch.equal(cache.get("pixels", clip_id), before)
    assert torch.equal(pickle.loads(pickle.dumps(cache)).get("pixels", clip_id), before)


@pytest.mark.parametrize(
    ("now", "named"),
    [
        (replace(PIXELS, ingredients={"scale": "2"}), "scale"),
        (replace(PIXELS, dtype=torch.float16), "dtype"),
        (replace(PIXELS, shape=(16, 24, 4)), "shape"),
    ],
)
def test_stale_features_are_named_and_never_returned(
    tmp_path: Path, catalog: Catalog, now: Feature, named: str
) -> None:
    filled(tmp_path, catalog)
    cache = FeatureCache(tmp_path, catalog, [now])
    assert cache.faults("pixels") == {shard.name: f"is stale: {named} changed" for shard in catalog.shards}
    with pytest.raises(UserError, match=rf"000000.safetensors is stale: {named} changed; fill the cache again"):
        cache.get("pixels", catalog.turns[0].clip_id)


def test_only_changed_shards_are_encoded_again(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "set", scenes=4, captioner=MODEL)
    write_shards(dataset, ShardSettings(samples=2, val_share=0))
    before = Catalog.read(open_shards(tmp_path / "set", "train"))
    filled(tmp_path / "cache", before)
    last = dataset.folder(dataset.record.films[-1].film_id)
    captions = list(last.read("captions", Caption))
    last.write("captions", [*captions[:-1], captions[-1].model_copy(update={"MD": "sleeps"})])
    write_shards(dataset, ShardSettings(samples=2, val_share=0))
    after = Catalog.read(open_shards(tmp_path / "set", "train"))
    cache = FeatureCache(tmp_path / "cache", after, [PIXELS])
    assert cache.faults("pixels") == {after.shards[-1].name: "is stale: shard changed"}
    assert cache.fill_from_videos("pixels", first_pixels, batch_size=8) == after.shards[-1].entry.samples
    assert cache.faults("pixels") == {}


def test_missing_and_damaged_files_are_named_and_made_again(tmp_path: Path, catalog: Catalog) -> None:
    cache = filled(tmp_path, catalog)
    before = contents(tmp_path)
    one, other = (tmp_path / "pixels" / shard.name.replace(".tar", ".safetensors") for shard in catalog.shards[:2])
    one.unlink()
    other.write_bytes(other.read_bytes()[:-7])
    faults = FeatureCache(tmp_path, catalog, [PIXELS]).faults("pixels")
    assert faults[catalog.shards[0].name] == "is missing"
    assert faults[catalog.shards[1].name].startswith("is damaged (")
    assert len(faults) == 2
    cache = FeatureCache(tmp_path, catalog, [PIXELS])
    with pytest.raises(UserError, match="is missing; fill"):
        cache.get("pixels", catalog.turns[0].clip_id)
    cache.fill_from_videos("pixels", first_pixels, batch_size=2)
    assert contents(tmp_path) == before


def _killed_in_the_third_shard(folder: Path, catalog: Catalog) -> None:
    left = sum(shard.entry.samples for shard in catalog.shards[:2]) + 1

    def encode(turns: Sequence[PackedTurn]) -> Tensor:
        nonlocal left
        left -= len(turns)
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return first_pixels(turns)

    FeatureCache(folder, catalog, [PIXELS]).fill_from_videos("pixels", encode, batch_size=1)


def test_a_run_killed_in_the_middle_is_continued_to_the_same_bytes(tmp_path: Path, catalog: Catalog) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    FeatureCache(whole, catalog, [PIXELS]).fill_from_videos("pixels", first_pixels, batch_size=1)
    process = multiprocessing.get_context("fork").Process(target=_killed_in_the_third_shard, args=(broken, catalog))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    kept = contents(broken)
    assert len(kept) == 2
    assert {name: contents(whole)[name] for name in kept} == kept

    cache = FeatureCache(broken, catalog, [PIXELS])
    rest = sum(shard.entry.samples for shard in catalog.shards[2:])
    assert cache.fill_from_videos("pixels", first_pixels, batch_size=1) == rest
    assert contents(broken) == contents(whole)


@pytest.mark.parametrize(
    ("encode", "says"),
    [
        (lambda turns: torch.zeros(len(turns), 5), r"returned shape \(2, 5\), expected \(2, 16, 24, 3\)"),
        (lambda turns: torch.full((len(turns), 16, 24, 3), float("nan")), "pixels of clip .* not finite"),
    ],
)
def test_invalid_encoder_outputs_are_refused(
    tmp_path: Path, catalog: Catalog, encode: Callable[[Sequence[PackedTurn]], Tensor], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        FeatureCache(tmp_path, catalog, [PIXELS]).fill_from_videos("pixels", encode, batch_size=2)
    assert contents(tmp_path) == {}


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> list[Catalog]:
    """Catalogs of `train` and `val`, two films in shards of about three clips."""
    root = tmp_path_factory.mktemp("dataset")
    write_shards(make_dataset(root, scenes=4, clips=2, captioner=MODEL), ShardSettings(samples=3, val_share=0.3))
    return [Catalog.read(open_shards(root, split)) for split in ("train", "val")]


def test_runs_with_equal_networks_and_clips_share_files(tmp_path: Path, catalog: Catalog) -> None:
    assert filled_shared(tmp_path, catalog) == len(catalog)
    assert filled_shared(tmp_path, catalog) == 0
    other = replace(PIXELS, ingredients={"scale": "2"})
    assert filled_shared(tmp_path, catalog, other) == len(catalog)
    assert filled_shared(tmp_path, catalog) == 0, "the other network must not make these stale"
    assert len(list((tmp_path / "pixels").iterdir())) == 2
    part = Catalog.read(catalog.shards[:1])
    assert filled_shared(tmp_path, part) == 0, "a dataset with some of the shards shares those"
    entry = catalog.shards[0].entry.model_copy(update={"name": "train/renamed-000000.tar"})
    assert filled_shared(tmp_path, Catalog.read([replace(catalog.shards[0], entry=entry)])) == 0, "by any name"
    cache = FeatureCache(tmp_path, catalog, [PIXELS], shared=True)
    assert cache.get("pixels", catalog.turns[0].clip_id).shape == (16, 24, 3)


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
    filled_shared(tmp_path / "alone", catalogs[0])
    both, alone = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "both", tmp_path / "alone")
    )
    assert both == alone
    times = Counter(encoded.get(timeout=5) for _ in range(encoded.qsize()))
    assert times.keys() == {turn.clip_id for turn in catalogs[0].turns}
    assert min(times.values()) == 1, "the later run skips the shards that the first has finished"


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
    with pytest.raises(NoRoomError, match=r"for features \(pixels .*GB are free: make room, or name .*--features"):
        space_needed([huge], ("pixels",))
    for catalog in catalogs:
        filled(tmp_path / "new/folder", catalog)
    assert space_needed(caches, ("pixels",)) == ""


def test_a_folder_of_features_that_cannot_be_written_is_named(tmp_path: Path, catalogs: list[Catalog]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        with pytest.raises(NoRoomError, match=r"encoded/.*: cannot .*File too large.*; make room"):
            filled_shared(tmp_path / "encoded", catalogs[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "encoded").rglob("*.*")) == []
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match=r"file: cannot .*Not a directory"):
        open_cache(tmp_path / "file", catalogs[0], Checkpoint.open(tiny_checkpoint()), tiny(), ["text"])


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
