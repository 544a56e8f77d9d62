"""Clock of joined recordings, fed with packets made by hand; films that are read by it are in `test_film_reader.py`."""

from __future__ import annotations

from av.packet import Packet

from pipeline.video.recordings import OneClock


def packets_of(times: list[int | None]) -> list[Packet]:
    made = [Packet(b"picture") for _ in times]
    for packet, packet.pts in zip(made, times, strict=True):
        packet.is_keyframe = True
    return made


def test_a_further_recording_goes_on_from_the_end_of_the_one_before() -> None:
    passed = list(OneClock(1).packets(packets_of([*range(50), *range(50)])))
    assert [packet.pts for packet in passed if packet] == list(range(100))


def test_all_packets_pass_where_too_few_have_a_time() -> None:
    times = [number if number % 10 == 0 else None for number in range(500)]
    packets = packets_of(times + times)
    assert list(OneClock(1).packets(packets)) == packets
