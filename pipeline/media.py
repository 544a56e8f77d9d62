"""Video in and out: the only module that decodes or encodes, through PyAV (FFmpeg inside the wheel).

A film is read once, from its first packet to its last, in presentation order (`FilmReader`); what cannot be decoded is
noted as damage and reading goes on. Clips are small closed-GOP H.264 files that every reader reads alike
(`write_clip`, `read_clip`). Only local files are ever opened, whatever their names look like.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

import av
import cv2
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from pipeline.containers import demux, open_film, video_stream
from pipeline.records import RecordError

Picture = NDArray[np.uint8]

LOST_MARGIN = 0.6
"""Frame lengths by which a packet must stand apart from its neighbours to count as a frame of its own: the second
field of an interlaced frame and VP9's invisible frames are packets too."""
NOT_DECODABLE = "damaged data that cannot be decoded"
BREAKS_OFF = "the film breaks off: its last packets cannot be decoded"


@dataclass(frozen=True)
class Frame:
    """One decoded frame of a film."""

    ordinal: int
    """Its number in presentation order, undecodable frames counted."""
    seconds: float
    """Presentation time counted from the film's first."""
    duration_seconds: float
    """Length that the file claims for it; it stays on screen until the next frame in any case."""
    picture: VideoFrame


class FilmReader:
    """Reads a film from start to end, in presentation order.

        with FilmReader(path) as reader:
            for frame in reader.frames():
                ...
        reader.damage   # stretches (start_seconds, end_seconds, reason) that could not be decoded

    From the first frame that is missing or that the decoder marks as corrupt, nothing is trusted until the next sound
    keyframe, because frames in between are built upon it. A pause between two presentation times is not damage: the
    frame before it is held.

    Args:
        path: the film.
        threads: of the decoder; 0 is one per core. The frames do not depend on it.

    Raises:
        RecordError: the file cannot be opened or holds no video.
    """

    def __init__(self, path: Path, threads: int = 0) -> None:
        self._container = open_film(path, path.name)
        try:
            self._stream = video_stream(self._container, path.name)
        except RecordError:
            self._container.close()
            raise
        self._stream.thread_type = av.codec.context.ThreadType.AUTO
        self._stream.thread_count = threads
        self._tick = self._stream.time_base or Fraction(1, 1000)
        self._frame_seconds = 1 / float(self._stream.guessed_rate or self._stream.average_rate or 25)
        self._awaited: list[int] = []
        """Times of the packets that have not been seen as frames yet: a heap, in ticks."""
        self._suspect: set[int] = set()
        self._passed = 0
        self._origin: int | None = None
        self._last: Frame | None = None
        self._damaged_since: float | None = None
        self._error_without_time = False
        self.damage: list[tuple[float, float, str]] = []
        self.decoded_frames = 0
        """Frames that came out of the decoder so far, sound or not."""
        self.end_seconds = 0.0
        """End of the last sound frame so far, or of the damage behind it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.close()

    def frames(self, end_seconds: float | None = None) -> Iterator[Frame]:
        """The sound frames that begin before `end_seconds`; damage is noted as it is passed."""
        for picture in self._pictures():
            self.decoded_frames += 1
            sound = not picture.is_corrupt and picture.pts not in self._suspect
            if self._damaged_since is not None and not (sound and picture.key_frame):
                continue
            seconds = self._seconds(picture)
            if end_seconds is not None and seconds >= end_seconds:
                self._settle(end_seconds, NOT_DECODABLE)
                return
            lost = self._pass_packets(picture, seconds)
            if (lost or self._error_without_time or not sound) and self._damaged_since is None:
                self._damaged_since = min(self.end_seconds, seconds)
            self._error_without_time = False
            if sound and picture.key_frame:
                self._settle(seconds, NOT_DECODABLE)
            if self._damaged_since is None:
                yield self._frame(picture, seconds)
            else:
                self._passed += 1
        self._finish(end_seconds)

    def _frame(self, picture: VideoFrame, seconds: float) -> Frame:
        length = float(picture.duration * self._tick) if picture.duration else self._frame_seconds
        self._last = Frame(self._passed, seconds, length, picture)
        self._passed += 1
        self.end_seconds = seconds + length
        return self._last

    def _pictures(self) -> Iterator[VideoFrame]:
        packets = demux(self._container, self._stream)
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except FFmpegError:
                packet = None  # the file breaks off inside a packet: take what the decoder still holds
            if packet is not None and packet.pts is not None and not packet.is_discard:
                heapq.heappush(self._awaited, packet.pts)
                if packet.is_corrupt:  # the container noticed that something is missing here
                    self._suspect.add(packet.pts)
            yield from self._decode(packet)
            if packet is None:
                return

    def _decode(self, packet: Packet[VideoStream] | None) -> list[VideoFrame]:
        try:
            return self._stream.decode(packet)
        except FFmpegError:
            # Which packet failed depends on the number of threads. Its time is missed when a later frame appears;
            # only where packets have no times must the error itself do.
            self._error_without_time |= not self._awaited
            return []

    def _seconds(self, picture: VideoFrame) -> float:
        expected = self._last.seconds + self._last.duration_seconds if self._last else 0.0
        if picture.pts is None:
            return expected
        if self._origin is None:
            self._origin = min([picture.pts, *self._awaited])
        seconds = float((picture.pts - self._origin) * self._tick)
        if self._last and seconds <= self._last.seconds:  # the file's clock jumps back: go on from here
            self._origin -= round((expected - seconds) / float(self._tick))
            seconds = expected
        return seconds

    def _pass_packets(self, picture: VideoFrame, seconds: float) -> bool:
        """Count the packets shown before this picture; whether one should have become a frame and did not."""
        lost = False
        margin = LOST_MARGIN * self._frame_seconds
        after = self._last.seconds + margin if self._last else 0.0
        while self._origin is not None and self._awaited and self._awaited[0] <= (picture.pts or 0):
            pts = heapq.heappop(self._awaited)
            awaited = float((pts - self._origin) * self._tick)
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
        origin = self._origin if self._origin is not None else min(self._awaited, default=0)
        promised = float((max(self._awaited, default=origin) - origin) * self._tick)
        if promised >= self.end_seconds - (1 - LOST_MARGIN) * self._frame_seconds and self._awaited:
            if self._damaged_since is None:
                self._damaged_since = self.end_seconds
            self.end_seconds = promised + self._frame_seconds
        if end_seconds is not None:
            self.end_seconds = min(self.end_seconds, end_seconds)
        self._settle(self.end_seconds, BREAKS_OFF)


def keyframes(path: Path, count: int, rotation_degrees: int) -> Iterator[Picture]:
    """Upright BGR pictures (HWC, coded size) of at most `count` keyframes spread evenly over the film.

    The only place that seeks. Decodes nothing but the pictures it gives; those that cannot be decoded are left out.

    Raises:
        RecordError: the file cannot be opened or holds no video.
    """
    with open_film(path, path.name) as container:
        stream = video_stream(container, path.name)
        stream.codec_context.thread_count = 1
        last_pts = None
        for target in _spread(container, stream, count):
            packet = _keyframe_packet(container, stream, target)
            if packet is None or packet.pts == last_pts:
                continue
            last_pts = packet.pts
            picture = _decode_alone(stream.codec_context, packet)
            if picture is not None:
                upright_HWC = np.rot90(picture.to_ndarray(format="bgr24"), -rotation_degrees // 90)
                yield np.ascontiguousarray(upright_HWC, dtype=np.uint8)


def _spread(container: InputContainer, stream: VideoStream, count: int) -> list[int]:
    tick = stream.time_base or Fraction(1, 1000)
    length = stream.duration or int(Fraction(container.duration or 0, av.time_base) / tick)
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
        pictures = [*context.decode(packet), *context.decode(None)]
    except FFmpegError:
        return None
    return next((picture for picture in pictures if not picture.is_corrupt), None)


def write_clip(path: Path, pictures: Iterable[VideoFrame | Picture], fps: Fraction, crf: int) -> None:
    """Write a clip: closed-GOP H.264 in MP4 at a constant rate, the same bytes every time.

    Args:
        path: where to write it; must end in `.mp4`.
        pictures: yuv420p frames from a `Scaler`, or BGR arrays (HWC uint8), all of one even size.
        fps: frames per second.
        crf: x264's quality, lower is better.
    """
    # No B-frames: presentation and decoding order agree, so no reader needs an edit list to count frames right.
    # ultrafast with quarter-pixel search: two thirds of superfast's time, as small and good at the same crf, and read
    # in a third of its time ever after. Without the search a slow pan is coded as noise, and measured 10 % too fast.
    options = {"preset": "ultrafast", "subq": "2", "crf": str(crf), "bf": "0", "sc_threshold": "0"}
    options["flags"] = "+cgop+bitexact"
    container_options = {"movflags": "+faststart", "fflags": "+bitexact"}
    with av.open(f"file:{path.absolute()}", "w", format="mp4", container_options=container_options) as container:
        stream = container.add_stream("libx264", rate=fps, options=options)
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1
        context = stream.codec_context
        # The numbers are FFmpeg's: limited range, BT.601 matrix; gamut and transfer stay the film's, BT.709 as a rule.
        context.color_range, context.colorspace, context.color_primaries, context.color_trc = 1, 6, 1, 1
        for number, picture in enumerate(pictures):
            frame = picture if isinstance(picture, VideoFrame) else _from_bgr(picture)
            if number == 0:
                stream.width, stream.height = frame.width, frame.height
            frame.pts, frame.time_base = number, 1 / fps
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def read_clip(path: Path) -> Picture:
    """All frames of a clip: `frames_THWC`, BGR uint8.

    Raises:
        RecordError: the file cannot be read; the record is the clip's id.
    """
    frames = _clip_frames(path)
    frames_THWC = np.empty((len(frames), frames[0].height, frames[0].width, 3), np.uint8)
    for frame, picture_HWC in zip(frames, frames_THWC, strict=True):
        # OpenCV's conversion is the clips' own (BT.601, limited range) and takes a tenth of swscale's time.
        cv2.cvtColor(frame.to_ndarray(format="yuv420p"), cv2.COLOR_YUV2BGR_I420, dst=picture_HWC)
    return frames_THWC


def read_clip_gray(path: Path) -> Picture:
    """The luma of all frames of a clip at full range 0..255: `frames_THW` uint8; much quicker than colour.

    Raises:
        RecordError: as `read_clip`.
    """
    return np.stack([np.asarray(cv2.LUT(_luma(frame), FULL_RANGE), np.uint8) for frame in _clip_frames(path)])


def first_frame(path: Path, width: int, height: int) -> Picture:
    """The first frame of a clip scaled to a small picture: BGR uint8 of (height, width, 3). Decodes nothing else.

    Raises:
        RecordError: the file cannot be read; the record is the clip's id.
    """
    try:
        with open_film(path, path.stem) as container:
            stream = video_stream(container, path.stem)
            stream.thread_count = 1
            frame = _decode_alone(stream.codec_context, next(container.demux(stream)))
    except (FFmpegError, RecordError) as error:
        raise RecordError(path.stem, f"the clip file cannot be read: {error}") from error
    if frame is None:
        raise RecordError(path.stem, "the clip file holds no frame")
    small = frame.reformat(width, height, format="bgr24", interpolation="AREA")
    return np.asarray(small.to_ndarray(), np.uint8)


FULL_RANGE = np.clip((np.arange(256) - 16) * (255 / 219), 0, 255).round().astype(np.uint8)


def _clip_frames(path: Path) -> list[VideoFrame]:
    try:
        with open_film(path, path.stem) as container:
            stream = video_stream(container, path.stem)
            stream.thread_count = 1
            frames = list(container.decode(stream))
    except (FFmpegError, RecordError) as error:
        raise RecordError(path.stem, f"the clip file cannot be read: {error}") from error
    if not frames:
        raise RecordError(path.stem, "the clip file holds no frame")
    return frames


def _luma(frame: VideoFrame) -> Picture:
    plane = frame.planes[0]
    return np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[: frame.height, : frame.width]


def _from_bgr(picture_HWC: Picture) -> VideoFrame:
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(picture_HWC), format="bgr24")
    return frame.reformat(format="yuv420p", dst_colorspace="ITU601", dst_color_range="MPEG")
