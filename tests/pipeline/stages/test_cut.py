"""Cut of a film into scenes and clips, every clip frame checked by the number painted on it."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import signal
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from examples.world.scene import mixed
from pipeline.core.config import ClipSettings, CropSettings, FilmSettings, SceneSettings
from pipeline.core.progress import silent
from pipeline.core.records import Clip, Damage, RecordError, Scene
from pipeline.core.stage import perform
from pipeline.publish.coverage import film_spans, totals
from pipeline.stages.cropping.film_crops import CropJob, find_crops
from pipeline.stages.cut import Cut
from pipeline.stages.cutting.film_cutter import CutJob, cut_film
from pipeline.stages.probe import probe
from pipeline.video import containers
from pipeline.video.clip_files import read_clip
from pipeline.video.containers import Picture
from tests.support import records
from tests.support.media.cut_films import barcodes, check_tiling, cut, expected, folder_of, job_of
from tests.support.media.decoded_frames import counting_decoded_frames
from tests.support.media.films import corrupt, make_film, paint_pictures


@pytest.mark.parametrize(
    ("rate", "frames"),
    [
        (Fraction(24000, 1001), 16),
        pytest.param(Fraction(24), 16, marks=pytest.mark.slow),
        pytest.param(Fraction(25), 16, marks=pytest.mark.slow),
        pytest.param(Fraction(30), 16, marks=pytest.mark.slow),
        (Fraction(60), 16),
        (Fraction(24000, 1001), 17),
    ],
    ids=str,
)
def test_clips_show_the_frames_of_the_grid(tmp_path: Path, rate: Fraction, frames: int) -> None:
    scenes = (0, 4 * round(rate) + 3)  # just too short for a second clip, margins included
    count = round(8.7 * rate)
    film = make_film(tmp_path / "film.mp4", frames=count, fps=rate, scenes=scenes, size=(192, 108))
    folder, result = cut(tmp_path, film, ClipSettings(frames=frames, width=360, height=240))
    wanted = expected([number / rate for number in range(count + 1)], scenes, frames)
    assert len(wanted) == 3
    assert [barcodes(folder, clip) for clip in result.clips] == wanted
    assert [list(clip.source_frames) for clip in result.clips] == wanted
    assert [scene.start_frame for scene in result.scenes] == list(scenes)


@pytest.mark.slow
def test_the_last_clip_of_a_scene_reaches_back_and_no_second_counts_twice(tmp_path: Path) -> None:
    count, scenes = 24 * 8, (0, 24 * 5)
    film = make_film(tmp_path / "film.mp4", frames=count, fps=Fraction(24), scenes=scenes, size=(192, 108))
    plain = expected([Fraction(number, 24) for number in range(count + 1)], scenes, 16)
    folder, result = cut(tmp_path, film, ClipSettings(placing="overlap", width=360, height=240))
    last = [[start + 3 * number for number in range(16)] for start in (2 + 24 * 2 + 18, 24 * 5 + 2 + 18)]
    assert [barcodes(folder, clip) for clip in result.clips] == [*plain[:2], last[0], plain[2], last[1]]
    assert [list(clip.source_frames) for clip in result.clips] == [barcodes(folder, clip) for clip in result.clips]
    assert [clip.overlap_seconds for clip in result.clips] == pytest.approx([0, 0, 1.25, 0, 1.25])
    verdicts = [records.verdict(clip.clip_id) for clip in result.clips]
    spans = film_spans(folder.film, result.scenes, result.damage, result.clips, verdicts, None)
    assert totals(spans)["kept", ""] == pytest.approx(2 * 2 + 0.75 + 2 + 0.75)
    assert sum(totals(spans).values()) == pytest.approx(8)


def test_only_the_picture_inside_the_borders_is_shown(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mp4", frames=56, size=(320, 240), borders=(0, 30, 0, 30))
    folder = folder_of(tmp_path, film)
    job = job_of(folder)
    crop = job.crops[0].model_copy(update={"top": 30, "height": 180})
    [clip] = cut_film(replace(job, crops=(crop,)), silent).clips
    assert barcodes(folder, clip) == list(range(2, 50, 3))
    assert read_clip(folder.clip_path(clip.clip_id))[:, [0, -1]].mean() > 50


def test_a_scene_too_short_for_margins_is_used_to_its_ends(tmp_path: Path) -> None:
    scenes = (0, 50, 97, 147)  # 2.08 s, 1.96 s, 2.08 s and more than 2.17 s
    film = make_film(tmp_path / "film.mp4", frames=147 + 60, scenes=scenes, size=(192, 108))
    folder, result = cut(tmp_path, film)
    assert [barcodes(folder, clip)[0] for clip in result.clips] == [0, 97, 149]


def test_a_clip_moves_on_past_a_fade_and_past_two_scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = paint_pictures(2, (320, 180), scenes=(0, 1), barcode=False)

    def paint(number: int, picture: Picture) -> None:
        picture[:] = one if number < 100 else two
        if number < 24:
            picture[:] = picture * (number / 24)

    film = make_film(tmp_path / "film.mp4", frames=200, barcode=False, paint=paint)
    folder = folder_of(tmp_path, film)
    for name in ("BEGINS", "BEGINS_IN_RUN"):
        monkeypatch.setattr(f"pipeline.stages.cutting.scenes.{name}", 2.0)
    result = cut_film(replace(job_of(folder), scenes=SceneSettings(min_content=100)), silent)
    assert len(result.scenes) == 1, "the finder sees neither"
    assert [clip.source_frames[0] for clip in result.clips] == [14, 98, 146]


def test_no_clip_reaches_into_a_dissolve(tmp_path: Path) -> None:
    one, two = paint_pictures(2, (320, 180), scenes=(0, 1), barcode=False)

    def paint(number: int, picture: Picture) -> None:
        share = min(max((number - 46) / 24, 0), 1)
        picture[:] = mixed(one, two, share)

    _, result = cut(tmp_path, make_film(tmp_path / "film.mp4", frames=150, barcode=False, paint=paint))
    assert [scene.opened_by for scene in result.scenes] == ["start", "dissolve"]
    [clip] = result.clips  # frames 2 to 49 would be a clip if the dissolve began at its middle
    assert clip.source_frames[0] > 68


def test_damage_is_a_scene_break_and_no_clip_touches_it(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mp4", frames=240, options={"g": "24", "sc_threshold": "0"})
    folder = folder_of(tmp_path, film)
    corrupt(film, 0.48, 0.5)
    result = cut_film(job_of(folder), silent)
    check_tiling(result, folder.film)
    [damage] = result.damage
    assert [scene.opened_by for scene in result.scenes] == ["start", "damage"]
    assert result.scenes[0].end_seconds == damage.start_seconds
    assert result.scenes[1].start_seconds == damage.end_seconds
    assert len(result.clips) >= 3
    for clip in result.clips:
        assert clip.end_seconds <= damage.start_seconds or clip.start_seconds >= damage.end_seconds
        assert barcodes(folder, clip) == list(clip.source_frames)


@pytest.mark.parametrize(("frames", "size"), [(1, (320, 180)), (47, (320, 180)), (56, (16, 16))])
def test_tiny_films(tmp_path: Path, frames: int, size: tuple[int, int]) -> None:
    film = make_film(tmp_path / "film.mp4", frames=frames, size=size, barcode=False)
    _, result = cut(tmp_path, film)
    assert len(result.scenes) == 1
    assert len(result.clips) == (frames > 52)


@pytest.mark.slow
def test_frames_with_a_long_wait_are_scaled_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film = make_film(tmp_path / "film.mp4", frames=120, scenes=(0, 56))
    folder = folder_of(tmp_path, film)
    undisturbed = cut_film(job_of(folder), silent)
    monkeypatch.setattr("pipeline.stages.cutting.film_cutter.RAW_BYTES", 0)
    assert cut_film(job_of(folder), silent) == undisturbed


@pytest.mark.slow
def test_the_film_ends_at_the_configured_second(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, make_film(tmp_path / "film.mp4", frames=240, scenes=(0, 60)))
    with counting_decoded_frames() as decoded:
        result = cut_film(job_of(folder, end_seconds=4.5), silent)
    assert [(scene.start_seconds, scene.end_seconds) for scene in result.scenes] == [(0, 2.5), (2.5, 4.5)]
    assert decoded.count <= 1.05 * 108
    assert [clip.source_frames[0] for clip in result.clips] == [2, 60]


@pytest.mark.slow
def test_a_film_is_decoded_once(tmp_path: Path) -> None:
    path = make_film(
        tmp_path / "film.mp4",
        frames=2400,
        fps=60,
        size=(96, 54),
        scenes=range(0, 2400, 400),
        barcode=False,
        options={"preset": "ultrafast", "g": "20", "sc_threshold": "0"},
    )
    with counting_decoded_frames() as probed:
        film = probe(path, "film-01234567", "01234567" * 8)
    with counting_decoded_frames() as cropped:
        crops = find_crops(CropJob(film, CropSettings()), silent)
    clips = ClipSettings(width=96, height=64)
    with counting_decoded_frames() as cut_once:
        result = cut_film(CutJob(film, tuple(crops), tmp_path / "out", None, SceneSettings(), clips, threads=0), silent)
    assert len(result.clips) >= 12
    assert 1 <= probed.count <= 40  # opening the film, and frames already in the decoder
    assert 30 <= cropped.count <= 60
    assert 2400 <= probed.count + cropped.count + cut_once.count <= 1.05 * 2400


def test_decoders_are_called_in_one_place_only() -> None:
    """Frames decoded without `containers.decode` would not be counted above; others decode sound and subtitles."""
    package = Path(containers.__file__).parents[1]
    texts = {file.name: file.read_text(encoding="utf-8") for file in package.rglob("*.py")}
    with_av = {name: text for name, text in texts.items() if re.search(r"^\s*(import|from) av\b", text, re.MULTILINE)}
    assert {"containers.py", "film_reader.py", "clip_files.py", "probe.py"} <= set(with_av)
    decoding = {name for name, text in with_av.items() if ".decode(" in text}
    assert decoding == {"containers.py", "film_sound.py", "sound_files.py", "tracks.py"}
    assert [name for name in decoding if "VideoFrame" in with_av[name]] == ["containers.py"]
    assert with_av["containers.py"].count(".decode(") == 1
    assert [name for name, text in texts.items() if re.search("VideoCapture|decord|subprocess.*ffmpeg", text)] == []


def stage(clips: ClipSettings | None = None, threads: int = 0) -> Cut:
    return Cut(film=FilmSettings(), scenes=SceneSettings(), clips=clips or ClipSettings(), threads=threads)


def test_the_stage_writes_its_tables_and_repeats_them_to_the_byte(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mp4", frames=120, scenes=(0, 60))
    reports: list[tuple[float, float]] = []
    folder = folder_of(tmp_path, film)
    assert perform(stage(threads=1), folder, lambda done, total: reports.append((done, total)))
    assert not perform(stage(threads=2), folder)  # the number of threads is not an ingredient
    first = folder.read("clips", Clip)
    assert len(first) == 2
    assert [scene.opened_by for scene in folder.read("scenes", Scene)] == ["start", "cut"]
    assert folder.read("damage", Damage) == []
    assert reports
    assert all(0 <= done <= total == 5 for done, total in reports)
    again = folder_of(tmp_path / "again", film)
    perform(stage(threads=2), again)
    assert again.read("clips", Clip) == first


@pytest.mark.slow
def test_clips_of_an_earlier_run_are_removed_and_nothing_else(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, make_film(tmp_path / "film.mp4", frames=120))
    index = folder.path / "clips" / "@eaDir"  # as a disk's indexer makes it
    index.mkdir(parents=True)
    own = [index.with_name(name) for name in ("holiday.mp4", f"{folder.film_id}.mp4", "other-film-000000000.mp4")]
    for film in own:
        film.write_text("a film of the user's")
    for margin in (2, 5):
        perform(stage(ClipSettings(margin_frames=margin)), folder)
        listed = {f"{clip.clip_id}.mp4" for clip in folder.read("clips", Clip)}
        assert {file.name for file in (folder.path / "clips").iterdir()} == {
            *(listed | {index.name}),
            *(film.name for film in own),
        }


@pytest.mark.slow
def test_a_crash_of_the_decoder_fails_only_the_film(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, make_film(tmp_path / "film.mp4", frames=240))

    def shoot(done: float, total: float) -> None:
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGSEGV)

    with pytest.raises(RecordError, match=f"{folder.film_id}: the decoder died by signal SIGSEGV"):
        stage().run(folder, shoot)
    assert perform(stage(), folder)


def test_a_film_without_one_sound_frame_is_refused(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mp4", frames=48, options={"g": "1"})
    folder = folder_of(tmp_path, film)
    damaged = hashlib.sha256(corrupt(film, 0.02, 0.97).read_bytes()).hexdigest()
    folder.save_film(folder.film.model_copy(update={"sha256": damaged}))
    with pytest.raises(RecordError, match="not one frame of it can be decoded") as caught:
        stage().run(folder, silent)
    assert caught.value.record_id == folder.film_id
