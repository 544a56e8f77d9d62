"""Films with subtitles: an encoded film copied into a container with text tracks, each event as a packet.

with_tracks(film, tmp_path / "film.mkv", [TextStream("ass", [ass(1, 2.5, "Hello", name="Ponyo")], language="jpn")])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
from av.stream import Disposition

_MILLISECOND = Fraction(1, 1000)
ASS_HEADER = """[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, Italic, Underline, \
StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,20,&H00FFFFFF,&H000000FF,&H00000000,&H00000000,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,1

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""
_NO_FLAGS = Disposition(0)
Cue = tuple[float, float, bytes]
"""Start and end in seconds, and the packet."""


@dataclass(frozen=True)
class TextStream:
    """A subtitle stream to add."""

    codec: str
    cues: Sequence[Cue]
    language: str = "jpn"
    title: str = ""
    flags: Disposition = _NO_FLAGS


def ass(start: float, end: float, text: str, style: str = "Default", name: str = "") -> Cue:
    """Return an event as a packet of an ASS stream."""
    return start, end, f"0,0,{style},{name},0,0,0,,{text}".encode()


def tx3g(start: float, end: float, text: str, encoding: str = "utf-8") -> Cue:
    """Return a cue as a packet of a mov_text stream."""
    encoded = text.encode(encoding)
    return start, end, len(encoded).to_bytes(2) + encoded


def with_tracks(film: Path, path: Path, tracks: Sequence[TextStream], delay_seconds: float = 0) -> Path:
    """Copy the streams of a film, `delay_seconds` later, and add subtitle streams; return the new path."""
    with av.open(str(film)) as source, av.open(str(path), "w") as target:
        copies = {one.index: target.add_stream_from_template(one) for one in source.streams if one.type != "data"}
        for index, copy in copies.items():
            copy.metadata.update(source.streams[index].metadata)
        added = [target.add_mux_stream(track.codec) for track in tracks]
        for stream, track in zip(added, tracks, strict=True):
            stream.time_base = _MILLISECOND
            stream.metadata.update({"language": track.language, **({"title": track.title} if track.title else {})})
            stream.disposition = track.flags
        for packet in source.demux():
            if packet.size and packet.stream_index in copies:
                for name in ("pts", "dts"):
                    if (ticks := getattr(packet, name)) is not None:
                        setattr(packet, name, ticks + round(delay_seconds / packet.time_base))
                packet.stream = copies[packet.stream_index]
                target.mux(packet)
        for stream, track in zip(added, tracks, strict=True):
            for start, end, content in track.cues:
                packet = av.Packet(content)
                packet.stream, packet.time_base = stream, _MILLISECOND
                packet.pts = packet.dts = round(1000 * start)
                packet.duration = round(1000 * (end - start))
                target.mux(packet)
    return path


def ass_file(path: Path, *lines: str, encoding: str = "utf-8") -> Path:
    """Write an ASS file with these event lines, as `Dialogue: 0,0:00:01.00,...`."""
    path.write_text(ASS_HEADER + "\n".join(lines) + "\n", encoding=encoding)
    return path
