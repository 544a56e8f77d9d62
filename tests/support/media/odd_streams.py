"""Films with odd streams: a second part of another size, and a track of video without a packet."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from flows.demos.world.textures import PictureSize
from tests.support.media.films import make_film

SIZE = (320, 180)
PART = 60
"""Frames of each part, numbered from 0."""
_CLOCK = 90_000
"""Ticks of MPEG-TS in a second."""


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
