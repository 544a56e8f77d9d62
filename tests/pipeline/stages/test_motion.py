"""Motion measured in real encoded clips, compared with exactly known motion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.config import MotionSettings
from pipeline.core.measurements import Motion
from pipeline.core.progress import silent
from pipeline.core.records import RecordError
from pipeline.core.stage import ingredients_of, is_current, perform
from pipeline.core.store import FilmFolder
from pipeline.stages.motion import (
    DRAWING_SCALE,
    MeasureMotion,
    count_drawings,
    flow_model_of,
    measure_frames,
)
from pipeline.stages.motion_levels import PUBLISHED_EDGES, level_of
from pipeline.stages.optical_flow import Frames, Vectors, scaled
from pipeline.video.clip_files import read_clip_gray, write_clip
from tests.support.media.moving_pictures import make_clips, pan, shaded, textured, view, walk, zoom_in

SPEEDS = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0)
STAGE = MeasureMotion(MotionSettings(), threads=2, failed_limit=0.1)


def measured(folder: FilmFolder, stage: MeasureMotion = STAGE) -> dict[str, Motion]:
    perform(stage, folder)
    return {row.clip_id: row for row in folder.read("motion", Motion)}


def grainy(frames_THWC: np.ndarray, sigma: float) -> np.ndarray:
    grain = np.random.default_rng(5).normal(0, sigma, (*frames_THWC.shape[:3], 1))
    return np.clip(frames_THWC + grain, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def motion(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Motion]:
    """Measurements of the stage in one film with clips of every kind, by the names of the clips."""
    still = np.stack([view(shaded())] * 6)
    clips = {
        **{f"textured pan {speed}": pan(textured(), speed, 0) for speed in SPEEDS},
        **{f"shaded pan {speed}": pan(shaded(), 0, speed) for speed in SPEEDS},
        "pan 6 on threes": pan(shaded(), 6, 0, frames=12, held=3),
        "still": still,
        "still with grain": grainy(still, 4),
        "fade": (np.stack([view(shaded())] * 12) * np.linspace(0.02, 1, 12)[:, None, None, None]).astype(np.uint8),
        "zoom": zoom_in(textured(), 1.02),
        **{f"walk {speed}": walk(shaded(), speed) for speed in (1.0, 5.0, 20.0)},
        **{f"walk on {held}s": walk(textured(), 8, frames=12, held=held) for held in (1, 2, 3)},
    }
    folder = make_clips(tmp_path_factory.mktemp("motion"), {f"c{i}": frames for i, frames in enumerate(clips.values())})
    return dict(zip(clips, measured(folder).values(), strict=True))


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("picture", ["textured", "shaded"])
def test_a_known_translation_is_measured_within_five_percent(
    motion: dict[str, Motion], picture: str, speed: float
) -> None:
    assert motion[f"{picture} pan {speed}"].scope_px == pytest.approx(speed, rel=0.05)


def test_a_still_clip_is_zero_and_level_one(motion: dict[str, Motion]) -> None:
    for name in ("still", "still with grain"):
        assert (motion[name].scope_px, motion[name].camera_px, motion[name].unique_frames) == (0, 0, 1)
        assert level_of(motion[name].scope_px, PUBLISHED_EDGES) == 1


def test_growing_light_is_not_motion(motion: dict[str, Motion]) -> None:
    assert (motion["fade"].scope_px, motion["fade"].camera_px) == (0, 0)


@pytest.mark.parametrize("speed", [1.0, 5.0, 20.0])
def test_the_scope_of_a_figure_is_its_own_speed(motion: dict[str, Motion], speed: float) -> None:
    row = motion[f"walk {speed}"]
    assert row.scope_px == pytest.approx(speed, rel=0.1)
    assert row.camera_px == 0


@pytest.mark.parametrize("speed", SPEEDS[1:])
def test_the_camera_motion_of_a_pan_is_the_whole_motion(motion: dict[str, Motion], speed: float) -> None:
    for picture in ("textured", "shaded"):
        assert motion[f"{picture} pan {speed}"].camera_px == pytest.approx(speed, rel=0.05)


def test_a_zoom_is_camera_motion(motion: dict[str, Motion]) -> None:
    row = motion["zoom"]
    rows, columns = np.mgrid[-239.5:240, -359.5:360]
    expected = float((np.hypot(rows, columns) * 0.02).mean())
    assert row.scope_px == pytest.approx(expected, rel=0.1)
    assert row.camera_px == pytest.approx(row.scope_px, rel=0.1)


def test_held_drawings_are_counted_once_and_do_not_slow_the_motion(motion: dict[str, Motion]) -> None:
    for held, drawings in ((1, 12), (2, 6), (3, 4)):
        row = motion[f"walk on {held}s"]
        assert row.unique_frames == drawings
        assert row.scope_px == pytest.approx(8, rel=0.1)
    on_threes = motion["pan 6 on threes"]
    assert on_threes.unique_frames == 4
    assert on_threes.scope_px == pytest.approx(6, rel=0.05)
    assert on_threes.camera_px == pytest.approx(6, rel=0.05)


@pytest.mark.parametrize("crf", [17, 23])
@pytest.mark.parametrize("grain", [0, 5])
def test_coding_and_grain_are_not_new_drawings_but_a_mouth_is(tmp_path: Path, grain: float, crf: int) -> None:
    frames_THWC = np.stack([view(shaded())] * 8)
    frames_THWC[4:, 200:210, 300:320] = (60, 60, 160)
    write_clip(tmp_path / "clip.mp4", grainy(frames_THWC, grain), Fraction(8), crf)
    frames_THW = read_clip_gray(tmp_path / "clip.mp4")
    assert count_drawings(np.stack([scaled(frame_HW, DRAWING_SCALE) for frame_HW in frames_THW])) == 2


class Pushes:
    """Optical flow that returns preset vectors for each clip and step."""

    colour = False
    clips_at_once = 2
    in_threads = False

    def __init__(self, *vectors_BHW2: Vectors) -> None:
        self.vectors_BHW2 = vectors_BHW2

    def steps(self, clips: Sequence[Frames]) -> Iterator[Vectors]:  # noqa: ARG002
        yield from self.vectors_BHW2


def test_the_scope_is_one_mean_over_the_pixels_that_move() -> None:
    """Not a mean of means: three pixels at 1 px in one step and one at 9 px in the next make 3 px."""
    first, second = (np.zeros((1, 4, 4, 2), np.float32) for _ in range(2))
    first[0, 0, :3, 0] = 1
    first[0, 1, :, 1] = 0.19
    second[0, 2, 2] = (0, -9)
    frames_THW = np.random.default_rng(0).integers(0, 255, (3, 48, 48), dtype=np.uint8)
    assert measure_frames([frames_THW], Pushes(first, second), 0.2)[0].scope_px == pytest.approx(3)


def test_a_held_drawing_and_stray_vectors_are_not_motion_with_any_network() -> None:
    pushed = np.ones((1, 100, 200, 2), np.float32)
    drawing_HW = np.random.default_rng(0).integers(0, 250, (100, 200), dtype=np.uint8)
    coded_again = drawing_HW.copy()
    coded_again[::9] += 2
    assert measure_frames([np.stack([drawing_HW, coded_again])], Pushes(pushed), 0.2)[0].scope_px == 0
    stray = np.zeros_like(pushed)
    stray[0, 50, 70:72] = 30
    assert measure_frames([np.stack([drawing_HW, drawing_HW[::-1]])], Pushes(stray), 0.2)[0].scope_px == 0
    stray[0, 50, 72] = 30
    assert measure_frames([np.stack([drawing_HW, drawing_HW[::-1]])], Pushes(stray), 0.2)[0].scope_px > 30


def test_broken_clips_are_failures_with_reasons_and_the_others_are_measured(tmp_path: Path) -> None:
    folder = make_clips(tmp_path, {f"c{number}": pan(textured(), 2, 0, frames=3) for number in range(4)})
    folder.clip_path("c1").write_bytes(b"no video")
    write_clip(folder.clip_path("c2"), pan(textured(), 2, 0, frames=2), Fraction(8), 17)
    seen: list[tuple[float, float]] = []
    outcome = MeasureMotion(MotionSettings(), 2, 0.5).run(folder, lambda done, total: seen.append((done, total)))
    assert [row.clip_id for row in outcome.tables["motion"]] == ["c0", "c3"]  # type: ignore[attr-defined]
    assert {failure.record_id for failure in outcome.failures} == {"c1", "c2"}
    assert "2 frames of 720x480, not 3 of 720x480" in outcome.failures[1].reason
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    with pytest.raises(RecordError, match="2 of 4 failed"):
        STAGE.run(folder, silent)


def test_a_film_without_clips_has_an_empty_table(tmp_path: Path) -> None:
    assert measured(make_clips(tmp_path, {})) == {}


def test_edges_and_batch_do_not_remeasure_but_the_threshold_does(tmp_path: Path) -> None:
    folder = make_clips(tmp_path, {"c0": pan(textured(), 2, 0, frames=3)})
    assert measured(folder)["c0"].flow_model == flow_model_of(MotionSettings()) == "dis@0.5"
    assert is_current(MeasureMotion(MotionSettings(edges=(1, 2, 3, 4), batch=3), 1, 0.5), folder)
    for changed in (MotionSettings(background_px=0.3), MotionSettings(scale=0.25)):
        assert not is_current(MeasureMotion(changed, 2, 0.1), folder)
    assert ingredients_of(STAGE, folder)["motion"] == {"model": "dis", "scale": 0.5, "background_px": 0.2}


@pytest.mark.parametrize("scale", [0.25, 1.0])
def test_the_scale_of_the_computation_does_not_scale_the_result(tmp_path: Path, scale: float) -> None:
    folder = make_clips(tmp_path, {"c0": pan(textured(), 10, 0, frames=3)})
    stage = MeasureMotion(MotionSettings(scale=scale), 1, 0)
    row = measured(folder, stage)["c0"]
    assert row.scope_px == pytest.approx(10, rel=0.05)
    assert row.camera_px == pytest.approx(10, rel=0.05)
