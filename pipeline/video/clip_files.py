"""Writing, reading and joining of clips as small closed-GOP H.264 in MP4, and films as GIF, through PyAV.

This module and `film_reader` are the only two that decode or encode, besides the probe, which decodes the start of a
film. Every reader gives the same frames of a clip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from av.container import OutputContainer
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter
from av.video.stream import VideoStream
from PIL import Image

from pipeline.core.records import RecordError
from pipeline.video.colour import MATRICES, UNSPECIFIED
from pipeline.video.containers import Picture, decode, demux, open_film, video_stream

FULL_RANGE = np.clip((np.arange(256) - 16) * (255 / 219), 0, 255).round().astype(np.uint8)
"""Lookup table from limited-range luma, 16..235, to full range, 0..255."""
CODING = "h264 yuv420p"
"""Coding of clips from `write_clip`, which the readers assume: BT.601 and limited range are not named."""


def write_clip(path: Path, pictures: Iterable[VideoFrame | Picture], fps: Fraction, crf: int) -> None:
    """Write a clip: closed-GOP H.264 in MP4 at a constant rate, the same bytes every time.

    Args:
        path: path of the clip; must end in `.mp4`.
        pictures: yuv420p frames from a `Scaler`, or BGR arrays (HWC uint8), all of one even size.
        fps: frames per second.
        crf: quality of x264, lower is better.
    """
    # Without B-frames, presentation and decoding order agree, so no reader needs an edit list to count frames.
    # The preset ultrafast with quarter-pixel search encodes in two thirds of superfast's time, and decodes in a third.
    # Size and quality at one crf are the same. Without the search a slow pan is coded as noise, and its measured motion
    # is 10% too fast.
    options = {"preset": "ultrafast", "subq": "2", "crf": str(crf), "bf": "0", "sc_threshold": "0"}
    options["flags"] = "+cgop+bitexact"
    container_options = {"movflags": "+faststart", "fflags": "+bitexact"}
    with av.open(f"file:{path.absolute()}", "w", format="mp4", container_options=container_options) as container:
        stream = container.add_stream("libx264", rate=fps, options=options)
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1
        context = stream.codec_context
        # In FFmpeg's numbers: limited range, BT.601 matrix, and the gamut and transfer of BT.709.
        context.color_range, context.colorspace, context.color_primaries, context.color_trc = 1, 6, 1, 1
        for number, picture in enumerate(pictures):
            frame = picture if isinstance(picture, VideoFrame) else _from_bgr(picture)
            if number == 0:
                stream.width, stream.height = frame.width, frame.height
            frame.pts, frame.time_base = number, 1 / fps
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def write_gif(path: Path, shots: Iterable[Sequence[Picture]], fps: Fraction) -> None:
    """Write a film as GIF that repeats for ever, with 256 colours for each shot. One shot is held at a time.

    Pictures are not dithered: that would take a third more bytes, and three times as long.

    Args:
        path: path of the film.
        shots: BGR arrays (HWC uint8), all of one size, in groups with the same colours; at least one.
        fps: frames per second; GIF counts hundredths of a second.
    """
    with av.open(f"file:{path.absolute()}", "w", format="gif", container_options={"loop": "0"}) as film:
        stream, number = film.add_stream("gif", rate=fps), 0
        stream.pix_fmt = "pal8"
        for shot in shots:
            small = [picture[::3, ::3, ::-1] for picture in shot]  # enough to choose colours
            chosen = Image.fromarray(np.concatenate(small)).quantize(256, Image.Quantize.MEDIANCUT)
            palette_C4 = _argb(chosen)
            for picture in shot:
                matched = Image.fromarray(picture[..., ::-1]).quantize(palette=chosen, dither=Image.Dither.NONE)
                coded: Any = (np.asarray(matched), palette_C4)  # its types lack this form
                frame = VideoFrame.from_ndarray(coded, format="pal8")
                frame.pts, frame.time_base = number, 1 / fps
                if number == 0:
                    stream.width, stream.height = frame.width, frame.height
                film.mux(stream.encode(frame))
                number += 1
        film.mux(stream.encode())


def _argb(picture: Image.Image) -> Picture:
    """Return the palette of a picture as FFmpeg takes it: uint8 of (256, 4), opaque."""
    colours = np.array(picture.getpalette(), np.uint8).reshape(-1, 3)
    palette_C4 = np.full((256, 4), 255, np.uint8)
    palette_C4[: len(colours), 1:] = colours
    return palette_C4


def join_clips(paths: Iterable[Path], out: Path) -> None:
    """Join clips into one MP4 by copying packets: nothing is re-encoded, and the bytes are the same every time.

    Only one clip is open at a time.

    Args:
        paths: clips from `write_clip`, all with the same size, rate and quality; at least one.
        out: path of the film; must end in `.mp4`.

    Raises:
        RecordError: a clip cannot be read, or has other encoder settings than the first; the record is the clip's id.
    """
    options = {"movflags": "+faststart", "fflags": "+bitexact"}
    joined, ticks = None, 0
    with av.open(f"file:{out.absolute()}", "w", format="mp4", container_options=options) as film:
        for path in paths:
            try:
                joined, ticks = _append(path, film, joined, ticks)
            except (FFmpegError, RecordError) as error:
                reason = error.reason if isinstance(error, RecordError) else str(error)
                raise RecordError(path.stem, f"the clip file cannot be joined to a film: {reason}") from error


def _append(path: Path, film: OutputContainer, joined: VideoStream | None, start: int) -> tuple[VideoStream, int]:
    """Append a clip's packets at `start`, in ticks of its time base; return the film's stream and its new end."""
    with open_film(path, path.stem) as container:
        clip = video_stream(container, path.stem)
        joined = joined or film.add_stream_from_template(clip)
        # the H.264 header: codec, size, rate and quality
        if clip.codec_context.extradata != joined.codec_context.extradata:
            raise RecordError(path.stem, "it differs from the first clip in size, frame rate or quality")
        end, frames = start, 0
        for packet in demux(container, clip):
            if packet.pts is not None and packet.dts is not None:
                packet.pts, packet.dts = start + packet.pts, start + packet.dts
                end, frames = packet.pts + (packet.duration or 0), frames + 1
                packet.stream = joined
                film.mux(packet)
        if frames != clip.frames:
            raise RecordError(path.stem, f"it breaks off after {frames} of {clip.frames} frames")
    return joined, end


def read_clip(path: Path) -> Picture:
    """All frames of a clip: `frames_THWC`, BGR uint8. Raises RecordError with the clip's id."""
    return _in_colour(_clip_frames(path))


def read_clip_gray(path: Path) -> Picture:
    """The luma of all frames of a clip at full range 0..255: `frames_THW` uint8; faster than colour. Raises as well."""
    return in_gray(_clip_frames(path))


def read_clip_in_part(path: Path, choose: Callable[[int], Sequence[int]]) -> tuple[Picture, Picture]:
    """All frames of a clip as from `read_clip_gray`, and some as from `read_clip`; `choose` gets the number of all."""
    frames = _clip_frames(path)
    return in_gray(frames), _in_colour([frames[index] for index in choose(len(frames))])


def read_frames(path: Path, choose: Callable[[int], Sequence[int]], width: int, height: int) -> Picture:
    """Some frames of a clip squeezed to one size: `frames_THWC`, BGR uint8.

    Only the chosen frames are scaled, and converted afterwards: a tenth of the time of scaling what `read_clip` gives.
    One decoded frame is held at a time. Unlike the other readers it takes any coding, matrix, range and size.

    Args:
        path: the clip file.
        choose: returns the indices of the frames to take, given their number.
        width: width of the result.
        height: height of the result, even.
    """
    with _opened(path) as (stream, frames):
        chosen, scaler, number = choose(stream.frames), VideoReformatter(), -1
        frames_THWC = np.empty((len(chosen), height, width, 3), np.uint8)
        for number, frame in enumerate(frames):
            for place in [place for place, index in enumerate(chosen) if index == number]:
                small = scaler.reformat(
                    frame, width, height, format="yuv420p", interpolation="AREA", threads=1,
                    dst_colorspace=Colorspace.ITU601, dst_color_range=ColorRange.MPEG,
                )  # fmt: skip
                cv2.cvtColor(small.to_ndarray(), cv2.COLOR_YUV2BGR_I420, dst=frames_THWC[place])
        if number + 1 != stream.frames:
            raise RecordError(path.stem, f"it breaks off after {number + 1} of {stream.frames} frames")
    return frames_THWC


@dataclass(frozen=True)
class ClipShape:
    """Number of frames, rate and size of a clip, as its file states them, and the coding of its first frame."""

    frames: int
    fps: Fraction
    width: int
    height: int
    coding: str
    """Codec and pixel format, then matrix and range unless `CODING` implies them."""
    quarter_turns: int
    """Counter-clockwise turns that make the stored pictures upright."""

    @property
    def is_plain(self) -> bool:
        """Return True if every reader takes the clip as it is shown."""
        return self.coding == CODING and not (self.quarter_turns or self.width % 2 or self.height % 2)

    def within(self, width: int, height: int) -> tuple[int, int]:
        """Return the largest size within a field, even and in the clip's proportions."""
        scale = min(width / self.width, height / self.height)
        return max(2, round(self.width * scale / 2) * 2), max(2, round(self.height * scale / 2) * 2)


def clip_shape(path: Path) -> ClipShape:
    """The shape of a clip, of which only the first frame is decoded.

    Raises:
        RecordError: the file cannot be read, does not state its frames and rate, or holds no frame.
    """
    with _opened(path) as (stream, frames):
        rate, count = stream.average_rate, stream.frames
        codec, size = stream.codec_context.codec.canonical_name, (stream.width, stream.height)
        first = next(frames, None)
    if not rate or not count or first is None:
        raise RecordError(path.stem, "the clip file does not state its frame rate and number of frames, or holds none")
    return ClipShape(count, rate, *size, f"{codec} {_coding(first)}", round(first.rotation / 90) % 4)


def _coding(frame: VideoFrame) -> str:
    matrix, is_full = int(frame.colorspace), int(frame.color_range) == ColorRange.JPEG
    is_ours = matrix == UNSPECIFIED or MATRICES.get(matrix) == "BT.601"
    named = "" if is_ours else f" {MATRICES.get(matrix, f'matrix {matrix}')}"
    return f"{frame.format.name}{named}{' full range' if is_full else ''}"


def first_frame(path: Path, width: int, height: int) -> Picture:
    """The first frame of a clip, the only one decoded, scaled to a small picture: BGR uint8 of (height, width, 3)."""
    with _opened(path) as (_, frames):
        frame = next(frames, None)
    if frame is None:
        raise RecordError(path.stem, "the clip file holds no frame")
    small = frame.reformat(width, height, format="bgr24", interpolation="AREA")
    return np.asarray(small.to_ndarray(), np.uint8)


def _clip_frames(path: Path) -> list[VideoFrame]:
    with _opened(path) as (_, decoded):
        frames = list(decoded)
    if not frames:
        raise RecordError(path.stem, "the clip file holds no frame")
    return frames


@contextmanager
def _opened(path: Path) -> Iterator[tuple[VideoStream, Iterator[VideoFrame]]]:
    """Open a clip to decode its frames; an error inside the block, by FFmpeg or about the file, names the clip.

    A clip's container says all that a decoder needs, so opening it without a first look takes a quarter as long.
    """
    try:
        with open_film(path, path.stem, first_look=False) as container:
            stream = video_stream(container, path.stem)
            stream.thread_count = 1
            yield stream, (frame for packet in demux(container, stream) for frame in decode(stream, packet))
    except (FFmpegError, RecordError) as error:
        raise RecordError(path.stem, f"the clip file cannot be read: {error}") from error


def _in_colour(frames: Sequence[VideoFrame]) -> Picture:
    frames_THWC = np.empty((len(frames), frames[0].height, frames[0].width, 3), np.uint8)
    for frame, picture_HWC in zip(frames, frames_THWC, strict=True):
        # OpenCV converts as the clips are coded (BT.601, limited range), in a tenth of swscale's time.
        cv2.cvtColor(frame.to_ndarray(format="yuv420p"), cv2.COLOR_YUV2BGR_I420, dst=picture_HWC)
    return frames_THWC


def in_gray(frames: Sequence[VideoFrame]) -> Picture:
    """The luma of frames as `write_clip` takes them, at full range 0..255: `frames_THW` uint8."""
    frames_THW = np.empty((len(frames), frames[0].height, frames[0].width), np.uint8)
    for frame, picture_HW in zip(frames, frames_THW, strict=True):
        cv2.LUT(_luma(frame), FULL_RANGE, dst=picture_HW)
    return frames_THW


def _luma(frame: VideoFrame) -> Picture:
    plane = frame.planes[0]
    return np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[: frame.height, : frame.width]


def _from_bgr(picture_HWC: Picture) -> VideoFrame:
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(picture_HWC), format="bgr24")
    return frame.reformat(format="yuv420p", dst_colorspace="ITU601", dst_color_range="MPEG")
