"""Sound track of a film as stereo at 48 kHz, on the clock of its pictures.

The pictures' clock starts at the first frame, and continues through joined recordings; the sound follows it:

- Every piece of the track is placed by its presentation time, so a track that starts late or has holes stays in sync.
- Within a piece, samples are counted, because stored times are rounded; off by `DRIFT_SECONDS`, a new piece begins.
- Where a recording restarts the clock, the sound moves by as much as the pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.error import FFmpegError
from av.stream import Disposition

from pipeline.core.languages import language_of
from pipeline.core.records import AudioTrack
from pipeline.video.containers import audio_track, demux, open_film, sound_streams, video_stream
from pipeline.video.recordings import REORDERED_PACKETS, OneClock
from pipeline.video.sound_files import CHANNELS, SAMPLE_RATE, Samples, audio_frame

DRIFT_SECONDS = 0.005
"""Distance between counted and stored time at which the stored time counts."""
RESTART_SECONDS = 1.0
"""Step back of the sound's clock with which a further recording begins."""


def choose_track(container: InputContainer, language: str | None) -> AudioStream | None:
    """The track in a language, or the default track, or the first; None if no track can be decoded."""
    wanted = language_of(language)
    return max(
        sound_streams(container),
        key=lambda track: (
            wanted is not None and wanted == language_of(track.language),
            bool(track.disposition & Disposition.default),
            -track.index,
        ),
        default=None,
    )


def film_track(path: Path, language: str | None) -> AudioTrack | None:
    """Facts about the track that `film_sound` reads; None if there is none. Raises RecordError as it does."""
    with open_film(path, path.name) as container:
        track = choose_track(container, language)
        return None if track is None else audio_track(track)


def film_sound(path: Path, language: str | None) -> Iterator[tuple[int, Samples]]:
    """Yield the sound of a film, in the order of the file: the number of the first sample, and samples.

    Sample 0 is heard with the first frame. Damaged packets are left out.

    Raises:
        RecordError: the file cannot be opened or holds no video.
    """
    origin_seconds, shifts_seconds = _clock(path)
    with open_film(path, path.name) as container:
        if track := choose_track(container, language):
            yield from _placed(_decoded(container, track, shifts_seconds), origin_seconds)


class SoundPieces:
    """Pieces of a film's sound, in the order of their starts; only the sound since the start of the last is kept."""

    def __init__(self, path: Path, language: str | None) -> None:
        """Prepare to read the track that `film_sound` reads."""
        self._sound = film_sound(path, language)
        self._heard: list[tuple[int, Samples]] = []

    def piece(self, start_seconds: float, seconds: Fraction) -> Samples:
        """Return the sound from a time on, silent where the track is. Raises RecordError as `film_sound` does.

        `start_seconds` may not be before the start of the piece before.
        """
        start = round(start_seconds * SAMPLE_RATE)
        piece_CT = np.zeros((CHANNELS, round(seconds * SAMPLE_RATE)), np.float32)
        end = start + piece_CT.shape[1]
        self._heard = [(first, samples_CT) for first, samples_CT in self._heard if first + samples_CT.shape[1] > start]
        while not self._heard or self._heard[-1][0] < end:
            if (following := next(self._sound, None)) is None:
                break
            if following[0] + following[1].shape[1] > start:
                self._heard.append(following)
        for first, samples_CT in self._heard:
            low, high = max(first, start), min(end, first + samples_CT.shape[1])
            if low < high:
                piece_CT[:, low - start : high - start] = samples_CT[:, low - first : high - first]
        return piece_CT


def at_pace(samples_CT: Samples, pace: Fraction) -> Samples:
    """Return sound played faster by a factor near 1, which raises its pitch by the same factor."""
    if pace == 1:
        return samples_CT
    played = AudioResampler(format="fltp", layout="stereo", rate=SAMPLE_RATE)
    frame = audio_frame(samples_CT)
    frame.sample_rate = round(SAMPLE_RATE * pace)
    parts = [part.to_ndarray() for given in (frame, None) for part in played.resample(given)]
    length = round(samples_CT.shape[1] / pace)
    return np.pad(np.concatenate(parts, axis=1), ((0, 0), (0, length)))[:, :length]


def _clock(path: Path) -> tuple[float, list[float]]:
    """The time of the first frame, and the shift of each further recording, in seconds; nothing is decoded."""
    with open_film(path, path.name) as container:
        stream = video_stream(container, path.name)
        stored: dict[int, int] = {}

        def noted() -> Iterator[Any]:
            try:
                for packet in demux(container, stream):
                    if (time := _shown_at(packet)) is not None:
                        stored[id(packet)] = time
                    yield packet
            except FFmpegError:
                return  # the file is cut off inside a packet

        tick = stream.time_base or Fraction(1, 1000)
        frame_ticks = round(1 / float(stream.guessed_rate or stream.average_rate or 25) / tick)
        opening: list[int] = []
        shifts = [0]
        for packet in OneClock(frame_ticks).packets(noted()):
            if packet is None or (time := stored.pop(id(packet), None)) is None:
                continue
            shown = _shown_at(packet)
            assert shown is not None
            if len(opening) < REORDERED_PACKETS:
                opening.append(shown)
            if shown - time != shifts[-1]:
                shifts.append(shown - time)
        return float(min(opening, default=0) * tick), [float(shift * tick) for shift in shifts]


def _shown_at(packet: Any) -> int | None:
    if packet.is_discard or not packet.size:
        return None
    time: int | None = packet.dts if packet.pts is None else packet.pts
    return time


def _decoded(
    container: InputContainer, track: AudioStream, shifts_seconds: list[float]
) -> Iterator[tuple[float | None, AudioFrame]]:
    """Yield the frames of a track and their times; None: directly after the one before."""
    track.codec_context.thread_count = 1
    recording, latest = 0, float("-inf")
    try:
        for packet in demux(container, track):
            try:
                frames = track.decode(packet)
            except FFmpegError:
                continue
            for frame in frames:
                seconds = None if frame.pts is None or frame.time_base is None else float(frame.pts * frame.time_base)
                if seconds is not None:
                    recording += seconds < latest - RESTART_SECONDS
                    latest = seconds
                    seconds += shifts_seconds[min(recording, len(shifts_seconds) - 1)]
                yield seconds, frame
    except FFmpegError:
        return  # the file is cut off inside a packet


def _placed(frames: Iterable[tuple[float | None, AudioFrame]], origin_seconds: float) -> Iterator[tuple[int, Samples]]:
    resampler, form = None, None
    first = heard = 0
    start_seconds = length_seconds = 0.0
    for seconds, frame in frames:
        # 1. Begin a new piece where the form of the samples changes, or the stored time leaves the counted one.
        new_form = (frame.format.name, frame.layout.name, frame.sample_rate)
        expected = start_seconds + length_seconds
        drift = 0.0 if seconds is None else abs(seconds - origin_seconds - expected)
        if resampler is None or new_form != form or drift > DRIFT_SECONDS:
            if resampler is not None:
                yield from _numbered(first + heard, resampler.resample(None))
            resampler, form = _stereo_resampler(), new_form
            start_seconds, length_seconds = expected if seconds is None else seconds - origin_seconds, 0.0
            first, heard = round(start_seconds * SAMPLE_RATE), 0
        # 2. Convert the frame; the resampler holds some samples back.
        length_seconds += frame.samples / frame.sample_rate
        frame.pts = None
        for number, samples_CT in _numbered(first + heard, resampler.resample(frame)):
            heard += samples_CT.shape[1]
            yield number, samples_CT
    if resampler is not None:
        yield from _numbered(first + heard, resampler.resample(None))


def _stereo_resampler() -> AudioResampler:
    """A resampler that mixes 5.1 so that it cannot clip; FFmpeg scales its mix for samples of integers alone."""
    return AudioResampler(format="fltp", layout="stereo", rate=SAMPLE_RATE, options={"rematrix_maxval": "1"})


def _numbered(first: int, frames: Iterable[AudioFrame]) -> Iterator[tuple[int, Samples]]:
    for frame in frames:
        samples_CT = np.clip(frame.to_ndarray(), -1, 1).astype(np.float32)
        yield first, samples_CT
        first += samples_CT.shape[1]
