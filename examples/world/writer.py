"""Files of composed films: videos of any codec, rate or container, and records and clips like an ordinary build's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

import av
import cv2
import numpy as np
from av.video.reformatter import Colorspace, VideoReformatter

from examples.world.textures import Picture, PictureSize
from pipeline.core.records import Clip, Film, make_clip_id, make_film_id
from pipeline.core.store import FilmFolder
from pipeline.video.clip_files import write_clip

TIME_BASE = Fraction(1, 90_000)
"""Time base of films with a variable rate, seconds."""
_OPTIONS = {
    "libx264": {"preset": "veryfast", "crf": "14"},
    "libx265": {"preset": "ultrafast", "crf": "16", "x265-params": "log-level=none:pools=none:frame-threads=1"},
}
_SAMPLE_RATE = 48_000
CLIP_FPS = Fraction(8)


def write_film(
    path: Path,
    pictures: Iterable[Picture],
    *,
    fps: Fraction | int,
    times: Sequence[Fraction] | None = None,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    channels: Literal["bgr24", "rgb24"] = "bgr24",
    options: Mapping[str, str] | None = None,
    rotation: int = 0,
    sample_aspect: Fraction | None = None,
    sound: bool = False,
) -> Path:
    """Encode a film and return its path; the container follows from the suffix.

    Args:
        path: file to write.
        pictures: upright, BGR, HWC uint8, all of one size; at least one. An array yielded again is the same picture.
        fps: frames per second.
        times: presentation time of each frame in seconds, for a variable rate; `fps` then sets only the last length.
        codec: an FFmpeg encoder; `libx265` with `yuv420p10le` makes a common anime encode.
        pixel_format: pixel format of the encoded picture.
        channels: channel order of the input of FFmpeg's conversion to `pixel_format`; both orders round differently.
        options: further encoder options.
        rotation: clockwise turn in degrees that a player must make to show the picture upright.
        sample_aspect: width over height of a stored pixel.
        sound: add a silent audio stream.
    """
    rate, count = Fraction(fps), 0
    upright = iter(pictures)
    converter = VideoReformatter()  # one for all frames: it keeps its tables
    first_HWC = next(upright)  # an error in painting leaves no file
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options={**_OPTIONS.get(codec, {}), **(options or {})})
        assert isinstance(stream, av.VideoStream)
        stream.pix_fmt, stream.thread_count = pixel_format, 1
        stream.height, stream.width = np.rot90(first_HWC, rotation // 90).shape[:2]
        stream.time_base = stream.codec_context.time_base = 1 / rate if times is None else TIME_BASE
        if rotation:
            stream.set_display_rotation(-rotation)
        if sample_aspect is not None:
            stream.codec_context.sample_aspect_ratio = sample_aspect
        silence = container.add_stream("aac", rate=_SAMPLE_RATE, layout="mono") if sound else None
        last_HWC: Picture | None = None
        for count, picture_HWC in enumerate(chain((first_HWC,), upright), start=1):
            if picture_HWC is not last_HWC:  # most drawings are held for several frames
                stored_HWC = np.ascontiguousarray(np.rot90(picture_HWC, rotation // 90))
                in_order = cv2.cvtColor(stored_HWC, cv2.COLOR_BGR2RGB) if channels == "rgb24" else stored_HWC
                frame = av.VideoFrame.from_ndarray(cast(Picture, in_order), format=channels)
                coded = converter.reformat(frame, format=pixel_format, dst_colorspace=Colorspace.ITU601)
                coded.time_base, last_HWC = stream.codec_context.time_base, picture_HWC
            coded.pts = count - 1 if times is None else round(times[count - 1] / TIME_BASE)
            container.mux(stream.encode(coded))
        container.mux(stream.encode())
        if silence is not None:
            _add_silence(container, silence, count / rate)
    return path


def _add_silence(container: av.container.OutputContainer, stream: av.AudioStream, seconds: Fraction) -> None:
    for start in range(0, round(seconds * _SAMPLE_RATE), 1024):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = _SAMPLE_RATE, start
        container.mux(stream.encode(frame))
    container.mux(stream.encode())


def film_record(name: str, size: PictureSize, frames: int, fps: Fraction = Fraction(24), **facts: Any) -> Film:
    """Return the record that the probe makes of a plain film.

    Args:
        name: file name; also hashed as the content hash, unless `sha256` is among the facts.
        facts: other values for fields of the record.
    """
    sha256 = facts.setdefault("sha256", hashlib.sha256(name.encode()).hexdigest())
    width, height = size
    plain = {
        "film_id": make_film_id(name, sha256),
        "name": name,
        "source": name,
        "bytes": 1,
        "container": "mp4",
        "codec": "h264",
        "pixel_format": "yuv420p",
        "bit_depth": 8,
        "width": width,
        "height": height,
        "sample_aspect": Fraction(1),
        "rotation_degrees": 0,
        "display_width": width,
        "display_height": height,
        "fps": fps,
        "variable_rate": False,
        "interlaced": False,
        "transfer": "bt709",
        "frames": frames,
        "duration_seconds": float(frames / fps),
        "missing_seconds": 0.0,
    }
    return Film.model_validate({**plain, **facts})


def save_clip(
    folder: FilmFolder, frames_THWC: Sequence[Picture] | Picture, start_seconds: float, crf: int = 17, **facts: Any
) -> Clip:
    """Write the file of a clip at 8 frames per second and return its record.

    Args:
        frames_THWC: BGR pictures.
        start_seconds: start of the clip in the film.
        crf: x264 quality, lower is better.
        facts: other values for fields of the record.
    """
    plain = {
        "clip_id": make_clip_id(folder.film_id, start_seconds),
        "film_id": folder.film_id,
        "scene": 0,
        "index": 0,
        "start_seconds": start_seconds,
        "end_seconds": start_seconds + float(len(frames_THWC) / CLIP_FPS),
        "fps": CLIP_FPS,
        "frames": len(frames_THWC),
        "width": frames_THWC[0].shape[1],
        "height": frames_THWC[0].shape[0],
        "source_frames": tuple(range(len(frames_THWC))),
    }
    plain |= facts
    path = folder.clip_path(str(plain["clip_id"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_clip(path, frames_THWC, CLIP_FPS, crf)
    content = path.read_bytes()
    return Clip.model_validate({**plain, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
