"""Feature cache: features of real encoders are read back, stale ones named, and killed runs continued."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.checkpoint import Checkpoint
from models.config import full_config, tiny_config
from models.frames import encode_frames
from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.core.records import Caption
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.tiny_models import copy_of_tiny, tiny_checkpoint
from training.data.definitions import made_by_base, made_by_files
from training.data.feature_cache import Feature, FeatureCache, storage_dtype
from training.data.shards import open_shards
from training.data.turns import Catalog, PackedTurn, RecordedTurn, read_turns

PIXELS = Feature("pixels", (16, 24, 3), torch.float32, {"scale": "1"})


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Two films in shards of about three clips."""
    root = tmp_path_factory.mktemp("dataset")
    write_shards(make_dataset(root, scenes=4, clips=2, captioner=MODEL), ShardSettings(samples=3, val_share=0))
    return Catalog.read(open_shards(root, "train"))


def first_pixels(turns: Sequence[PackedTurn]) -> Tensor:
    """Small encoder: the pixels of the first frame."""
    return torch.stack([turn.frames(16, 24)[0].float() for turn in turns])


def filled(folder: Path, catalog: Catalog, feature: Feature = PIXELS) -> FeatureCache:
    cache = FeatureCache(folder, catalog, [feature])
    cache.fill_from_videos(feature.name, first_pixels, batch_size=2)
    return cache


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_features_of_real_encoders_are_read_back_for_every_clip(tmp_path: Path, catalog: Catalog) -> None:
    checkpoint = Checkpoint.open(tiny_checkpoint())
    shot, encoder = checkpoint.config.shot_decoder, checkpoint.config.shot_encoder
    autoencoder = checkpoint.autoencoder()
    image_encoder, text_encoder = checkpoint.image_encoder(), checkpoint.text_encoder()

    def latents(turns: Sequence[PackedTurn]) -> Tensor:
        frames_BTHWC = torch.stack([turn.frames(shot.height, shot.width, shot.frames) for turn in turns])
        moments = encode_frames(autoencoder, frames_BTHWC)
        return torch.stack([moments.mean_BTCHW, moments.logvar_BTCHW], dim=1)

    def patches(turns: Sequence[PackedTurn]) -> Tensor:
        return image_encoder.patches(torch.stack([turn.frames(shot.height, shot.width)[0] for turn in turns]))

    def texts(turns: Sequence[RecordedTurn]) -> Tensor:
        return text_encoder.states([turn.instruction for turn in turns])

    base = checkpoint.base
    features = [
        Feature("latents", (2, 5, 16, 8, 12), torch.float32, made_by_base("autoencoder", base("autoencoder"))),
        Feature("patches", (64, encoder.image_width), torch.float32, made_by_base("CLIP", base("image_encoder"))),
        Feature("text", (16, encoder.text_width), torch.float32, made_by_base("T5", base("text_encoder"))),
    ]
    small = Catalog.read(catalog.shards[1:2])
    cache = FeatureCache(tmp_path, small, features)
    expected = {feature.name: feature.bytes_of(len(small)) for feature in features}
    assert {name: cache.bytes_to_make(name) for name in cache.features} == expected
    assert cache.fill_from_videos("latents", latents, batch_size=2) == len(small)
    cache.fill_from_videos("patches", patches, batch_size=2)
    cache.fill_from_turns("text", texts, batch_size=2)
    for name in cache.features:
        on_disk = sum(path.stat().st_size for path in (tmp_path / name).rglob("*.safetensors"))
        assert expected[name] < on_disk < expected[name] + 1000 + 200 * len(small)
        assert cache.bytes_to_make(name) == 0
    packed = list(read_turns(small.shards))
    assert len(packed) == len(small) >= 3
    for first in range(0, len(packed), 2):  # in the same batches, so that every bit must be equal
        pair = packed[first : first + 2]
        encoded = {"latents": latents(pair), "patches": patches(pair), "text": texts([each.turn for each in pair])}
        for name, rows in encoded.items():
            assert torch.equal(torch.stack([cache.get(name, each.clip_id) for each in pair]), rows)


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
        (replace(PIXELS, ingredients={"scale": "1", "crop": "3"}), "crop"),
        (replace(PIXELS, ingredients={}), "scale"),
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


def test_leftovers_of_a_killed_write_are_ignored_and_swept(tmp_path: Path, catalog: Catalog) -> None:
    before = contents(filled(tmp_path / "whole", catalog).folder)
    name = catalog.shards[0].name.replace(".tar", ".safetensors")
    left = (tmp_path / "cache/pixels" / name).with_name(".film.animegamer-tmp-12345678.safetensors")
    left.parent.mkdir(parents=True)
    left.write_bytes(before[f"pixels/{name}"][:500])
    os.utime(left, (0, 0))
    assert FeatureCache(tmp_path / "cache", catalog, [PIXELS]).faults("pixels")[catalog.shards[0].name] == "is missing"
    assert contents(filled(tmp_path / "cache", catalog).folder) == before


def test_processes_divide_the_shards(tmp_path: Path, catalog: Catalog) -> None:
    caches = [FeatureCache(tmp_path / "cache", catalog, [PIXELS]) for _ in range(2)]
    for rank, cache in enumerate(caches):
        cache.fill_from_videos("pixels", first_pixels, batch_size=2, shards=catalog.shards[rank::2])
    assert caches[0].faults("pixels") == {}
    assert contents(tmp_path / "cache") == contents(filled(tmp_path / "alone", catalog).folder)


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


def test_an_empty_batch_size_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(UserError, match="batch_size is 0; it must be 1 or more"):
        FeatureCache(tmp_path, catalog, [PIXELS]).fill_from_videos("pixels", first_pixels, batch_size=0)
    assert contents(tmp_path) == {}


def test_numbers_too_large_for_half_precision_are_refused(tmp_path: Path, catalog: Catalog) -> None:
    half = replace(PIXELS, dtype=torch.float16)
    cache = filled(tmp_path, catalog, half)
    assert cache.get("pixels", catalog.turns[0].clip_id).dtype == torch.float16
    with pytest.raises(UserError, match="not finite"):
        FeatureCache(tmp_path / "other", catalog, [half]).fill_from_videos(
            "pixels", lambda turns: 1000 * first_pixels(turns), batch_size=2
        )


def test_the_published_model_has_the_documented_size_and_precision() -> None:
    assert storage_dtype(full_config()) == torch.float16
    assert storage_dtype(tiny_config()) == torch.float32
    latents = Feature("latents", (2, 5, 16, 60, 90), storage_dtype(full_config()), {})
    assert latents.bytes_of(20_000) == 20_000 * 2 * 5 * 16 * 60 * 90 * 2  # 35 GB


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
