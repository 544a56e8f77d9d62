"""Packet times of a film: when each frame is shown, in the order shown, also where recordings were joined in one file.

Joined recordings, as by `cat one.ts two.ts`, start their clocks anew. A recording begins where packets are shown before
more packets than can be stored out of order, a few in a row, since one alone has a wrong time; its times go on from the
end of the one before. A recording of fewer packets, or a clock that goes back by fewer, is not noticed.
"""

from __future__ import annotations

import heapq
from array import array
from itertools import pairwise

import numpy as np
from av.packet import Packet
from av.stream import Stream
from numpy.typing import NDArray

NO_TIME = -(2**63)
REORDERED = 16
"""Most frames by which storage order may differ (H.264's limit)."""
REORDERED_PACKETS = 2 * REORDERED
"""The same in packets: each field of an interlaced frame may be one."""
_IN_A_ROW = 4
"""Packets with which a recording is taken to begin."""


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
        if packet.is_discard or not packet.size:  # the empty packet at the end flushes the decoder
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
    restarts: list[int] = []
    latest: list[int] = []  # of the recording so far, as a heap
    early: list[int] = []  # times, in a row, before all of these
    for number, time in enumerate(times):
        if len(latest) <= REORDERED_PACKETS:
            heapq.heappush(latest, time)
        elif time >= latest[0]:
            heapq.heapreplace(latest, time)
            early = []
        else:
            early.append(time)
        if len(early) == _IN_A_ROW:
            restarts.append(number + 1 - _IN_A_ROW)
            latest, early = sorted(early), []
    return restarts


def _joined(recordings: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Times of all recordings, ascending: each goes on a frame after the one before."""
    parts = [np.sort(recording) for recording in recordings]
    for before, part in pairwise(parts):
        part += before[-1] + max(1, round(np.median(np.diff(before)))) - part[0]
    return np.concatenate(parts)
