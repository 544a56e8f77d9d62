"""Film reader: complete and damaged films."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from examples.world.barcode import read_barcode
from pipeline.core.records import RecordError
from pipeline.video.film_reader import FilmReader, Frame, keyframes
from tests.support.media.decoded_frames import counting_decoded_frames
from tests.support.media.films import corrupt, make_film, paint_pictures, truncate
from tests.support.media.odd_streams import SIZE, concatenate, set_times, write_joined, write_piped

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


def test_a_variable_rate_with_pauses_is_not_damage(tmp_path: Path) -> None:
    chance, times = random.Random(3), [Fraction(0)]
    for _ in range(47):
        times.append(times[-1] + Fraction(chance.choice([1500, 3000, 7500, 270_000]), 90_000))
    film = make_film(tmp_path / "film.mp4", times=times)
    numbers, found, _ = numbers_and_times(film)
    assert numbers == list(range(48))
    assert found == pytest.approx([float(time) for time in times], abs=1e-5)


JOINED: dict[str, dict[str, Any]] = {
    "h264.ts": {"options": {"g": "24", "bf": "3"}},
    "hevc.ts": {"codec": "libx265", "options": {"x265-params": OPEN_GOP}},
    "mpeg2.ts": {"codec": "mpeg2video", "options": {"g": "12", "bf": "2", "q": "2"}},
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lengths"), [*((name, (60, 80)) for name in JOINED), ("h264.ts", (80, 60))])
def test_recordings_joined_in_one_file_are_read_whole(tmp_path: Path, name: str, lengths: tuple[int, int]) -> None:
    recordings = [
        make_film(tmp_path / f"{frames} {name}", frames=frames, **JOINED[name]).read_bytes() for frames in lengths
    ]
    film = concatenate(tmp_path / name, *recordings)
    for threads in (1, 4):
        numbers, times, reader = numbers_and_times(film, threads)
        assert numbers == [number for frames in lengths for number in range(frames)]
        assert times == pytest.approx([number / 24 for number in range(140)], abs=1e-4)
        assert reader.end_seconds == pytest.approx(140 / 24, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("start_share", "first_of_second"), [(0, 0), (0.4, 48)])
def test_recordings_that_break_off_or_begin_amid_a_group_lose_only_that(
    tmp_path: Path, start_share: float, first_of_second: int
) -> None:
    recording = make_film(tmp_path / "whole.ts", frames=144, options={"g": "24", "bf": "0"}).read_bytes()
    broken_off = recording[: len(recording) // 188 * 188 - 2 * 188]
    begun_late = recording[round(len(recording) / 188 * start_share / 2) * 188 :]
    with FilmReader(concatenate(tmp_path / "film.ts", broken_off, begun_late)) as reader:
        numbers = [barcode_of(frame) for frame in reader.frames()]
    first, second = numbers[: numbers.index(first_of_second, 100)], numbers[numbers.index(first_of_second, 100) :]
    assert first == list(range(len(first)))
    assert 142 <= len(first) < 144
    assert second == list(range(first_of_second, 144))
    [(start, end, _)] = reader.damage
    assert start == pytest.approx(len(first) / 24, abs=0.002)
    assert reader.end_seconds - end == pytest.approx(len(second) / 24, abs=0.002)


def test_a_recording_that_begins_a_little_before_the_end_of_the_one_before_is_read_whole(tmp_path: Path) -> None:
    """Its clock goes back by too few frames to be noticed; the mark of MPEG-TS on the end of the first one stands."""
    first, second = (make_film(tmp_path / f"{frames}.ts", frames=frames, options={"bf": "0"}) for frames in (60, 80))
    set_times(second, {number: Fraction(40 + number, 24) for number in range(80)})
    film = concatenate(tmp_path / "film.ts", first.read_bytes(), second.read_bytes())
    with FilmReader(film) as reader:
        assert [barcode_of(frame) for frame in reader.frames()] == [*range(58), *range(80)]


def test_a_single_wrong_time_does_not_move_the_clock(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.ts", frames=120, options={"bf": "0"})
    set_times(film, {50: Fraction(0), 80: Fraction(20, 24), 81: Fraction(10, 24)})
    numbers, times, _ = numbers_and_times(film)
    assert numbers == list(range(120))
    assert times == pytest.approx([number / 24 for number in range(120)], abs=1e-4)


def test_a_clock_that_jumps_back_a_little_goes_on_with_its_own_steps(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.ts", frames=60, options={"bf": "0"})
    pause = [0 if number < 45 else 6 for number in range(60)]  # shorter than the jump
    set_times(film, {number: Fraction(number - 10 + pause[number], 24) for number in range(30, 60)})
    numbers, times, _ = numbers_and_times(film)
    assert numbers == list(range(60))
    assert times == pytest.approx([(number + pause[number]) / 24 for number in range(60)], abs=1e-4)


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
    truth = list(paint_pictures(144, SIZE))
    for threads in (1, 4):
        frames = []
        with FilmReader(film, threads) as reader:
            for frame in reader.frames():
                number, shown = round(frame.seconds * 24), frame.picture.to_ndarray(format="bgr24")
                assert np.abs(shown.astype(int) - truth[number]).mean() < 6
                frames.append((number, frame.seconds))
        seen.append((frames, reader.damage))
    assert seen[0] == seen[1]  # the number of threads changes nothing
    [(start, end, reason)] = reader.damage
    assert 1 < start < end < 5
    assert "cannot be decoded" in reason
    assert all(not start <= seconds < end for _, seconds in frames)
    missing = set(range(144)) - {number for number, _ in frames}
    assert missing == {number for number in range(144) if start - 0.02 < number / 24 < end - 0.02}
    assert reader.end_seconds == pytest.approx(6, abs=0.002)


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


@pytest.mark.parametrize("rotation", [0, 90])
def test_keyframes_are_spread_and_upright(tmp_path: Path, rotation: int) -> None:
    film = make_film(tmp_path / "film.mp4", frames=120, rotation=rotation, options={"g": "12", "sc_threshold": "0"})
    pictures = [picture for _, picture in keyframes(film, 5, rotation, 3.0)]
    assert {picture.shape for picture in pictures} == {(180, 320, 3)}
    assert [read_barcode(picture) for picture in pictures] == [12, 36, 60, 84, 108]


def test_keyframes_are_spread_over_a_film_without_a_stated_duration(tmp_path: Path) -> None:
    whole = make_film(tmp_path / "whole.mkv", frames=120, options={"g": "12", "sc_threshold": "0"})
    film = write_piped(whole, tmp_path / "film.mkv")
    with av.open(film) as container:
        assert (container.duration, container.streams.video[0].duration) == (None, None)
    assert [read_barcode(picture) for _, picture in keyframes(film, 5, 0, 5.0)] == [12, 36, 60, 84, 108]
