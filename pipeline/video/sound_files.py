"""Writing, reading and muxing of the sound of clips: AAC in M4A, as long as the clip to the sample.

An AAC encoder delays the sound by a frame of priming, and AAC holds whole frames only. The sound is therefore led in by
silence that fills the first frame, and the edit list of the file cuts priming and silence off: decoders observe edit
lists at the start of a file, but many play the last frame to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.error import FFmpegError
from numpy.typing import NDArray

from pipeline.core.records import RecordError
from pipeline.video.containers import demux, open_film, video_stream

Samples = NDArray[np.float32]
"""Array of channels and samples at `SAMPLE_RATE`, -1..1."""
SAMPLE_RATE, CHANNELS = 48_000, 2
BIT_RATE = 128_000
_AAC_FRAME = 1024
_OPTIONS = {"movflags": "+faststart", "fflags": "+bitexact", "movie_timescale": str(SAMPLE_RATE)}


def write_sound(path: Path, samples_CT: Samples) -> None:
    """Write the sound of a clip, the same bytes every time; `path` must end in `.m4a`."""
    with av.open(f"file:{path.absolute()}", "w", format="mp4", container_options=_OPTIONS) as container:
        stream = container.add_stream("aac", rate=SAMPLE_RATE, layout="stereo", options={"flags": "+bitexact"})
        stream.bit_rate, stream.codec_context.thread_count = BIT_RATE, 1
        lead = -samples_CT.shape[1] % _AAC_FRAME
        padded_CT = np.pad(samples_CT, ((0, 0), (lead, 0)))
        for start in range(0, padded_CT.shape[1], _AAC_FRAME):
            frame = audio_frame(padded_CT[:, start : start + _AAC_FRAME])
            frame.pts, frame.time_base = start - lead, Fraction(1, SAMPLE_RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def audio_frame(samples_CT: Samples) -> AudioFrame:
    """Return samples as a frame of FFmpeg."""
    frame = AudioFrame.from_ndarray(np.ascontiguousarray(samples_CT), format="fltp", layout="stereo")
    frame.sample_rate = SAMPLE_RATE
    return frame


def read_sound(path: Path) -> Samples:
    """The sound of a clip, from its own file or muxed. Raises RecordError if there is none, or it cannot be read."""
    try:
        with open_film(path, path.stem) as container:
            if not container.streams.audio:
                raise RecordError(path.stem, "it has no sound")
            stream = container.streams.audio[0]
            parts = [frame.to_ndarray() for packet in demux(container, stream) for frame in stream.decode(packet)]
    except FFmpegError as error:
        raise RecordError(path.stem, f"its sound cannot be decoded: {error}") from error
    return np.concatenate(parts, axis=1) if parts else np.zeros((CHANNELS, 0), np.float32)


def mux_sound(clip: Path, sound: Path, out: Path) -> None:
    """Write a clip with its sound to `out`, an MP4: packets are copied, and the bytes are the same every time.

    Raises:
        RecordError: a file cannot be read.
    """
    try:
        with ExitStack() as opened:
            pictures, heard = (opened.enter_context(open_film(path, path.stem)) for path in (clip, sound))
            film = opened.enter_context(
                av.open(f"file:{out.absolute()}", "w", format="mp4", container_options=_OPTIONS)
            )
            sources = (video_stream(pictures, clip.stem), heard.streams.audio[0])
            streams: dict[Any, Any] = {stream: film.add_stream_from_template(stream) for stream in sources}
            packets = [packet for stream in sources for packet in _packets(stream)]
            for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
                packet.stream = streams[packet.stream]
                film.mux(packet)
    except FFmpegError as error:
        raise RecordError(clip.stem, f"its sound cannot be muxed: {error}") from error


def with_sound(clip: Path, sound: Path) -> bytes:
    """Return the content that `mux_sound` writes. Raises RecordError as it does."""
    with TemporaryDirectory() as folder:
        out = Path(folder, clip.name)
        mux_sound(clip, sound, out)
        return out.read_bytes()


def _packets(stream: Any) -> Iterator[Any]:
    return (packet for packet in demux(stream.container, stream) if packet.dts is not None)
