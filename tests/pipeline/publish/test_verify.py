"""Faults that `animegamer verify` finds in a dataset, each made on purpose; and none in a sound one."""

import json
import re
import tarfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.atomic import temporary_start
from pipeline.core.config import ShardSettings
from pipeline.core.measurements import Looks, Motion
from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import Dataset
from pipeline.publish.shards import read_index, write_shards
from pipeline.publish.verify import verify
from pipeline.video.clip_files import write_clip
from tests.support.datasets.damaged_shards import (
    change_row,
    edit_index,
    edit_member,
    edit_sample,
    extra_member,
    first_tar,
    repack,
    replace_tar,
)
from tests.support.datasets.made_dataset import MODEL, make_dataset, moving_square


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    dataset = make_dataset(tmp_path_factory.mktemp("original"), captioner=MODEL)
    write_shards(dataset, ShardSettings(samples=3))
    return dataset


def faults(dataset: Dataset) -> list[str]:
    return [str(fault) for fault in verify(dataset, threads=2)]


def half_written(path: Path) -> Path:
    return path.with_name(f"{temporary_start(path)}ab12_xyz.tar")


def clip_bytes(tmp_path: Path, frames: np.ndarray, fps: int = 8) -> bytes:
    path = tmp_path / "other.mp4"
    write_clip(path, frames, Fraction(fps), crf=23)
    return path.read_bytes()


# --- sound datasets


@pytest.mark.parametrize("captioner", ["rules", MODEL])
def test_a_freshly_written_dataset_has_no_fault(tmp_path: Path, captioner: str) -> None:
    dataset = make_dataset(tmp_path, captioner=captioner, damaged_seconds=1.5)
    write_shards(dataset, ShardSettings(samples=2))
    seen: list[tuple[float, float]] = []
    assert verify(dataset, progress=lambda done, total: seen.append((done, total))) == []
    assert seen[-1] == (15, 15)


def test_rebuilding_repairs_damage(dataset: Dataset) -> None:
    path = first_tar(dataset)
    path.write_bytes(path.read_bytes()[:-600] + bytes(100))
    half_written(path).write_bytes(b"half")
    assert len(faults(dataset)) >= 2
    write_shards(dataset, ShardSettings(samples=3))
    assert faults(dataset) == []


# --- files and index


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d.root / "shards" / "index.json").unlink(), "no such file; run `animegamer build`"),
        (lambda d: (d.root / "shards" / "index.json").write_text("{"), "index.json: damaged"),
        (lambda d: (d.root / "dataset.json").write_text("{"), "dataset.json: damaged"),
        (lambda d: first_tar(d).unlink(), "is listed in index.json, but there is no such file"),
        (lambda d: first_tar(d).write_bytes(b""), r"has 0 bytes, index.json says \d+"),
        (lambda d: first_tar(d).write_bytes(first_tar(d).read_bytes()[:-1] + b"x"), "sha256 is not the one in index"),
        (lambda d: first_tar(d).with_name("new-000000.tar").write_bytes(b"x"), "new-000000.tar: is not listed"),
        (lambda d: half_written(first_tar(d)).write_bytes(b"x"), "was left by an interrupted build"),
        (lambda d: first_tar(d).with_name(".new.tar").write_bytes(b"x"), r"\.new\.tar: is not listed"),
        (lambda d: (d.root / "shards" / "val" / "readme.txt").write_bytes(b"x"), "readme.txt: is not listed"),
        (lambda d: edit_index(d, lambda i: i.update(flow_model="raft")), "flow_model is raft, dataset.json says dis"),
        (lambda d: edit_index(d, lambda i: i.update(captioner="rules")), "captioner is rules, dataset.json says"),
        (lambda d: edit_index(d, lambda i: i.update(edges=[1, 2, 3, 4])), "edges is .*1.0, 2.0, 3.0, 4.0"),
        (lambda d: edit_index(d, lambda i: i["counts"]["level"].update({"1": 9})), "counts are not those of"),
        (lambda d: edit_index(d, lambda i: i["shards"].pop(0)), r"-000000\.tar: is not listed in index\.json"),
        (lambda d: edit_index(d, lambda i: i["shards"].append(i["shards"][0])), "tar 2 times"),
        (lambda d: edit_index(d, lambda i: i["shards"][0].update(split="val")), "as val of film"),
        (lambda d: edit_index(d, lambda i: i["shards"][0].update(samples=2)), "holds 3 samples, index.json says 2"),
        (lambda d: edit_index(d, lambda i: i["shards"][0].update(first_clip="x")), "first or last clip is another"),
        (
            lambda d: edit_index(d, lambda i: i["shards"][0].update(name="../a-000000.tar")),
            "String should match pattern",
        ),
        (lambda d: edit_index(d, lambda i: i["settings"].update(val_share=0.5)), "tables differ in split"),
    ],
)
def test_a_fault_of_the_files_is_found(dataset: Dataset, damage: Callable[[Dataset], object], message: str) -> None:
    damage(dataset)
    assert re.search(message, "\n".join(faults(dataset)))


def test_a_link_in_place_of_a_shard_is_found(dataset: Dataset, tmp_path: Path) -> None:
    path = first_tar(dataset)
    path.rename(tmp_path / "elsewhere.tar")
    path.symlink_to(tmp_path / "elsewhere.tar")
    assert any("there is no such file" in fault for fault in faults(dataset))


# --- the tar


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (extra_member("../x.mp4"), r"member '../x.mp4' has a name that leads out of the folder"),
        (extra_member("x.mp4", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is a symbolic link, not a file"),
        (extra_member("Film.S01.mp4"), r"member 'Film.S01.mp4' is not named"),
        (extra_member("b.mp4"), "b: lacks its json and txt"),
        (lambda m: m[1:], "lacks its json"),
        (lambda m: [m[0], *m], r"\.json is there twice"),
        (lambda m: [*m, *m[:3]], "this key was already in"),
        (lambda m: [*m[3:], *m[:3]], "not in time order"),
        (lambda m: m[3:], "1 kept clips are in no shard, the first is kiki-s-cafe-1989-dd0cb73f-000000083"),
        (lambda m: m[:0], "is not a whole tar|holds 0 samples"),
    ],
)
def test_a_fault_of_the_tar_is_found(dataset: Dataset, edit: Any, message: str) -> None:
    repack(dataset, edit)
    assert re.search(message, "\n".join(faults(dataset)))


@pytest.mark.parametrize("keep", [700, 1024, 5000, -10240])
def test_a_truncated_tar_is_found_though_the_index_agrees(dataset: Dataset, keep: int) -> None:
    replace_tar(dataset, first_tar(dataset).read_bytes().rstrip(b"\0")[:keep])
    assert any("not a whole tar" in fault or "is truncated" in fault for fault in faults(dataset))


def test_a_damaged_header_in_the_middle_is_found(dataset: Dataset) -> None:
    content = bytearray(first_tar(dataset).read_bytes())
    with tarfile.open(first_tar(dataset)) as tar:
        content[tar.getmembers()[4].offset] ^= 0xFF
    replace_tar(dataset, bytes(content))
    assert any("bytes after its last readable member" in fault for fault in faults(dataset))


def test_a_key_in_two_shards_is_found(dataset: Dataset) -> None:
    first, second = (dataset.root / "shards" / shard.name for shard in read_index(dataset.root).shards[:2])
    with tarfile.open(second) as tar:
        others = [(info, tar.extractfile(info).read()) for info in tar]
    repack(dataset, lambda members: members + others)
    found = faults(dataset)
    assert sum("this key was already in train/" in fault for fault in found) == len(others) // 3
    assert any("is torn apart" in fault for fault in found)
    assert first.exists()


# --- samples


def line(start: float, end: float) -> dict[str, Any]:
    return {"start_seconds": start, "end_seconds": end, "text": "Sosuke!", "speaker": None, "language": "ja"}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: s.update(schema=2), r"json is not a sample \(schema: Input should be 6"),
        (lambda s: s.pop("scene"), r"json is not a sample \(scene: Field required"),
        (lambda s: s["motion"].update(scope_px=float("nan")), r"json is not a sample \(motion.scope_px"),
        (lambda s: s.update(fps="0"), r"json is not a sample \(fps: .*it should be greater than 0"),
        (lambda s: s.update(clip_id="other"), "its clip_id is other, it should be kiki"),
        (lambda s: s.update(split="val"), "its split is val, it should be train"),
        (lambda s: s.update(fps="24000/1001"), "does not run at 24000/1001 frames per second"),
        (lambda s: s.update(frames=17), "has 16 intact frames, it should have 17"),
        (lambda s: s.update(index=7, scene=3), "tables differ in scene, index"),
        (lambda s: s["motion"].update(level=2), "its motion.level is 2, it should be 1"),
        (lambda s: s["motion"].update(flow_model="raft"), "its motion.flow_model is raft, it should be dis"),
        (lambda s: s["motion"].update(edges=[1, 2, 3, 4]), "its motion.edges is .*, it should be"),
        (lambda s: s["motion"].update(scope_px=0.25), "tables differ in motion.scope_px"),
        (lambda s: s["caption"].update(source="rules"), "its caption.source is rules, it should be OpenGVLab"),
        (lambda s: s["caption"].update(EV="day"), "tables differ in caption.EV"),
        (lambda s: s.update(dialogue=[line(0.5, 1.0)]), "tables differ in dialogue"),
        (lambda s: s.update(dialogue=[line(1.0, 2.5)]), "a line from 1.0 to 2.5, outside the clip"),
    ],
)
def test_a_fault_of_a_sample_is_found(dataset: Dataset, edit: Any, message: str) -> None:
    edit_sample(dataset, edit)
    assert re.search(message, "\n".join(faults(dataset)))


@pytest.mark.parametrize(
    ("extension", "edit", "message"),
    [
        ("json", lambda c: c + b" ", "written in another form"),
        ("json", lambda c: b"\xff" + c, "json is not a sample"),
        ("txt", lambda c: c + b"\n", "txt is not the instruction of its caption, 'Character: fox;"),
        ("mp4", lambda c: c[:0], "mp4 cannot be decoded"),
        ("mp4", lambda c: c[:-300], "mp4 is not the clip that was cut"),
        ("mp4", lambda c: c[:-300], r"mp4 (has \d+ intact frames|cannot be decoded)"),
        ("mp4", lambda c: b"not a film at all" * len(c), "mp4 cannot be decoded"),
    ],
)
def test_a_fault_of_a_member_is_found(dataset: Dataset, extension: str, edit: Any, message: str) -> None:
    edit_member(dataset, extension, edit)
    assert re.search(message, "\n".join(faults(dataset)))


def test_a_clip_of_other_length_rate_or_size_is_found(dataset: Dataset, tmp_path: Path) -> None:
    frames = moving_square(2, hue=1, seed=1)
    for content, message in (
        (clip_bytes(tmp_path, frames[:15]), "has 15 intact frames, it should have 16"),
        (clip_bytes(tmp_path, frames, fps=12), "does not run at 8 frames per second"),
        (clip_bytes(tmp_path, frames[:, :48]), r"frames of \[\(96, 48\)\] pixels, they should have \(96, 64\)"),
    ):
        edit_member(dataset, "mp4", lambda _, content=content: content)
        assert re.search(message, "\n".join(faults(dataset)))


# --- shards against tables


@pytest.mark.parametrize(
    ("table", "record", "fields", "message"),
    [
        ("verdicts", Verdict, {"keep": False}, "000000083: is not a clip that the verdicts keep"),
        ("verdicts", Verdict, {"level": 3}, "tables differ in motion.level"),
        ("captions", Caption, {"S": "owl"}, "tables differ in caption.S"),
        ("captions", Caption, {"source": "rules"}, f"caption is by rules, the dataset's by {MODEL}"),
        ("motion", Motion, {"camera_px": 3.0}, "tables differ in motion.camera_px"),
        ("looks", Looks, {"sharpness": 0.25}, "tables differ in quality.sharpness"),
        ("motion", Motion, {"camera_kind": "pan"}, "tables differ in camera.kind"),
        ("motion", Motion, {"flow_model": "raft"}, "motion is by raft, the dataset's by dis"),
        ("clips", Clip, {"sha256": "0" * 64}, "its mp4 is not the clip that was cut"),
        ("clips", Clip, {"width": 720}, r"frames of \[\(96, 64\)\] pixels, they should have \(720, 64\)"),
    ],
)
def test_tables_that_differ_from_the_samples_are_found(
    dataset: Dataset, table: str, record: Any, fields: dict[str, Any], message: str
) -> None:
    change_row(dataset, table, record, **fields)
    assert re.search(message, "\n".join(faults(dataset)))


def test_a_missing_table_is_named_and_the_samples_are_still_checked(dataset: Dataset) -> None:
    dataset.folders()[0].table_path("motion").unlink()
    edit_member(dataset, "mp4", lambda content: content[:0])
    found = "\n".join(faults(dataset))
    assert "motion.parquet: cannot be read" in found
    assert "mp4 cannot be decoded" in found
    assert "not a clip that the verdicts keep" not in found


def test_a_scene_in_both_splits_is_found_even_without_tables(dataset: Dataset) -> None:
    index = read_index(dataset.root)
    train = next(shard for shard in index.shards if shard.split == "train")
    val = next(shard for shard in index.shards if shard.split == "val" and shard.film_id == train.film_id)
    with tarfile.open(dataset.root / "shards" / val.name) as tar:
        scene = json.loads(tar.extractfile(f"{val.first_clip}.json").read())["scene"]
    edit_sample(dataset, lambda sample: sample.update(scene=scene))
    dataset.folder(train.film_id).table_path("clips").unlink()
    assert any(f"scene {scene}: leaks from one split into the other" in fault for fault in faults(dataset))


def test_every_fault_names_a_file_and_a_remedy(dataset: Dataset) -> None:
    first_tar(dataset).unlink()
    edit_index(dataset, lambda index: index["shards"][1].update(bytes=3))
    for fault in verify(dataset):
        assert fault.where.startswith(("shards/", "films/"))
        assert "animegamer build" in fault.remedy
        assert str(fault) == f"{fault.where}: {fault.what}; {fault.remedy}"
