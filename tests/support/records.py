"""Builders of records of a plain film at 24 frames per second, one for each kind; keywords replace any field.

    rows = [clip(start_seconds=2 * index, index=index) for index in range(8)]
    folder.write("verdicts", [verdict(row.clip_id, "dark", level=2) for row in rows])

`Caption` has defaults of its own and needs no builder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.measurements import Looks, Motion
from pipeline.core.records import Clip, Crop, Film, Reviewed, Scene, Verdict, make_clip_id, make_film_id
from pipeline.core.store import FilmFolder
from pipeline.reviews.decisions import Decision
from pipeline.video.clip_files import write_clip

FILM_FPS = 24
Frames = Sequence[NDArray[np.uint8]] | NDArray[np.uint8]
NAME = "film.mkv"


def sha256_of(name: str) -> str:
    """Content hash of the film of this name."""
    return hashlib.sha256(name.encode()).hexdigest()


FILM_ID = make_film_id(NAME, sha256_of(NAME))


def film(name: str = NAME, seconds: float = 100.0, **changes: Any) -> Film:
    """Film of 1280x720 as `probe` records it."""
    sha256 = sha256_of(name)
    plain = {
        "film_id": make_film_id(name, sha256),
        "name": name,
        "source": f"films/{name}",
        "sha256": sha256,
        "bytes": 1_000_000,
        "container": "matroska,webm",
        "codec": "h264",
        "pixel_format": "yuv420p",
        "bit_depth": 8,
        "width": 1280,
        "height": 720,
        "sample_aspect": Fraction(1),
        "rotation_degrees": 0,
        "display_width": 1280,
        "display_height": 720,
        "fps": Fraction(FILM_FPS),
        "variable_rate": False,
        "interlaced": False,
        "frames": round(seconds * FILM_FPS),
        "duration_seconds": seconds,
        "missing_seconds": 0.0,
        "transfer": "bt709",
    }
    return Film.model_validate({**plain, **changes})


def crop(film_id: str = FILM_ID, **changes: Any) -> Crop:
    """Crop that keeps the whole picture of `film()`."""
    plain = {"left": 0, "top": 0, "width": 1280, "height": 720, "frames_used": 12}
    return Crop.model_validate({"film_id": film_id, **plain, **changes})


def scene(film_id: str = FILM_ID, start_seconds: float = 0.0, end_seconds: float = 4.5, **changes: Any) -> Scene:
    """Scene between two times, by default the film's first."""
    plain = {
        "scene": 0,
        "start_seconds": start_seconds,
        "end_seconds": end_seconds,
        "start_frame": round(start_seconds * FILM_FPS),
        "end_frame": round(end_seconds * FILM_FPS),
        "opened_by": "cut" if start_seconds else "start",
    }
    return Scene.model_validate({"film_id": film_id, **plain, **changes})


def clip(film_id: str = FILM_ID, start_seconds: float = 0.0, seconds: float = 2.0, **changes: Any) -> Clip:
    """Clip of 16 frames at 8 fps from a given time on; its file does not exist."""
    first, frames = round(start_seconds * FILM_FPS), changes.get("frames", 16)
    plain = {
        "clip_id": make_clip_id(film_id, start_seconds),
        "scene": 0,
        "index": 0,
        "start_seconds": start_seconds,
        "end_seconds": start_seconds + seconds,
        "fps": Fraction(8),
        "frames": frames,
        "width": 720,
        "height": 480,
        "source_frames": tuple(first + 3 * step for step in range(frames)),
        "bytes": 1,
        "sha256": "",
    }
    return Clip.model_validate({"film_id": film_id, **plain, **changes})


def written_clip(
    folder: FilmFolder, frames_THWC: Frames, start_seconds: float, *, crf: int = 17, **changes: Any
) -> Clip:
    """Clip whose file exists, encoded from these pictures."""
    row = clip(folder.film_id, start_seconds, frames=len(frames_THWC), **changes)
    path = folder.clip_path(row.clip_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_clip(path, frames_THWC, row.fps, crf)
    content = path.read_bytes()
    height, width = frames_THWC[0].shape[:2]
    facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "width": width, "height": height}
    return row.model_copy(update=facts)


def looks(clip_id: str = "clip", **changes: Any) -> Looks:
    """Looks of a clip that pass every rule."""
    plain = {"light": 110.0, "contrast": 40.0, "dark_share": 0.1, "still_share": 0.2, "text_share": 0.0}
    plain |= {"sharpness": 0.5, "blockiness": 0.0, "banding": None}
    return Looks.model_validate({"clip_id": clip_id, **plain, "text_lines": 0, "hashes": (), **changes})


def motion(clip_id: str = "clip", scope_px: float = 4.0, **changes: Any) -> Motion:
    """Motion without camera movement; every frame is a new drawing."""
    camera = {"camera_px": 0.0, "camera_kind": "static", "camera_direction": None}
    plain = {"flow_model": "dis", "scope_px": scope_px, **camera, "unique_frames": 16}
    return Motion.model_validate({"clip_id": clip_id, **plain, **changes})


def verdict(clip_id: str = "clip", *reasons: str, **changes: Any) -> Verdict:
    """Verdict: keep, or drop for these reasons; motion level not measured."""
    plain = {"keep": not reasons, "reasons": reasons, "level": None, "duplicate_of": None}
    return Verdict.model_validate({"clip_id": clip_id, **plain, **changes})


def decision(field: str = "MD", *values: Any, minute: int = 0, **changes: Any) -> Decision:
    """Decision of anna about the first clip of `film()`; without a value it withdraws one."""
    plain = {
        "time": datetime(2026, 11, 22, 10, tzinfo=UTC) + timedelta(minutes=minute),
        "reviewer": "anna",
        "film_sha256": sha256_of(NAME),
        "start_seconds": 0.0,
        "end_seconds": 2.0,
    }
    given = {"value": values[0]} if values else {}
    return Decision.model_validate({**plain, "field": field, **given, **changes})


def decision_about(clip: Clip, sha256: str, field: str, *values: Any, **changes: Any) -> Decision:
    """Decision of anna about a clip of the film with this content."""
    span = {"start_seconds": clip.start_seconds, "end_seconds": clip.end_seconds}
    return decision(field, *values, **{"film_sha256": sha256, **span, **changes})


def reviewed(clip_id: str = "clip", keep: bool | None = None, **values: Any) -> Reviewed:
    """Reviewed values of a clip; the fields given are those reviewed."""
    return Reviewed.model_validate({"clip_id": clip_id, "keep": keep, "fields": tuple(sorted(values)), **values})
