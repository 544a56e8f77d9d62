"""Probe: facts about films of every kind, and work in a child process."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from tests.support.media.films import make_film, truncate
from tests.support.media.probed_films import SHA256, probed, remuxed


def exact_times(frames: int, fps: Fraction) -> list[Fraction]:
    return [number / fps for number in range(frames)]


def test_the_facts_of_a_plain_film_are_found(tmp_path: Path) -> None:
    path = make_film(tmp_path / "My film.mp4", frames=48, sound=True)
    film = probed(path)
    assert (film.film_id, film.name, film.sha256) == ("film-01234567", "My film.mp4", SHA256)
    assert (film.source, film.bytes) == (str(path), path.stat().st_size)
    assert (film.codec, film.pixel_format, film.bit_depth) == ("h264", "yuv420p", 8)
    assert (film.width, film.height, film.display_width, film.display_height) == (320, 180, 320, 180)
    assert (film.sample_aspect, film.rotation_degrees, film.interlaced) == (1, 0, False)
    assert (film.frames, film.fps, film.variable_rate) == (48, 24, False)
    assert film.duration_seconds == pytest.approx(2.0)
    assert film.missing_seconds == 0
    assert [(track.codec, track.language, track.channels) for track in film.audio_tracks or ()] == [("aac", None, 1)]
    assert film.warnings == ()


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
@pytest.mark.parametrize(
    "fps", [Fraction(24000, 1001), Fraction(24), Fraction(25), Fraction(30000, 1001), Fraction(60)]
)
def test_constant_rates_are_exact_in_every_container(tmp_path: Path, fps: Fraction, suffix: str) -> None:
    film = probed(make_film(tmp_path / f"film{suffix}", frames=60, fps=fps, size=(64, 48), barcode=False))
    assert (film.fps, film.variable_rate, film.frames) == (fps, False, 60)
    assert film.duration_seconds == pytest.approx(float(60 / fps), abs=0.0015)


@pytest.mark.parametrize("rate", ["24000/1001", "24"])
def test_the_header_decides_between_rates_that_rounded_times_cannot_distinguish(tmp_path: Path, rate: str) -> None:
    film = probed(make_film(tmp_path / "film.mkv", frames=4, fps=Fraction(rate), size=(64, 48), barcode=False))
    assert film.fps == Fraction(rate)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_variable_rate(tmp_path: Path, suffix: str) -> None:
    times = [Fraction(0)]
    for number in range(59):
        times.append(times[-1] + (Fraction(1, 24) if number < 30 else Fraction(1, 12)))
    film = probed(make_film(tmp_path / f"film{suffix}", frames=60, times=times, size=(64, 48), barcode=False))
    assert film.variable_rate
    assert film.fps == pytest.approx(59 / float(times[-1]), rel=1e-3)
    assert [text for text in film.warnings if text.startswith("variable rate: ")]


def test_a_gap_is_named_and_does_not_change_the_rate(tmp_path: Path) -> None:
    times = [time + (3 if number >= 120 else 0) for number, time in enumerate(exact_times(240, Fraction(24)))]
    film = probed(make_film(tmp_path / "film.mkv", frames=240, times=times, size=(64, 48), barcode=False))
    assert (film.variable_rate, film.fps) == (True, 24)
    assert film.duration_seconds == pytest.approx(13.0, abs=0.002)
    (warning,) = film.warnings
    assert "1 of 239 frame intervals" in warning
    assert "at 0:00:04, lasts 3.04 s" in warning


@pytest.mark.parametrize("lengths", [(60, 60), (48, 96), (96, 48, 60)], ids=str)
def test_recordings_joined_in_one_file_follow_each_other(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    path = tmp_path / "film.ts"
    with path.open("wb") as joined:
        for number, frames in enumerate(lengths):
            joined.write(make_film(tmp_path / f"{number}.ts", frames=frames, size=(96, 64)).read_bytes())
    film = probed(path)
    assert (film.frames, film.fps, film.variable_rate, film.warnings) == (sum(lengths), 24, False, ())
    assert film.duration_seconds == pytest.approx(sum(lengths) / 24)


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_rotation_and_pixel_aspect(tmp_path: Path, rotation: int) -> None:
    path = make_film(tmp_path / "film.mp4", size=(180, 320), rotation=rotation, sample_aspect=Fraction(4, 3))
    film = probed(path)
    stored = (180, 320) if rotation == 180 else (320, 180)
    assert film.rotation_degrees == rotation
    assert (film.width, film.height) == stored
    assert film.sample_aspect == Fraction(4, 3)
    shown = (round(stored[0] * 4 / 3), stored[1])
    assert (film.display_width, film.display_height) == (shown if rotation == 180 else shown[::-1])
    assert [text.split(":")[0] for text in film.warnings] == ["rotated", "anamorphic"]


def test_interlaced(tmp_path: Path) -> None:
    film = probed(make_film(tmp_path / "film.mp4", options={"x264-params": "interlaced=1"}))
    assert film.interlaced
    assert film.warnings[0].startswith("interlaced")


def test_frames_that_an_edit_list_hides_do_not_count(tmp_path: Path) -> None:
    source = make_film(tmp_path / "source.mp4", frames=96, size=(96, 64), options={"g": "48", "bf": "2"})
    path = tmp_path / "edited.mp4"
    with av.open(str(source)) as given, av.open(str(path), "w") as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.pts is not None and packet.dts is not None:
                packet.pts, packet.dts = packet.pts - 12288, packet.dts - 12288  # one second of 12288 ticks
                packet.stream = stream
                made.mux(packet)
    film = probed(path)
    assert (film.frames, film.fps, film.missing_seconds) == (72, 24, 0)
    assert film.duration_seconds == pytest.approx(3.0)


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_the_missing_seconds_of_a_truncated_film_are_reported(tmp_path: Path, suffix: str) -> None:
    options = {"movflags": "faststart"} if suffix == ".mp4" else {}
    whole = make_film(tmp_path / f"whole{suffix}", frames=240, size=(96, 64))
    for share in (0.4, 0.45, 0.5, 0.55, 0.6):  # at several places in a group of frames stored out of order
        film = probed(truncate(remuxed(whole, tmp_path / f"film{suffix}", options), share))
        assert 1 < film.duration_seconds < 9
        assert film.missing_seconds == pytest.approx(10 - film.duration_seconds, abs=0.01)
        assert (film.fps, film.variable_rate) == (24, False)
        assert film.warnings == (f"truncated: {film.missing_seconds:.1f} s that its header promises are missing",)


def test_longer_sound_is_not_truncation(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    with av.open(str(make_film(tmp_path / "pictures.mkv", frames=48))) as given, av.open(str(path), "w") as made:
        pictures = made.add_stream_from_template(given.streams.video[0])
        sound = made.add_stream("aac", rate=48_000, layout="mono")
        for packet in given.demux(video=0):
            if packet.dts is not None or packet.pts is not None:
                packet.stream = pictures
                made.mux(packet)
        for start in range(0, 48_000 * 6, 1024):
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            silence.sample_rate, silence.pts = 48_000, start
            made.mux(sound.encode(silence))
        made.mux(sound.encode())
    film = probed(path)
    assert film.duration_seconds == pytest.approx(2.0, abs=0.01)
    assert film.missing_seconds == 0


def test_the_largest_of_several_video_streams_is_used_and_cover_art_is_not(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    with av.open(str(path), "w") as container:
        streams = []
        for width in (64, 128):
            stream = container.add_stream("libx264", rate=24)
            stream.width, stream.height, stream.pix_fmt, stream.thread_count = width, 64, "yuv420p", 1
            streams.append(stream)
        for number in range(12):
            for stream in streams:
                frame = av.VideoFrame(stream.width, 64, "yuv420p")
                frame.pts = number
                container.mux(stream.encode(frame))
        for stream in streams:
            container.mux(stream.encode())
    film = probed(path)
    assert (film.width, film.frames) == (128, 12)
    assert film.warnings == ("2 video streams; stream #1 (128x64) is used",)
