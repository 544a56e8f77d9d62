"""Picture quality: blur, blocks and bands of known size are measured, and follow the quality of a real encoder."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.stages.picture_quality import Quality, measure_quality
from pipeline.video.clip_files import read_clip_gray, write_clip
from tests.support.media.films import write_film
from tests.support.media.moving_pictures import pan, textured, view

HEIGHT, WIDTH = 480, 720


def quality_of(picture_HW: NDArray[np.floating] | NDArray[np.uint8]) -> Quality:
    return measure_quality(np.clip(np.round(picture_HW), 0, 255).astype(np.uint8)[None])


def test_a_picture_is_the_less_sharp_the_more_it_is_blurred() -> None:
    sharp_HW = cv2.cvtColor(view(textured()), cv2.COLOR_BGR2GRAY)
    blurred = [sharp_HW, *(cv2.GaussianBlur(sharp_HW, None, sigma) for sigma in (0.7, 1.5, 3))]
    found = [quality_of(picture_HW).sharpness for picture_HW in blurred]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1.5 * found[-1]
    along_HW = cv2.GaussianBlur(sharp_HW, (15, 1), 3)
    assert quality_of(along_HW).sharpness < found[0], "blur in one direction counts"
    assert quality_of(np.full((HEIGHT, WIDTH), 90)).sharpness == 0


def clouds(grain: float) -> NDArray[np.floating]:
    """Soft picture with grain."""
    random = np.random.default_rng(1)
    clouds_HW = cv2.resize(random.normal(0, 30, (6, 9)), (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    return np.asarray(120 + clouds_HW + random.normal(0, grain, (HEIGHT, WIDTH)))


@pytest.mark.parametrize("period", [16 / 3, 8, 12])
def test_the_step_of_blocks_of_any_width_is_measured(period: float) -> None:
    rows, columns = (np.floor(np.arange(side) / period).astype(int) for side in (HEIGHT, WIDTH))
    checks_HW = (rows[:, None] + columns) % 2
    found = [quality_of(clouds(0) + step * checks_HW).blockiness for step in (0, 1, 2, 4)]
    assert found == pytest.approx([0, 0.65, 1.6, 3.5], rel=0.1), "the slope of the picture hides a little"
    assert 2 < quality_of(clouds(1) + 4 * checks_HW).blockiness < 3.5, "and so does grain"


def test_stripes_alone_are_no_blocks() -> None:
    stripes_W = np.floor(np.arange(WIDTH) / 8) % 2
    assert quality_of(clouds(1) + 3 * stripes_W).blockiness == 0


@pytest.mark.parametrize("step", [1, 2, 4])
def test_the_height_of_bands_is_measured(step: int) -> None:
    ramp_HW = np.add.outer(np.arange(HEIGHT) / 8, np.arange(WIDTH) / 8)
    assert quality_of(60 + step * np.floor(ramp_HW / step)).banding == pytest.approx(step, rel=0.25)


def test_only_soft_gradients_have_bands() -> None:
    edges_HW = 100 + 5.0 * (np.arange(WIDTH) // 90 % 2) + np.zeros((HEIGHT, 1))
    for picture_HW in (clouds(8), edges_HW, np.full((HEIGHT, WIDTH), 90)):
        assert quality_of(picture_HW).banding is None


@pytest.mark.parametrize("size", [(64, 64), (64, 96), (128, 64), (96, 128)])
def test_small_clips_are_measured(size: tuple[int, int]) -> None:
    found = quality_of(np.random.default_rng(4).uniform(0, 255, size))
    assert 0.5 < found.sharpness < 1
    assert (found.blockiness, found.banding) == (0, None)


def copy_of(film: Path, pictures: list[NDArray[np.uint8]], crf: int, out: Path) -> Quality:
    """Quality of a clip cut from a film of these pictures at 480x320."""
    small = [cv2.resize(picture_HWC, (480, 320), interpolation=cv2.INTER_AREA) for picture_HWC in pictures]
    write_film(film, small, fps=24, codec="libx264", options={"crf": str(crf), "preset": "veryfast"})
    with av.open(str(film)) as container:
        frames = [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]
    shown = [cv2.resize(frame_HWC, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC) for frame_HWC in frames[::3]]
    write_clip(out, shown, Fraction(8), crf=17)
    return measure_quality(read_clip_gray(out))


def test_a_copy_by_a_real_encoder_is_worse_the_lower_its_rate(tmp_path: Path) -> None:
    pictures = list(pan(textured(), 2, 1, frames=24))
    fine, fair, poor = (
        copy_of(tmp_path / f"{crf}.mp4", pictures, crf, tmp_path / f"clip-{crf}.mp4") for crf in (18, 34, 50)
    )
    assert fine.sharpness > fair.sharpness > poor.sharpness
    assert poor.blockiness > 3 * max(fine.blockiness, fair.blockiness)
    write_clip(tmp_path / "whole.mp4", pictures[::3], Fraction(8), crf=17)
    assert measure_quality(read_clip_gray(tmp_path / "whole.mp4")).sharpness > fine.sharpness, "it was scaled up"
