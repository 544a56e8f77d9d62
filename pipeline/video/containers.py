"""Safe opening of untrusted video files, choice of the video stream, demuxing and decoding.

The probe, `film_reader` and `clip_files` all open files here, so that they agree. A film file is untrusted input: only
containers that hold their pictures themselves are allowed. A playlist or a concat script named `.mp4` would make FFmpeg
open any other file or address that it names; it is rejected before FFmpeg reads past its first bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.error import FFmpegError, InvalidDataError
from av.packet import Packet
from av.stream import Disposition, Stream
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from pipeline.core.records import AudioTrack, RecordError

Picture = NDArray[np.uint8]
"""Array of height, width, and the colours blue, green, red; uint8."""

CONTAINERS = (
    "matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,avi,mpegts,mpeg,asf,flv,ogg,nut,rm,mxf,wtv,dv,ivf,yuv4mpegpipe,"
    "mp3,wav,flac,aac"  # sound only, allowed so that the error says that the video is missing
)
"""FFmpeg's names of the containers allowed for films."""

STILL_PICTURES = Disposition.attached_pic | Disposition.timed_thumbnails | Disposition.still_image
STILL_BRANDS = {"avif", "heic", "heix", "heim", "heis", "mif1"}
LARGEST_SIDE = 16384
FIRST_FRAMES = 24
"""Frames decoded to see what a container does not say: rotation, fields, and whether its times are right."""
_VOP, _NOT_CODED_BYTES = b"\x00\x00\x01\xb6", 8
"""Start of an MPEG-4 frame, and most bytes of a frame that is not coded: coded frames have a bit per block too."""
_OGG_PAGE = 65_307
"""Largest page of Ogg, in bytes: FFmpeg searches as far for the next page before it reports an error."""
IMAGE = "an image, not a film"
NO_INDEX = "its index is missing or cut off: the download or recording stopped before its end"


def open_film(path: Path, record_id: str, *, first_look: bool = True) -> InputContainer:
    """Open a film for reading; only the file itself is opened. Close it, or use it in a `with`.

    Args:
        path: the file.
        record_id: name of the film or clip in errors.
        first_look: let FFmpeg decode the first frames to learn what the container does not say.

    Raises:
        RecordError: there is no such file, it cannot be read, or it is not a film.
    """
    _check_file(path, record_id)
    options = {"protocol_whitelist": "file", "format_whitelist": CONTAINERS}
    look: Any = None if first_look else [{"skip_frame": "all"}]  # PyAV takes dicts, its types say strings
    try:
        # "file:" keeps names like "Re:Zero.mkv" or "concat:b" from being parsed as a protocol
        container = av.open(
            f"file:{path.absolute()}", "r", metadata_errors="replace", container_options=options, stream_options=look
        )
    except av.error.ArgumentError as error:
        raise RecordError(record_id, _not_a_film_reason(path)) from error
    except av.error.FFmpegError as error:
        raise RecordError(record_id, _unreadable_reason(path, error)) from error
    if container.metadata.get("major_brand", "").strip() in STILL_BRANDS:
        container.close()
        raise RecordError(record_id, IMAGE)
    return container


def video_stream(container: InputContainer, record_id: str) -> VideoStream:
    """The video stream of the film: moving pictures (not cover art), the default stream first, then the largest.

    Raises:
        RecordError: there is none, FFmpeg has no decoder for it, or its pictures exceed LARGEST_SIDE.
    """
    if not len(container.streams):
        raise RecordError(record_id, NO_INDEX)
    moving = film_streams(container)
    if not moving:
        only = "cover art" if container.streams.video else ", ".join(sorted({s.type for s in container.streams}))
        raise RecordError(record_id, f"no video stream in it, only {only}")
    # PyAV gives a stream without a codec context when FFmpeg has no decoder for it
    decodable = [stream for stream in moving if stream.codec_context is not None]
    if not decodable:
        raise RecordError(record_id, "its video is encrypted (DRM), or in a codec that FFmpeg does not know")
    best = max(decodable, key=lambda s: (bool(s.disposition & Disposition.default), s.width * s.height, -s.index))
    if max(best.width, best.height) > LARGEST_SIDE:
        raise RecordError(record_id, f"its pictures claim {best.width}x{best.height} pixels, over {LARGEST_SIDE}")
    return best


def film_streams(container: InputContainer) -> list[VideoStream]:
    """The streams with moving pictures, without cover art and thumbnails."""
    return [stream for stream in container.streams.video if not stream.disposition & STILL_PICTURES]


def sound_streams(container: InputContainer) -> list[AudioStream]:
    """The sound tracks that FFmpeg can decode; PyAV gives the others no codec context."""
    return [stream for stream in container.streams.audio if stream.codec_context is not None]


def audio_track(stream: AudioStream) -> AudioTrack:
    """Facts about a sound track that can be decoded."""
    return AudioTrack(
        codec=stream.codec_context.name,
        language=None if stream.language in (None, "und") else stream.language,
        sample_rate=stream.sample_rate or 0,
        channels=stream.channels,
    )


def demux(container: InputContainer, *streams: Stream) -> Iterator[Packet[Any]]:
    """Yield the packets of these streams to the end of the file, then an empty one per stream to flush its decoder.

    After a damaged part of an Ogg file, reading continues, and the first packet of each stream is marked corrupt.
    """
    harmed: set[int] = set()
    errors_left = container.size // _OGG_PAGE + 2  # without a packet between them: as many as the whole file can give
    while True:
        count = 0
        try:
            for packet in container.demux(streams):
                count += 1
                if packet.size and packet.stream_index in harmed:
                    packet.is_corrupt = True
                    harmed.remove(packet.stream_index)
                yield packet
            return
        except IndexError:
            # PyAV 18 raises it after the last packet if a stream began midway, as in broadcasts
            return
        except InvalidDataError:
            errors_left -= not count
            if container.format.name != "ogg" or errors_left < 0:
                raise
            harmed = {stream.index for stream in streams}


def has_right_times(opened: InputContainer, film: VideoStream, path: Path) -> bool:
    """Return False for AVI whose times contradict the order in which the decoder returns its frames.

    AVI stores no presentation times, and FFmpeg guesses them: always wrongly for H.264 with B-frames, and wrongly for
    MPEG-4 with packed B-frames. The first frames of MPEG-4 show it, so the file is opened a second time to decode them.
    """
    if opened.format.name != "avi" or not film.codec_context.has_b_frames:
        return True
    if film.codec_context.name == "h264":
        return False
    times: list[int] = []
    with open_film(path, path.name) as container:
        stream = video_stream(container, path.name)
        with suppress(FFmpegError):
            for packet in demux(container, stream):
                if packet.size:
                    times += [picture.pts for picture in decode(stream, packet) if picture.pts is not None]
                if len(times) > FIRST_FRAMES:
                    break
    return all(earlier <= later for earlier, later in pairwise(times))


class Repeats:
    """Recognition of packets that show the picture before them again, of one stream in the order of the file.

    In Theora they are empty; in MPEG-4 they hold a frame that is not coded. They are not for the decoder, which takes
    an empty packet for the end of the film. If XviD or DivX has packed two frames into one packet, the frame that is
    not coded stands for the second of them, and is not a repeat.
    """

    def __init__(self, stream: VideoStream) -> None:
        self._is_mpeg4 = stream.codec_context.name == "mpeg4"
        self._packed = 0
        """Frames packed into earlier packets that have had no separate packet so far."""

    def has(self, packet: Packet[Any]) -> bool:
        """Take the next packet; return True if it is a repeat."""
        if not packet.size:
            return packet.pts is not None or packet.dts is not None
        if not self._is_mpeg4:
            return False
        if packet.size > _NOT_CODED_BYTES:
            self._packed += max(0, bytes(packet).count(_VOP) - 1)
        elif bytes(packet).startswith(_VOP):
            self._packed -= 1
            if self._packed < 0:
                self._packed = 0
                return True
        return False


def decode(decoder: VideoStream | VideoCodecContext, packet: Packet[Any] | None) -> list[VideoFrame]:
    """The frames completed by a packet; for None or an empty packet, the frames still in the decoder.

    The only call of a decoder in the project, so that tests can count here that a film is decoded once. Raises
    av.error.FFmpegError if the packet is damaged.
    """
    return decoder.decode(packet)


def _check_file(path: Path, record_id: str) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise RecordError(record_id, "its name is not valid UTF-8; rename it") from None
    if path.is_dir():
        raise RecordError(record_id, f"{path} is a folder; name the films in it")
    try:
        if not path.is_file() and path.exists():
            raise RecordError(record_id, f"{path} is not a regular file")
        with path.open("rb") as file:
            empty = not file.read(1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise RecordError(record_id, f"cannot be read: {error}") from error
    if empty:
        raise RecordError(record_id, "the file is empty (zero bytes); download or copy it again")


def _unreadable_reason(path: Path, error: av.error.FFmpegError) -> str:
    with path.open("rb") as file:
        is_mp4 = file.read(8)[4:] == b"ftyp"
    return NO_INDEX if is_mp4 else f"not a video file, or damaged at its start ({error.strerror})"


def _not_a_film_reason(path: Path) -> str:
    if cv2.haveImageReader(str(path.absolute())):
        return IMAGE
    return "not a film container: a playlist, a script naming other files, or a bare stream without times"
