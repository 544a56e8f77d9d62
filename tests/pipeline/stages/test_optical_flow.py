"""OpenCV's DIS with its corrections against known motion, and the names of the back ends."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import cv2
import numpy as np
import pytest

from pipeline.core.config import MotionSettings
from pipeline.core.errors import UserError
from pipeline.stages import optical_flow_network
from pipeline.stages.motion import flow_model_of, identify, open_optical_flow
from pipeline.stages.optical_flow import DenseInverseSearch, Frames, Vectors
from tests.support.media.moving_pictures import pan, shaded, textured, view, walk


def luma(frames_THWC: Frames) -> Frames:
    return np.stack([np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY), np.uint8) for frame in frames_THWC])


def first_step(frames_THWC: Frames, scale: float = 0.5) -> Vectors:
    """`vectors_HW2`."""
    vectors_BHW2 = next(DenseInverseSearch(scale).steps([luma(frames_THWC)]))
    assert len(vectors_BHW2) == 1
    return vectors_BHW2[0]


def moving(vectors_HW2: Vectors) -> np.ndarray:
    return np.linalg.norm(vectors_HW2, axis=-1) >= 0.2


@pytest.mark.parametrize(("x", "y"), [(6, 0), (0, -6), (-3.5, 2), (1, 1)])
@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_dis_gives_vectors_in_pixels_of_the_clip(x: float, y: float, scale: float) -> None:
    vectors_HW2 = first_step(pan(textured(), x, y, frames=2), scale)
    assert vectors_HW2.shape == (480 * scale, 720 * scale, 2)
    assert np.median(vectors_HW2[moving(vectors_HW2)], axis=0) == pytest.approx([-x, -y], abs=0.1)


def test_dis_leaves_the_still_surroundings_of_a_figure_alone() -> None:
    vectors_HW2 = first_step(walk(shaded(), 10, frames=2))
    assert 0.09 < moving(vectors_HW2).mean() < 0.13  # the figure covers 0.10
    assert np.median(vectors_HW2[moving(vectors_HW2)], axis=0) == pytest.approx([10, 0], abs=0.2)


def test_dis_sees_no_motion_in_grain() -> None:
    still = np.stack([view(shaded())] * 2)
    grain = np.random.default_rng(5).normal(0, 6, (*still.shape[:3], 1))
    assert not first_step(np.clip(still + grain, 0, 255).astype(np.uint8)).any()


def test_the_name_contains_model_weights_and_scale(tmp_path: Path) -> None:
    checkpoint = tmp_path / "memflow.ckpt"
    checkpoint.write_bytes(b"weights")
    settings = MotionSettings(model="memflow", checkpoint=str(checkpoint))
    assert flow_model_of(MotionSettings()) == "dis@0.5"
    assert flow_model_of(MotionSettings(scale=1)) == "dis@1"
    assert flow_model_of(settings) == "memflow:9a129038@1"
    assert flow_model_of(settings.model_copy(update={"scale": 0.5})) == "memflow:9a129038@0.5"
    assert flow_model_of(MotionSettings(model="memflow", checkpoint="things")) == "memflow:things@1"
    assert set(identify(settings)) == {"model", "weights", "ptlflow", "scale"}
    checkpoint.write_bytes(b"other weights")
    assert flow_model_of(settings) != "memflow:9a129038@1"


def test_a_network_without_weights_or_with_a_missing_file_is_refused_with_the_remedy() -> None:
    with pytest.raises(UserError, match=r"needs weights: set `checkpoint` in \[motion\]"):
        open_optical_flow(MotionSettings(model="memflow"))
    with pytest.raises(UserError, match=r"gone/memflow\.ckpt: no such file"):
        open_optical_flow(MotionSettings(model="memflow", checkpoint="gone/memflow.ckpt"))


def test_without_ptlflow_the_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(optical_flow_network, "version", missing)
    with pytest.raises(UserError, match="make install-flow"):
        flow_model_of(MotionSettings(model="memflow", checkpoint="things"))
