"""Probe of a film file: its facts, or the reason why it is refused; and copies of films in other containers."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import pytest
from av.container import OutputContainer
from av.filter import Graph

from pipeline.core.records import Film, RecordError
from pipeline.stages.probe import probe

SHA256 = "0123456789abcdef" * 4


def probed(path: Path) -> Film:
    return probe(path, "film-01234567", SHA256)


def refusal(path: Path) -> str:
    with pytest.raises(RecordError) as caught:
        probed(path)
    assert caught.value.record_id == "film-01234567"
    return caught.value.reason


def remuxed(source: Path, path: Path, options: dict[str, str]) -> Path:
    with av.open(str(path), "w", options=options) as made:
        copy_video(source, made)
    return path


def copy_video(source: Path, made: OutputContainer) -> None:
    """Copy the packets of a film's video into a file that is being written."""
    with av.open(str(source)) as given:
        stream = made.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.size:
                packet.stream = stream
                made.mux(packet)


def encoded_again(source: Path, path: Path) -> Path:
    """Do what errors recommend for wrong times: `ffmpeg -i SOURCE -vf setpts=N/FRAME_RATE/TB PATH`."""
    with av.open(str(source)) as given, av.open(str(path), "w") as made:
        stream = given.streams.video[0]
        graph = Graph()
        graph.link_nodes(
            graph.add_buffer(template=stream), graph.add("setpts", "N/FRAME_RATE/TB"), graph.add("buffersink")
        ).configure()
        new = made.add_stream("libx264", rate=stream.guessed_rate, width=stream.width, height=stream.height)
        for picture in given.decode(stream):
            graph.push(picture)
            made.mux(new.encode(graph.pull()))
        made.mux(new.encode())
    return path


def retimed(source: Path, path: Path, times: Sequence[int]) -> Path:
    """Copy a film without B-frames, its frames shown at these times in milliseconds."""
    with av.open(str(source)) as given, av.open(str(path), "w") as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        for packet, time in zip((packet for packet in given.demux(video=0) if packet.size), times, strict=True):
            packet.time_base, packet.duration = Fraction(1, 1000), 0
            packet.pts = packet.dts = time
            packet.stream = stream
            made.mux(packet)
    return path
