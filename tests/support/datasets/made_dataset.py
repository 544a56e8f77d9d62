"""Small complete dataset folder, as a build leaves it before it publishes: films, tables, clip files.

Every clip is a real H.264 file and every table is written through `pipeline.core.store`, so readers
find the same as in a real one. A film is a row of equal scenes with clips every two seconds; in each film one clip is
dropped as dark and one for its text, and one clip of the second film is a duplicate of the first film's.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from examples.world.places import DrawnPlace, Figure
from examples.world.scene import Sprite
from examples.world.textures import Picture
from pipeline.core.config import ClipSettings, Config, FilmSettings, MotionSettings
from pipeline.core.ingredients import fingerprint
from pipeline.core.measurements import Bars, Box, Looks, Motion
from pipeline.core.records import Caption, Clip, Damage, Film, Record, Scene, Verdict, make_clip_id
from pipeline.core.store import Dataset, DatasetRecord, FilmEntry, FilmFolder, StageRecord
from tests.support import records
from tests.support.records import FILM_FPS
from tests.support.shared_folders import shared_folder

FPS = Fraction(8)
FRAMES = 16
WIDTH, HEIGHT = 96, 64
EDGES = (1.5, 6.25, 12.5, 27.5)
LEVEL_VALUES = (0.5, 2.5, 10.0, 15.0, 40.0)
CAST = ("Hana", "Søren", "ポン太")
MODEL = "OpenGVLab/InternVL2-26B"
MARGIN_SECONDS = 2 / FILM_FPS
STAGES = {
    "crop": ("crop",),
    "cut": ("scenes", "damage", "clips"),
    "dialogue": ("subtitles", "dialogue"),
    "looks": ("looks",),
    "motion": ("motion",),
    "screened": ("screened",),
    "captions": ("captions",),
    "verdicts": ("verdicts",),
}
SETTINGS = {
    "cut": {"film": FilmSettings().ingredients(), "clips": ClipSettings(width=WIDTH, height=HEIGHT).ingredients()},
    "motion": {"motion": {"background_px": MotionSettings().background_px}},
}
"""Settings in the records of stages, as far as they are read again."""


def make_dataset(
    root: Path,
    *,
    films: int = 2,
    scenes: int = 5,
    clips: int = 2,
    captioner: str = "rules",
    levels: Sequence[int] = (1, 2, 3, 4, 5),
    damaged_seconds: float = 0.0,
    names: Sequence[str] = ("Kiki's Café (1989).mkv", "海の話.mp4"),
) -> Dataset:
    """Make a dataset of `films` films with `scenes` scenes of `clips` clips each: a copy of one made once per run.

    Args:
        captioner: `rules`, or the name of a model (`MODEL`), which fills in every tag, and characters of `CAST`.
        levels: motion levels of the clips, in rotation.
        damaged_seconds: length of an undecodable stretch at the end of each film.
        names: file names of the films; further films get numbered names.
    """
    all_names = [*names, *(f"film {number}.mkv" for number in range(len(names), films))][:films]
    options = (tuple(all_names), scenes, clips, captioner, tuple(levels), damaged_seconds)
    key = hashlib.sha256(repr(options).encode()).hexdigest()[:16]
    made = shared_folder(f"dataset-{key}", lambda folder: _make(Dataset(folder), *options))
    return Dataset(shutil.copytree(made, root, dirs_exist_ok=True))


def _make(
    dataset: Dataset,
    names: Sequence[str],
    scenes: int,
    clips: int,
    captioner: str,
    levels: Sequence[int],
    damaged_seconds: float,
) -> None:
    entries: list[FilmEntry] = []
    for number, name in enumerate(names):
        film = records.film(name, scenes * scene_seconds(clips) + damaged_seconds)
        folder = dataset.folder(film.film_id)
        folder.save_film(film)
        scene_rows = _scenes(film, scenes, clips)
        clip_rows = _clips(folder, scene_rows, number, clips, levels)
        rows: dict[str, Sequence[Record]] = {
            "crop": [records.crop(film.film_id)],
            "scenes": scene_rows,
            "subtitles": [],
            "dialogue": [],
            "damage": _damage(film, damaged_seconds),
            "clips": clip_rows,
        }
        _write(folder, rows | _judged(clip_rows, levels, captioner, entries[0].film_id if entries else None))
        entries.append(FilmEntry(film_id=film.film_id, name=name, sha256=film.sha256))
    config = Config.model_validate(
        {
            "clips": {"width": WIDTH, "height": HEIGHT},
            "captions": {"captioner": "rules" if captioner == "rules" else "server"},
            "card": {"title": "Two small films", "licence": "CC BY 4.0", "provenance": "Drawn by the tests."},
        }
    )
    dataset.save(
        DatasetRecord(
            films=tuple(entries),
            flow_model="dis",
            edges=EDGES,
            edges_from="published",
            level_values=LEVEL_VALUES,
            captioner=captioner,
            cast=() if captioner == "rules" else CAST,
            config=config.model_dump(mode="json"),
        )
    )


def scene_seconds(clips: int) -> float:
    """Length of a scene of `clips` clips, including the margins and a remainder."""
    return 2.0 * clips + 0.5


def _scenes(film: Film, scenes: int, clips: int) -> list[Scene]:
    length = scene_seconds(clips)
    return [
        records.scene(film.film_id, number * length, (number + 1) * length, scene=number) for number in range(scenes)
    ]


def _clips(folder: FilmFolder, scenes: Sequence[Scene], number: int, clips: int, levels: Sequence[int]) -> list[Clip]:
    rows = []
    for scene in scenes:
        for place in range(clips):
            index = scene.scene * clips + place
            seconds = scene.start_seconds + MARGIN_SECONDS + 2.0 * place
            frames = moving_square(levels[index % len(levels)], hue=number * 90 + scene.scene * 30, seed=index)
            rows.append(records.written_clip(folder, frames, seconds, crf=23, scene=scene.scene, index=index))
    return rows


def _damage(film: Film, damaged_seconds: float) -> list[Damage]:
    if not damaged_seconds:
        return []
    end = film.duration_seconds
    reason = "12 packets could not be decoded"
    return [Damage(film_id=film.film_id, start_seconds=end - damaged_seconds, end_seconds=end, reason=reason)]


def moving_square(level: int, *, hue: int, seed: int) -> Picture:
    """Plain picture with a square that moves by its level's pixels per step; BGR uint8 of (16, 64, 96, 3)."""
    ground, square = np.random.default_rng(hue).integers(40, 216, size=(2, 3), dtype=np.uint8)
    plain_HWC = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    mask_HW = np.zeros((HEIGHT, WIDTH), bool)
    mask_HW[24:40, :16] = True
    figure = Figure("square", np.full_like(plain_HWC, square), mask_HW, (8, 32))
    place = DrawnPlace("plain", np.full_like(plain_HWC, ground), (WIDTH, HEIGHT), (figure,))

    lefts = [(seed * 7 + step * round(LEVEL_VALUES[level - 1])) % (WIDTH - 16) for step in range(FRAMES)]
    squares = [Sprite("square", "square", left + 8, 32) for left in lefts]
    return np.stack([place.picture((square,), place.whole) for square in squares])


def _judged(
    clips: Sequence[Clip], levels: Sequence[int], captioner: str, first_film: str | None
) -> dict[str, Sequence[Record]]:
    screened = [_verdict(clip, levels[clip.index % len(levels)], first_film) for clip in clips]
    kept = [(clip, verdict) for clip, verdict in zip(clips, screened, strict=True) if verdict.keep]
    return {
        "looks": [_looks(clip, verdict) for clip, verdict in zip(clips, screened, strict=True)],
        "motion": [_motion(clip, verdict) for clip, verdict in zip(clips, screened, strict=True)],
        "screened": screened,
        "captions": [caption_of(clip, verdict.level or 1, captioner) for clip, verdict in kept],
        "verdicts": screened,
    }


def _verdict(clip: Clip, level: int, first_film: str | None) -> Verdict:
    reasons = {3: ("dark",), 7: ("text",)}.get(clip.index, ())
    duplicate_of = None
    if clip.index == 5 and first_film:
        reasons, duplicate_of = ("near-duplicate",), make_clip_id(first_film, clip.start_seconds)
    return records.verdict(clip.clip_id, *reasons, level=level, duplicate_of=duplicate_of)


def _looks(clip: Clip, verdict: Verdict) -> Looks:
    dark, text = "dark" in verdict.reasons, "text" in verdict.reasons
    return records.looks(
        clip.clip_id,
        light=6.0 if dark else 110.0 + clip.index,
        contrast=20.0,
        dark_share=0.99 if dark else 0.02,
        still_share=1.0 if verdict.level == 1 else 0.25,
        text_share=0.12 if text else 0.0,
        text_lines=3 if text else 0,
        text_boxes=(Box(left=2, top=50, right=90, bottom=60),),
        logo_boxes=(),
        bars=Bars(left=0, top=4, right=0, bottom=4),
        hashes=(hashlib.sha256(clip.clip_id.encode()).hexdigest(),) * FRAMES,
    )


def _motion(clip: Clip, verdict: Verdict) -> Motion:
    level = verdict.level or 1
    scope_px = LEVEL_VALUES[level - 1]
    drawings = 1 if level == 1 else FRAMES // 2
    return records.motion(clip.clip_id, scope_px, camera_px=scope_px / 4, unique_frames=drawings)


def caption_of(clip: Clip, level: int, captioner: str) -> Caption:
    """Caption by `rules` (adverb and light only), or the full answer of a model."""
    adverb = ("barely", "slightly", "steadily", "quickly", "wildly")[level - 1]
    if captioner == "rules":
        return Caption(clip_id=clip.clip_id, source="rules", MD="moves" if level > 1 else "stays still", MA=adverb)
    characters = CAST[: clip.index % (len(CAST) + 1)]
    return Caption(
        clip_id=clip.clip_id,
        source=captioner,
        S="girl" if clip.index % 2 else "fox",
        MD="rides a broom over the café",
        EV="night sky" if clip.scene % 2 else "夏の海",
        MA=adverb,
        SC=1 if len(characters) > 1 else 0,
        ET=1 if clip.index % 3 == 0 else 0,
        ST=1 if clip.index % 4 == 0 else -1,
        characters=characters,
        raw_who="[Number]1[Index]1",
        raw_what="<S>girl</S>",
    )


def _write(folder: FilmFolder, rows: dict[str, Sequence[Record]]) -> None:
    for stage, tables in STAGES.items():
        files = [folder.write(table, rows[table]) for table in tables]
        if stage == "cut":
            files += sorted((folder.path / "clips").glob("*.mp4"))
        ingredients = {"made by": "tests/support/datasets/made_dataset.py", "stage": stage, "upstream": {}}
        ingredients |= SETTINGS.get(stage, {})
        folder.save_stage_record(
            StageRecord(
                stage=stage,
                fingerprint=fingerprint(ingredients),
                ingredients=ingredients,
                files=folder.marks(str(file.relative_to(folder.path)) for file in files),
            )
        )
