"""Learning films: moving shapes as ordinary datasets, with motion measured by the motion stage, and shards.

    write_films(Path("bench-learning/data"), [FIRST, SECOND])

Cutting and captioning are skipped, since the painted content is known. FIRST and SECOND are pairs of turns: a figure
moves in one place, then repeats the movement in another. The second instruction names only the repetition and the
place, so figure, speed and change of state follow from the turn before alone. FASTER is one clip at five rising speeds
with equal captions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from examples.world.shapes import DEEDS, FIGURES, FRAMES, HEIGHT, SPEEDS, WIDTH, ShapeClip, paint
from examples.world.writer import CLIP_FPS, film_record, save_clip
from pipeline.captions.rules import ADVERBS
from pipeline.core.config import MotionSettings, ShardSettings
from pipeline.core.errors import UserError
from pipeline.core.measurements import Motion
from pipeline.core.progress import silent
from pipeline.core.records import Caption, Clip, Film, Scene, Verdict
from pipeline.core.store import Dataset, DatasetRecord, FilmEntry, FilmFolder
from pipeline.publish.shards import write_shards
from pipeline.stages.motion import MeasureMotion, flow_model_of
from pipeline.stages.motion_levels import Edges, level_of, level_values

AGAIN = "do it again"
MOTION = MotionSettings(scale=1.0)
"""Settings of the motion stage: clips this small are not halved for the optical flow."""
EDGES: Edges = (1.0, 2.0, 3.2, 4.8)
"""Level edges between the five speeds, which are measured at most 6 % too low."""
_SECONDS = 2.5
_SOURCE = "the painter"


@dataclass(frozen=True)
class ShapeTurn:
    """Clip and the content of its caption: all tags, all but the manner, or only the repetition and the place."""

    clip: ShapeClip
    told: Literal["all", "again", "all but the manner"]


@dataclass(frozen=True)
class ShapeFilm:
    """Sequence of turns, each a scene."""

    name: str
    turns: tuple[ShapeTurn, ...]


def _pairs(name: str, *pairs: tuple[str, str, int, str, str]) -> ShapeFilm:
    """Return a film of pairs: figure, deed, level, place, and place of the repetition."""
    turns: list[ShapeTurn] = []
    for figure, deed, level, place, other_place in pairs:
        turns.append(ShapeTurn(ShapeClip(figure, deed, place, level), "all"))
        turns.append(ShapeTurn(ShapeClip(figure, deed, other_place, level), "again"))
    return ShapeFilm(name, tuple(turns))


FIRST = _pairs(
    "first",
    ("Ruby", "go for a walk", 3, "meadow", "desert"),
    ("Sunny", "float up", 2, "desert", "meadow"),
    ("Azura", "dive down", 4, "desert", "night sea"),
    ("Ruby", "visit a friend", 5, "night sea", "meadow"),
)
SECOND = _pairs(
    "second",
    ("Sunny", "go for a walk", 1, "night sea", "desert"),
    ("Azura", "visit a friend", 2, "meadow", "night sea"),
    ("Ruby", "float up", 4, "desert", "night sea"),
    ("Azura", "go for a walk", 5, "meadow", "desert"),
    ("Sunny", "visit a friend", 3, "desert", "night sea"),
    ("Azura", "float up", 1, "night sea", "meadow"),
)
FASTER = ShapeFilm(
    "faster",
    tuple(
        ShapeTurn(ShapeClip("Ruby", "go for a walk", "meadow", level), "all but the manner") for level in range(1, 6)
    ),
)


def write_films(root: Path, films: Sequence[ShapeFilm]) -> Path:
    """Make a dataset of films, all in the training split, unless it exists.

    Returns:
        The dataset folder.

    Raises:
        UserError: the folder holds a dataset of other films.
    """
    dataset = Dataset(root)
    if (root / "shards" / "index.json").exists():
        if [film.sha256 for film in dataset.record.films] != [_film_record(film).sha256 for film in films]:
            raise UserError(f"{root} holds other films than those asked for: remove it and start again")
        return root
    folders = [_write_film(dataset, film) for film in films]
    scopes = [row.scope_px for folder in folders for row in folder.read("motion", Motion)]
    dataset.save(
        DatasetRecord(
            films=tuple(FilmEntry(film_id=it.film_id, name=it.film.name, sha256=it.film.sha256) for it in folders),
            flow_model=flow_model_of(MOTION),
            edges=EDGES,
            edges_from="config",
            level_values=level_values(scopes, EDGES),
            captioner=_SOURCE,
            cast=tuple(FIGURES),
        )
    )
    write_shards(dataset, ShardSettings(val_share=0))
    return root


def _write_film(dataset: Dataset, film: ShapeFilm) -> FilmFolder:
    record = _film_record(film)
    folder = dataset.folder(record.film_id)
    folder.save_film(record)
    clips = [_save_clip(folder, number, turn.clip) for number, turn in enumerate(film.turns)]
    folder.write("clips", clips)
    folder.write("scenes", [_scene(clip) for clip in clips])
    folder.write("damage", [])
    measured = MeasureMotion(MOTION, threads=1, failed_limit=0.0).run(folder, silent)
    for table, rows in measured.tables.items():
        folder.write(table, rows)
    scopes = {row.clip_id: row.scope_px for row in folder.read("motion", Motion)}
    folder.write("verdicts", [_verdict(clip.clip_id, scopes[clip.clip_id]) for clip in clips])
    pairs = zip(clips, film.turns, strict=True)
    folder.write("captions", [_caption(clip.clip_id, turn) for clip, turn in pairs])
    return folder


def _film_record(film: ShapeFilm) -> Film:
    return film_record(
        film.name,
        (WIDTH, HEIGHT),
        FRAMES * len(film.turns),
        CLIP_FPS,
        sha256=hashlib.sha256(repr((film, SPEEDS)).encode()).hexdigest(),
        source="painted",
        bytes=0,
        container="none",
        codec="none",
        pixel_format="bgr24",
        duration_seconds=_SECONDS * len(film.turns),
    )


def _save_clip(folder: FilmFolder, number: int, clip: ShapeClip) -> Clip:
    frames = tuple(range(FRAMES * number, FRAMES * (number + 1)))
    return save_clip(folder, paint(clip), _SECONDS * number, scene=number, index=number, source_frames=frames)


def _scene(clip: Clip) -> Scene:
    return Scene(
        film_id=clip.film_id,
        scene=clip.scene,
        start_seconds=clip.start_seconds,
        end_seconds=clip.start_seconds + _SECONDS,
        start_frame=clip.source_frames[0],
        end_frame=clip.source_frames[-1] + 1,
        opened_by="cut" if clip.scene else "start",
    )


def _verdict(clip_id: str, scope_px: float) -> Verdict:
    level = level_of(scope_px, EDGES)
    return Verdict(clip_id=clip_id, keep=True, reasons=(), level=level, duplicate_of=None)


def _caption(clip_id: str, turn: ShapeTurn) -> Caption:
    clip, again = turn.clip, turn.told == "again"
    deed = DEEDS[clip.deed]
    return Caption(
        clip_id=clip_id,
        source=_SOURCE,
        MD=AGAIN if again else clip.deed,
        EV=clip.place,
        MA=ADVERBS[clip.level] if turn.told == "all" else None,
        SC=deed.social,
        ET=deed.entertainment,
        ST=deed.stamina,
        characters=None if again else (clip.figure,),
    )
