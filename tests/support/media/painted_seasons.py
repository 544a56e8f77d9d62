"""Painted season: still episodes of a series with one opening, each scene a single clip.

films = painted_season(tmp_path / "films")
verdicts = [("opening",)] * OPENING + [()] * STORY  # of each of them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np

from examples.world.textures import Picture
from examples.world.writer import write_film

OPENING, STORY = 8, 10
"""Scenes of one clip each."""
_SCENE_FRAMES = 52


def painted_season(folder: Path, episodes: int) -> list[Path]:
    """Write so many episodes of 39 seconds, each at another quality."""
    folder.mkdir(exist_ok=True)
    return [_episode(folder, number) for number in range(1, episodes + 1)]


def painted(scenes: Sequence[int]) -> Iterator[Picture]:
    """Still scenes, each a noise of all scales by its number."""
    for seed in scenes:
        random = np.random.default_rng(seed)
        layers = [
            cv2.resize(random.normal(0, 22, (2 * 2**scale, 3 * 2**scale)), (180, 120), interpolation=cv2.INTER_CUBIC)
            for scale in range(6)
        ]
        gray = np.clip(np.sum(layers, axis=0) + 120, 0, 255).astype(np.uint8)
        yield from [np.repeat(gray[..., None], 3, axis=2)] * _SCENE_FRAMES


def _episode(folder: Path, number: int) -> Path:
    opening, story = range(OPENING), range(100 * number, 100 * number + STORY)
    path = folder / f"Kiki - {number:02d}.mkv"
    return write_film(path, painted([*opening, *story]), fps=24, options={"crf": str(20 + 4 * number)})
