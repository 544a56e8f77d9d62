"""Settings of the benchmark: how a film is stored, and how its clips are cut."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import av
from av.filter import Graph

from pipeline.core.atomic import replacing

_BASE = "[looks]\ntext = false\n[selection]\nnear_duplicates = false\n"
_BARS = _BASE + "[crop]\nenabled = false\n"


@dataclass(frozen=True)
class Setting:
    """A way to store the films and to cut their clips.

    Attributes:
        name: as printed.
        config: the build's configuration, TOML.
        filters: FFmpeg filters through which the films are encoded again; empty: as they are.
        crf: H.264 quality of that encoding.
    """

    name: str
    config: str = _BASE
    filters: str = ""
    crf: int = 18

    @property
    def changes_clips_only(self) -> bool:
        """True if the film is as it is, and only the clips differ: boundaries are those of the film."""
        return not self.filters and self.config != _BASE


def _clips(frames: int, fps: int) -> str:
    return _BASE + f'[clips]\nframes = {frames}\nfps = "{fps}"\nseconds = {(frames - 1) / fps:g}\nwidth = 832\n'


SETTINGS = (
    Setting("as they are"),
    Setting("letterboxed", _BARS, "scale=1280:720,crop=1280:544,pad=1280:720:0:88"),
    Setting("pillarboxed", _BARS, "scale=960:720,pad=1280:720:160:0"),
    Setting("fit", _BASE + '[clips]\nfit = "fit"\n'),
    Setting("33 at 16 fps", _clips(33, 16)),
    Setting("49 at 24 fps", _clips(49, 24)),
    Setting("81 at 16 fps", _clips(81, 16)),
    Setting("540p", filters="scale=-2:540"),
    Setting("CRF 35", filters="null", crf=35),
)
"""Bars stay in the picture, as in a letterboxed stretch of a 16:9 film, which has one crop for all of it."""


def stored(film: Path, setting: Setting, folder: Path) -> Path:
    """Return the film as the setting stores it, encoded unless an earlier run has; times stay as they are."""
    if not setting.filters:
        return film
    path = folder / setting.name.replace(" ", "-") / f"{film.stem}.mkv"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            _encode(film, temporary, setting)
    return path


def _encode(film: Path, out: Path, setting: Setting) -> None:
    with av.open(str(film)) as source, av.open(str(out), "w", format="matroska") as container:
        pictures = source.streams.video[0]
        pictures.thread_type = "AUTO"
        assert pictures.time_base is not None
        graph = Graph()
        ends = [graph.add_buffer(template=pictures), *_chain(graph, setting.filters), graph.add("buffersink")]
        graph.link_nodes(*ends).configure()
        stream = None
        # Theora's repeats are empty packets.
        packets = (packet for packet in source.demux(pictures) if packet.size or packet.pts is None)
        for frame in (frame for packet in packets for frame in packet.decode()):
            graph.push(frame)
            shown = graph.pull()
            assert isinstance(shown, av.VideoFrame)
            if stream is None:
                options = {"crf": str(setting.crf), "preset": "veryfast"}
                stream = container.add_stream("libx264", rate=pictures.average_rate, options=options)
                stream.width, stream.height, stream.pix_fmt = shown.width, shown.height, "yuv420p"
                stream.time_base = stream.codec_context.time_base = pictures.time_base
            shown.pict_type = 0
            container.mux(stream.encode(shown.reformat(format="yuv420p")))
        if stream is not None:
            container.mux(stream.encode())


def _chain(graph: Graph, filters: str) -> list[av.filter.context.FilterContext]:
    return [graph.add(*one.split("=", 1)) for one in filters.split(",")]
