"""Clip files: equal frames in every reader, and the same bytes on every run."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import cv2
import decord
import numpy as np
import pytest

from examples.world.barcode import read_barcode
from pipeline.core.records import RecordError
from pipeline.video.clip_files import (
    clip_shape,
    first_frame,
    join_clips,
    read_clip,
    read_clip_gray,
    read_frames,
    write_clip,
)
from pipeline.video.containers import Picture
from tests.support.media.colour_films import write_coded
from tests.support.media.decoded_frames import counting_decoded_frames
from tests.support.media.films import paint_pictures, truncate


def clip_of(path: Path, frames: int = 16) -> Path:
    write_clip(path, list(paint_pictures(frames, (192, 128))), Fraction(8), 17)
    return path


def opencv_frames(path: Path) -> list[Picture]:
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (read := capture.read())[0]:
        frames.append(read[1])
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == len(frames)
    return frames


def decord_frames(path: Path) -> list[Picture]:
    frames_THWC = decord.VideoReader(str(path)).get_batch(range(len(decord.VideoReader(str(path))))).asnumpy()
    return list(frames_THWC[..., ::-1])


@pytest.mark.parametrize("frames", [16, 17])
def test_every_reader_reads_every_frame_of_a_clip(tmp_path: Path, frames: int) -> None:
    path = clip_of(tmp_path / "clip.mp4", frames)
    for read in (read_clip, opencv_frames, decord_frames):
        assert [read_barcode(picture) for picture in read(path)] == list(range(frames))
    backwards = decord.VideoReader(str(path))
    assert [read_barcode(backwards[at].asnumpy()[..., ::-1]) for at in reversed(range(frames))] == list(
        reversed(range(frames))
    )
    assert backwards.get_avg_fps() == 8


def test_a_clip_uses_a_plain_encoding_and_the_same_bytes_every_time(tmp_path: Path) -> None:
    with av.open(str(clip_of(tmp_path / "clip.mp4"))) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        assert [packet.pts * stream.time_base for packet in packets] == [Fraction(at, 8) for at in range(16)]
        assert [packet.pts == packet.dts for packet in packets] == [True] * 16
        assert [packet.is_keyframe for packet in packets] == [True] + [False] * 15
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
    content = (tmp_path / "clip.mp4").read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")
    assert b"Lavf" not in content  # no writer version in the bytes
    assert clip_of(tmp_path / "again.mp4").read_bytes() == content


def test_colours_are_correct_in_every_reader(tmp_path: Path) -> None:
    colours = [(200, 60, 40), (40, 60, 200), (60, 180, 60), (128, 128, 128), (250, 250, 250), (20, 200, 230)]
    picture = np.repeat(np.array([colours], np.uint8), 120, axis=1).repeat(480, axis=0)
    write_clip(tmp_path / "clip.mp4", [picture] * 3, Fraction(8), 17)
    for read in (read_clip, opencv_frames, decord_frames):
        shown = read(tmp_path / "clip.mp4")[1]
        assert np.abs(shown[240, 60::120].astype(int) - colours).max() <= 6, read.__name__


@pytest.mark.parametrize(
    ("name", "coding", "is_plain"),
    [
        ("untagged 601", "h264 yuv420p", True),
        ("601", "h264 yuv420p", True),
        ("601 full", "h264 yuvj420p full range", False),
        ("709", "h264 yuv420p BT.709", False),
        ("709 full", "h264 yuvj420p BT.709 full range", False),
        ("709 10 bit", "hevc yuv420p10le BT.709", False),
    ],
)
def test_frames_squeezed_to_a_size_have_the_colours_of_any_coding(
    tmp_path: Path, name: str, coding: str, is_plain: bool
) -> None:
    colours = [(200, 60, 40), (40, 60, 200), (60, 180, 60), (128, 128, 128)]
    picture = np.repeat(np.array([colours], np.uint8), 48, axis=1).repeat(96, axis=0)
    path = write_coded(tmp_path / "clip.mp4", [picture] * 2, name)
    with counting_decoded_frames() as decoded:
        shape = clip_shape(path)
    assert (shape.coding, shape.is_plain, decoded.count) == (coding, is_plain, 1)
    shown = read_frames(path, range, 96, 48)[1]
    assert np.abs(shown[24, 12::24].astype(int) - colours).max() <= 6


@pytest.mark.parametrize("read", [read_clip, read_clip_gray])
def test_an_unreadable_clip_is_a_record_error(tmp_path: Path, read: object) -> None:
    assert callable(read)
    path = truncate(clip_of(tmp_path / "some-clip.mp4"), 0.02)
    with pytest.raises(RecordError, match="some-clip: the clip file cannot be read"):
        read(path)


def test_the_first_frame_is_the_only_one_decoded(tmp_path: Path) -> None:
    path = clip_of(tmp_path / "clip.mp4")
    with counting_decoded_frames() as decoded:
        small_HWC = first_frame(path, 96, 64)
    assert (small_HWC.shape, read_barcode(small_HWC)) == ((64, 96, 3), 0)
    assert decoded.count == 1


def test_joined_clips_are_one_video_of_the_same_frames_and_bytes(tmp_path: Path) -> None:
    clips = [clip_of(tmp_path / f"{frames}.mp4", frames) for frames in (17, 16, 17)]
    join_clips(clips, tmp_path / "film.mp4")
    expected = np.concatenate([read_clip(clip) for clip in clips])
    np.testing.assert_array_equal(read_clip(tmp_path / "film.mp4"), expected)
    for read in (opencv_frames, decord_frames):
        barcodes = [read_barcode(picture) for picture in read(tmp_path / "film.mp4")]
        assert barcodes == [*range(17), *range(16), *range(17)]
    with av.open(str(tmp_path / "film.mp4")) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        assert [packet.pts * stream.time_base for packet in packets] == [Fraction(at, 8) for at in range(50)]
        assert [at for at, packet in enumerate(packets) if packet.is_keyframe] == [0, 17, 33]
    join_clips(iter(clips), tmp_path / "again.mp4")
    content = (tmp_path / "again.mp4").read_bytes()
    assert content == (tmp_path / "film.mp4").read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")
    assert b"Lavf" not in content


@pytest.mark.parametrize(("fps", "crf", "size"), [(16, 17, (192, 128)), (8, 25, (192, 128)), (8, 17, (128, 192))])
def test_clips_of_different_formats_are_not_joined(tmp_path: Path, fps: int, crf: int, size: tuple[int, int]) -> None:
    write_clip(tmp_path / "other.mp4", list(paint_pictures(3, size)), Fraction(fps), crf)
    with pytest.raises(RecordError, match=r"^other: .* differs from the first clip"):
        join_clips([clip_of(tmp_path / "clip.mp4"), tmp_path / "other.mp4"], tmp_path / "film.mp4")


@pytest.mark.parametrize("share", [0.05, 0.7])
def test_a_broken_clip_is_named_when_joining(tmp_path: Path, share: float) -> None:
    whole, cut = clip_of(tmp_path / "whole.mp4"), truncate(clip_of(tmp_path / "cut.mp4"), share)
    with pytest.raises(RecordError, match=r"^cut: the clip file cannot be joined"):
        join_clips([whole, cut], tmp_path / "film.mp4")
