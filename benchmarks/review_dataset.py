"""Dataset for benchmarks: thousands of clips that are hard links to a few, with captions.

write_dataset(Path("data"), clips=20_000)
"""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import numpy as np

from examples.world.textures import FINE, detailed
from examples.world.writer import film_record
from pipeline.core.measurements import Looks, Motion
from pipeline.core.records import Caption, Clip, Verdict, make_clip_id, make_film_id
from pipeline.core.store import Dataset, DatasetRecord, FilmEntry, FilmFolder
from pipeline.stages.motion_levels import level_of
from pipeline.video.clip_files import write_clip

FRAMES, SECONDS = 16, 2.0
PICTURES = 12
"""Number of different clips; the others are links to them."""
CLIPS_A_SCENE = 5
EDGES = (1.5, 6.25, 12.5, 27.5)
CAST = ("Ponyo", "Sosuke", "Lisa", "Koichi", "Fujimoto", "Gran Mamare", "Toki")
SUBJECTS = ("girl", "boy", "woman", "sailor", "fish", "wave", "car", "ship")
MOTIONS = ("run", "swim", "jump over the waves", "look around", "drive", "wave", "sleep", "eat ham", "laugh", "cry")
PLACES = ("sea", "house", "road", "harbour", "forest", "kitchen", "boat", "night sky", "school")
MANNERS = ("slowly", "gently", "quickly", "happily", "wildly")
REASONS = ("dark", "near-duplicate", "too still")


def write_dataset(root: Path, clips: int, films: int = 4, size: tuple[int, int] = (480, 720)) -> Dataset:
    """Write the tables and the clip files of a built dataset.

    Args:
        root: folder of the dataset.
        clips: number of clips, shared out evenly.
        films: number of films.
        size: height and width of the clips.
    """
    dataset = Dataset(root)
    entries = []
    for number in range(films):
        name, sha256 = f"film {number + 1}.mkv", f"{number + 1:064x}"
        folder = dataset.folder(make_film_id(name, sha256[::-1]))
        _write_film(folder, name, sha256, clips // films, number, size)
        entries.append(FilmEntry(film_id=folder.film_id, name=name, sha256=sha256))
    dataset.save(DatasetRecord(films=tuple(entries), flow_model="dis", edges=EDGES, cast=CAST, captioner="a-model"))
    return dataset


def _write_film(folder: FilmFolder, name: str, sha256: str, count: int, seed: int, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    clips = write_clips(folder, count, seed, size)
    scopes = [float(scope) for scope in rng.gamma(2.0, 5.0, count)]
    levels = [level_of(scope, EDGES) for scope in scopes]
    folder.save_film(
        film_record(
            name,
            (1280, 720),
            round(24 * SECONDS * count),
            film_id=folder.film_id,
            source=f"films/{name}",
            sha256=sha256,
            container="matroska,webm",
        )
    )
    folder.write("clips", clips)
    folder.write("motion", [_motion(clip.clip_id, scope) for clip, scope in zip(clips, scopes, strict=True)])
    folder.write("verdicts", [_verdict(clip.clip_id, level, rng) for clip, level in zip(clips, levels, strict=True)])
    folder.write("captions", [_caption(clip.clip_id, rng) for clip in clips])
    folder.write("looks", [_looks(clip.clip_id, rng) for clip in clips])


def write_clips(folder: FilmFolder, count: int, seed: int = 0, size: tuple[int, int] = (480, 720)) -> list[Clip]:
    """Write clips of a camera pan over painted detail, most of them links to the first; return their records."""
    clips = [_clip(folder.film_id, index, size) for index in range(count)]
    folder.clip_path(clips[0].clip_id).parent.mkdir(parents=True)
    for index, clip in enumerate(clips):
        if index < PICTURES:
            write_clip(folder.clip_path(clip.clip_id), _pan(PICTURES * seed + index, size), Fraction(8), crf=17)
        else:
            os.link(folder.clip_path(clips[index % PICTURES].clip_id), folder.clip_path(clip.clip_id))
    return clips


def _pan(seed: int, size: tuple[int, int]) -> list[np.ndarray]:
    """Pictures of a camera pan over painted detail."""
    height, width = size
    wide_HWC = detailed((FINE * (width + 4 * FRAMES), FINE * height), seed)[::FINE, ::FINE]
    return [np.ascontiguousarray(wide_HWC[:, 4 * step : 4 * step + width]) for step in range(FRAMES)]


def _clip(film_id: str, index: int, size: tuple[int, int]) -> Clip:
    return Clip(
        clip_id=make_clip_id(film_id, SECONDS * index),
        film_id=film_id,
        scene=index // CLIPS_A_SCENE,
        index=index,
        start_seconds=SECONDS * index,
        end_seconds=SECONDS * (index + 1),
        fps=Fraction(8),
        frames=FRAMES,
        width=size[1],
        height=size[0],
        source_frames=tuple(range(FRAMES)),
        bytes=1,
        sha256=f"{index:064x}",
    )


def _looks(clip_id: str, rng: np.random.Generator) -> Looks:
    return Looks(
        clip_id=clip_id,
        light=float(rng.uniform(20, 200)),
        contrast=float(rng.uniform(10, 60)),
        dark_share=0.1,
        still_share=0.2,
        text_share=0.0,
        text_lines=0,
        hashes=tuple(rng.bytes(32).hex() for _ in range(FRAMES)),
        two_groups=0.05,
    )


def _motion(clip_id: str, scope_px: float) -> Motion:
    camera = {"camera_px": 0.0, "camera_kind": None, "camera_direction": None}
    return Motion(clip_id=clip_id, flow_model="dis", scope_px=scope_px, unique_frames=FRAMES, **camera)


def _verdict(clip_id: str, level: int, rng: np.random.Generator) -> Verdict:
    reasons = (str(rng.choice(REASONS)),) if rng.random() < 0.1 else ()
    return Verdict(clip_id=clip_id, keep=not reasons, reasons=reasons, level=level, duplicate_of=None)


def _caption(clip_id: str, rng: np.random.Generator) -> Caption:
    if rng.random() < 0.02:
        return Caption(
            clip_id=clip_id, source="a-model", fault="no usable reply to `what` in 3 tries; the last: no tags"
        )
    names = tuple(str(name) for name in rng.choice(CAST, rng.integers(0, 3), replace=False))
    subject, motion, place, manner = (str(rng.choice(words)) for words in (SUBJECTS, MOTIONS, PLACES, MANNERS))
    actor = names[0] if names else subject
    return Caption(
        clip_id=clip_id,
        source="a-model",
        S=subject,
        MD=motion,
        EV=place,
        MA=manner,
        SC=1 if len(names) > 1 else 0,
        ET=1 if rng.random() < 0.5 else 0,
        ST=1 if rng.random() < 0.5 else -1,
        characters=names,
        actor=actor,
        others=int(rng.integers(0, 3)),
        sentence=f"{actor.capitalize()} {manner} {motion}s near the {place}.",
        flags=("social alone: characters interact, but nobody is on screen",) if rng.random() < 0.1 else (),
    )
