"""Clips painted with their number, in a film's folder as the stages before captions leave it, and a stage for them.

folder = make_screened_film(tmp_path, 12)
perform(stage_for(server.address, make_cast(tmp_path / "cast", "Ponyo", "Sosuke")), folder)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from flows.demos.world.barcode import paint_stripes
from flows.demos.world.textures import Picture
from pipeline.captions.cast import Cast, load_cast
from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import CaptionSettings
from pipeline.core.records import Caption, Clip, Film, Looks, Motion, Verdict, make_clip_id
from pipeline.core.stage import perform
from pipeline.core.store import FilmFolder, StageRecord
from pipeline.video.clip_files import write_clip

WORDS = ("apple", "boat", "candle", "door", "eagle", "flute", "garden", "horse", "island", "jacket", "kite", "lamp")


def paint_number(number: int, moment: int) -> Picture:
    """A 96x64 BGR picture: stripes for the number above, a grey that rises with the moment below."""
    picture = np.full((64, 96, 3), 16 + 14 * moment, np.uint8)
    paint_stripes(picture, number)
    return picture


def read_moment(picture: Picture) -> float:
    return float((picture[round(picture.shape[0] * 0.8)].mean() - 16) / 14)


def make_screened_film(
    root: Path, count: int, *, levels: Sequence[int | None] = (), keep: Sequence[bool] = (), frames: int = 16
) -> FilmFolder:
    """A film's folder as the stages before captions leave it: `count` clips, each painted with its number."""
    film_id = "film-01234567"
    folder = FilmFolder(root / "films" / film_id)
    (folder.path / "clips").mkdir(parents=True)
    clips = []
    for number in range(count):
        clip_id = make_clip_id(film_id, 2 * number)
        path = folder.clip_path(clip_id)
        write_clip(path, [paint_number(number, moment) for moment in range(frames)], Fraction(8), 17)
        content = path.read_bytes()
        clips.append(
            Clip(
                clip_id=clip_id, film_id=film_id, scene=0, index=number, start_seconds=2 * number,
                end_seconds=2 * number + 2, fps=Fraction(8), frames=frames, width=96, height=64,
                source_frames=tuple(range(frames)), bytes=len(content), sha256=hashlib.sha256(content).hexdigest(),
            )
        )  # fmt: skip
    ids = [clip.clip_id for clip in clips]
    levels = [*levels, *[3] * count][:count]
    keep = [*keep, *[True] * count][:count]
    folder.save_film(_film(film_id, 2 * count))
    folder.write("clips", clips)
    folder.write("looks", [_looks(clip_id) for clip_id in ids])
    folder.write("motion", [_motion(clip_id) for clip_id in ids])
    verdicts = [
        Verdict(clip_id=clip_id, keep=kept, reasons=() if kept else ("dark",), level=level, duplicate_of=None)
        for clip_id, level, kept in zip(ids, levels, keep, strict=True)
    ]
    folder.write("screened", verdicts)
    for stage in ("cut", "looks", "motion", "screened"):
        folder.save_stage_record(StageRecord(stage=stage, fingerprint=stage, ingredients={}, files={}))
    return folder


def _film(film_id: str, seconds: float) -> Film:
    return Film(
        film_id=film_id, name="film.mp4", source="film.mp4", sha256="01234567" * 8, bytes=1, container="mp4",
        codec="h264", pixel_format="yuv420p", bit_depth=8, width=96, height=64, sample_aspect=Fraction(1),
        rotation_degrees=0, display_width=96, display_height=64, fps=Fraction(24), variable_rate=False,
        interlaced=False, frames=int(seconds * 24), duration_seconds=seconds, missing_seconds=0,
    )  # fmt: skip


def _looks(clip_id: str) -> Looks:
    return Looks(
        clip_id=clip_id,
        light=90,
        contrast=40,
        dark_share=0.2,
        still_share=0,
        text_share=None,
        text_lines=None,
        hashes=(),
    )


def _motion(clip_id: str) -> Motion:
    return Motion(clip_id=clip_id, flow_model="dis", scope_px=4.0, camera_px=1.0, unique_frames=16)


def make_cast(folder: Path, *names: str) -> Cast:
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), "orange").save(folder / name / "a.png")
    return load_cast(folder)


def stage_for(address: str, cast: Cast, **changes: Any) -> WriteCaptions:
    settings = {"captioner": "server", "endpoint": address, "model": "test-model", "attempts": 1, "timeout_seconds": 10}
    return WriteCaptions(CaptionSettings.model_validate({**settings, **changes}), cast)


def captions_of(stage: WriteCaptions, folder: FilmFolder) -> list[Caption]:
    perform(stage, folder)
    return folder.read("captions", Caption)


def clip_ids(folder: FilmFolder) -> list[str]:
    return sorted(path.stem for path in (folder.path / "clips").iterdir())
