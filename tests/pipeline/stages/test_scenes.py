"""Scene detection: exact on painted pictures and a composed 2D film, and published cut lists of a whole film."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from scenedetect.common import FrameTimecode
from scenedetect.detectors import ContentDetector

from flows.demos.world.scene import TransitionKind
from flows.demos.world.transitions import mixed
from flows.demos.world.truth import Truth
from pipeline.core.config import SceneSettings
from pipeline.stages.hard_cuts import _score
from pipeline.stages.scenes import Boundary, SceneFinder
from pipeline.video.film_reader import FilmReader
from pipeline.video.scaling import Geometry, Scaler

Picture = NDArray[np.uint8]

FPS = 24
WIDTH, HEIGHT = 160, 90
BLACK, WHITE = (np.full((HEIGHT, WIDTH, 3), value, np.uint8) for value in (0, 255))


def painting(seed: int, width: int = WIDTH) -> Picture:
    """Background of soft shapes in its own colours, HEIGHT x width."""
    dice = np.random.default_rng(seed)
    shapes_HWC = cv2.resize(dice.integers(0, 256, (9, width // 10, 3), np.uint8), (width, HEIGHT))
    return cv2.addWeighted(shapes_HWC, 0.6, np.full_like(shapes_HWC, dice.integers(0, 256, 3)), 0.4, 0)


def acted(background: Picture, frames: int, frames_per_drawing: int) -> list[Picture]:
    """Character in front of the background, at another position in each drawing."""
    pictures = []
    for frame in range(frames):
        dice = np.random.default_rng(frame // frames_per_drawing)
        left, top = dice.integers(40, 70), dice.integers(10, 30)
        picture = background.copy()
        cv2.rectangle(picture, (int(left), int(top)), (int(left) + 24, HEIGHT), (90, 140, 230), cv2.FILLED)
        cv2.circle(picture, (int(left) + 12, int(top)), 12, (40, 60, 160), cv2.FILLED)
        pictures.append(picture)
    return pictures


def wild(background: Picture, frames: int, frames_per_drawing: int, seed: int = 0) -> list[Picture]:
    """Large shapes before the background: each drawing changes up to two thirds of the picture."""
    pictures, colours = [], np.random.default_rng(seed).integers(0, 256, (6, 3)).tolist()
    for frame in range(frames):
        dice = np.random.default_rng(1000 * seed + frame // frames_per_drawing)
        picture = background.copy()
        for colour in colours:
            left, top = (int(at) for at in dice.integers((0, 0), (WIDTH - 40, HEIGHT - 30)))
            cv2.rectangle(picture, (left, top), (left + 40, top + 30), colour, cv2.FILLED)
        pictures.append(picture)
    return pictures


def dissolve(old: Picture, new: Picture, frames: int) -> list[Picture]:
    """Frames of a dissolve, none of them clean."""
    return [mixed(old, new, (frame + 1) / (frames + 1)) for frame in range(frames)]


def cuts_in(pictures: Iterable[Picture], fps: float = FPS) -> list[Boundary]:
    finder = SceneFinder(SceneSettings(), fps)
    cuts = [cut for frame, picture in enumerate(pictures) for cut in finder.add(frame, frame / fps, picture)]
    return cuts + finder.finish()


A, B, C = painting(1), painting(2), painting(3)


def test_a_hard_cut_is_found_exactly() -> None:
    assert cuts_in([A] * 30 + [B] * 30) == [Boundary(30, 30 / FPS, "cut", 29, 30)]


@pytest.mark.parametrize("at", [1, 2, 58, 59])
def test_a_cut_next_to_the_ends_of_the_film_is_found(at: int) -> None:
    assert [cut.frame for cut in cuts_in([A] * at + [B] * (60 - at))] == [at]


@pytest.mark.parametrize("fps", [8, 23.976, 30, 60])
def test_cuts_are_exact_at_any_rate(fps: float) -> None:
    pictures = acted(A, 60, 2) + acted(B, 60, 3) + acted(C, 60, 1)
    assert [cut.frame for cut in cuts_in(pictures, fps)] == [60, 120]


def test_frame_numbers_and_seconds_of_the_caller_are_reported() -> None:
    finder = SceneFinder(SceneSettings(), FPS)
    cuts = []
    for index, picture in enumerate([A] * 30 + [B] * 30):
        cuts += finder.add(1000 + index, index**2 / 100, picture)
    assert cuts + finder.finish() == [Boundary(1030, 9.0, "cut", 1029, 1030)]


@pytest.mark.parametrize("frames_per_drawing", [1, 2, 3, 4, 12])
def test_held_drawings_make_no_cuts(frames_per_drawing: int) -> None:
    pictures = acted(A, 96, frames_per_drawing) + acted(B, 96, frames_per_drawing)
    assert [cut.frame for cut in cuts_in(pictures)] == [96]


@pytest.mark.parametrize("frames_per_drawing", [2, 3, 4])
def test_wild_action_on_held_drawings_makes_no_cuts(frames_per_drawing: int) -> None:
    pictures = wild(A, 30 * frames_per_drawing, frames_per_drawing)
    assert [cut.frame for cut in cuts_in(pictures + acted(B, 60, 2))] == [len(pictures)]


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_a_dissolve_between_wild_scenes_is_one_boundary_without_its_mixed_frames(seed: int) -> None:
    """The jumps of its drawings look like cuts."""
    old, new = (wild(painting(number), 80, 3, number) for number in (seed, 10 + seed))
    mix = [mixed(old[40 + step], new[step], (step + 1) / 37) for step in range(36)]
    (cut,) = cuts_in(old[:40] + mix + new[36:])
    assert cut.kind == "dissolve"
    assert 40 - 36 <= cut.last_clean_before < 40
    assert 76 <= cut.first_clean_after <= 76 + 36


def test_real_cuts_beside_a_dissolve_between_wild_scenes_stay() -> None:
    old, new = (wild(painting(number), 80, 3, number) for number in (1, 11))
    mix = [mixed(old[30 + step], new[step], (step + 1) / 37) for step in range(36)]
    pictures = [C] * 70 + old[:30] + mix + new[36:56] + acted(B, 60, 2)
    first, dissolve_, last = cuts_in(pictures)
    assert (first.frame, first.kind, first.last_clean_before, first.first_clean_after) == (70, "cut", 69, 70)
    assert (last.frame, last.kind, last.last_clean_before, last.first_clean_after) == (156, "cut", 155, 156)
    assert dissolve_.kind == "dissolve"
    assert dissolve_.last_clean_before < 100 < 136 <= dissolve_.first_clean_after


@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_cut_into_a_pan_loses_no_frame(step: int) -> None:
    wide = painting(7, 500)
    pan = [np.ascontiguousarray(wide[:, step * at : step * at + WIDTH]) for at in range(80)]
    (cut,) = cuts_in([A] * 60 + pan)
    assert (cut.last_clean_before, cut.first_clean_after) == (59, 60)


@pytest.mark.parametrize("flash", [[WHITE], [WHITE] * 2, [WHITE] * 3, [BLACK] * 2, [C] * 4])
def test_a_flash_is_not_a_cut(flash: Sequence[Picture]) -> None:
    pictures = acted(A, 120, 2)
    pictures[50 : 50 + len(flash)] = flash
    assert cuts_in(pictures) == []


def test_a_flash_that_fades_slowly_is_not_a_cut() -> None:
    assert cuts_in([A] * 40 + [WHITE] + dissolve(WHITE, A, 4) + [A] * 40) == []


def test_a_flash_before_on_or_after_a_cut_leaves_one_cut() -> None:
    assert [cut.frame for cut in cuts_in([A] * 40 + [WHITE] * 2 + [A] * 3 + [B] * 40)] == [45]
    assert [cut.frame for cut in cuts_in([A] * 40 + [B] * 3 + [WHITE] * 2 + [B] * 40)] == [40]
    (cut,) = cuts_in([A] * 40 + [WHITE] * 2 + [B] * 40)
    assert (cut.frame, cut.last_clean_before, cut.first_clean_after) == (42, 39, 42)


@pytest.mark.parametrize("frames", [6, 12, 24, 40])
def test_a_dissolve_is_found_with_all_its_mixed_frames(frames: int) -> None:
    (cut,) = cuts_in([A] * 60 + dissolve(A, B, frames) + [B] * 60)
    assert cut.kind == "dissolve"
    assert abs(cut.frame - (60 + frames / 2)) <= 2
    assert 55 <= cut.last_clean_before <= 60  # a frame with 6 % of the other scene still counts as clean
    assert 60 + frames - 1 <= cut.first_clean_after <= 60 + frames + 5


@pytest.mark.parametrize("frames", [8, 20, 50])
def test_figures_that_dissolve_before_a_place_that_stays_are_found(frames: int) -> None:
    old, new = A.copy(), A.copy()
    old[20:, 20:60], new[10:, 90:140] = painting(8)[20:, 20:60], painting(9)[10:, 90:140]
    (cut,) = cuts_in([old] * 70 + dissolve(old, new, frames) + [new] * 70)
    assert cut.kind == "dissolve"
    assert abs(cut.last_clean_before - 69) <= 3
    assert abs(cut.first_clean_after - 70 - frames) <= 3


@pytest.mark.parametrize("kind", ["wipe", "iris-in", "iris-out"])
@pytest.mark.parametrize("frames", [10, 24])
def test_wipes_and_irises_are_found(kind: TransitionKind, frames: int) -> None:
    shares = [(frame + 1) / (frames + 1) for frame in range(frames)]
    (cut,) = cuts_in([A] * 70 + [mixed(A, B, share, kind) for share in shares] + [B] * 70)
    assert cut.kind == "wipe"
    assert 67 <= cut.last_clean_before <= 70 + frames // 4
    assert 70 + 3 * frames // 4 <= cut.first_clean_after <= 73 + frames


def test_a_change_of_light_beside_a_cut_leaves_the_cut() -> None:
    dark = cv2.convertScaleAbs(B, alpha=0.45)
    (cut,) = cuts_in([A] * 60 + [B] * 16 + dissolve(B, dark, 20) + [dark] * 60)
    assert (cut.frame, cut.kind) == (60, "cut")


def test_a_dissolve_is_found_while_the_camera_moves_slowly() -> None:
    old, new = painting(4, 400), painting(5, 400)
    looks = [
        (old[:, at : at + WIDTH], new[:, 200 - at : 200 - at + WIDTH]) for at in (frame // 4 for frame in range(140))
    ]
    shares = np.clip((np.arange(140) - 60) / 17, 0, 1)
    pictures = [mixed(left, right, share) for (left, right), share in zip(looks, shares, strict=True)]
    (cut,) = cuts_in(pictures)
    assert cut.kind == "dissolve"
    assert abs(cut.frame - 69) <= 3


@pytest.mark.parametrize("step", [1, 2])
def test_a_dissolve_out_of_a_pan_is_found(step: int) -> None:
    wide = painting(4, 500)
    shares = np.clip((np.arange(140) - 60) / 13, 0, 1)
    (cut,) = cuts_in(mixed(wide[:, step * at : step * at + WIDTH], B, share) for at, share in enumerate(shares))
    assert cut.kind == "dissolve"
    assert abs(cut.frame - 67) <= 3


@pytest.mark.parametrize("frames", [40, 48])
def test_a_dissolve_beside_a_pan_leaves_no_mixed_frames(frames: int) -> None:
    """While everything moves, the dissolve looks shorter than it is."""
    wide = painting(11, 400)
    pan = [np.ascontiguousarray(wide[:, at : at + WIDTH]) for at in range(60 + frames)]
    mix = [mixed(painting(1), pan[step], (step + 1) / (frames + 1)) for step in range(frames)]
    pictures = [painting(1)] * 60 + mix + pan[frames:]
    (into,), (out_of,) = cuts_in(pictures), cuts_in(pictures[::-1])
    for cut in (into, out_of):
        assert cut.kind == "dissolve"
        assert 55 <= cut.last_clean_before <= 61  # a frame with 6 % of the other scene still counts as clean
        assert 60 + frames - 2 <= cut.first_clean_after <= 60 + frames + 5


def test_a_figure_that_appears_in_the_dark_is_found() -> None:
    place, figure = (cv2.convertScaleAbs(picture, alpha=0.3) for picture in (A, *acted(A, 1, 1)))
    (cut,) = cuts_in([place] * 70 + dissolve(place, figure, 20) + [figure] * 70)
    assert cut.kind == "dissolve"
    assert abs(cut.frame - 80) <= 3


@pytest.mark.parametrize("blank", [BLACK, WHITE])
def test_a_fade_out_and_a_fade_in_enclose_a_blank_scene(blank: Picture) -> None:
    cuts = cuts_in([A] * 60 + dissolve(A, blank, 15) + [blank] * 20 + dissolve(blank, B, 15) + [B] * 60)
    assert [cut.kind for cut in cuts] == ["fade", "fade"]
    assert abs(cuts[0].frame - 68) <= 2
    assert abs(cuts[1].frame - 103) <= 2


def test_changing_light_and_titles_are_not_transitions() -> None:
    dark = cv2.convertScaleAbs(A, alpha=0.5)
    titled = cv2.putText(A.copy(), "TITLE", (20, 55), cv2.FONT_HERSHEY_SIMPLEX, 1.4, (255, 255, 255), 6)
    lit = [A] * 40 + dissolve(A, dark, 15) + [dark] * 40 + dissolve(dark, A, 15)
    assert cuts_in(lit + [A] * 40 + dissolve(A, titled, 12) + [titled] * 40 + dissolve(titled, A, 12) + [A] * 40) == []


@pytest.mark.parametrize("step", [2, 6, 12])
def test_a_pan_has_cuts_only_at_its_ends(step: int) -> None:
    world = painting(7, WIDTH + 60 * step)
    pan = [world[:, step * frame : step * frame + WIDTH] for frame in range(60)]
    assert [cut.frame for cut in cuts_in([A] * 30 + pan + acted(B, 30, 1))] == [30, 90]


def test_cuts_are_reported_within_the_documented_delay() -> None:
    pictures = (
        [A] * 40 + dissolve(A, B, 30) + [B] * 60 + acted(C, 50, 12) + dissolve(C, BLACK, 20) + [BLACK] * 50 + [A] * 120
    )
    finder, cuts = SceneFinder(SceneSettings(), FPS), 0
    for frame, picture in enumerate(pictures):
        for cut in finder.add(frame, frame / FPS, picture):
            assert cut.last_clean_before >= frame - finder.lag
            cuts += 1
    assert cuts == 4


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


@pytest.mark.parametrize(
    ("fps", "settings"),
    [
        (24, {}),
        (24, {"min_scene_seconds": 0}),
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


def test_no_frames_and_one_frame_have_no_cuts() -> None:
    assert cuts_in([]) == []
    assert cuts_in([A]) == []


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
    assert [cut.kind for cut in cuts] == [transition.kind for transition in truth.transitions]
    for cut, transition in zip(cuts, truth.transitions, strict=True):
        if transition.kind == "cut":
            assert cut.frame == transition.frame
        assert abs(cut.frame - transition.frame) <= 6
        assert abs(cut.last_clean_before - transition.last_clean_before) <= 1
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
        pytest.param(CREDITS, ["fade", "dissolve", *["fade"] * 4, "dissolve"], marks=pytest.mark.nightly),
    ],
)
def test_the_cuts_of_a_film_agree_with_the_published_lists(bunny: Path, end: int, slow_ones: list[str]) -> None:
    published = json.loads((Path(__file__).parents[2] / "support" / "bbb_cuts.json").read_text())
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
    # Checked by eye: the two dissolves, and a fade from black, two through black.
    assert [cut.kind for cut in cuts if cut.kind != "cut"] == slow_ones


def test_frame_scores_are_those_of_pyscenedetect() -> None:
    detector, dice, scores = ContentDetector(), np.random.default_rng(0), []
    pictures = dice.integers(0, 256, (3, 90, 160, 3), dtype=np.uint8)
    for number, picture_HWC in enumerate(pictures):
        detector.process_frame(FrameTimecode(number, 24.0), picture_HWC)
        scores.append(detector._frame_score)
    hsv = [cv2.cvtColor(picture_HWC, cv2.COLOR_BGR2HSV) for picture_HWC in pictures]
    assert [_score(*pair) for pair in pairwise(hsv)] == pytest.approx(scores[1:])
