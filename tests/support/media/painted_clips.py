"""Clips painted with their number, in a film folder as the stages before captions leave it, and a caption stage.

folder = make_screened_film(tmp_path, 12)
perform(stage_for(server.address, make_cast(tmp_path / "cast", "Ponyo", "Sosuke")), folder)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from examples.world.barcode import paint_stripes
from examples.world.textures import Picture
from pipeline.captions.cast import Cast, load_cast
from pipeline.captions.stage import WriteCaptions
from pipeline.core.config import CaptionSettings
from pipeline.core.records import Caption
from pipeline.core.stage import perform
from pipeline.core.store import FilmFolder, StageRecord
from tests.support import records

WORDS = ("apple", "boat", "candle", "door", "eagle", "flute", "garden", "horse", "island", "jacket", "kite", "lamp")


def paint_number(number: int, moment: int) -> Picture:
    """Paint a 96x64 BGR picture: above, stripes for the number; below, a grey that rises with the moment."""
    picture = np.full((64, 96, 3), 16 + 14 * moment, np.uint8)
    paint_stripes(picture, number)
    return picture


def read_moment(picture: Picture) -> float:
    return float((picture[round(picture.shape[0] * 0.8)].mean() - 16) / 14)


def make_screened_film(
    root: Path,
    count: int,
    *,
    levels: Sequence[int | None] = (),
    keep: Sequence[bool] = (),
    frames: int = 16,
    paint: Callable[[int, int], Picture] = paint_number,
) -> FilmFolder:
    """Make a film folder as the stages before captions leave it: `count` clips, each painted with its number."""
    film_id = "film-01234567"
    folder = FilmFolder(root / "films" / film_id)
    clips = [
        records.written_clip(folder, [paint(number, moment) for moment in range(frames)], 2 * number, index=number)
        for number in range(count)
    ]
    ids = [clip.clip_id for clip in clips]
    levels = [*levels, *[3] * count][:count]
    keep = [*keep, *[True] * count][:count]
    folder.save_film(records.film("film.mp4", 2 * count, film_id=film_id))
    folder.write("clips", clips)
    folder.write("looks", [records.looks(clip_id, light=90, text_share=None, text_lines=None) for clip_id in ids])
    folder.write("motion", [records.motion(clip_id, camera_px=1.0) for clip_id in ids])
    verdicts = [
        records.verdict(clip_id, *(() if kept else ("dark",)), level=level)
        for clip_id, level, kept in zip(ids, levels, keep, strict=True)
    ]
    folder.write("screened", verdicts)
    for stage in ("cut", "looks", "motion", "screened"):
        folder.save_stage_record(StageRecord(stage=stage, fingerprint=stage, ingredients={}, files={}))
    return folder


def make_cast(folder: Path, *names: str) -> Cast:
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), "orange").save(folder / name / "a.png")
    return load_cast(folder)


def stage_for(address: str, cast: Cast, *, ask_again: bool = False, **changes: Any) -> WriteCaptions:
    settings = {"captioner": "server", "endpoint": address, "model": "test-model", "attempts": 1, "timeout_seconds": 10}
    return WriteCaptions(CaptionSettings.model_validate({**settings, **changes}), cast, ask_again)


def captions_of(stage: WriteCaptions, folder: FilmFolder) -> list[Caption]:
    perform(stage, folder)
    return folder.read("captions", Caption)


def clip_ids(folder: FilmFolder) -> list[str]:
    return sorted(path.stem for path in (folder.path / "clips").iterdir())
