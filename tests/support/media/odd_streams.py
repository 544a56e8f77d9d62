"""Films with odd streams: a second part of another size or with its own clock, wrong times, no packet, no duration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np

from examples.world.textures import PictureSize
from tests.support.media.films import make_film
from tests.support.media.probed_films import copy_video

SIZE = (320, 180)
PART = 60
"""Frames of each part, numbered from 0."""
_CLOCK = 90_000
"""Ticks of MPEG-TS in a second."""
VOP = b"\x00\x00\x01\xb6"
"""Start of a frame of MPEG-4."""
NOT_CODED = VOP + b"\x50\x00\x00"
"""Frame of MPEG-4 that is predicted from the one before it and has no content."""
_PICTURE_START = b"\x00\x00\x01\xe0"
_TIME_AT = 9
"""Place of the times in the header of a picture: presentation, then decoding if it has a time of its own."""


def write_joined(path: Path, size: PictureSize, sample_aspect: Fraction | None = None) -> Path:
    """Write a film of `SIZE` that goes on in another size, in the same stream, as in broadcasts."""
    first = make_film(path.with_name("first.ts"), frames=PART, size=SIZE)
    second = make_film(path.with_name("second.ts"), frames=PART, size=size, sample_aspect=sample_aspect)
    with av.open(str(path), "w") as made, av.open(str(first)) as one, av.open(str(second)) as other:
        stream = made.add_stream_from_template(one.streams.video[0])
        for given, shift in ((one, 0), (other, PART * _CLOCK // 24)):
            for packet in given.demux(video=0):
                if packet.pts is not None and packet.dts is not None:
                    packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, stream
                    made.mux(packet)
    first.unlink()
    second.unlink()
    return path


def without_packets(path: Path, *, video: bool = True, sound: bool = True) -> Path:
    """Write a film with a track of video in its header and not one packet of it, and one frame of sound."""
    source = make_film(path.with_name("source.mp4"), frames=2)
    with av.open(str(source)) as given, av.open(str(path), "w", options={"movflags": "empty_moov"}) as made:
        if video:
            made.add_stream_from_template(given.streams.video[0])
        if sound:
            track = made.add_stream("aac", rate=48_000, layout="mono")
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            silence.sample_rate = 48_000
            made.mux(track.encode(silence))
            made.mux(track.encode())
        made.start_encoding()
    source.unlink()
    return path


@dataclass(frozen=True)
class _Pipe:
    """A file that cannot be sought, so that a writer never goes back to fill in the duration."""

    file: BinaryIO

    def write(self, content: bytes) -> int:
        return self.file.write(content)


def write_piped(source: Path, path: Path) -> Path:
    """Write the video of a film as Matroska into a pipe, as a recorder does: it states no duration."""
    with path.open("wb") as file, av.open(_Pipe(file), "w", "matroska") as made:
        copy_video(source, made)
    return path


def concatenate(path: Path, *recordings: bytes) -> Path:
    """Write recordings one after the other, as `cat` does."""
    path.write_bytes(b"".join(recordings))
    return path


def set_times(path: Path, seconds: Mapping[int, Fraction]) -> Path:
    """Overwrite the times of these frames, by number, in MPEG-TS stored in the order shown."""
    content, start = bytearray(path.read_bytes()), -1
    for number in range(max(seconds) + 1):
        start = content.index(_PICTURE_START, start + 1)
        for field in range(2 if content[start + 7] & 0x40 else 1) if number in seconds else ():
            at = start + _TIME_AT + 5 * field
            content[at : at + 5] = _coded_time(round(seconds[number] * _CLOCK), content[at] >> 4)
    path.write_bytes(content)
    return path


def _coded_time(ticks: int, kind: int) -> bytes:
    """33 bits in three groups, each before a marker bit."""
    high, middle, low = ticks >> 30, ticks >> 15 & 0x7FFF, ticks & 0x7FFF
    return bytes([kind << 4 | high << 1 | 1, middle >> 7, middle << 1 & 0xFF | 1, low >> 7, low << 1 & 0xFF | 1])


def write_held(source: Path, path: Path, repeat: bytes = b"", missing: Collection[int] = ()) -> Path:
    """Copy a film of 24 fps without B-frames, every frame followed by two packets that show it again.

    Args:
        source: the film.
        path: of a container that keeps such packets, such as NUT for empty ones.
        repeat: content of a packet that repeats.
        missing: numbers of packets that are lost.
    """
    with av.open(str(source)) as given, av.open(str(path), "w") as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        stream.time_base = Fraction(1, 24)
        stored = [packet for packet in given.demux(video=0) if packet.size]
        for number, (packet, content) in enumerate((each, part) for each in stored for part in (each, repeat, repeat)):
            if number in missing:
                continue
            copy = av.Packet(bytes(content))
            copy.stream, copy.time_base, copy.pts, copy.dts = stream, Fraction(1, 24), number, number
            copy.duration, copy.is_keyframe = 1, packet is content and packet.is_keyframe
            made.mux(copy)
    return path


def write_packed(source: Path, path: Path) -> Path:
    """Copy MPEG-4 with one B-frame at a time into AVI as XviD and DivX pack it: in the packet of the frame before it.

    A packet of seven bytes stands in the place of the B-frame (FFmpeg's `mpeg4_unpack_bframes` undoes this).
    """
    with av.open(str(source)) as given, av.open(str(path), "w") as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        stream.time_base = Fraction(1, 24)
        stored = [bytes(packet) for packet in given.demux(video=0) if packet.size]
        start = stored[0].index(VOP)
        stored[0] = stored[0][:start] + b"\0\0\1\xb2DivX503b1393p" + stored[0][start:]
        for number, content in enumerate(_packed(stored)):
            packet = av.Packet(content)
            packet.stream, packet.time_base, packet.pts, packet.dts = stream, Fraction(1, 24), number, number
            packet.is_keyframe = number == 0
            made.mux(packet)
    return path


def _packed(stored: Sequence[bytes]) -> Iterator[bytes]:
    for here, after in pairwise([*stored, b""]):
        if _is_b_frame(here):
            yield NOT_CODED
        else:
            yield here + after if _is_b_frame(after) else here


def _is_b_frame(content: bytes) -> bool:
    return content.startswith(VOP) and content[len(VOP)] >> 6 == 2
