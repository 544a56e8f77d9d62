"""Benchmark of sampling: the motion level drawn is measured in the pixels of the levels."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from benchmarks.sampling import level_error
from models.config import ModelConfig
from models.shipped import PACKED
from models.tokens import State
from models.turns import GameState, Turn


@pytest.mark.parametrize(("pixels_a_step", "level"), [(1, 3), (2, 4)])
def test_the_level_of_a_small_picture_is_that_of_the_same_motion_in_the_dataset(
    tmp_path: Path, pixels_a_step: int, level: int
) -> None:
    packaged = ModelConfig.read(PACKED)
    height, width = packaged.shot_decoder.height, packaged.shot_decoder.width
    assert packaged.levels
    config = packaged.replaced(levels=packaged.levels.model_copy(update={"width": 2 * width, "height": 2 * height}))
    noise_HWC = np.random.default_rng(0).integers(0, 256, (height, 2 * width, 3), dtype=np.uint8)
    wall_HWC = cv2.GaussianBlur(noise_HWC, (0, 0), 2)
    frames_THWC = np.stack([wall_HWC[:, pixels_a_step * step :][:, :width] for step in range(9)])
    turn = Turn(1, "", State(level, 0, 0, 1), 0.0, GameState().values, frames_THWC, torch.zeros(1, 1))
    assert level_error(config, [turn], tmp_path) == 0
