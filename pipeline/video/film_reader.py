"""Reader of a film's frames in presentation order, which reports damage, and of its keyframes, through PyAV.

`FilmReader` reads a film once, from its first packet to its last; a span that cannot be decoded is recorded as damage
and reading continues. This module and `clip_files` are the only two that decode or encode, besides the probe, which
decodes the start of a film.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from pipeline.core.records import RecordError
from pipeline.video.containers import Picture, Repeats, decode, demux, has_right_times, open_film, video_stream
from pipeline.video.recordings import OneClock

LOST_MARGIN = 0.6
"""Least distance, in frame lengths, between a packet and its neighbours for it to count as a frame: the second
field of an interlaced frame and the invisible frames of VP9 are packets too."""
SAME_SHAPE = 0.03
"""Relative difference of the aspects of two pictures that look alike: 704 and 720 columns, 1080 and 1088 lines."""
NOT_DECODABLE = "damaged data that cannot be decoded"
BREAKS_OFF = "the film breaks off: its last packets cannot be decoded"


@dataclass(frozen=True)
class Frame:
    """One decoded frame of a film."""

    ordinal: int
    """Number of the frame in presentation order; undecodable frames count."""
    seconds: float
    """Presentation time, counted from the film's first frame."""
    duration_seconds: float
    """Length in the file's metadata; the frame stays on screen until the next one regardless."""
    picture: VideoFrame


class FilmReader:
    """Reader of a film from start to end, in presentation order.

        with FilmReader(path) as reader:
            for frame in reader.frames():
                ...
        reader.damage   # stretches (start_seconds, end_seconds, reason) that could not be decoded

    From the first frame that is missing or marked corrupt by the decoder to the next intact keyframe, frames are
    discarded, because they are predicted from it. A gap between two presentation times is not damage: the frame before
    it stays on screen, unless the file stores empty packets for repeated frames, as Ogg Theora does.

    Args:
        path: the film.
        threads: threads of the decoder; 0 is one per core. The frames do not depend on it.

    Raises:
        RecordError: the file cannot be opened or holds no video.
    """

    def __init__(self, path: Path, threads: int = 0) -> None:
        self._name = path.name
        self._container = open_film(path, self._name)
        try:
            self._stream = video_stream(self._container, self._name)
        except RecordError:
            self._container.close()
            raise
        self._stream.thread_type = av.codec.context.ThreadType.AUTO
        self._stream.thread_count = threads
        self._has_times = has_right_times(self._container, self._stream, path)
        self._repeating: set[int] = set()
        """Packets held back that show the picture before them again, by `id`."""
        self._has_repeats = False
        """True after a packet that repeats a frame. Then every frame has a packet, and a gap is a lost frame."""
        self._noted: int | None = None
        """Time of the last packet, in ticks."""
        self._tick = self._stream.time_base or Fraction(1, 1000)
        self._numerator, self._denominator = self._tick.as_integer_ratio()
        self._frame_seconds = 1 / float(self._stream.guessed_rate or self._stream.average_rate or 25)
        self._frame_ticks = round(self._frame_seconds / self._tick)
        self._awaited: list[int] = []
        """Times of the packets that have not come out as frames yet: a heap, in ticks."""
        self._repeats: list[int] = []
        """Times at which the picture before is shown again: a heap, in ticks."""
        self._suspect: set[int] = set()
        self._passed = 0
        self._origin: int | None = None
        self._jumped_origin: int | None = None
        """Origin by which a frame whose time has gone back would follow the last frame."""
        self._last: Frame | None = None
        self._shape: Fraction | None = None
        """Width over height of the pictures on the screen."""
        self._damaged_since: float | None = None
        self._error_without_time = False
        self.damage: list[tuple[float, float, str]] = []
        self.end_seconds = 0.0
        """End of the last intact frame so far, or of the damage after it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.close()

    def frames(self, end_seconds: float | None = None) -> Iterator[Frame]:
        """Yield the intact frames that begin before `end_seconds`; damage is recorded as it is passed.

        Raises:
            RecordError: the film changes to pictures of another shape; crop and clip geometry are fixed for a film.
        """
        for picture in self._pictures():
            yield from self._repeated(picture.pts, end_seconds)
            intact = not picture.is_corrupt and picture.pts not in self._suspect
            self._suspect.discard(picture.pts)  # a further recording may use the same times
            if self._damaged_since is not None and not (intact and picture.key_frame):
                continue
            seconds = self._seconds(picture)
            if end_seconds is not None and seconds >= end_seconds:
                self._settle(end_seconds, NOT_DECODABLE)
                return
            lost = self._pass_packets(picture, seconds)
            if (lost or self._error_without_time or not intact) and self._damaged_since is None:
                self._damaged_since = min(self.end_seconds, seconds)
            self._error_without_time = False
            if intact and picture.key_frame:
                self._settle(seconds, NOT_DECODABLE)
                self._check_shape(picture, seconds)
            if self._damaged_since is None:
                yield self._frame(picture, seconds)
            else:
                self._passed += 1
        yield from self._repeated(None, end_seconds)
        self._finish(end_seconds)

    def _repeated(self, until: int | None, end_seconds: float | None) -> Iterator[Frame]:
        """Yield the last frame again at the times of repeats before `until` (ticks), unless a frame before is lost."""
        while self._repeats and (until is None or self._repeats[0] < until):
            pts = heapq.heappop(self._repeats)
            is_lost = bool(self._awaited) and self._awaited[0] < pts
            if self._last is None or self._origin is None or self._damaged_since is not None or is_lost:
                self._passed += 1
                continue
            seconds = self._seconds_of(pts - self._origin)
            if end_seconds is None or seconds < end_seconds:
                yield self._frame(self._last.picture, seconds)

    def _check_shape(self, picture: VideoFrame, seconds: float) -> None:
        """Compare a key frame with the first: the decoder runs ahead, but between two of them no sequence begins."""
        shape = picture.width * (self._stream.codec_context.sample_aspect_ratio or Fraction(1)) / picture.height
        self._shape = self._shape or shape
        if abs(shape / self._shape - 1) > SAME_SHAPE:
            raise RecordError(
                self._name,
                f"its pictures change from {float(self._shape):.2f}:1 to {float(shape):.2f}:1 at "
                f"{timedelta(seconds=int(seconds))}; split the file there and use the parts, or encode it in one shape",
            )

    def _frame(self, picture: VideoFrame, seconds: float) -> Frame:
        length = self._seconds_of(picture.duration) if picture.duration else self._frame_seconds
        self._last = Frame(self._passed, seconds, length, picture)
        self._passed += 1
        self.end_seconds = seconds + length
        return self._last

    def _pictures(self) -> Iterator[VideoFrame]:
        for picture in self._decoded():
            if not self._has_times:
                picture.pts = heapq.heappop(self._awaited) if self._awaited else None
            yield picture

    def _decoded(self) -> Iterator[VideoFrame]:
        for packet in OneClock(self._frame_ticks).packets(self._packets()):
            is_repeat = id(packet) in self._repeating
            self._repeating.discard(id(packet))
            if packet is not None:
                self._note(packet, is_repeat=is_repeat)
            if not is_repeat:
                yield from self._decode(packet)

    def _note(self, packet: Packet[VideoStream], *, is_repeat: bool) -> None:
        """Note the time of a packet, and of a packet before it that was lost with its part of the file."""
        pts = packet.pts
        if pts is None or packet.is_discard:
            return
        self._has_repeats |= is_repeat and not packet.size
        if self._has_repeats:
            if self._noted is not None and pts > self._noted + self._frame_ticks:
                heapq.heappush(self._awaited, self._noted + self._frame_ticks)
            self._noted = pts
        if is_repeat:
            heapq.heappush(self._repeats, pts)
        elif self._has_times:
            heapq.heappush(self._awaited, pts)
            if packet.is_corrupt:  # marked corrupt by the container
                self._suspect.add(pts)

    def _packets(self) -> Iterator[Packet[VideoStream] | None]:
        repeats = Repeats(self._stream)
        try:
            for packet in demux(self._container, self._stream):
                time = packet.dts if packet.pts is None else packet.pts
                if repeats.has(packet):
                    self._repeating.add(id(packet))
                elif not self._has_times and packet.size and time is not None:
                    heapq.heappush(self._awaited, time)  # before the decoder gets it: the next may have an earlier time
                yield packet
        except FFmpegError:
            yield None  # the file is cut off inside a packet: take the frames still in the decoder

    def _decode(self, packet: Packet[VideoStream] | None) -> list[VideoFrame]:
        try:
            return decode(self._stream, packet)
        except FFmpegError:
            # The packet that raises depends on the number of threads. The lost frame is found by its missing time when
            # a later frame appears; the error counts only where packets have no times.
            self._error_without_time |= not (self._awaited and self._has_times)
            if not self._has_times and self._awaited:
                heapq.heappop(self._awaited)
            return []

    def _seconds(self, picture: VideoFrame) -> float:
        expected = self._last.seconds + self._last.duration_seconds if self._last else 0.0
        if picture.pts is None:
            return expected
        if self._origin is None:
            self._origin = min([picture.pts, *self._awaited])
        seconds = self._seconds_of(picture.pts - self._origin)
        if self._last is None or seconds > self._last.seconds:
            self._jumped_origin = None
            return seconds
        # A wrong time, which must not move the clock; or the clock itself has jumped back, if the next frame follows.
        if self._jumped_origin is not None:
            jumped = self._seconds_of(picture.pts - self._jumped_origin)
            if jumped > self._last.seconds:
                self._origin = self._jumped_origin
                return jumped
        self._jumped_origin = self._origin - round((expected - seconds) / float(self._tick))
        return expected

    def _seconds_of(self, ticks: int) -> float:
        """Convert ticks exactly; the fraction itself would take 28 times as long, three times per frame."""
        return ticks * self._numerator / self._denominator

    def _pass_packets(self, picture: VideoFrame, seconds: float) -> bool:
        """Pop the packets shown before this picture; return True if one of them is a lost frame."""
        lost = False
        margin = LOST_MARGIN * self._frame_seconds
        after = self._last.seconds + margin if self._last else 0.0
        while self._origin is not None and self._awaited and self._awaited[0] <= (picture.pts or 0):
            pts = heapq.heappop(self._awaited)
            awaited = self._seconds_of(pts - self._origin)
            if after <= awaited <= seconds - margin:
                self._passed += 1
                lost = True
        return lost

    def _settle(self, end_seconds: float, reason: str) -> None:
        if self._damaged_since is not None:
            if end_seconds > self._damaged_since:
                self.damage.append((self._damaged_since, end_seconds, reason))
            self._damaged_since = None
            self.end_seconds = max(self.end_seconds, end_seconds)

    def _finish(self, end_seconds: float | None) -> None:
        if self.damage and not self._has_times:
            self._awaited.clear()  # as many as there were lost frames are left
        origin = self._origin if self._origin is not None else min(self._awaited, default=0)
        promised = self._seconds_of(max(self._awaited, default=origin) - origin)
        if promised >= self.end_seconds - (1 - LOST_MARGIN) * self._frame_seconds and self._awaited:
            if self._damaged_since is None:
                self._damaged_since = self.end_seconds
            self.end_seconds = promised + self._frame_seconds
        if end_seconds is not None:
            self.end_seconds = min(self.end_seconds, end_seconds)
        self._settle(self.end_seconds, BREAKS_OFF)


def keyframes(
    path: Path, count: int, rotation_degrees: int, film_seconds: float, between: tuple[float, float] | None = None
) -> Iterator[tuple[float, Picture]]:
    """Yield at most `count` keyframes spread evenly over the film: their times, and upright BGR pictures.

    It decodes only the pictures that it yields, at coded size (HWC), and skips those that cannot be decoded. This
    function and `frames_between` are the only ones that seek. Times are in seconds since the first frame.

    Args:
        path: the film.
        count: largest number of keyframes.
        rotation_degrees: clockwise rotation that makes the stored picture upright.
        film_seconds: the film's duration, for a file that does not state its own, such as Matroska from a pipe.
        between: times between which the keyframes are spread; None: the whole film.

    Raises:
        RecordError: the file cannot be opened or holds no video.
    """
    with open_film(path, path.name) as container:
        stream = video_stream(container, path.name)
        stream.codec_context.thread_count = 1
        last_pts = None
        for target in _spread(container, stream, count, film_seconds, between):
            packet = _keyframe_packet(container, stream, target)
            if packet is None or packet.pts == last_pts:
                continue
            last_pts = packet.pts
            picture = _decode_alone(stream.codec_context, packet)
            if picture is not None:
                yield _seconds_in(stream, packet.pts), _upright(picture, rotation_degrees)


def frames_between(
    path: Path, start_seconds: float, end_seconds: float, rotation_degrees: int
) -> Iterator[tuple[float, Picture]]:
    """Yield the frames between two times, in order, as `keyframes` does; decoding begins at the keyframe before.

    Raises:
        RecordError: the file cannot be opened or holds no video.
    """
    with open_film(path, path.name) as container:
        stream = video_stream(container, path.name)
        stream.codec_context.thread_count = 1
        container.seek(_ticks(stream, start_seconds), stream=stream)
        for packet in demux(container, stream):
            for picture in _decoded(stream, packet):
                seconds = _seconds_in(stream, picture.pts)
                if seconds > end_seconds:
                    return
                if seconds >= start_seconds:
                    yield seconds, _upright(picture, rotation_degrees)


def _decoded(stream: VideoStream, packet: Packet[VideoStream]) -> list[VideoFrame]:
    """Return the frames that a packet completes: none if it is damaged, or empty to repeat a frame."""
    try:
        return decode(stream, packet)
    except FFmpegError:
        return []


def _upright(picture: VideoFrame, rotation_degrees: int) -> Picture:
    upright_HWC = np.rot90(picture.to_ndarray(format="bgr24"), -rotation_degrees // 90)
    return np.ascontiguousarray(upright_HWC, dtype=np.uint8)


def _seconds_in(stream: VideoStream, pts: int | None) -> float:
    return float(((pts or 0) - (stream.start_time or 0)) * (stream.time_base or Fraction(1, 1000)))


def _ticks(stream: VideoStream, seconds: float) -> int:
    return (stream.start_time or 0) + round(Fraction(seconds) / (stream.time_base or Fraction(1, 1000)))


def _spread(
    container: InputContainer,
    stream: VideoStream,
    count: int,
    film_seconds: float,
    between: tuple[float, float] | None,
) -> list[int]:
    if between:
        start, end = (_ticks(stream, seconds) for seconds in between)
        return [start + (end - start) * (2 * index + 1) // (2 * count) for index in range(count)]
    tick = stream.time_base or Fraction(1, 1000)
    seconds = Fraction(container.duration, av.time_base) if container.duration else Fraction(film_seconds)
    length = stream.duration or int(seconds / tick)
    start = stream.start_time or 0
    return [start + length * (2 * index + 1) // (2 * count) for index in range(count)] if length > 0 else [start]


def _keyframe_packet(container: InputContainer, stream: VideoStream, target: int) -> Packet[VideoStream] | None:
    try:
        container.seek(target, stream=stream)  # to the keyframe at or before it
        return next((packet for packet in demux(container, stream) if packet.is_keyframe and packet.size), None)
    except FFmpegError:
        return None


def _decode_alone(context: VideoCodecContext, packet: Packet[VideoStream]) -> VideoFrame | None:
    context.flush_buffers()
    try:
        pictures = [*decode(context, packet), *decode(context, None)]
    except FFmpegError:
        return None
    return next((picture for picture in pictures if not picture.is_corrupt), None)
