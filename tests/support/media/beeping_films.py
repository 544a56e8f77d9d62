"""Sound for composed films: a beep at the start of every second, or as asked; and where the beeps of a clip begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from pipeline.video.sound_files import SAMPLE_RATE, Samples

BEEP_SECONDS = 0.1


def beeps(seconds: float, at: Iterable[float], rate: int = SAMPLE_RATE, hertz: float = 1000) -> NDArray[np.float32]:
    """Return mono samples with beeps at these times."""
    samples_T = np.zeros(round(seconds * rate), np.float32)
    for start in at:
        beep_T = samples_T[round(start * rate) : round((start + BEEP_SECONDS) * rate)]
        beep_T += (0.5 * np.sin(2 * np.pi * hertz * np.arange(beep_T.size) / rate)).astype(np.float32)
    return samples_T


def add_sound(
    film: Path,
    path: Path,
    tracks: Sequence[tuple[NDArray[np.float32], float]],
    *,
    codec: str = "aac",
    rate: int = SAMPLE_RATE,
    layout: str = "stereo",
    languages: Mapping[int, str] | None = None,
    holes: Sequence[tuple[float, float]] = (),
) -> Path:
    """Copy a film and add tracks: mono samples for every channel, and the time at which they start.

    Packets that start in one of `holes` (start and end, seconds of the track) are left out.
    """
    with av.open(str(film)) as given, av.open(str(path), "w") as made:
        pictures = made.add_stream_from_template(given.streams.video[0])
        sounds = [made.add_stream(codec, rate=rate, layout=layout) for _ in tracks]
        for number, language in (languages or {}).items():
            sounds[number].metadata["language"] = language
        packets = []
        for packet in given.demux(video=0):
            if packet.dts is not None:
                packet.stream = pictures
                packets.append((float(packet.dts * packet.time_base), packet))
        for sound, (samples_T, start) in zip(sounds, tracks, strict=True):
            for first in range(0, samples_T.size, 1024):
                part_CT = np.tile(samples_T[first : first + 1024], (sound.layout.nb_channels, 1))
                form = sound.codec_context.format.name
                data = part_CT if form == "fltp" else np.ascontiguousarray((part_CT.T * 32767).reshape(1, -1), np.int16)
                frame = av.AudioFrame.from_ndarray(
                    np.ascontiguousarray(data.astype(np.float32 if form == "fltp" else np.int16)), form, layout
                )
                frame.sample_rate, frame.pts = rate, first + round(start * rate)
                packets += [(float(packet.dts * packet.time_base), packet) for packet in sound.encode(frame)]
            packets += [(float(packet.dts * packet.time_base), packet) for packet in sound.encode()]
        for seconds, packet in sorted(packets, key=lambda pair: pair[0]):
            if packet.stream is pictures or not any(low <= seconds < high for low, high in holes):
                made.mux(packet)
    return path


def cut_start(film: Path, path: Path, seconds: float) -> Path:
    """Copy an mp4 without re-encoding, with an edit list that leaves out its first seconds."""
    with av.open(str(film)) as given, av.open(str(path), "w", options={"avoid_negative_ts": "disabled"}) as made:
        copied = {stream.index: made.add_stream_from_template(stream) for stream in given.streams}
        for packet in given.demux():
            if packet.dts is not None and packet.pts is not None:
                earlier = round(seconds / packet.time_base)
                packet.stream, packet.pts, packet.dts = (
                    copied[packet.stream.index],
                    packet.pts - earlier,
                    packet.dts - earlier,
                )
                made.mux(packet)
    return path


def beeps_in(samples_CT: Samples) -> list[float]:
    """Return the times at which beeps begin, seconds."""
    loud_T = np.abs(samples_CT).max(axis=0) > 0.1
    loud = np.flatnonzero(loud_T)
    return [float(start / SAMPLE_RATE) for start in loud[np.diff(loud, prepend=-SAMPLE_RATE) > SAMPLE_RATE // 20]]
