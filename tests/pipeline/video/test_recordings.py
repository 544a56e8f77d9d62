"""Times and clock of joined recordings, from packets made by hand; `test_film_reader.py` reads such films."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from av.packet import Packet

from pipeline.video.recordings import OneClock, PacketTimes


def packets_of(times: list[int | None]) -> list[Packet]:
    made = [Packet(b"picture") for _ in times]
    for packet, packet.pts in zip(made, times, strict=True):
        packet.is_keyframe = True
    return made


def test_a_further_recording_goes_on_from_the_end_of_the_one_before() -> None:
    passed = list(OneClock(1).packets(packets_of([*range(50), *range(50)])))
    assert [packet.pts for packet in passed if packet] == list(range(100))


def times_of(stored: Sequence[int]) -> list[int]:
    """The times of packets that are stored in this order."""
    times = PacketTimes()
    for number, pts in enumerate(stored):
        packet = Packet(b"x")
        packet.pts, packet.dts = pts, number
        times.add(packet)
    ticks: list[int] = times.ticks().tolist()
    return ticks


def anchored(frames: int, group: int) -> list[int]:
    """Times in storage order where each group's last frame comes before the others."""
    return [number + (group - 1 if number % group == 0 else -1) for number in range(frames)]


@pytest.mark.parametrize("group", [1, 2, 4, 16, 32])
def test_frames_stored_out_of_order_are_one_recording(group: int) -> None:
    assert times_of(anchored(320, group)) == list(range(320))


@pytest.mark.parametrize("group", [1, 4])
def test_recordings_follow_each_other(group: int) -> None:
    slow = [500 + 3 * time for time in anchored(96, group)]
    stored = [*slow, *anchored(64, group), *(7 + time for time in anchored(64, group))]
    assert times_of(stored) == [*range(500, 788, 3), *range(788, 852), *range(852, 916)]


def test_single_wrong_times_begin_no_recording() -> None:
    stored = [0 if number in (500, 501, 900) else 100 + number for number in range(1000)]
    assert times_of(stored) == sorted(stored)
