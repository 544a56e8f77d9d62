"""Sound in published samples: in the mp4 of a shard, in exports, in tables; and what `verify` finds."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.config import ShardSettings, SoundSettings, checked
from pipeline.core.errors import UserError
from pipeline.core.measurements import ClipSound
from pipeline.core.records import Clip, RecordError
from pipeline.core.store import Dataset
from pipeline.notebook import open_dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.publish import is_published
from pipeline.plan.request import BuildRequest
from pipeline.publish.clip_rows import clip_rows
from pipeline.publish.export.plan import ExportRequest, make_plan
from pipeline.publish.export.run import write_export
from pipeline.publish.export.trainers import PRESETS, TRAINERS
from pipeline.publish.seen_clips import seen_clips
from pipeline.publish.shards import read_index, write_shards
from pipeline.publish.verify import verify
from pipeline.remote.mirror import Mirror
from pipeline.video.clip_files import read_clip
from pipeline.video.sound_files import SAMPLE_RATE, read_sound, with_sound, write_sound
from tests.support.datasets.built_dataset import SMALL, build_here, small_film
from tests.support.datasets.damaged_shards import edit_member, edit_sample
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.datasets.sounds import keep_sound
from tests.support.media.beeping_films import add_sound, beeps, beeps_in
from tests.support.servers.object_store import ObjectStore

SHARDS = ShardSettings(samples=3)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    dataset = make_dataset(tmp_path / "data", captioner=MODEL)
    keep_sound(dataset)
    return dataset


def hashes(dataset: Dataset) -> dict[str, str]:
    return {shard.name: shard.sha256 for shard in write_shards(dataset, SHARDS).shards}


def first_member(dataset: Dataset, extension: str, out: Path) -> Path:
    shard = write_shards(dataset, SHARDS).shards[0]
    with tarfile.open(dataset.root / "shards" / shard.name) as tar:
        member = next(info for info in tar if info.name.endswith(extension))
        file = tar.extractfile(member)
        assert file
        out.write_bytes(file.read())
    return out


def sound_off(dataset: Dataset) -> None:
    config = dataset.record.config | {"sound": SoundSettings().model_dump()}
    dataset.save(dataset.record.model_copy(update={"config": config}))


def faults(dataset: Dataset) -> str:
    return "\n".join(map(str, verify(dataset, threads=2)))


def test_the_mp4_of_a_sample_has_the_clip_and_its_sound(dataset: Dataset, tmp_path: Path) -> None:
    muxed = first_member(dataset, ".mp4", tmp_path / "sample.mp4")
    sample = json.loads(first_member(dataset, ".json", tmp_path / "sample.json").read_text())
    folder = dataset.folders()[0]
    assert np.array_equal(read_clip(muxed), read_clip(folder.clip_path(sample["clip_id"])))
    sound_CT = read_sound(muxed)
    assert np.array_equal(sound_CT, read_sound(folder.sound_path(sample["clip_id"])))
    assert sound_CT.shape == (2, 2 * SAMPLE_RATE)
    assert beeps_in(sound_CT) == pytest.approx([0.0], abs=0.005)
    assert sample["sound"] == {
        **{"language": "jpn", "sample_rate": 48_000, "channels": 2},
        **{"loudness_lufs": -23.1, "silent_share": 0.75, "speech_share": 0.25},
    }
    assert not faults(dataset)


def test_without_sound_the_shards_have_the_bytes_of_before(dataset: Dataset, tmp_path: Path) -> None:
    silent = hashes(make_dataset(tmp_path / "silent", captioner=MODEL))
    heard = hashes(dataset)
    assert not set(silent.values()) & set(heard.values())
    assert hashes(dataset) == heard
    sound_off(dataset)
    assert hashes(dataset) == silent
    assert not faults(dataset)


def test_sound_of_clips_that_were_cut_again_is_not_published(dataset: Dataset) -> None:
    folder = dataset.folders()[0]
    assert folder.sounds()
    cut = folder.stage_record("cut")
    assert cut
    folder.save_stage_record(cut.model_copy(update={"files": dict(list(cut.files.items())[1:])}))
    assert not folder.sounds()
    write_shards(dataset, SHARDS)
    assert not faults(dataset)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_sound_file_that_is_gone_or_damaged_is_named(dataset: Dataset, damage: object) -> None:
    assert callable(damage)
    folder = dataset.folders()[0]
    path = folder.sound_path(folder.read("clips", Clip)[0].clip_id)
    damage(path)
    with pytest.raises(RecordError, match=rf"{path.name} (cannot be read|was changed or damaged)"):
        write_shards(dataset, SHARDS)


def test_after_a_new_muxer_one_command_mends_every_film(dataset: Dataset) -> None:
    for folder in dataset.folders():
        rows = folder.read("sound", ClipSound)
        folder.write("sound", [row.model_copy(update={"muxed_sha256": "0" * 64}) for row in rows])
        record = folder.stage_record("sound")
        assert record
        folder.save_stage_record(record.model_copy(update={"files": folder.marks(list(record.files))}))
    with pytest.raises(
        RecordError, match=r"FFmpeg muxed the sound, of all films; delete (\S+/films/\*/sound.parquet) and"
    ):
        write_shards(dataset, SHARDS)
    assert len(list((dataset.root / "films").glob("*/sound.parquet"))) == len(dataset.folders()) == 2


def test_verify_finds_faults_of_the_sound(dataset: Dataset, tmp_path: Path) -> None:
    write_shards(dataset, SHARDS)
    edit_sample(dataset, lambda sample: sample["sound"].update(channels=1, loudness_lufs=-20.0))
    assert "its sound has 2 channels of 96000 samples, it should have 1 of 96000" in faults(dataset)
    assert "tables differ in sound.channels, sound.loudness_lufs" in faults(dataset)
    folder = dataset.folders()[0]
    silent = folder.clip_path(read_index(dataset.root).shards[0].first_clip).read_bytes()
    edit_member(dataset, ".mp4", lambda _: silent)
    assert "its mp4 is not the clip that was cut" in faults(dataset)
    assert "its mp4 cannot be decoded: it has no sound" in faults(dataset)


def test_exports_have_the_files_of_the_shards(dataset: Dataset, tmp_path: Path) -> None:
    muxed = first_member(dataset, ".mp4", tmp_path / "sample.mp4")
    clip_id, request = (
        read_index(dataset.root).shards[0].first_clip,
        ExportRequest(TRAINERS["folder"], tmp_path / "out"),
    )
    written = write_export(make_plan(dataset, request, STAGE_NAMES))
    assert (tmp_path / "out" / f"{clip_id}.mp4").read_bytes() == muxed.read_bytes()
    assert written.changed > 0
    assert write_export(make_plan(dataset, request, STAGE_NAMES)).changed == 0
    sound_off(dataset)
    write_export(make_plan(dataset, request, STAGE_NAMES))
    clip = dataset.folders()[0].clip_path(clip_id)
    assert (tmp_path / "out" / f"{clip_id}.mp4").samefile(clip)
    write_sound(clip.with_suffix(".m4a"), beeps(2, [1.0])[None].repeat(2, axis=0))
    keep = dataset.record.config | {"sound": {"keep": True}}
    dataset.save(dataset.record.model_copy(update={"config": keep}))
    with pytest.raises(UserError, match=r"m4a was changed or damaged; delete it"):
        write_export(make_plan(dataset, request, STAGE_NAMES))


def test_exports_cut_again_with_the_track_of_the_film(dataset: Dataset, tmp_path: Path) -> None:
    write_shards(dataset, SHARDS)
    film = dataset.folders()[0].film
    for language, chosen in ((None, "ja"), ("en", "en")):
        config = {"films": [{"match": film.name, "language": "ja"}], "sound": {"keep": True, "language": language}}
        dataset.save(dataset.record.model_copy(update={"config": dataset.record.config | config}))
        plan = make_plan(dataset, ExportRequest(TRAINERS["folder"], tmp_path / "out"), STAGE_NAMES)
        sound = plan.sound_of(film)
        assert sound
        assert sound.language == chosen


def test_rows_have_the_facts(dataset: Dataset) -> None:
    row = clip_rows(dataset, seen_clips(dataset))[0]
    assert (row.sound_language, row.loudness_lufs, row.silent_share, row.speech_share) == ("jpn", -23.1, 0.75, 0.25)


def test_a_notebook_plays_the_sound(dataset: Dataset) -> None:
    data, folder = open_dataset(dataset.root), dataset.folders()[0]
    first, second, third = (clip.clip_id for clip in folder.read("clips", Clip)[:3])
    folder.sound_path(second).unlink()
    folder.sound_path(third).write_bytes(b"damaged")
    assert embedded(with_sound(folder.clip_path(first), folder.sound_path(first))) in data.show(first).html
    for silent in (second, third):
        assert embedded(folder.clip_path(silent).read_bytes()) in data.show(silent).html
    assert data.clips.loudness_lufs.iloc[0] == -23.1


def test_a_notebook_fetches_the_sound_of_a_clip_from_an_address(
    dataset: Dataset, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "work"))
    Mirror(store.address("data"), dataset.root).push()
    folder, data = dataset.folders()[0], open_dataset(store.address("data"))
    first = folder.read("clips", Clip)[0].clip_id
    store.requests.clear()
    for _ in range(2):
        assert embedded(with_sound(folder.clip_path(first), folder.sound_path(first))) in data.show(first).html
    fetched = [key.rpartition("/")[2] for method, key in store.requests if method == "GET"]
    assert sorted(name for name in fetched if name.startswith(first)) == [f"{first}.m4a", f"{first}.mp4"]


def embedded(video: bytes) -> str:
    return base64.b64encode(video).decode()


@pytest.mark.slow
def test_a_build_with_sound_and_one_without_publish_both(tmp_path: Path) -> None:
    film = add_sound(small_film(tmp_path / "silent.mp4"), tmp_path / "film.mp4", [(beeps(6, range(6)), 0)])
    dataset = Dataset(tmp_path / "data")

    def build(*, keep: bool) -> dict[str, str]:
        config = checked(SMALL | {"sound": {"keep": keep}}, "test")
        request = BuildRequest(films=(film,), out=dataset.root, config=config)
        build_here(request)
        assert is_published(dataset, config)
        assert is_published(dataset, checked(SMALL, "test")) is not keep
        assert not faults(dataset)
        return {shard.name: shard.sha256 for shard in read_index(dataset.root).shards}

    before = build(keep=False)
    heard = build(keep=True)
    assert before.keys() == heard.keys()
    card = (dataset.root / "README.md").read_text()
    assert "have sound: AAC" in card
    assert "H.264 with sound" in card
    assert " LUFS, " in (dataset.root / "report.html").read_text()
    out = tmp_path / "out"
    request = ExportRequest(TRAINERS["folder"], out, preset=PRESETS["cogvideox"])
    cut_again = write_export(make_plan(dataset, request, STAGE_NAMES)).clips
    assert write_export(make_plan(dataset, request, STAGE_NAMES)).changed == 0
    for clip in dataset.folders()[0].read("clips", Clip)[:cut_again]:
        sound_CT = read_sound(out / f"{clip.clip_id}.mp4")
        assert sound_CT.shape == (2, 17 * SAMPLE_RATE // 8)
        second = clip.start_seconds + beeps_in(sound_CT)[-1]
        assert second == pytest.approx(round(second), abs=0.01)
    assert build(keep=False) == before
    assert "Clips have no sound." in (dataset.root / "README.md").read_text()
    assert write_export(make_plan(dataset, request, STAGE_NAMES)).changed >= cut_again
    with pytest.raises(RecordError, match="it has no sound"):
        read_sound(next(out.glob("*.mp4")))
    assert build(keep=True) == heard
    dataset.folders()[0].table_path("sound").unlink()
    assert build(keep=True) == heard
