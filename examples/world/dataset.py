"""Records and clip files of composed films, as written by probe and cut in an ordinary data set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from examples.world.textures import Picture, PictureSize
from pipeline.core.records import Clip, Film, make_clip_id, make_film_id
from pipeline.core.store import FilmFolder
from pipeline.video.clip_files import write_clip

CLIP_FPS = Fraction(8)


def film_record(name: str, size: PictureSize, frames: int, fps: Fraction = Fraction(24), **facts: Any) -> Film:
    """Return the record that the probe makes of a plain film.

    Args:
        name: file name; the content hash is that of the name, unless `sha256` is among the facts.
        size: width and height of the picture.
        frames: number of frames.
        fps: frames per second.
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
        folder: folder of the film.
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
