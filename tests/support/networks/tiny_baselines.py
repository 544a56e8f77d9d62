"""Tiny baselines for tests: random, in the real format, made once per test run; 9 frames of 32x48, two steps."""

from __future__ import annotations

from pathlib import Path

from tests.support.shared_folders import shared_folder
from training.baselines.config import BaselineConfig, BaselineKind, tiny
from training.baselines.folder import new_baseline

HEIGHT, WIDTH, FRAMES = 32, 48, 9


def brief_config(kind: BaselineKind) -> BaselineConfig:
    """Return the configuration of the tiny baseline with smaller shots, for speed."""
    config, size = tiny(kind), {"height": HEIGHT, "width": WIDTH, "steps": 2}
    video = config.video.model_copy(update={**size, "frames": FRAMES})
    picture = config.picture and config.picture.model_copy(update=size)
    return config.model_copy(update={"video": video, "picture": picture})


def brief_baseline(kind: BaselineKind) -> Path:
    """Return an untrained baseline, shared: copy it before changing it."""
    return shared_folder(f"brief-{kind}", lambda folder: new_baseline(folder, brief_config(kind), seed=1))
