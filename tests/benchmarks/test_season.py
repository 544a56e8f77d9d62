"""Benchmark of repeats: what its seasons show, and a run on two short episodes."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from benchmarks.season.__main__ import run
from benchmarks.season.compose import compose, truth_of
from examples.world.textures import Picture

SHOT_FRAMES = 60


class Drawn:
    """Pictures of a film by number: shots of smooth noise, each another one, over which the camera pans."""

    def __init__(self) -> None:
        self._shots: dict[int, Picture] = {}

    def __getitem__(self, frame: int) -> Picture:
        shot, at = divmod(frame, SHOT_FRAMES)
        if shot not in self._shots:
            random = np.random.default_rng(shot)
            layers = [
                cv2.resize(random.normal(0, 30, (side, 2 * side, 3)), (320, 144), interpolation=cv2.INTER_CUBIC)
                for side in (3, 6, 12)
            ]
            self._shots[shot] = np.clip(sum(layers) + 120, 0, 255).astype(np.uint8)
        return self._shots[shot][:, at : at + 256]


@pytest.mark.parametrize("seed", range(4))
def test_no_moment_is_in_two_stories_and_the_truth_covers_all_other_pieces(seed: int) -> None:
    season = compose(seed, 24, 5)
    stories = [
        (piece.view, frame)
        for episode in season
        for piece in episode
        if piece.kind is None
        for frame in range(piece.start, piece.start + piece.frames)
    ]
    assert len(stories) == len(set(stories)) == 24 * 100 * 24
    for episode in season:
        repeated = sum(piece.frames for piece in episode if piece.kind) / 24
        assert sum(one.end_seconds - one.start_seconds for one in truth_of(episode)) == pytest.approx(repeated)


@pytest.mark.slow
def test_a_season_of_two_short_episodes_is_scored(tmp_path: Path) -> None:
    score, stages, comparison = run(0, compose(0, 2, 1), Drawn(), tmp_path)
    repeats = score.clips[0]
    assert repeats > 20
    assert score.clips[1] == repeats
    assert score.clips[3] == 1, "the first eyecatch, next to the ending in so short an episode"
    assert score.found / score.repeated > 0.98
    assert sum(error > 0.5 for error in score.errors) == 1, "where that eyecatch ends"
    assert 0 < comparison < stages
