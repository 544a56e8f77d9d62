"""The network of transitions over a stream: the same scores as over a whole window, whatever enters at once."""

from __future__ import annotations

import numpy as np

from pipeline.stages.cutting.transition_scores import STEP, TransitionScorer
from tests.support.media.painted_scenes import A, B, Picture, acted, dissolve


def scores_of(film: list[Picture]) -> np.ndarray:
    scorer = TransitionScorer()
    return np.concatenate([*(scorer.add(picture) for picture in film), scorer.finish()])


def test_every_frame_has_scores_and_a_rerun_has_the_same() -> None:
    for frames in (1, STEP - 1, STEP, 5 * STEP + 3):
        film = acted(A, frames, 2)
        scores_TD = scores_of(film)
        assert scores_TD.shape == (frames, 2)
        assert np.array_equal(scores_of(film), scores_TD)
        assert np.array_equal(scores_TD * 256, np.round(scores_TD * 256))


def test_the_place_of_a_change_in_the_steps_does_not_matter() -> None:
    for shift in (0, 1, 7, STEP):
        film = [A] * (100 + shift) + dissolve(A, B, 20) + [B] * 100 + acted(A, 100, 2)
        scores_TD = scores_of(film)[shift:]
        assert np.flatnonzero(scores_TD[:, 0] > 0.5).tolist() == list(range(100, 120))
        assert int(scores_TD[:160, 1].argmax()) in range(108, 113)
        assert int(scores_TD[160:, 1].argmax()) == 60
