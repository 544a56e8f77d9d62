"""Probe of a film file: its facts, or the reason why it is refused; and copies of films in other containers."""

from pathlib import Path

import av
import pytest

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
    with av.open(str(source)) as given, av.open(str(path), "w", options=options) as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.size:
                packet.stream = stream
                made.mux(packet)
    return path
