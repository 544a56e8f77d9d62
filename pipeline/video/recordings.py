"""Recordings joined in one film, as by `cat one.ts two.ts`, put on one clock.

Each joined recording restarts its clock, and continues from the end of the one before. A recording begins if a few
packets in a row are shown before more packets than can be stored out of order; a single such packet has a wrong time.
Shorter recordings, and smaller steps back of the clock, are not noticed.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise

import numpy as np
from av.packet import Packet
from av.stream import Stream
from av.video.stream import VideoStream
from numpy.typing import NDArray

NO_TIME = -(2**63)
"""Time of a packet that has none."""

REORDERED = 16
"""Most frames by which storage order may differ (H.264's limit)."""
REORDERED_PACKETS = 2 * REORDERED
"""The same in packets: each field of an interlaced frame may be one."""
IN_A_ROW = 4
"""Packets with which a recording is taken to begin."""
_HELD = REORDERED_PACKETS + IN_A_ROW
_BLAMED = 2
"""Packets at the end of a recording that MPEG-TS may call corrupt only because another one follows."""


class Restarts:
    """Search for the packets with which further recordings begin, by the times of all packets in storage order."""

    def __init__(self) -> None:
        self._latest: list[int] = []
        """Latest times of the recording so far, as a heap."""
        self._early: list[int] = []
        """Times, in a row, before all of these."""

    def add(self, time: int) -> bool:
        """Take the next time; return True if it is number `IN_A_ROW` of a further recording."""
        if len(self._latest) <= REORDERED_PACKETS:
            heapq.heappush(self._latest, time)
        elif time >= self._latest[0]:
            heapq.heapreplace(self._latest, time)
            self._early = []
        else:
            self._early.append(time)
        if len(self._early) < IN_A_ROW:
            return False
        self._latest, self._early = sorted(self._early), []
        return True


class OneClock:
    """Packets of a film in storage order, with the times of each further recording moved behind the one before.

        for packet in OneClock(frame_ticks).packets(demux(container, stream)):
            ...

    `frame_ticks` is the length of a frame, for packets without one.
    """

    def __init__(self, frame_ticks: int) -> None:
        self._frame_ticks = frame_ticks
        self._restarts = Restarts()
        self._held: deque[Packet[VideoStream] | None] = deque()
        self._first: Packet[VideoStream] | None = None
        """First packet of a further recording, while it is held back."""
        self._shift = 0
        self._end: int | None = None
        """End of the recording so far."""

    def packets(self, packets: Iterable[Packet[VideoStream] | None]) -> Iterator[Packet[VideoStream] | None]:
        """Yield every packet, some of them late; None and packets without a time do not change."""
        for packet in packets:
            if len(self._held) == _HELD:
                yield self._released()
            self._hold(packet)
        while self._held:
            yield self._released()

    def _hold(self, packet: Packet[VideoStream] | None) -> None:
        self._held.append(packet)
        if (time := _time(packet)) is None or not self._restarts.add(time):
            return
        timed = [held for held in self._held if held and _time(held) is not None]
        if len(timed) < IN_A_ROW:  # many packets without a time lie between: it is too late to move this recording
            return
        *before, self._first = timed[: 1 - IN_A_ROW]
        if self._first.is_keyframe:  # it is not predicted from the packets before, so the mark does not matter
            for held in before[-_BLAMED:]:
                held.is_corrupt = False

    def _released(self) -> Packet[VideoStream] | None:
        packet = self._held.popleft()
        if packet is None:
            return None
        if packet is self._first and self._end is not None:
            opening = map(_time, islice((packet, *self._held), REORDERED_PACKETS))
            self._shift = self._end - min(time for time in opening if time is not None)
        if self._shift:  # packets of ordinary films are left alone
            packet.pts = None if packet.pts is None else packet.pts + self._shift
            packet.dts = None if packet.dts is None else packet.dts + self._shift
        if (time := _time(packet)) is not None:
            end = time + (packet.duration or self._frame_ticks)
            self._end = end if self._end is None else max(self._end, end)
        return packet


def _time(packet: Packet[VideoStream] | None) -> int | None:
    """Presentation time of a packet that is shown; None for others."""
    return packet.pts if packet is not None and packet.size and not packet.is_discard else None


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
    """Times of all recordings, ascending: each begins a frame after the end of the one before."""
    parts = [np.sort(recording) for recording in recordings]
    for before, part in pairwise(parts):
        part += before[-1] + max(1, round(np.median(np.diff(before)))) - part[0]
    return np.concatenate(parts)
