"""Clips cut anew, by the barcodes of their frames: the frames on screen at each moment, none twice, none left out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from examples.world.barcode import read_barcode
from examples.world.writer import write_film
from pipeline.core.config import SoundSettings
from pipeline.core.progress import silent
from pipeline.core.records import Crop, Film, RecordError
from pipeline.core.store import ClipFormat
from pipeline.publish.export.recut import DAMAGED, REPEATS, CutLog, RecutJob, Span, cut_spans
from pipeline.publish.export.trainers import PRESETS, Preset, nominal_rate, pace
from pipeline.stages.cutting.clip_grid import TOLERANCE_SECONDS
from pipeline.video.clip_files import read_clip
from pipeline.video.sound_files import SAMPLE_RATE, read_sound
from tests.support.media.beeping_films import add_sound, beeps, beeps_in
from tests.support.media.films import make_film, paint_pictures, planned
from tests.support.media.woven_films import telecined

SIZE = (96, 64)
RATES = [Fraction(24), Fraction(24000, 1001), Fraction(25), Fraction(30), Fraction(60)]


def cut(
    folder: Path,
    film: Film,
    preset: Preset,
    starts: Sequence[float],
    sound: SoundSettings | None = None,
    *,
    holds_last: bool = False,
) -> CutLog:
    clips = ClipFormat(frames=preset.frames, fps=Fraction(preset.fps), width=SIZE[0], height=SIZE[1])
    job = RecutJob(
        film=film,
        crops=(Crop(film_id=film.film_id, left=0, top=0, width=film.width, height=film.height, frames_used=1),),
        out=folder,
        clips=clips,
        step_seconds=float(pace(film) / clips.fps),
        fit="cover",
        crf=17,
        fields="auto",
        spans=tuple(Span(f"videos/{start:g}.mp4", "same", start) for start in starts),
        sound=sound,
        holds_last=holds_last,
    )
    cut_spans(job, silent)
    return CutLog(folder)


def numbers(clip: Path) -> list[int]:
    return [read_barcode(picture) for picture in read_clip(clip)]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[Fraction, Film]:
    """Films of 7 seconds, each in another rate; 25 is that of PAL, which is below none of the presets."""
    root = tmp_path_factory.mktemp("films")
    made = {}
    for rate in RATES:
        path = make_film(root / f"{float(rate):.3f}.mp4", frames=round(7 * rate), fps=rate)
        made[rate] = planned(root / "data", path).film
    return made


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_frames_are_those_on_screen_and_none_repeats(
    films: dict[Fraction, Film], tmp_path: Path, preset: Preset, rate: Fraction
) -> None:
    film = films[rate]
    assert film.fps == rate
    first = 7
    start = float(first / rate)
    cut(tmp_path, film, preset, [start])
    shown = numbers(tmp_path / f"videos/{start:g}.mp4")
    nominal = nominal_rate(film)
    assert nominal == (24 if rate.denominator == 1001 else rate)
    moments = [float(Fraction(number, preset.fps)) + TOLERANCE_SECONDS for number in range(preset.frames)]
    assert shown == [first + int(moment * nominal) for moment in moments]
    assert len(set(shown)) == preset.frames == len(shown)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["wan", "hunyuan"])
def test_fields_of_telecine_are_restored_before_frames_are_chosen(tmp_path: Path, preset: str) -> None:
    video = telecined(paint_pictures(112, (320, 180)))
    path = write_film(tmp_path / "film.mkv", video, fps=Fraction(30_000, 1001))
    film = planned(tmp_path / "data", path).film.model_copy(update={"fields": ("telecine undone",)})
    assert nominal_rate(film) == 24
    chosen = PRESETS[preset]
    cut(tmp_path, film, chosen, [1.0])
    shown = numbers(tmp_path / "videos/1.mp4")  # a combed barcode has another number, or none
    assert [number - shown[0] for number in shown] == [frame * 24 // chosen.fps for frame in range(chosen.frames)]


def test_one_odd_step_does_not_make_a_film_of_24000_1001_too_slow(tmp_path: Path) -> None:
    """Many encodes have a step of two frames somewhere; the spans beside it have all their frames."""
    times = [Fraction(1001, 24_000) * (number + (number >= 60)) for number in range(240)]
    film = planned(tmp_path / "data", make_film(tmp_path / "odd.mp4", frames=240, times=times)).film
    assert film.fps == Fraction(24_000, 1001)
    assert film.variable_rate
    assert nominal_rate(film) == 24
    log = cut(tmp_path, film, PRESETS["hunyuan"], [0.0, 2.0, float(times[100])])
    assert numbers(tmp_path / "videos/0.mp4") == list(range(49))
    assert log.notes["videos/2.mp4"].left_out == REPEATS
    assert numbers(tmp_path / f"videos/{float(times[100]):g}.mp4") == list(range(100, 149))


@pytest.mark.slow
def test_times_rounded_to_milliseconds_make_no_step_uneven(tmp_path: Path) -> None:
    """Matroska rounds times, and starts on a grid of 2 seconds drift against frames of 24000/1001 a second."""
    path = make_film(tmp_path / "film.mkv", frames=340, fps=Fraction(24_000, 1001))
    film, starts = planned(tmp_path / "data", path).film, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    for chosen in (PRESETS["hunyuan"], PRESETS["cogvideox"]):
        log = cut(tmp_path / chosen.name, film, chosen, starts)
        assert {note.left_out for note in log.notes.values()} == {None}
        for start in starts:
            shown = numbers(tmp_path / chosen.name / f"videos/{start:g}.mp4")
            assert {after - before for before, after in pairwise(shown)} == {24 // chosen.fps}
            assert shown[0] == int((start + TOLERANCE_SECONDS) * film.fps)


def test_a_span_beyond_the_film_gives_no_clip(films: dict[Fraction, Film], tmp_path: Path) -> None:
    log = cut(tmp_path, films[Fraction(24)], PRESETS["wan"], [6.0, 40.0])
    assert {note.left_out for note in log.notes.values()} == {DAMAGED}


def test_a_log_with_a_broken_last_line_is_read(films: dict[Fraction, Film], tmp_path: Path) -> None:
    log = cut(tmp_path, films[Fraction(24)], PRESETS["wan"], [0.0])
    with (tmp_path / ".cut.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"file": "videos/2.mp4", "made_')
    assert CutLog(tmp_path).notes == log.notes
    assert log.known("videos/0.mp4", "same")
    assert log.known("videos/0.mp4", "other") is None
    (tmp_path / "videos/0.mp4").write_bytes(b"changed")
    assert log.known("videos/0.mp4", "same") is None


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "suffix"), [(Fraction(24), "mp4"), (Fraction(24_000, 1001), "mkv")])
def test_the_sound_of_a_cut_clip_is_in_sync_and_as_long_as_the_clip(
    tmp_path: Path, rate: Fraction, suffix: str
) -> None:
    silent_film = make_film(tmp_path / "f.mp4", frames=round(12 * rate), fps=rate)
    at, starts = [0.3 + number for number in range(12)], [0.0, 1.02, 2.0, 6.0]
    film = planned(tmp_path / "data", add_sound(silent_film, tmp_path / f"f.{suffix}", [(beeps(12, at), 0)])).film
    long = PRESETS["hunyuan"].model_copy(update={"frames": 121})
    log = cut(tmp_path, film, long, starts, sound=SoundSettings())
    assert {note.left_out for note in log.notes.values()} == {None}
    for start in starts:
        clip = tmp_path / f"videos/{start:g}.mp4"
        samples_CT, frame_seconds = read_sound(clip), float(pace(film) / long.fps)
        assert samples_CT.shape == (2, 121 * SAMPLE_RATE // 24)
        first_seconds = numbers(clip)[0] * float(1 / rate)
        shown = [(beep - first_seconds) / float(pace(film)) for beep in at]
        inside = [beep for beep in shown if 0 < beep < 121 * frame_seconds - 0.03]
        assert beeps_in(samples_CT) == pytest.approx(inside, abs=0.01)
        assert len(inside) >= 4


def test_a_track_shorter_than_the_span_is_silent_after_its_end(films: dict[Fraction, Film], tmp_path: Path) -> None:
    path = add_sound(Path(films[Fraction(24)].source), tmp_path / "film.mp4", [(beeps(1.5, [1.2]), 0)])
    film = planned(tmp_path / "data", path).film
    cut(tmp_path, film, PRESETS["wan"], [1.0, 2.5], sound=SoundSettings())
    first_CT, second_CT = (read_sound(tmp_path / f"videos/{name}.mp4") for name in ("1", "2.5"))
    assert first_CT.shape == second_CT.shape == (2, 33 * SAMPLE_RATE // 16)
    assert beeps_in(first_CT) == pytest.approx([0.2], abs=0.01)
    assert not beeps_in(second_CT)
    shown = numbers(tmp_path / "videos/1.mp4")
    cut(tmp_path, film, PRESETS["wan"], [1.0], sound=SoundSettings(), holds_last=True)
    assert numbers(tmp_path / "videos/1.mp4") == [*shown, shown[-1]]
    assert np.array_equal(read_sound(tmp_path / "videos/1.mp4"), first_CT)


def test_a_film_without_a_track_gives_clips_without_sound(films: dict[Fraction, Film], tmp_path: Path) -> None:
    cut(tmp_path, films[Fraction(24)], PRESETS["wan"], [0.0], sound=SoundSettings())
    with pytest.raises(RecordError, match="it has no sound"):
        read_sound(tmp_path / "videos/0.mp4")
