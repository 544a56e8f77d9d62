"""Packet times of a film: when each frame is shown, in the order shown, also where recordings were joined in one file.

Joined recordings start their clocks anew: the times of each go on from the end of the one before, as those of the
frames that are read (`pipeline/video/recordings.py`).
"""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
from av.packet import Packet
from av.stream import Stream
from numpy.typing import NDArray

from pipeline.video.recordings import IN_A_ROW, Restarts

NO_TIME = -(2**63)


class PacketTimes:
    """Times of the packets that are shown, without the pre-roll that an edit list discards."""

    def __init__(self) -> None:
        self._pts, self._dts, self._lengths = array("q"), array("q"), array("q")

    @property
    def count(self) -> int:
        """Number of packets."""
        return len(self._pts)

    def add(self, packet: Packet[Stream]) -> None:
        """Take the next packet of the file."""
        if packet.is_discard or (not packet.size and packet.pts is None):  # the last one flushes the decoder
            return
        self._pts.append(NO_TIME if packet.pts is None else packet.pts)
        self._dts.append(NO_TIME if packet.dts is None else packet.dts)
        self._lengths.append(packet.duration or 0)

    def ticks(self) -> NDArray[np.int64]:
        """Presentation times, ascending; decoding times if the container (old AVI) has no others."""
        times = self._dts if NO_TIME in self._pts else self._pts
        stored = np.frombuffer(times, np.int64)
        return np.sort(stored) if NO_TIME in times else _joined(np.split(stored, _restarts(times)))

    def last_length(self) -> int:
        """Length of the packet shown last; 0 if the container does not give it."""
        return self._lengths[int(np.argmax(np.frombuffer(self._pts, np.int64)))]


def _restarts(times: array[int]) -> list[int]:
    """Numbers of the packets, in storage order, with which a further recording begins."""
    restarts = Restarts()
    return [number + 1 - IN_A_ROW for number, time in enumerate(times) if restarts.add(time)]


def _joined(recordings: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Times of all recordings, ascending: each goes on a frame after the one before."""
    parts = [np.sort(recording) for recording in recordings]
    for before, part in pairwise(parts):
        part += before[-1] + max(1, round(np.median(np.diff(before)))) - part[0]
    return np.concatenate(parts)
