"""Features of clips: decoded once by content, kept on disk, whole after an interruption."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from examples.world.shapes import ShapeClip, paint
from pipeline.core.config import MotionSettings
from pipeline.core.errors import UserError
from pipeline.video.clip_files import write_clip
from training.evaluation.metrics.appearance import Appearance
from training.evaluation.metrics.features import (
    ClipMotions,
    ClipPictures,
    EmbeddedFrames,
    Feature,
    Features,
    HashedFrames,
    content_hash,
)


class InterruptionError(Exception):
    """The end of a process."""


class StopsAfter:
    """Extractor that ends after some clips."""

    identity = "stops"
    needs_colour = False

    def __init__(self, clips: int) -> None:
        self._left = clips

    def describe(self, clips: Sequence[ClipPictures]) -> list[Feature]:
        """Return the number of frames."""
        self._left -= len(clips)
        if self._left < 0:
            raise InterruptionError
        return [{"count": np.array([len(clip.gray_THW)])} for clip in clips]


def clips(folder: Path) -> list[Path]:
    paths = []
    for level in range(1, 6):
        paths.append(folder / f"{level}.mp4")
        write_clip(paths[-1], paint(ShapeClip("Ruby", "go for a walk", "meadow", level)), Fraction(8), crf=17)
    return paths


def test_a_clip_is_decoded_once_for_all_extractors_and_a_copy_of_it_not_at_all(tmp_path: Path) -> None:
    paths = clips(tmp_path)
    motions = ClipMotions(MotionSettings(scale=1.0))
    features = Features(tmp_path / "features", [EmbeddedFrames(Appearance()), motions])
    assert features.fill(paths) == 5
    shutil.copy(paths[0], tmp_path / "copy.mp4")
    assert features.fill([*paths, tmp_path / "copy.mp4"]) == 0
    assert Features(tmp_path / "features", [*features.extractors, HashedFrames()]).fill(paths) == 5
    scopes = [float(features.of(motions, content_hash(path))["scope_px"][0]) for path in paths]
    np.testing.assert_allclose(scopes, (0.5, 1.5, 2.5, 4.0, 6.0), rtol=0.1)


def test_the_motion_of_clips_of_another_size_is_in_pixels_of_the_dataset(tmp_path: Path) -> None:
    whole = paint(ShapeClip("Ruby", "go for a walk", "meadow", 4))
    height, width = whole.shape[1:3]
    large = np.stack([cv2.resize(frame, (2 * width, 2 * height), interpolation=cv2.INTER_CUBIC) for frame in whole])
    write_clip(tmp_path / "whole.mp4", whole, Fraction(8), crf=10)
    write_clip(tmp_path / "large.mp4", large, Fraction(8), crf=10)
    scopes = {}
    for size in (None, (width, height)):
        motions = ClipMotions(MotionSettings(scale=1.0), size)
        features = Features(tmp_path / "features", [motions])
        features.fill([tmp_path / "whole.mp4", tmp_path / "large.mp4"])
        scopes[size] = [
            float(features.of(motions, content_hash(tmp_path / name))["scope_px"][0])
            for name in ("whole.mp4", "large.mp4")
        ]
    assert scopes[None][1] == pytest.approx(2 * scopes[None][0], rel=0.1)
    assert scopes[width, height] == pytest.approx([scopes[None][0]] * 2, rel=0.1)


def test_an_interrupted_run_goes_on_with_the_same_features(tmp_path: Path) -> None:
    paths = clips(tmp_path) * 2
    paths = [shutil.copy(path, tmp_path / f"more-{number}.mp4") for number, path in enumerate(paths)]
    for number, path in enumerate(paths):
        path.write_bytes(path.read_bytes() + bytes([number]))  # contents that differ
    whole, appearance = Features(tmp_path / "whole", [EmbeddedFrames(Appearance())]), EmbeddedFrames(Appearance())
    whole.fill(paths)
    with pytest.raises(InterruptionError):
        Features(tmp_path / "broken", [appearance, StopsAfter(8)]).fill(paths)
    assert Features(tmp_path / "broken", [appearance, StopsAfter(99)]).fill(paths) == 2
    for path in paths:
        found = [
            each.of(appearance, content_hash(path))["frames"] for each in (whole, Features(tmp_path / "broken", []))
        ]
        np.testing.assert_array_equal(*found)
    assert not list((tmp_path / "broken").rglob(".*"))


def test_a_clip_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_bytes(b"no clip")
    with pytest.raises(UserError, match=r"bad\.mp4: .*play the game again"):
        Features(tmp_path / "features", [HashedFrames()]).fill([tmp_path / "bad.mp4"])
    with pytest.raises(UserError, match=r"gone\.mp4 cannot be read"):
        Features(tmp_path / "features", [HashedFrames()]).fill([tmp_path / "gone.mp4"])
