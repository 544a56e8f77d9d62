"""Exports cut anew from a real film: whole clips by their barcodes, kills, a full disk, and a film that has changed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from examples.world.barcode import read_barcode
from pipeline.core.atomic import HeldError, held, read_locked
from pipeline.core.config import SoundSettings, checked
from pipeline.core.errors import NoRoomError, UserError
from pipeline.core.records import Clip, Scene, Verdict
from pipeline.core.stage import perform
from pipeline.core.store import Dataset, open_dataset
from pipeline.plan.build_plan import make_plan as plan_of_build
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.publish.export.captions import CaptionForm
from pipeline.publish.export.plan import ExportRequest, make_plan
from pipeline.publish.export.recut import CutLog, Span, spans_to_cut
from pipeline.publish.export.run import Written, write_export
from pipeline.publish.export.trainers import PRESETS, TRAINERS
from pipeline.stages.sound import KeepSound
from pipeline.video.clip_files import read_clip
from tests.support.datasets.built_dataset import SMALL, copy_of_built
from tests.support.servers.object_store import ObjectStore

COMMAND = [sys.executable, "-m", "flows.cli", "export"]


def request(out: Path, trainer: str = "musubi-tuner", preset: str = "wan") -> ExportRequest:
    return ExportRequest(TRAINERS[trainer], out, preset=PRESETS[preset], form=CaptionForm.instruction)


def export(dataset: Dataset, out: Path, preset: str = "wan") -> Written:
    return write_export(make_plan(dataset, request(out, preset=preset), STAGE_NAMES))


def kept(dataset: Dataset) -> dict[str, Clip]:
    [folder] = dataset.folders()
    verdicts = {row.clip_id for row in folder.read("verdicts", Verdict) if row.keep}
    return {row.clip_id: row for row in folder.read("clips", Clip) if row.clip_id in verdicts}


def bytes_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((out / "videos").iterdir())}


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["wan", "hunyuan"])
def test_clips_have_the_frames_of_their_span_in_order_and_stay_in_their_scene(tmp_path: Path, preset: str) -> None:
    _, data = copy_of_built(tmp_path)
    dataset, out = open_dataset(data), tmp_path / "out"
    written = export(dataset, out, preset)
    clips = kept(dataset)
    assert written.clips == len(clips) > 1
    ends = {row.scene: row.end_frame for row in dataset.folders()[0].read("scenes", Scene)}
    for clip_id, clip in clips.items():
        frames_THWC = read_clip(out / "videos" / f"{clip_id}.mp4")
        chosen = PRESETS[preset]
        assert frames_THWC.shape == (chosen.frames, chosen.height, chosen.width, 3)
        shown = [read_barcode(picture) for picture in frames_THWC]
        assert shown[0] == clip.source_frames[0]
        assert all(1 <= later - earlier <= 2 for earlier, later in pairwise(shown))
        assert shown[-1] == shown[0] + 48 < ends[clip.scene]


def test_uneven_steps_enlarged_pictures_and_another_length_are_said_and_a_slow_film_refused(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    dataset = open_dataset(data)
    notices = make_plan(dataset, request(tmp_path / "out"), STAGE_NAMES).notices
    assert not any("the same start" in notice for notice in notices)
    assert any("24 frames per second are not a multiple of 16" in notice for notice in notices)
    assert any("320x180 is enlarged to 832x480" in notice for notice in notices)
    [folder] = dataset.folders()
    folder.write("clips", [row.model_copy(update={"frames": 32}) for row in folder.read("clips", Clip)])
    notices = make_plan(dataset, request(tmp_path / "out"), STAGE_NAMES).notices
    assert any("dataset's clips last 4 seconds, the preset's 2.06" in notice for notice in notices)
    folder.save_film(folder.film.model_copy(update={"fps": Fraction(12)}))
    with pytest.raises(UserError, match=r"12 frames per second, and --preset wan needs 16"):
        export(dataset, tmp_path / "out")


@pytest.mark.parametrize("until", ["cut", "captions"])
def test_new_clips_are_not_exported_with_the_verdicts_of_earlier_ones(tmp_path: Path, until: str) -> None:
    film, data = copy_of_built(tmp_path)
    config = checked({**SMALL, "clips": {**SMALL["clips"], "seconds": 1, "fps": 16}}, "test")
    plan = plan_of_build(BuildRequest(films=(film,), out=data, config=config), Workspace(str(data)))
    [folder], verdicts = plan.dataset.folders(), kept(plan.dataset)
    for stage in plan.stages[: STAGE_NAMES.index(until) + 1]:
        perform(stage, folder)
    assert {row.clip_id for row in folder.read("clips", Clip)} & verdicts.keys(), "new clips have ids of earlier ones"
    with pytest.raises(UserError, match=r"did not finish: film\.mp4; run `animegamer build`"):
        make_plan(plan.dataset, ExportRequest(TRAINERS["folder"], tmp_path / "out"), STAGE_NAMES)


def test_a_second_export_cuts_nothing_and_a_changed_file_is_cut_again(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    dataset, out = open_dataset(data), tmp_path / "out"
    export(dataset, out)
    before = bytes_of(out)
    assert export(dataset, out).changed == 0
    changed = next((out / "videos").glob("*.mp4"))
    changed.write_bytes(b"edited")
    assert export(dataset, out).changed == 1
    assert bytes_of(out) == before


def test_a_new_version_of_the_sound_cuts_clips_with_sound_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, log = open_dataset(copy_of_built(tmp_path)[1]).folders()[0], CutLog(tmp_path / "out")

    def to_cut(sound: SoundSettings | None) -> tuple[Span, ...]:
        return spans_to_cut(log, folder, {f"{sound}.mp4": 0.0}, PRESETS["wan"].clips, sound)

    for sound in (None, SoundSettings()):
        [span] = to_cut(sound)
        log.add(span.file, span.made_from, "left out")
        assert to_cut(sound) == ()
    monkeypatch.setattr(KeepSound, "version", KeepSound.version + 1)
    assert to_cut(None) == ()
    assert len(to_cut(SoundSettings())) == 1


def test_clips_are_cut_as_those_of_the_film_not_as_a_build_planned_since(tmp_path: Path) -> None:
    film, data = copy_of_built(tmp_path)
    dataset, out = open_dataset(data), tmp_path / "out"
    export(dataset, out)
    before = bytes_of(out)
    other = {**SMALL, "clips": {**SMALL["clips"], "fit": "fit", "crf": 30}, "film": {"fields": "keep"}}
    plan_of_build(BuildRequest(films=(film,), out=data, config=checked(other, "test")), Workspace(str(data)))
    assert dataset.record.config["clips"]["fit"] == "fit", "the plan is stored, and nothing is cut"
    assert export(dataset, out).changed == 0
    export(dataset, tmp_path / "new")
    assert bytes_of(tmp_path / "new") == before


def test_an_export_whose_clips_are_cut_needs_the_film_no_more(tmp_path: Path) -> None:
    film, data = copy_of_built(tmp_path)
    dataset, out = open_dataset(data), tmp_path / "out"
    clips = export(dataset, out).clips
    film.unlink()
    killed = out / ".cache" / ".content-hashes.json.animegamer-tmp-ab12_xyz.json"
    killed.touch()
    renamed = replace(request(out), trigger="w0rd")
    assert write_export(make_plan(dataset, renamed, STAGE_NAMES)).changed == clips  # captions
    assert not killed.exists()
    next((out / "videos").glob("*.mp4")).unlink()
    with pytest.raises(UserError, match=r"no longer at .*put it back"):
        make_plan(dataset, renamed, STAGE_NAMES)


@pytest.mark.slow
def test_a_killed_export_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    export(open_dataset(data), tmp_path / "whole")
    out = tmp_path / "killed"
    words = [str(data), "--for", "musubi-tuner", "--preset", "wan", "--captions", "instruction", "--out", str(out)]
    process = subprocess.Popen([*COMMAND, *words], start_new_session=True, stderr=subprocess.DEVNULL)
    log = out / ".cut.jsonl"
    deadline = time.monotonic() + 120
    while not (log.exists() and log.read_bytes()) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    time.sleep(1)  # its child ends by itself
    first = {path.name: path.stat().st_mtime_ns for path in (out / "videos").glob("[!.]*.mp4")}
    assert first
    export(open_dataset(data), out)
    assert bytes_of(out) == bytes_of(tmp_path / "whole")
    assert {name: (out / "videos" / name).stat().st_mtime_ns for name in first} == first


def test_a_disk_without_room_for_the_cuts_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    dataset, out = open_dataset(data), tmp_path / "out"
    [folder] = dataset.folders()
    clips = folder.read("clips", Clip)
    folder.write("clips", [row.model_copy(update={"bytes": 10**15}) for row in clips])
    with pytest.raises(NoRoomError, match=rf"{len(kept(dataset))} clips takes about \d+.* GB, and .* make room"):
        export(dataset, out)
    assert not out.exists()


@pytest.mark.slow
def test_a_build_of_the_same_dataset_and_an_export_exclude_each_other(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    words = [*COMMAND, str(data), "--for", "folder", "--out", str(tmp_path / "out")]
    with held(data, "animegamer build"):
        refused = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 1
    assert "animegamer build" in refused.stderr
    assert not (tmp_path / "out").exists()
    with read_locked(data, "animegamer export"):
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        with pytest.raises(HeldError, match="animegamer export"), held(data, "animegamer build"):
            pass
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_same_command_goes_on(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    out = tmp_path / "out"
    words = [str(data), "--for", "musubi-tuner", "--preset", "wan", "--captions", "instruction", "--out", str(out)]

    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, resource.RLIM_INFINITY))

    failed = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=120, check=False, preexec_fn=no_room
    )
    assert failed.returncode == 1
    assert "make room" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not [path for path in out.rglob("*.mp4") if not path.name.startswith(".")]
    assert subprocess.run([*COMMAND, *words], capture_output=True, timeout=120, check=False).returncode == 0
    assert len(bytes_of(out)) == 2 * len(kept(open_dataset(data)))


def test_a_film_at_an_address_is_fetched_cut_and_deleted(store: ObjectStore, tmp_path: Path) -> None:
    film, data = copy_of_built(tmp_path)
    dataset, out = open_dataset(data), tmp_path / "out"
    export(dataset, tmp_path / "here")
    store.put("films/film.mp4", film.read_bytes())
    film.unlink()
    [folder] = dataset.folders()
    folder.save_film(folder.film.model_copy(update={"source": store.address("films/film.mp4")}))
    export(dataset, out)
    assert bytes_of(out) == bytes_of(tmp_path / "here")
    assert not [path for path in out.rglob("film.mp4") if path.is_file()]


def test_a_film_replaced_by_another_is_refused(tmp_path: Path) -> None:
    film, data = copy_of_built(tmp_path)
    size = film.stat().st_size
    film.write_bytes(bytes(size))
    with pytest.raises(UserError, match="is not the film"):
        export(open_dataset(data), tmp_path / "out")
    film.write_bytes(b"short")
    with pytest.raises(UserError, match="is not the film"):
        export(open_dataset(data), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_command_writes_an_export_and_the_command_to_start(tmp_path: Path) -> None:
    _, data = copy_of_built(tmp_path)
    out = tmp_path / "a $(b) c"
    words = [str(data), "--for", "finetrainers", "--preset", "cogvideox", "--captions", "instruction"]
    words += ["--out", str(out), "--trigger", "ghbl", "--split", "train"]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "clips of 17 frames at 8 a second" in done.stderr
    assert f"start: sh '{out}/start.sh'" in done.stderr.replace("\n", "")  # to be pasted
    captions = [path.read_text(encoding="utf-8") for path in out.glob("videos/*.txt")]
    assert captions
    assert all(caption.startswith("ghbl, ") for caption in captions)
