"""Coverage of a film: spans that add up to its length, each with its fate and reason; remarks on a film's clips."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.config import ClipSettings, FilmSettings, SceneSettings
from pipeline.core.records import Clip, Damage, Film, Scene, Verdict
from pipeline.core.stage import perform
from pipeline.publish.coverage import Fate, Span, film_remarks, film_spans, totals
from pipeline.stages.cut import Cut
from tests.support import records
from tests.support.media.cut_films import folder_of
from tests.support.media.films import make_film
from tests.support.records import FILM_FPS, FILM_ID

FRAME = 1 / FILM_FPS
MARGIN = 2 * FRAME
HELD = [Fraction(number, 24) + 40 * (number >= 30) for number in range(60)]
WHOLE = '; `fit = "fit"` in [clips] shows all of it'


def scene_of(number: int, start: float, end: float) -> Scene:
    return records.scene(start_seconds=start, end_seconds=end, scene=number)


def clips_of(scene: Scene, grid: float = 2.0, length: float = 2.0, transition: float = 0.0) -> list[Clip]:
    start, end = scene.start_seconds + MARGIN + transition, scene.end_seconds - MARGIN
    count = max(0, math.floor((end - start - length) / grid + 1e-9) + 1)
    return [clip_at(scene.scene, start + grid * index, length) for index in range(count)]


def clip_at(scene: int, start: float, length: float = 2.0) -> Clip:
    return records.clip(start_seconds=start, seconds=length, scene=scene)


def verdict_on(clip: Clip, *reasons: str) -> Verdict:
    return records.verdict(clip.clip_id, *reasons, level=1)


def assert_tiles(spans: Sequence[Span], seconds: float) -> None:
    assert spans[0].start_seconds == 0
    assert spans[-1].end_seconds == pytest.approx(seconds, abs=1e-9)
    assert all(one.end_seconds == other.start_seconds for one, other in pairwise(spans))
    assert all(span.end_seconds > span.start_seconds for span in spans)
    assert sum(totals(spans).values()) == pytest.approx(seconds, abs=1e-6)


def seconds_of(spans: Sequence[Span]) -> dict[tuple[Fate, str], float]:
    return {key: round(value, 6) for key, value in totals(spans).items()}


def test_a_scene_is_margin_clips_rest_and_margin() -> None:
    scene = scene_of(0, 0.0, 7.0)
    first, second, third = clips = clips_of(scene)
    verdicts = [verdict_on(first), verdict_on(second, "dark", "text"), verdict_on(third, "failed: cannot be read")]
    spans = film_spans(records.film(seconds=7.0), [scene], [], clips, verdicts, None)
    assert_tiles(spans, 7.0)
    assert [(span.fate, span.reason) for span in spans] == [
        ("dropped", "scene edge"),
        ("kept", ""),
        ("dropped", "dark"),
        ("failed", "cannot be read"),
        ("dropped", "shorter than a clip"),
        ("dropped", "scene edge"),
    ]
    assert seconds_of(spans)["dropped", "scene edge"] == pytest.approx(2 * MARGIN, abs=1e-5)
    assert seconds_of(spans)["dropped", "shorter than a clip"] == pytest.approx(1 - 2 * MARGIN, abs=1e-5)


def test_a_transition_belongs_to_the_edge_of_the_scene_after_it() -> None:
    one, two = scene_of(0, 0.0, 4.0), scene_of(1, 4.0, 10.0).model_copy(update={"opened_by": "dissolve"})
    clips = [*clips_of(one), *clips_of(two, transition=0.5)]
    spans = film_spans(records.film(seconds=10.0), [one, two], [], clips, [verdict_on(clip) for clip in clips], None)
    assert_tiles(spans, 10.0)
    assert seconds_of(spans)["dropped", "scene edge"] == pytest.approx(4 * MARGIN + 0.5, abs=1e-5)


def test_what_clips_pass_over_and_scenes_used_to_their_ends_are_named() -> None:
    one, two, short = scene_of(0, 0.0, 4.5), scene_of(1, 4.5, 11.0), scene_of(2, 11.0, 13.1)
    clips = [*clips_of(one), *clips_of(two, transition=0.5), clip_at(2, 11.0)]
    clips[3] = clip_at(1, clips[2].end_seconds + 0.75)  # it moves on
    spans = film_spans(records.film(seconds=13.1), [one, two, short], [], clips, [verdict_on(c) for c in clips], None)
    assert_tiles(spans, 13.1)
    assert seconds_of(spans)["dropped", "two scenes or a fade"] == pytest.approx(0.5 + 0.75, abs=1e-5)
    assert seconds_of(spans)["kept", ""] == 2 * len(clips)


def test_nothing_is_passed_over_where_times_are_rounded_and_scenes_are_short() -> None:
    starts = [round(number * 61 / 24, 3) for number in range(40)] + [round(40 * 61 / 24 + 49 / 24, 3)]
    scenes = [scene_of(n, a, b) for n, (a, b) in enumerate(pairwise(starts))]
    clips = [clip for scene in scenes[:-1] for clip in clips_of(scene)] + [clip_at(39, scenes[-1].start_seconds)]
    spans = film_spans(records.film(seconds=starts[-1]), scenes, [], clips, [verdict_on(c) for c in clips], None)
    assert {span.reason for span in spans} == {"", "scene edge", "shorter than a clip"}
    assert seconds_of(spans)["dropped", "scene edge"] == pytest.approx(80 * MARGIN, abs=0.1)


def test_damage_missing_film_and_an_early_end_are_named() -> None:
    one, two = scene_of(0, 0.0, 4.0), scene_of(1, 5.0, 9.0)
    damage = [Damage(film_id=FILM_ID, start_seconds=4.0, end_seconds=5.0, reason="damaged data")]
    clips = [*clips_of(one), *clips_of(two)]
    verdicts = [verdict_on(clip) for clip in clips]
    spans = film_spans(
        records.film(seconds=20.0, missing_seconds=3.0), [one, two], damage, clips, verdicts, end_seconds=9.0
    )
    assert_tiles(spans, 23.0)
    assert seconds_of(spans)["failed", "damaged data"] == 1.0
    assert spans[-2:] == [
        Span(9.0, 20.0, "dropped", "past --end"),
        Span(20.0, 23.0, "failed", "missing from the file"),
    ]


def test_a_clip_without_a_verdict_is_not_kept() -> None:
    scene = scene_of(0, 0.0, 4.0)
    spans = film_spans(records.film(seconds=4.0), [scene], [], clips_of(scene), [], None)
    assert_tiles(spans, 4.0)
    assert seconds_of(spans)["dropped", "not judged yet"] == 2.0


def test_time_outside_scenes_failed_but_rounding_by_a_frame_did_not() -> None:
    spans = film_spans(records.film(seconds=10.0), [scene_of(0, 0.0, 3.0), scene_of(1, 3.02, 6.0)], [], [], [], None)
    assert_tiles(spans, 10.0)
    assert spans[-1] == Span(6.0, 10.0, "failed", "not read")
    assert seconds_of(spans) == {("dropped", "shorter than a clip"): 6.0, ("failed", "not read"): 4.0}
    assert film_spans(records.film(seconds=10.0), [], [], [], [], None) == [Span(0.0, 10.0, "failed", "not read")]


def random_film(random: np.random.Generator) -> tuple[Film, list[Scene], list[Damage], list[Clip], list[Verdict]]:
    """Scenes and damage that tile a film in whole frames, clips in the scenes, and a verdict on most of them."""
    cuts = np.sort(random.choice(np.arange(1, 6000), size=int(random.integers(0, 60)), replace=False))
    scenes: list[Scene] = []
    damage: list[Damage] = []
    clips: list[Clip] = []
    for start, end in pairwise([0, *cuts.tolist(), 6000]):
        if random.random() < 0.1:
            stretch = {"start_seconds": start / FILM_FPS, "end_seconds": end / FILM_FPS}
            damage.append(Damage(film_id=FILM_ID, reason="damaged data", **stretch))
            continue
        scene = scene_of(len(scenes), start / FILM_FPS, end / FILM_FPS)
        scenes.append(scene)
        clips += clips_of(scene, length=random.choice([1.0, 2.0]), transition=random.choice([0.0, 10 * FRAME]))
    choices = [(), ("dark",), ("text", "near-duplicate"), ("failed: cannot be read",)]
    verdicts = [verdict_on(clip, *choices[random.integers(4)]) for clip in clips if random.random() < 0.95]
    return (
        records.film(seconds=6000 / FILM_FPS, missing_seconds=float(random.choice([0.0, 1.3]))),
        scenes,
        damage,
        clips,
        verdicts,
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_spans_of_random_films_add_up(seed: int) -> None:
    random = np.random.default_rng(seed)
    film, scenes, damage, clips, verdicts = random_film(random)
    spans = film_spans(film, scenes, damage, clips, verdicts, None)
    assert_tiles(spans, film.duration_seconds + film.missing_seconds)
    lengths = {clip.clip_id: clip.end_seconds - clip.start_seconds for clip in clips}
    kept = sum(lengths[verdict.clip_id] for verdict in verdicts if verdict.keep)
    assert totals(spans).get(("kept", ""), 0.0) == pytest.approx(kept, abs=1e-6)
    broken = sum(part.end_seconds - part.start_seconds for part in damage)
    assert totals(spans).get(("failed", "damaged data"), 0.0) == pytest.approx(broken, abs=1e-6)


def remarks(place: Path, make: Callable[[Path], Path], **clips: Any) -> list[str]:
    folder = folder_of(place, make(place / "film.mkv"))
    settings = ClipSettings(width=180, height=120, **clips)
    assert film_remarks(folder, settings) == [], "nothing is known before the cut"
    perform(Cut(FilmSettings(), SceneSettings(), settings, threads=1), folder)
    return film_remarks(folder, settings)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            partial(make_film, frames=90, scenes=(0, 30, 60)),
            "no clip: no scene is as long as a clip (2 s); the longest lasts 1.25 s",
        ),
        (
            partial(make_film, frames=60, times=HELD),
            "no clip: no scene has 2 s between its transitions and frames held longer than 30 s; "
            "the longest lasts 42.5 s",
        ),
    ],
    ids=["short scenes", "a frame held"],
)
def test_a_film_without_a_clip_has_the_reason(tmp_path: Path, make: Callable[[Path], Path], reason: str) -> None:
    assert remarks(tmp_path, make) == [reason]


@pytest.mark.parametrize(
    ("film", "fit", "expected"),
    [
        ({"size": (180, 320)}, "cover", ["vertical film: clips show 38 % of its height" + WHOLE]),
        ({"size": (180, 320), "rotation": 90}, "cover", ["vertical film: clips show 38 % of its height" + WHOLE]),
        ({"size": (320, 120)}, "cover", ["clips show 56 % of its width" + WHOLE]),
        ({"size": (320, 180)}, "cover", []),
        ({"size": (180, 320)}, "fit", []),
    ],
    ids=["vertical", "vertical by its metadata", "wide", "16:9", "padded"],
)
def test_a_film_of_another_shape_has_the_share_that_clips_show(
    tmp_path: Path, film: dict[str, Any], fit: str, expected: list[str]
) -> None:
    make = partial(make_film, frames=56, **film)
    assert remarks(tmp_path, lambda path: make(path.with_suffix(".mp4")), fit=fit) == expected


@pytest.mark.parametrize(
    ("fps", "said"),
    [
        (10, "10 frames per second are no multiple of the clips' 8: steady motion jerks, by 1 or 2 frames a step; "
         '`fps = "10"` in [clips] keeps it steady'),
        (25, "25 frames per second are no multiple of the clips' 8: steady motion jerks, by 3 or 4 frames a step; "
         '`fps = "25/3"` in [clips] keeps it steady'),
        (Fraction(24000, 1001), None),
        (16, None),
    ],
)  # fmt: skip
def test_a_film_whose_rate_does_not_divide_says_so(tmp_path: Path, fps: Fraction | int, said: str | None) -> None:
    for place in ("as set", "as told"):
        (tmp_path / place).mkdir()
    make = partial(make_film, frames=60, fps=fps)
    assert remarks(tmp_path / "as set", make) == [said] * bool(said)
    if said:
        assert remarks(tmp_path / "as told", make, fps=said.split('"')[1]) == []


def test_a_film_without_a_usable_frame_has_the_reason(tmp_path: Path) -> None:
    folder, settings = folder_of(tmp_path, make_film(tmp_path / "film.mkv", frames=60)), ClipSettings()
    perform(Cut(FilmSettings(), SceneSettings(), settings, threads=1), folder)
    for table in ("scenes", "clips"):
        folder.write(table, [])
    assert film_remarks(folder, settings)[0] == "no clip: no frame of the film could be used"
