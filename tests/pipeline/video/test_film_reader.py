"""Film reader: complete and damaged films."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from flows.demos.world.barcode import read_barcode
from pipeline.core.records import RecordError
from pipeline.video.film_reader import FilmReader, Frame, keyframes
from tests.support.media.decoded_frames import counting_decoded_frames
from tests.support.media.films import corrupt, make_film, paint_pictures, truncate
from tests.support.media.odd_streams import PART, SIZE, write_joined

OPEN_GOP = "keyint=24:min-keyint=24:scenecut=0:open-gop=1:bframes=4:log-level=none:pools=none:frame-threads=1"


def barcode_of(frame: Frame) -> int:
    return read_barcode(frame.picture.to_ndarray(format="bgr24"))


def numbers_and_times(path: Path, threads: int = 0) -> tuple[list[int], list[float], FilmReader]:
    with counting_decoded_frames() as decoded, FilmReader(path, threads) as reader:
        frames = [(barcode_of(frame), frame.seconds, frame.ordinal) for frame in reader.frames()]
    assert not reader.damage
    assert [ordinal for _, _, ordinal in frames] == list(range(len(frames)))
    assert decoded.count == len(frames)
    return [number for number, _, _ in frames], [seconds for _, seconds, _ in frames], reader


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
@pytest.mark.parametrize("rate", [Fraction(24000, 1001), 25, 60], ids=str)
def test_every_frame_is_read_in_order_at_its_time(tmp_path: Path, rate: Fraction, suffix: str) -> None:
    film = make_film(tmp_path / f"film.{suffix}", frames=60, fps=rate, sound=True, options={"bf": "3"})
    numbers, times, reader = numbers_and_times(film)
    assert numbers == list(range(60))
    assert times == pytest.approx([float(number / rate) for number in range(60)], abs=0.00051)
    assert reader.end_seconds == pytest.approx(float(60 / rate), abs=0.002)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_ten_bit_hevc_with_open_gops(tmp_path: Path, suffix: str) -> None:
    film = make_film(
        tmp_path / f"film.{suffix}",
        frames=96,
        codec="libx265",
        pixel_format="yuv420p10le",
        options={"x265-params": OPEN_GOP},
    )
    assert numbers_and_times(film)[0] == list(range(96))


def test_old_codecs_without_presentation_times(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.avi", codec="mpeg4", options={"bf": "2", "q": "2"})
    numbers, times, _ = numbers_and_times(film)
    assert numbers == list(range(48))
    assert times == pytest.approx([number / 24 for number in range(48)], abs=1e-6)


def test_a_variable_rate_with_pauses_is_not_damage(tmp_path: Path) -> None:
    chance, times = random.Random(3), [Fraction(0)]
    for _ in range(47):
        times.append(times[-1] + Fraction(chance.choice([1500, 3000, 7500, 270_000]), 90_000))
    film = make_film(tmp_path / "film.mp4", times=times)
    numbers, found, _ = numbers_and_times(film)
    assert numbers == list(range(48))
    assert found == pytest.approx([float(time) for time in times], abs=1e-5)


@pytest.mark.parametrize(("size", "aspect"), [((640, 360), None), ((240, 180), Fraction(4, 3))])
def test_another_size_of_the_same_shape_is_read_on(
    tmp_path: Path, size: tuple[int, int], aspect: Fraction | None
) -> None:
    numbers, times, _ = numbers_and_times(write_joined(tmp_path / "film.ts", size, aspect))
    assert numbers == 2 * list(range(PART))
    assert times == pytest.approx([number / 24 for number in range(2 * PART)], abs=1e-4)


@pytest.mark.parametrize(("size", "aspect"), [((240, 180), None), (SIZE, Fraction(4, 3))])
@pytest.mark.parametrize("suffix", ["ts", "mkv"])
def test_a_change_of_shape_is_refused(
    tmp_path: Path, size: tuple[int, int], aspect: Fraction | None, suffix: str
) -> None:
    film = write_joined(tmp_path / f"film.{suffix}", size, aspect)
    for threads in (1, 4):
        with (
            FilmReader(film, threads) as reader,
            pytest.raises(RecordError, match=r"from 1.78:1 to \d.\d+:1 at 0:00:02; split the file there") as caught,
        ):
            list(reader.frames())
        assert caught.value.record_id == film.name
    with FilmReader(film) as reader:
        assert len(list(reader.frames(end_seconds=2))) == 48  # the part before it can be used


def test_reading_stops_at_the_requested_end(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mp4", frames=240)
    with counting_decoded_frames() as decoded, FilmReader(film, threads=2) as reader:
        assert len(list(reader.frames(end_seconds=2))) == 48
    assert reader.end_seconds == 2
    assert decoded.count < 60


@pytest.mark.parametrize("name", ["h264.mp4", "h264.ts", "hevc.mp4"])
def test_damage_in_the_middle_leaves_all_other_frames_intact(tmp_path: Path, name: str) -> None:
    hevc = name.startswith("hevc")
    film = make_film(
        tmp_path / name,
        frames=144,
        codec="libx265" if hevc else "libx264",
        options={"x265-params": OPEN_GOP} if hevc else {"g": "24"},
    )
    corrupt(film, 0.42, 0.52)  # more than one packet: noise inside a single HEVC slice decodes, as nonsense
    seen: list[tuple[list[tuple[int, float]], list[tuple[float, float, str]]]] = []
    for threads in (1, 4):
        with FilmReader(film, threads) as reader:
            frames = [(round(frame.seconds * 24), frame.seconds) for frame in reader.frames()]
        seen.append((frames, reader.damage))
    assert seen[0] == seen[1]  # the number of threads changes nothing
    [(start, end, reason)] = reader.damage
    assert 1 < start < end < 5
    assert "cannot be decoded" in reason
    assert all(not start <= seconds < end for _, seconds in frames)
    missing = set(range(144)) - {number for number, _ in frames}
    assert missing == {number for number in range(144) if start - 0.02 < number / 24 < end - 0.02}
    assert reader.end_seconds == pytest.approx(6, abs=0.002)


@pytest.mark.parametrize("name", ["h264.mp4", "h264.ts", "h264.mkv"])  # Matroska drops broken clusters silently
def test_intact_frames_around_damage_show_their_pictures(tmp_path: Path, name: str) -> None:
    film = corrupt(make_film(tmp_path / name, frames=144, options={"g": "24"}), 0.42, 0.52)
    truth = list(paint_pictures(144, (320, 180)))
    with counting_decoded_frames() as decoded, FilmReader(film) as reader:
        for frame in reader.frames():
            shown = frame.picture.to_ndarray(format="bgr24").astype(int)
            assert np.abs(shown - truth[round(frame.seconds * 24)]).mean() < 6
    assert decoded.count > 90


def test_damage_at_the_very_start(tmp_path: Path) -> None:
    film = corrupt(make_film(tmp_path / "film.ts", frames=72, options={"g": "24"}), 0.05, 0.2)
    with FilmReader(film) as reader:
        frames = list(reader.frames())
    assert frames[-1].seconds == pytest.approx(71 / 24, abs=0.05)
    assert reader.damage[0][0] < 1
    assert reader.damage[0][1] == pytest.approx(1, abs=0.1)


def test_a_truncated_film_ends_where_its_packets_end(tmp_path: Path) -> None:
    film = truncate(make_film(tmp_path / "film.mkv", frames=144, options={"g": "24"}), 0.6)
    with FilmReader(film) as reader:
        frames = [barcode_of(frame) for frame in reader.frames()]
    assert frames == list(range(len(frames)))
    assert 60 < len(frames) < 110
    assert reader.end_seconds == pytest.approx(len(frames) / 24, abs=0.1)


NAMES = ["-x.mp4", "http:a.mp4", "concat:b|c.mp4", "a\nb.mp4", "Größe 100 %20#?.mp4", "%03d.mp4", "pipe:1", "..mp4"]


@pytest.mark.parametrize("name", NAMES)
def test_file_names_are_not_interpreted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    make_film(tmp_path / "film.mp4", frames=3).rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for path in (Path(name), tmp_path / "folder" / ".." / name):
        (tmp_path / "folder").mkdir(exist_ok=True)
        assert numbers_and_times(path)[0] == [0, 1, 2]


def test_files_that_are_not_films_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a film")
    for name in ("text.mp4", "missing.mp4"):
        with pytest.raises(RecordError) as caught:
            FilmReader(tmp_path / name)
        assert caught.value.record_id == name


@pytest.mark.parametrize("rotation", [0, 90])
def test_keyframes_are_spread_and_upright(tmp_path: Path, rotation: int) -> None:
    film = make_film(tmp_path / "film.mp4", frames=120, rotation=rotation, options={"g": "12", "sc_threshold": "0"})
    pictures = list(keyframes(film, 5, rotation))
    assert {picture.shape for picture in pictures} == {(180, 320, 3)}
    assert [read_barcode(picture) for picture in pictures] == [12, 36, 60, 84, 108]


def test_few_keyframes_are_returned_once_each(tmp_path: Path) -> None:
    film = make_film(
        tmp_path / "film.mkv", frames=72, codec="libx265", pixel_format="yuv420p10le", options={"x265-params": OPEN_GOP}
    )
    assert [read_barcode(picture) for picture in keyframes(film, 60, 0)] == [0, 24, 48]
