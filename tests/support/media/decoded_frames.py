"""Count of decoded frames, taken at the pipeline's only call of a decoder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from pipeline.video import containers


class DecodedFrames:
    """Number of frames so far, in this process and all its threads."""

    def __init__(self) -> None:
        self.count = 0
        self._decode = containers.decode

    def decode(self, decoder: VideoStream | VideoCodecContext, packet: Packet[Any] | None) -> list[VideoFrame]:
        frames = self._decode(decoder, packet)
        self.count += len(frames)
        return frames


@contextmanager
def counting_decoded_frames() -> Iterator[DecodedFrames]:
    """Count in every module that has imported `containers.decode`; modules imported later are not counted."""
    counter, decode = DecodedFrames(), containers.decode
    with pytest.MonkeyPatch.context() as patch:
        for module in list(sys.modules.values()):
            if vars(module).get("decode") is decode:
                patch.setattr(module, "decode", counter.decode)
        yield counter
