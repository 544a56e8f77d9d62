"""Probe of a film for its codec, geometry, frame rate and length, or for the reason why it cannot be used.

One pass over the packets gives the presentation times of all frames without decoding them. Only the first few frames
are decoded, because only decoded frames show rotation and interlacing reliably.

    film = probe_in_child(Path("film.mkv"), make_film_id("film.mkv", sha256), sha256)

A broken file may crash FFmpeg. In a child process that costs only this film; `probe` runs in the caller's process.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Literal

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.stream import Stream
from av.video.stream import VideoStream
from numpy.typing import NDArray

from pipeline.core.child_process import call_in_child
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Chapter, Film, RecordError
from pipeline.video.colour import ColourTags, check_colours
from pipeline.video.containers import (
    FIRST_FRAMES,
    Repeats,
    audio_track,
    decode,
    demux,
    film_streams,
    open_film,
    sound_streams,
    video_stream,
)
from pipeline.video.recordings import NO_TIME, REORDERED, PacketTimes

STANDARD_RATES = (
    *(Fraction(rate * 1000, 1001) for rate in (12, 15, 24, 30, 48, 60, 120)),
    *(Fraction(rate) for rate in (8, 10, 12, 12.5, 15, 16, 18, 20, 24, 25, 30, 48, 50, 60, 100, 120)),
)
TURNS: tuple[Literal[0, 90, 180, 270], ...] = (0, 90, 180, 270)
SLOWEST_RATE = 1
"""Frames per second on average below which a file is no film: a slide show, a picture over sound, or wrong times. It
also bounds what a small file can become: 3 MB with a frame every 28 s would give a million clips."""
SMALLEST_SIDE = 2
"""Least width and height in pixels: clips are coded in blocks of 2x2 pixels."""
LARGEST_ASPECT = 10
"""Largest aspect of the shown picture, in either direction: beyond it no clip shows anything, and a small file becomes
gigabytes of enlarged pictures."""
ENCODE_AGAIN = "encode it again at one rate, for example with `ffmpeg -i FILE -vf setpts=N/FRAME_RATE/TB NEW.mkv`"
NO_TIMES = "its frames carry no times; " + ENCODE_AGAIN
SHARPEST_ASPECT = 10
"""Largest plausible aspect of a stored pixel, in either direction; beyond it the header is wrong."""


def probe(path: Path, film_id: str, sha256: str) -> Film:
    """Measure a film in this process. Raises RecordError if the file cannot be used."""
    with open_film(path, film_id) as container:
        stream = video_stream(container, film_id)
        written = ColourTags.of_stream(stream.codec_context)  # decoding replaces them by the tags of the bitstream
        track = _demux(container, stream, film_id)
        missing_seconds = _missing_seconds(container, stream, track)
        picture, timing = track.picture, _timing(track, stream, film_id, truncated=missing_seconds > 0)
        aspect, aspect_warning = _sample_aspect(stream.sample_aspect_ratio)
        rotation = TURNS[round(-picture.rotation / 90) % 4]
        codec, tags = stream.codec_context.codec.canonical_name, written.seen_in(picture)
        check_colours(picture, tags, codec, stream.codec_context.codec_tag, film_id)
        display = (round(picture.width * aspect), picture.height)
        _check_use(track, timing, display, film_id)
        film = Film(
            film_id=film_id,
            name=path.name,
            source=str(path.absolute()),
            sha256=sha256,
            bytes=path.stat().st_size,
            container=container.format.name,
            codec=codec,
            pixel_format=picture.format.name,
            bit_depth=max(component.bits for component in picture.format.components),
            width=picture.width,
            height=picture.height,
            sample_aspect=aspect,
            rotation_degrees=rotation,
            display_width=display[rotation in (90, 270)],
            display_height=display[rotation not in (90, 270)],
            fps=timing.fps,
            variable_rate=timing.odd_intervals > 0,
            interlaced=track.interlaced,
            frames=len(track.ticks),
            duration_seconds=track.duration_seconds,
            missing_seconds=missing_seconds,
            transfer=tags.coding,
            audio_tracks=tuple(map(audio_track, sound_streams(container))),
            chapters=_chapters(container, float(track.ticks[0] * track.base)),
        )
        several = _several_streams(film_streams(container), stream)
    warnings = [*_warnings(film, timing), *aspect_warning, *tags.warnings(film.bit_depth), *several, *track.stopped]
    return film.model_copy(update={"warnings": tuple(warnings)})


def probe_in_child(path: Path, film_id: str, sha256: str) -> Film:
    """Run `probe` in a child process. Raises RecordError, also if the file crashes the decoder."""
    return call_in_child(_probe_job, (path, film_id, sha256), film_id, silent)


def _probe_job(job: tuple[Path, str, str], _: Progress) -> Film:
    return probe(*job)


def _chapters(container: InputContainer, first_seconds: float) -> tuple[Chapter, ...]:
    """Return the chapters as they are stored, in seconds from the first frame."""
    return tuple(
        Chapter(
            start_seconds=round(float(one["start"] * base) - first_seconds, 6),
            end_seconds=round(float(one["end"] * base) - first_seconds, 6),
            title=one["metadata"].get("title"),
        )
        for one in container.chapters()
        if (base := one["time_base"])
    )


@dataclass(frozen=True)
class _Track:
    """Facts from one pass over the packets of the film's stream."""

    ticks: NDArray[np.int64]
    """Presentation times of the frames that are shown, ascending, in units of `base`."""
    base: Fraction
    duration_seconds: float
    picture: av.VideoFrame
    interlaced: bool
    file_end_seconds: float
    """End of the last packet of any stream."""
    stopped: list[str]


def _demux(container: InputContainer, stream: VideoStream, film_id: str) -> _Track:
    """Read every packet once and keep only numbers: a film has about 200,000 packets."""
    shown, opening, repeats = PacketTimes(), _Opening(), Repeats(stream)
    stopped: list[str] = []
    end_seconds = 0.0
    stream.thread_count = 1
    try:
        for packet in demux(container, *container.streams):
            end_seconds = max(end_seconds, _end_seconds(packet))
            if packet.stream_index != stream.index:
                continue
            if packet.has_sidedata("encryption_info"):
                raise RecordError(film_id, "its video is encrypted (common encryption); decrypt it first")
            shown.add(packet)
            if not repeats.has(packet) and opening.count < FIRST_FRAMES:
                opening.add(_decode(stream, packet))
    except av.error.FFmpegError as error:
        stopped = [f"reading stopped after {shown.count} frames ({error.strerror})"]
    if not shown.count:
        raise RecordError(film_id, "its video stream holds no frames; download or copy the file again")
    ticks = shown.ticks()
    if ticks[0] == NO_TIME or (shown.count > 1 and ticks[0] == ticks[-1]):
        raise RecordError(film_id, NO_TIMES)
    if opening.picture is None:
        raise RecordError(film_id, f"none of its {shown.count} frames can be decoded: encrypted, or damaged throughout")
    if opening.steps_back > 1 and container.format.name != "avi":  # that is read in the decoder's order
        raise RecordError(film_id, "the times of its frames contradict their order; " + ENCODE_AGAIN)
    base = stream.time_base or Fraction(1, av.time_base)
    usual = np.median(np.diff(ticks)) if len(ticks) > 1 else 1 / (stream.average_rate or 24) / base
    last_length = shown.last_length() or max(1, round(usual))
    duration_seconds = float((int(ticks[-1] - ticks[0]) + last_length) * base)
    return _Track(ticks, base, duration_seconds, opening.picture, opening.interlaced, end_seconds, stopped)


class _Opening:
    """Facts from the first decoded frames."""

    def __init__(self) -> None:
        self.picture: av.VideoFrame | None = None
        self.count = 0
        self.interlaced = False
        self.steps_back = 0
        """Number of frames with a timestamp before the last one; one may be a clock reset in a broadcast."""
        self._last_time = NO_TIME

    def add(self, frames: list[av.VideoFrame]) -> None:
        for frame in frames:
            self.picture = self.picture or frame
            self.count += 1
            self.interlaced |= frame.interlaced_frame
            if frame.pts is not None:
                self.steps_back += frame.pts < self._last_time
                self._last_time = frame.pts


def _decode(stream: VideoStream, packet: Packet[Stream]) -> list[av.VideoFrame]:
    """Return the frames that a packet completes; none if it is damaged, since later packets may be intact."""
    try:
        return decode(stream, packet if packet.size else None)
    except av.error.FFmpegError:
        return []


def _end_seconds(packet: Packet[Stream]) -> float:
    if packet.pts is None:
        return 0.0
    return float((packet.pts + (packet.duration or 0)) * packet.time_base)


@dataclass(frozen=True)
class _Timing:
    """Frame rate of a film, and the deviations of its frames."""

    fps: Fraction
    odd_intervals: int = 0
    typical_seconds: float = 0.0
    longest_seconds: float = 0.0
    longest_at_seconds: float = 0.0


def _timing(track: _Track, stream: VideoStream, film_id: str, *, truncated: bool) -> _Timing:
    ticks, base = track.ticks, track.base
    if truncated and len(ticks) > 2 * REORDERED:
        ticks = ticks[:-REORDERED]  # the last ones have gaps
    steps = np.diff(ticks)
    if not steps.any():  # a single frame, or all at one time
        return _Timing(fps=stream.average_rate or 1 / Fraction(track.duration_seconds).limit_denominator(1001))
    typical, longest = float(np.median(steps)), int(np.argmax(steps))
    # Matroska rounds times to 1 ms, and remuxing keeps the rounding: a step may be off by one millisecond
    regular = np.abs(steps - typical) <= 1.5 * max(1.0, 0.001 / base)
    counted = steps[regular] if regular.mean() >= 0.99 else steps  # a few gaps do not change the rate
    if not counted.any():
        raise RecordError(film_id, NO_TIMES)
    seconds = int(counted.sum()) * base
    return _Timing(
        fps=_snapped(len(counted) / seconds, float(max(base, Fraction(1, 1000)) / seconds), stream.average_rate),
        odd_intervals=int((~regular).sum()),
        typical_seconds=typical * float(base),
        longest_seconds=float(int(steps[longest]) * base),
        longest_at_seconds=float(int(ticks[longest] - ticks[0]) * base),
    )


def _snapped(rate: Fraction, error: float, claimed: Fraction | None) -> Fraction:
    """Return the standard rate within the relative error of the measured one, preferring the header's rate."""
    tolerance = max(error, 2e-4)  # 24 and 23.976 lie 1e-3 apart
    near = [standard for standard in STANDARD_RATES if abs(standard - rate) <= tolerance * standard]
    if claimed in near:
        return claimed
    return min(near, key=lambda standard: abs(standard - rate), default=rate.limit_denominator(1001))


def _check_use(track: _Track, timing: _Timing, display: tuple[int, int], film_id: str) -> None:
    """Raise a RecordError for a film whose rate or size gives no clip."""
    frames, length = len(track.ticks), timedelta(seconds=round(track.duration_seconds))
    if frames > 1 and (timing.fps < SLOWEST_RATE or frames < SLOWEST_RATE * track.duration_seconds):
        reason = f"{frames} frames in {length}: a slide show, a picture over sound, or frames with wrong times"
        raise RecordError(film_id, reason)
    width, height = track.picture.width, track.picture.height
    if min(width, *display) < SMALLEST_SIDE:
        raise RecordError(film_id, f"its pictures of {width}x{height} are too small for a clip")
    if max(display) > LARGEST_ASPECT * min(display):
        shown = "{}x{}".format(*display)
        raise RecordError(
            film_id, f"its pictures of {shown} are too narrow for a clip, over 1:{LARGEST_ASPECT}; crop it"
        )


def _missing_seconds(container: InputContainer, stream: VideoStream, track: _Track) -> float:
    """Seconds that the header claims beyond the packets, 0.0 unless more than 0.5 s and 1%."""
    if stream.duration:
        claimed, found = float(stream.duration * track.base), track.duration_seconds
    else:  # the length of the whole file, possibly of its sound
        claimed, found = (container.duration or 0) / av.time_base, max(track.file_end_seconds, track.duration_seconds)
    missing = claimed - found
    return round(missing, 3) if missing > max(0.5, 0.01 * claimed) else 0.0


def _sample_aspect(aspect: Fraction | None) -> tuple[Fraction, list[str]]:
    if not aspect:
        return Fraction(1), []
    if not 1 / SHARPEST_ASPECT <= aspect <= SHARPEST_ASPECT:
        return Fraction(1), [f"its header claims pixels of aspect {aspect}, which is ignored"]
    return aspect, []


def _several_streams(streams: list[VideoStream], used: VideoStream) -> list[str]:
    if len(streams) == 1:
        return []
    return [f"{len(streams)} video streams; stream #{used.index} ({used.width}x{used.height}) is used"]


def _warnings(film: Film, timing: _Timing) -> list[str]:
    texts = {
        f"rotated: turned by {film.rotation_degrees} degrees to be upright": film.rotation_degrees != 0,
        f"anamorphic: {film.width}x{film.height} stored, {film.display_width}x{film.display_height} shown": (
            film.sample_aspect != 1
        ),
        "interlaced by its flags; its pictures decide, unless [film] fields is `keep`": film.interlaced,
        f"variable rate: {timing.odd_intervals} of {film.frames - 1} frame intervals differ from the usual "
        f"{1000 * timing.typical_seconds:.1f} ms; the longest, at {timedelta(seconds=int(timing.longest_at_seconds))}, "
        f"lasts {timing.longest_seconds:.2f} s": film.variable_rate,
        f"truncated: {film.missing_seconds:.1f} s that its header promises are missing": film.missing_seconds > 0,
        "a single frame: no clip can be cut from it": film.frames == 1,
    }
    return [text for text, applies in texts.items() if applies]
