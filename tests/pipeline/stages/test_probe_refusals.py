"""Probe: files that are refused, each with its reason."""

import os
import shutil
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from examples.world.writer import write_film
from tests.support.media.films import make_film, truncate
from tests.support.media.odd_streams import without_packets
from tests.support.media.probed_films import encoded_again, probed, refusal, remuxed, retimed


def test_no_such_file_folder_device_and_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    os.mkfifo(tmp_path / "pipe.mp4")
    assert "No such file" in refusal(tmp_path / "missing.mp4")
    assert "is a folder" in refusal(tmp_path)
    assert "not a regular file" in refusal(tmp_path / "pipe.mp4")
    assert "empty" in refusal(tmp_path / "empty.mp4")


def test_a_file_name_that_is_not_unicode(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"bad\xff.mp4")
    shutil.copy(make_film(tmp_path / "film.mp4", frames=1), path)
    assert "not valid UTF-8" in refusal(path)


def test_text_and_noise(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("this is not a film\n" * 1000)
    (tmp_path / "noise.mp4").write_bytes(np.random.default_rng(0).bytes(100_000))
    for name in ("text.mp4", "noise.mp4"):
        assert refusal(tmp_path / name).startswith("not a ")


def test_sound_without_pictures(tmp_path: Path) -> None:
    for suffix, codec in ((".mp4", "aac"), (".wav", "pcm_s16le"), (".mkv", "aac")):
        path = tmp_path / f"sound{suffix}"
        with av.open(str(path), "w") as container:
            stream = container.add_stream(codec, rate=48_000, layout="mono")
            layout = "fltp" if codec == "aac" else "s16"
            silence = np.zeros((1, 1024), np.float32 if codec == "aac" else np.int16)
            frame = av.AudioFrame.from_ndarray(silence, format=layout, layout="mono")
            frame.sample_rate = 48_000
            container.mux(stream.encode(frame))
            container.mux(stream.encode())
        assert refusal(path) == "no video stream in it, only audio"


@pytest.mark.parametrize(("name", "sound"), [("film.mp4", False), ("film.mp4", True), ("film.mkv", True)])
def test_a_track_without_frames(tmp_path: Path, name: str, sound: bool) -> None:
    path = without_packets(tmp_path / name, sound=sound)
    assert refusal(path) == "its video stream holds no frames; download or copy the file again"


def test_pictures_too_narrow_for_a_clip(tmp_path: Path) -> None:
    """Ninety kilobytes of such a film took gigabytes of enlarged pictures."""
    for size in ((16, 1000), (1000, 16)):
        path = make_film(tmp_path / "{}x{}.mp4".format(*size), frames=3, size=size)
        assert refusal(path) == "its pictures of {}x{} are too narrow for a clip, over 1:10; crop it".format(*size)


@pytest.mark.parametrize("name", ["still.png", "still.jpg", "still.webp", "still.gif", "still.mp4"])
def test_still_images(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    _, content = cv2.imencode(path.suffix if name != "still.mp4" else ".png", np.zeros((48, 64, 3), np.uint8))
    path.write_bytes(content.tobytes())
    assert refusal(path) == "an image, not a film"


def test_an_index_that_was_never_written(tmp_path: Path) -> None:
    path = make_film(tmp_path / "film.mp4", size=(96, 64))
    assert "stopped before its end" in refusal(truncate(path, 0.6))


def test_common_encryption(tmp_path: Path) -> None:
    keys = {"encryption_scheme": "cenc-aes-ctr", "encryption_key": "00" * 16, "encryption_kid": "11" * 16}
    path = remuxed(make_film(tmp_path / "clear.mp4"), tmp_path / "film.mp4", keys)
    assert refusal(path) == "its video is encrypted (common encryption); decrypt it first"


def test_an_encrypted_sample_entry(tmp_path: Path) -> None:
    path = make_film(tmp_path / "film.mp4")
    head, index, tail = path.read_bytes().rpartition(b"avc1")  # the last is the sample entry, the first a brand
    path.write_bytes(head + b"encv" + tail)
    assert index
    assert "encrypted" in refusal(path)


def test_times_against_the_order_of_the_frames(tmp_path: Path) -> None:
    """As a Matroska file has them into which H.264 was copied from AVI."""
    in_avi = make_film(tmp_path / "film.avi", options={"bf": "2", "b-pyramid": "none", "b_strategy": "0"})
    film = remuxed(in_avi, tmp_path / "film.mkv", {})
    assert "contradict their order; encode it again" in refusal(film)
    assert probed(encoded_again(film, tmp_path / "new.mkv")).frames == 48


def test_frames_of_pure_noise(tmp_path: Path) -> None:
    path = make_film(tmp_path / "film.mkv")
    with av.open(str(path)) as container:
        places = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.pos]
    content = bytearray(path.read_bytes())
    for place, size in places:
        content[place + 16 : place + size] = bytes(size - 16)
    path.write_bytes(content)
    assert "can be decoded" in refusal(path)


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("concat.mp4", "ffconcat version 1.0\nfile other.mp4\n"),
        ("list.ffconcat", "ffconcat version 1.0\nfile other.mp4\n"),
        ("list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nother.mp4\n#EXT-X-ENDLIST\n"),
        ("list.mp4", "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nother.mp4\n#EXT-X-ENDLIST\n"),
        ("stream.sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"),
    ],
)
def test_a_file_named_in_a_playlist_is_never_opened(tmp_path: Path, name: str, script: str) -> None:
    make_film(tmp_path / "other.mp4")  # a real film: FFmpeg alone would play it
    (tmp_path / name).write_text(script)
    assert refusal(tmp_path / name).startswith("not a ")


def test_pictures_of_absurd_size(tmp_path: Path) -> None:
    path = make_film(tmp_path / "film.mkv", frames=1, codec="ffv1", size=(16640, 16), barcode=False)
    assert "16640x16" in refusal(path)


@pytest.mark.parametrize("frames", [102, 401])
def test_frames_that_nearly_all_have_the_same_time(tmp_path: Path, frames: int) -> None:
    source = make_film(tmp_path / "source.mkv", frames=frames, size=(64, 48), barcode=False, options={"bf": "0"})
    film = retimed(source, tmp_path / "film.mkv", [0] * (frames - 1) + [40])
    assert "carry no times; encode it again" in refusal(film)
    assert probed(encoded_again(film, tmp_path / "new.mkv")).frames == frames


def test_a_cover_picture_over_an_hour_of_sound(tmp_path: Path) -> None:
    times = [Fraction(0), Fraction(3000)]
    path = make_film(tmp_path / "film.mkv", frames=2, times=times, size=(64, 48), barcode=False)
    assert refusal(path).startswith("2 frames in 0:50:00: a slide show, a picture over sound")


def test_a_slide_show_is_refused_also_if_most_of_its_frames_are_near_each_other(tmp_path: Path) -> None:
    times = [Fraction(second) for slide in range(0, 280, 28) for second in (slide, slide + Fraction(1, 24))]
    path = make_film(tmp_path / "film.mkv", frames=20, times=times, size=(64, 48), barcode=False)
    assert refusal(path).startswith("20 frames in 0:04:12: a slide show")


@pytest.mark.parametrize("size", [(1, 1), (16, 1)])
def test_pictures_too_small_for_a_clip(tmp_path: Path, size: tuple[int, int]) -> None:
    pictures = [np.full((size[1], size[0], 3), number, np.uint8) for number in range(4)]
    path = write_film(tmp_path / "film.mkv", pictures, fps=24, codec="ffv1", pixel_format="yuv444p")
    assert refusal(path) == f"its pictures of {size[0]}x{size[1]} are too small for a clip"


def test_pictures_that_a_header_squeezes_to_nothing(tmp_path: Path) -> None:
    picture = np.zeros((16, 8, 3), np.uint8)
    path = write_film(tmp_path / "film.mp4", [picture] * 4, fps=24, sample_aspect=Fraction(1, 8))
    assert "too small for a clip" in refusal(path)
