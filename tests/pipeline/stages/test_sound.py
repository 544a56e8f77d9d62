"""Sound of clips: in sync with the pictures, as long as the clip, and the same on every run."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from examples.world.writer import write_film
from pipeline.core.config import ClipSettings, FilmSettings, SceneSettings, SoundSettings
from pipeline.core.film_settings import OneFilmSettings
from pipeline.core.measurements import ClipSound
from pipeline.core.records import Clip
from pipeline.core.stage import perform, why_stale
from pipeline.core.store import FilmFolder
from pipeline.stages.cut import Cut
from pipeline.stages.sound import KeepSound
from pipeline.video.sound_files import SAMPLE_RATE, read_sound
from tests.support.media.beeping_films import add_sound, beeps, beeps_in, cut_start
from tests.support.media.cut_films import barcodes, folder_of
from tests.support.media.films import make_film, paint_pictures
from tests.support.media.odd_streams import concatenate
from tests.support.media.woven_films import telecined

SYNC_SECONDS = 0.01
SECONDS = 8
AT = tuple(0.5 + number for number in range(SECONDS))
CLIPS = ClipSettings(width=192, height=108)


def pictures(path: Path, **encoding: object) -> Path:
    return make_film(path, frames=SECONDS * 24, size=(192, 108), **encoding)


def heard(tmp_path: Path, film: Path, language: str | None = None) -> tuple[FilmFolder, list[Clip], list[ClipSound]]:
    folder = folder_of(tmp_path, film)
    assert perform(Cut(FilmSettings(), SceneSettings(), CLIPS, threads=1), folder)
    assert perform(KeepSound(SoundSettings(keep=True, language=language)), folder)
    return folder, folder.read("clips", Clip), folder.read("sound", ClipSound)


def check_sync(folder: FilmFolder, clips: list[Clip], at: tuple[float, ...]) -> None:
    """Check the beeps of every clip, and that its sound has its length."""
    assert len(clips) >= 3
    for clip in clips:
        samples_CT = read_sound(folder.sound_path(clip.clip_id))
        assert samples_CT.shape == (2, clip.frames / clip.fps * SAMPLE_RATE)
        inside = [start - clip.start_seconds for start in at if clip.start_seconds <= start < clip.end_seconds - 0.02]
        assert beeps_in(samples_CT) == pytest.approx(inside, abs=SYNC_SECONDS)


def track(at: tuple[float, ...] = AT, seconds: float = SECONDS, rate: int = SAMPLE_RATE) -> NDArray[np.float32]:
    return beeps(seconds, at, rate)


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_beeps_stay_with_their_pictures(tmp_path: Path, suffix: str) -> None:
    film = add_sound(pictures(tmp_path / "f.mp4", options={"bf": "3"}), tmp_path / f"film.{suffix}", [(track(), 0)])
    folder, clips, rows = heard(tmp_path, film)
    check_sync(folder, clips, AT)
    assert [row.clip_id for row in rows] == [clip.clip_id for clip in clips]
    assert all(row.loudness_lufs is not None and 0.7 < row.silent_share < 1 for row in rows)


@pytest.mark.slow
def test_a_variable_rate(tmp_path: Path) -> None:
    frames = SECONDS * 24
    times = [Fraction(number, 24) + (Fraction(1, 60) if number % 3 else 0) for number in range(frames)]
    film = add_sound(pictures(tmp_path / "f.mp4", times=times), tmp_path / "film.mkv", [(track(), 0)])
    folder, clips, _ = heard(tmp_path, film)
    check_sync(folder, clips, AT)


@pytest.mark.slow
def test_telecine(tmp_path: Path) -> None:
    video = telecined(paint_pictures(SECONDS * 24, (320, 180), scenes=(0, 104)))
    silent = write_film(tmp_path / "f.mp4", video, fps=Fraction(30_000, 1001), options={"preset": "superfast"})
    film = add_sound(silent, tmp_path / "film.mkv", [(track(), 0)])
    folder, clips, _ = heard(tmp_path, film)
    assert folder.film.fields == ("telecine undone",)
    check_sync(folder, clips, AT)
    for clip in clips:  # a picture lasts 2.5 fields on average
        assert barcodes(folder, clip)[0] * 2.5 * 1001 / 60_000 == pytest.approx(clip.start_seconds, abs=1 / 24)


@pytest.mark.slow
@pytest.mark.parametrize(("start", "seconds"), [(2.7, 3), (0, 14), (-0.7, 8)])
def test_a_track_that_starts_late_or_is_cut_by_an_edit_list_or_goes_on(
    tmp_path: Path, start: float, seconds: float
) -> None:
    own = tuple(number + 0.25 for number in range(int(seconds)))
    film = add_sound(pictures(tmp_path / "f.mp4"), tmp_path / "film.mp4", [(track(own, seconds), start)])
    folder, clips, rows = heard(tmp_path, film)
    check_sync(folder, clips, tuple(at + start for at in own))
    assert len(rows) == len(clips)


def test_a_film_whose_start_an_edit_list_cuts(tmp_path: Path) -> None:
    whole = add_sound(pictures(tmp_path / "f.mp4"), tmp_path / "whole.mp4", [(track(), 0)])
    folder, clips, _ = heard(tmp_path, cut_start(whole, tmp_path / "film.mp4", 1.25))
    assert folder.film.duration_seconds == pytest.approx(SECONDS - 1.25, abs=0.1)
    check_sync(folder, clips, tuple(at - 1.25 for at in AT if at > 1.25))
    for clip in clips:
        assert barcodes(folder, clip)[0] / 24 == pytest.approx(clip.start_seconds + 1.25, abs=1 / 24)


@pytest.mark.slow
def test_a_hole(tmp_path: Path) -> None:
    film = add_sound(pictures(tmp_path / "f.mp4"), tmp_path / "film.mkv", [(track(), 0)], holes=[(2.2, 4.1)])
    folder, clips, _ = heard(tmp_path, film)
    check_sync(folder, clips, tuple(at for at in AT if not 2.2 <= at < 4.1))


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "layout"), [(SAMPLE_RATE, "stereo"), (44_100, "mono")])
def test_joined_recordings_of_the_same_or_another_sample_rate(tmp_path: Path, rate: int, layout: str) -> None:
    part = add_sound(pictures(tmp_path / "f.mp4"), tmp_path / "part.ts", [(track(), 0)]).read_bytes()
    other = tmp_path / "other.ts"
    add_sound(tmp_path / "f.mp4", other, [(track(rate=rate), 0)], rate=rate, layout=layout)
    folder, clips, _ = heard(tmp_path, concatenate(tmp_path / "film.ts", part, other.read_bytes()))
    assert len(clips) >= 6
    check_sync(folder, clips, (*AT, *(at + SECONDS for at in AT)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "codec", "rate"),
    [
        *(("mono", "aac", 44_100), ("5.1", "aac", 48_000), ("stereo", "pcm_s16le", 22_050)),
        *(("5.1", "eac3", 48_000), ("stereo", "libopus", 48_000), ("stereo", "flac", 96_000)),
    ],
)
def test_other_layouts_codecs_and_rates(tmp_path: Path, layout: str, codec: str, rate: int) -> None:
    film = add_sound(
        pictures(tmp_path / "f.mp4"),
        tmp_path / "film.mkv",
        [(track(rate=rate), 0)],
        codec=codec,
        rate=rate,
        layout=layout,
    )
    folder, clips, _ = heard(tmp_path, film)
    check_sync(folder, clips, AT)
    loudest = [float(np.abs(read_sound(folder.sound_path(clip.clip_id))).max()) for clip in clips]
    assert max(loudest) == pytest.approx(0.5 / np.sqrt(2) if layout == "mono" else 0.5, abs=0.1)  # never clipped


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["jpn", "ja"])
def test_the_track_of_a_language_among_twenty(tmp_path: Path, wanted: str) -> None:
    tracks = [(track((number * 0.25 + 0.1,)), 0.0) for number in range(20)]
    film = add_sound(pictures(tmp_path / "f.mp4"), tmp_path / "film.mkv", tracks, languages={3: "eng", 7: "jpn"})
    folder, clips, rows = heard(tmp_path, film, wanted)
    check_sync(folder, clips, (7 * 0.25 + 0.1,))
    assert {row.language for row in rows} == {"jpn"}


@pytest.mark.slow
def test_the_language_of_a_film_chooses_its_track(tmp_path: Path) -> None:
    tracks = [(track(), 0.0), (track((1.25, 6.25)), 0.0)]
    film = add_sound(pictures(tmp_path / "f.mp4"), tmp_path / "film.mkv", tracks, languages={0: "eng", 1: "jpn"})
    folder, clips, _ = heard(tmp_path, film)
    check_sync(folder, clips, AT)
    japanese = KeepSound(SoundSettings(keep=True), (OneFilmSettings(match="film.mkv", language="ja"),))
    assert why_stale(japanese, folder) == 'changed: speech (none to "ja")'
    assert perform(japanese, folder)
    check_sync(folder, clips, (1.25, 6.25))
    for films, language in ((japanese.films, "en"), ((OneFilmSettings(match="other.mkv", language="ja"),), None)):
        assert perform(KeepSound(SoundSettings(keep=True, language=language), films), folder)
        check_sync(folder, clips, AT)


@pytest.mark.slow
def test_silence_and_no_track(tmp_path: Path) -> None:
    silent = add_sound(pictures(tmp_path / "f.mp4"), tmp_path / "silent.mp4", [(track(()), 0)])
    _, clips, rows = heard(tmp_path / "silent", silent)
    assert [(row.loudness_lufs, row.silent_share, row.speech_share) for row in rows] == [(None, 1, 0)] * len(clips)
    folder, _, rows = heard(tmp_path / "none", tmp_path / "f.mp4")
    assert not rows
    assert not list((folder.path / "clips").glob("*.m4a"))


def test_the_same_bytes_again_and_clips_unchanged(tmp_path: Path) -> None:
    film = add_sound(pictures(tmp_path / "f.mp4"), tmp_path / "film.mp4", [(track(), 0)])
    folder, clips, rows = heard(tmp_path, film)
    assert not perform(KeepSound(SoundSettings(keep=True)), folder)
    files = {path: path.read_bytes() for path in (folder.path / "clips").iterdir()}
    assert len(files) == 2 * len(clips)
    for clip in clips:
        folder.sound_path(clip.clip_id).unlink()
    assert perform(KeepSound(SoundSettings(keep=True)), folder)
    assert {path: path.read_bytes() for path in (folder.path / "clips").iterdir()} == files
    assert folder.read("sound", ClipSound) == rows
    assert folder.read("clips", Clip) == clips
