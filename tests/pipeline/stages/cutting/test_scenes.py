"""Scene detection: exact on painted pictures and a composed 2D film, and published cut lists of a whole film."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from scenedetect.common import FrameTimecode
from scenedetect.detectors import ContentDetector

from examples.world.scene import mixed
from examples.world.truth import Truth
from pipeline.core.config import SceneSettings
from pipeline.stages.cutting.hard_cuts import _score
from pipeline.stages.cutting.scenes import Boundary, SceneFinder
from pipeline.video.film_reader import FilmReader
from pipeline.video.scaling import Geometry, Scaler
from tests.support.media.painted_scenes import (
    BLACK,
    FPS,
    WHITE,
    WIDTH,
    A,
    B,
    C,
    Picture,
    acted,
    cuts_in,
    painting,
    wild,
)


def test_a_hard_cut_is_found_exactly() -> None:
    assert cuts_in([A] * 30 + [B] * 30) == [Boundary(30, 30 / FPS, "cut", 29, 30)]


@pytest.mark.parametrize("at", [1, 2, 58, 59])
def test_a_cut_next_to_the_ends_of_the_film_is_found(at: int) -> None:
    assert [cut.frame for cut in cuts_in([A] * at + [B] * (60 - at))] == [at]


@pytest.mark.parametrize("fps", [8, 23.976, 30, 60])
def test_cuts_are_exact_at_any_rate(fps: float) -> None:
    pictures = acted(A, 60, 2) + acted(B, 60, 3) + acted(C, 60, 1)
    assert [cut.frame for cut in cuts_in(pictures, fps)] == [60, 120]


@pytest.mark.parametrize("frames_per_drawing", [1, 2, 3, 4, 12])
def test_held_drawings_make_no_cuts(frames_per_drawing: int) -> None:
    pictures = acted(A, 96, frames_per_drawing) + acted(B, 96, frames_per_drawing)
    assert [cut.frame for cut in cuts_in(pictures)] == [96]


@pytest.mark.parametrize("frames_per_drawing", [2, 3, 4])
def test_wild_action_on_held_drawings_makes_no_cuts(frames_per_drawing: int) -> None:
    pictures = wild(A, 30 * frames_per_drawing, frames_per_drawing)
    assert [cut.frame for cut in cuts_in(pictures + acted(B, 60, 2))] == [len(pictures)]


@pytest.mark.parametrize("flash", [[WHITE], [WHITE] * 2, [WHITE] * 3, [BLACK] * 2, [C] * 4])
def test_a_flash_is_not_a_cut(flash: Sequence[Picture]) -> None:
    pictures = acted(A, 120, 2)
    pictures[50 : 50 + len(flash)] = flash
    assert cuts_in(pictures) == []


def test_a_flash_before_on_or_after_a_cut_leaves_one_cut() -> None:
    assert [cut.frame for cut in cuts_in([A] * 40 + [WHITE] * 2 + [A] * 3 + [B] * 40)] == [45]
    assert [cut.frame for cut in cuts_in([A] * 40 + [B] * 3 + [WHITE] * 2 + [B] * 40)] == [40]
    (cut,) = cuts_in([A] * 40 + [WHITE] * 2 + [B] * 40)
    assert (cut.frame, cut.last_clean_before, cut.first_clean_after) == (42, 39, 42)


def random_film(seed: int) -> list[Picture]:
    """Still, wild and panned scenes of 5 to 70 frames, with cuts, and dissolves of 3 to 45 frames, between them."""
    dice = np.random.default_rng(seed)
    pictures, rest = list[Picture](), list[Picture]()
    for _ in range(6):
        length, mix = int(dice.integers(5, 70)), int(dice.choice([0, 0, 3, 8, 20, 45]))
        scene = random_scene(dice, mix + length + 45)
        mix = min(mix, len(rest))
        pictures += [mixed(rest[step], scene[step], (step + 1) / (mix + 1)) for step in range(mix)]
        pictures += scene[mix : mix + length]
        rest = scene[mix + length :]
    return pictures


def random_scene(dice: np.random.Generator, frames: int) -> list[Picture]:
    place, kind, step = int(dice.integers(50)), dice.integers(3), dice.choice([0.5, 1, 2, 3])
    if kind == 0:
        return [painting(place)] * frames
    if kind == 1:
        return wild(painting(place), frames, int(dice.integers(1, 4)), place)
    wide = painting(place, 700)
    return [np.ascontiguousarray(wide[:, int(step * at) :][:, :WIDTH]) for at in range(frames)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fps", "settings"),
    [
        (24, {}),
        (24, {"min_scene_seconds": 0}),
        (24, {"min_scene_seconds": 5}),
        (60, {"adaptive_window": 10}),
        (60, {"min_scene_seconds": 0.1}),
        (5, {}),
        (1, {}),
        (24, {"transition_seconds": 0.5, "adaptive_window": 10}),
    ],
)
@pytest.mark.parametrize("seed", [0, 2])
def test_boundaries_are_in_order_and_in_time_whatever_the_film(seed: int, fps: int, settings: dict[str, float]) -> None:
    finder, last = SceneFinder(SceneSettings.model_validate(settings), fps), Boundary(0, 0.0, "cut", -1, 0)
    pictures = random_film(seed)
    reported = [
        (newest, cut) for newest, picture in enumerate(pictures) for cut in finder.add(newest, newest / fps, picture)
    ]
    for newest, cut in [*reported, *((len(pictures) - 1, cut) for cut in finder.finish())]:
        assert cut.last_clean_before >= newest - finder.lag
        assert last.frame - 1 <= cut.last_clean_before < cut.frame <= cut.first_clean_after < len(pictures)
        assert last.frame < cut.frame
        last = cut


def test_memory_is_bounded() -> None:
    finder, pictures = SceneFinder(SceneSettings(), FPS), list[weakref.ref[Picture]]()
    for frame in range(600):
        picture = painting(frame // 50)
        pictures.append(weakref.ref(picture))
        finder.add(frame, frame / FPS, picture)
    del picture
    alive = [frame for frame, picture_ref in enumerate(pictures) if picture_ref() is not None]
    assert min(alive) >= 600 - finder.lag - 10


def small_pictures(path: Path, end_frame: int | None = None) -> Iterator[Picture]:
    """Pictures that the stage would pass to the finder."""
    with FilmReader(path) as reader:
        scaler = None
        for frame in reader.frames():
            if frame.ordinal == end_frame:
                return
            if scaler is None:
                width, height = frame.picture.width, frame.picture.height
                geometry = Geometry(0, 0, width, height, width, height)
                scaler = Scaler(geometry, geometry.size_for_width(SceneSettings().detect_width), "stretch", "detect")
            yield scaler(frame.picture).to_ndarray()


@pytest.mark.slow
def test_the_cuts_of_the_composed_film_are_found(composed_film: tuple[Path, Truth]) -> None:
    path, truth = composed_film
    cuts = cuts_in(small_pictures(path))
    *others, out, into, last = truth.transitions
    assert (out.kind, into.kind) == ("fade", "fade")
    through_black = replace(into, last_clean_before=out.last_clean_before)  # one boundary, in the black
    true = [*others, through_black, last]
    assert [cut.kind for cut in cuts] == [transition.kind for transition in true]
    for cut, transition in zip(cuts, true, strict=True):
        if transition.kind == "cut":
            assert cut.frame == transition.frame
        assert abs(cut.frame - transition.frame) <= (14 if transition is through_black else 6)
        assert abs(cut.last_clean_before - transition.last_clean_before) <= 2
        assert abs(cut.first_clean_after - transition.first_clean_after) <= 1


MINUTES, CREDITS = 4800, 11728


def score(found: Sequence[int], published: dict[str, list[int]], end: int) -> tuple[float, float]:
    """Precision and recall at +-1 frame; cuts that only some of the lists hold count neither way."""

    def near(frame: int, frames: Iterable[int]) -> bool:
        return any(abs(frame - other) <= 1 for other in frames)

    agreed = [frame for frame in published["adaptive"] if frame < end and near(frame, published["transnetv2"])]
    disputed = {frame for name in ("adaptive", "content", "transnetv2") for frame in published[name]}
    hits = sum(near(frame, found) for frame in agreed)
    false = sum(not near(frame, disputed) for frame in found)
    return hits / (hits + false), hits / len(agreed)


@pytest.mark.film
@pytest.mark.parametrize(
    ("end", "slow_ones"),
    [
        (MINUTES, ["fade", "dissolve"]),
        pytest.param(
            CREDITS, ["fade", "dissolve", "fade", *["dissolve"] * 3, "fade", "dissolve"], marks=pytest.mark.nightly
        ),
    ],
)
def test_the_cuts_of_a_film_agree_with_the_published_lists(bunny: Path, end: int, slow_ones: list[str]) -> None:
    published = json.loads((Path(__file__).parents[3] / "support" / "bbb_cuts.json").read_text())
    finder, cuts, seconds = SceneFinder(SceneSettings(), FPS), [], 0.0
    for frame, picture in enumerate(small_pictures(bunny, end)):
        before = time.thread_time()
        cuts += finder.add(frame, frame / FPS, picture)
        seconds += time.thread_time() - before
    cuts += finder.finish()
    precision, recall = score([cut.frame for cut in cuts], published, end)
    f1 = 2 * precision * recall / (precision + recall)
    print(f"precision {precision:.4f} recall {recall:.4f} F1 {f1:.4f}, {1000 * seconds / end:.2f} ms a frame")
    assert f1 >= 0.97
    assert seconds / end < 0.002
    # By eye: a fade from black, two through it, and the first and last dissolve. The others are fast camera moves.
    assert [cut.kind for cut in cuts if cut.kind != "cut"] == slow_ones


def test_frame_scores_are_those_of_pyscenedetect() -> None:
    detector, dice, scores = ContentDetector(), np.random.default_rng(0), []
    pictures = dice.integers(0, 256, (3, 90, 160, 3), dtype=np.uint8)
    for number, picture_HWC in enumerate(pictures):
        detector.process_frame(FrameTimecode(number, 24.0), picture_HWC)
        scores.append(detector._frame_score)
    hsv = [cv2.cvtColor(picture_HWC, cv2.COLOR_BGR2HSV) for picture_HWC in pictures]
    assert [_score(*pair) for pair in pairwise(hsv)] == pytest.approx(scores[1:])
