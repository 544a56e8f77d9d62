"""Telecine and interlace undone, and left alone where there are none: films with exact truth, by barcode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
import pytest

from examples.world.barcode import read_barcode
from examples.world.textures import Picture, soft
from examples.world.writer import write_film
from pipeline.core.records import FieldStretch, RecordError
from pipeline.video import cadence
from pipeline.video.cadence import QUIET, CadenceWatch, WatchedFrame
from pipeline.video.fields import FieldRestorer
from pipeline.video.film_reader import FilmReader, Frame
from tests.support.media.films import corrupt, paint_pictures
from tests.support.media.woven_films import interlaced, telecined, woven

SIZE = (320, 180)
NTSC = Fraction(30_000, 1001)
CODINGS: dict[str, dict[str, object]] = {
    "H.264 coded as progressive": {},
    "H.264 flagged as interlaced": {"options": {"x264-params": "interlaced=1"}},
    "H.264 with lying flags": {"options": {"x264-params": "bff=1"}},
    "MPEG-2 flagged as interlaced": {"codec": "mpeg2video", "options": {"b": "4M", "flags": "+ildct+ilme"}},
}
FAST = {("H.264 coded as progressive", "top first"), ("MPEG-2 flagged as interlaced", "bottom first")}
WOVEN = [
    pytest.param(
        top_first,
        coding,
        marks=[] if (coding, order) in FAST else [pytest.mark.slow],
        id=f"{order}, {coding}",
    )
    for coding in CODINGS
    for top_first, order in ((True, "top first"), (False, "bottom first"))
]
"""Both field orders in every coding; most are slow tests."""


def film(path: Path, pictures: Iterable[Picture], fps: Fraction | int = NTSC, **coding: object) -> Path:
    return write_film(path / "film.mkv", pictures, fps=fps, **coding)  # type: ignore[arg-type]


def restored(path: Path) -> tuple[list[Frame], list[FieldStretch]]:
    restorer = FieldRestorer("auto", "film-01234567")
    with FilmReader(path) as reader:
        frames = list(restorer.frames(reader.frames()))
    assert [frame.ordinal for frame in frames] == list(range(len(frames)))
    assert all(before.seconds < after.seconds for before, after in pairwise(frames))
    return frames, restorer.stretches


def picture_of(frame: Frame) -> Picture:
    return np.asarray(frame.picture.to_ndarray(format="bgr24"), np.uint8)


def numbers(frames: list[Frame]) -> list[int]:
    """Barcodes of the frames; a combed one cannot be read, or differs from the picture with its number."""
    return [read_barcode(picture_of(frame)) for frame in frames]


def assert_uncombed(frames: list[Frame], pictures: list[Picture]) -> None:
    for frame, number in zip(frames, numbers(frames), strict=True):
        assert np.abs(gray(picture_of(frame)) - gray(pictures[number])).mean() < 4


def gray(picture: Picture) -> np.ndarray:
    return cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY).astype(int)


def kinds(stretches: list[FieldStretch]) -> list[str]:
    return [stretch.kind for stretch in stretches]


@pytest.mark.parametrize(("top_first", "coding"), WOVEN)
def test_telecine_gives_every_film_frame_once(tmp_path: Path, top_first: bool, coding: str) -> None:
    pictures = list(paint_pictures(48, SIZE, scenes=(0, 22)))
    frames, stretches = restored(film(tmp_path, telecined(pictures, top_first), **CODINGS[coding]))
    assert numbers(frames) == list(range(48))
    assert_uncombed(frames, pictures)
    assert [frame.seconds for frame in frames] == pytest.approx([n * 1001 / 24_000 for n in range(48)], abs=0.002)
    assert kinds(stretches) == ["telecine"]
    assert (stretches[0].start_seconds, stretches[0].end_seconds) == pytest.approx((0, 48 * 1001 / 24_000), abs=0.002)


@pytest.mark.parametrize("edit", [32, *(pytest.param(edit, marks=pytest.mark.slow) for edit in (31, 33, 34, 35))])
def test_the_phase_jumps_at_an_edit(tmp_path: Path, edit: int) -> None:
    pictures = list(paint_pictures(96, SIZE, scenes=(0, 48)))
    video = [*telecined(pictures[:48])[:edit], *telecined(pictures[48:])[edit % 3 + 1 :]]
    frames, stretches = restored(film(tmp_path, video))
    found = numbers(frames)
    assert found == sorted(set(found))
    assert_uncombed(frames, pictures)
    assert kinds(stretches) == ["telecine"]
    whole = {*range(edit * 4 // 5 - 1), *range(52, 96)}  # a film frame at the edit may have lost a field
    assert whole <= set(found)


@pytest.mark.parametrize("telecine_first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_half_telecine_half_video_of_whole_frames(tmp_path: Path, telecine_first: bool) -> None:
    pictures = list(paint_pictures(88, SIZE, scenes=(0, 48 if telecine_first else 40)))
    if telecine_first:
        video = [*telecined(pictures[:48]), *pictures[48:]]
    else:
        video = [*pictures[:40], *telecined(pictures[40:])]
    frames, stretches = restored(film(tmp_path, video))
    assert numbers(frames) == list(range(88))
    assert_uncombed(frames, pictures)
    assert kinds(stretches) == (["telecine", "progressive"] if telecine_first else ["progressive", "telecine"])
    edge = 2.0 if telecine_first else 40 * 1001 / 30_000
    assert stretches[0].end_seconds == pytest.approx(edge, abs=0.1)


@pytest.mark.parametrize("top_first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_film_shifted_by_a_field_is_matched(tmp_path: Path, top_first: bool) -> None:
    pictures = list(paint_pictures(49, SIZE, scenes=(0, 22)))
    video = [woven(second, first, top_first) for first, second in pairwise(pictures)]
    frames, stretches = restored(film(tmp_path, video, 25))
    assert numbers(frames) == list(range(1, 48))  # the first and the last film frame have one field each
    assert_uncombed(frames, pictures)
    assert [frame.seconds for frame in frames] == pytest.approx([(n + 0.5) / 25 for n in range(47)], abs=0.001)
    assert kinds(stretches) == ["telecine"]


def on_twos() -> list[Picture]:
    place = soft((200, 120), seed=4)
    pictures = []
    for number in range(48):
        picture = cv2.resize(place, SIZE)
        cv2.circle(picture, (40 + number // 2 * 7, 90), 25, (20, 20, 220), -1, cv2.LINE_AA)
        pictures.append(picture)
    return pictures


def scrolling(up: int) -> Callable[[], list[Picture]]:
    def credits() -> list[Picture]:
        roll = np.zeros((SIZE[1] + 48 * up, SIZE[0], 3), np.uint8)
        for line in range(20, roll.shape[0], 18):
            cv2.putText(roll, f"Drawn by nobody {line}", (30, line), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255,) * 3, 1)
        return [roll[up * number : up * number + SIZE[1]] for number in range(48)]

    return credits


def lines(apart: int, up: int) -> Callable[[], list[Picture]]:
    def hatched() -> list[Picture]:
        pictures = []
        for number in range(48):
            picture = np.full((SIZE[1], SIZE[0], 3), 255, np.uint8)
            picture[number * up % apart :: apart, 60:260] = 0
            pictures.append(picture)
        return pictures

    return hatched


def noise() -> list[Picture]:
    generator = np.random.default_rng(1)
    still = cv2.resize(soft((200, 120), seed=4), SIZE)
    return [np.clip(still + generator.normal(0, 12, still.shape), 0, 255).astype(np.uint8) for _ in range(48)]


PROGRESSIVE: dict[str, Callable[[], list[Picture]]] = {
    "every frame another": lambda: list(paint_pictures(48, SIZE, scenes=(0, 24))),
    "on twos": on_twos,
    "credits, 1 line a frame": scrolling(1),
    "credits, 2 lines a frame": scrolling(2),
    "credits, 3 lines a frame": scrolling(3),
    "lines 2 apart, still": lines(2, 0),
    "lines 2 apart, moving": lines(2, 1),
    "lines 3 apart, moving": lines(3, 1),
    "lines 4 apart, moving": lines(4, 1),
    "noise": noise,
}
MORE = {"credits, 2 lines a frame", "credits, 3 lines a frame", "lines 2 apart, still", "lines 3 apart, moving"}
"""Content of slow tests."""


@pytest.mark.parametrize(
    "content", [pytest.param(name, marks=[pytest.mark.slow] if name in MORE else []) for name in PROGRESSIVE]
)
def test_progressive_frames_are_the_same_objects(tmp_path: Path, content: str) -> None:
    path = film(tmp_path, PROGRESSIVE[content]())  # 30 frames a second, as telecine has
    restorer = FieldRestorer("auto", "film-01234567")
    with FilmReader(path) as reader:
        given: list[Frame] = []
        passed = list(restorer.frames(_noted(reader, given)))
    assert len(passed) == len(given) == 48
    assert all(one is other for one, other in zip(passed, given, strict=True))
    assert kinds(restorer.stretches) == ["progressive"]


def _noted(reader: FilmReader, given: list[Frame]) -> Iterable[Frame]:
    for frame in reader.frames():
        given.append(frame)
        yield frame


def moving_disc(count: int) -> list[Picture]:
    pictures = []
    for number in range(count):
        picture = cv2.resize(soft((200, 120), seed=4), SIZE)
        cv2.circle(picture, (30 + 4 * number, 90), 25, (20, 20, 220), -1, cv2.LINE_AA)
        pictures.append(picture)
    return pictures


def combing(picture: Picture) -> float:
    """Share of pixels that differ visibly from the lines above and below, in one direction."""
    luma = gray(picture)
    up, down = luma[1:-1] - luma[:-2], luma[1:-1] - luma[2:]
    return float(((np.minimum(np.abs(up), np.abs(down)) > 6) & (up * down > 0)).mean())


@pytest.mark.parametrize(("top_first", "coding"), WOVEN)
def test_interlaced_video_has_no_combs_left(tmp_path: Path, top_first: bool, coding: str) -> None:
    whole = moving_disc(48)
    video = interlaced(whole, top_first)
    frames, stretches = restored(film(tmp_path, video, 25, **CODINGS[coding]))
    assert kinds(stretches) == ["interlaced"]
    assert [frame.seconds for frame in frames] == pytest.approx([n / 25 for n in range(24)], abs=0.001)
    for number, frame in enumerate(frames):
        assert combing(picture_of(frame)) < 0.2 * combing(video[number])
        assert np.abs(picture_of(frame).astype(int) - whole[2 * number]).mean() < 5  # the moment of its first field


@pytest.mark.nightly
def test_a_real_film_at_480p_comes_back_for_less_than_6_ms_a_frame(tmp_path: Path, bunny: Path) -> None:
    with FilmReader(bunny) as reader:
        shown = (picture_of(frame) for frame in reader.frames(30) if frame.seconds >= 20)
        pictures = [np.asarray(cv2.resize(each, (720, 480), interpolation=cv2.INTER_AREA)) for each in shown]
    whole = film(tmp_path, pictures, 24, options={"crf": "18"})
    milliseconds = {"progressive": added_milliseconds(whole)}
    video = film(tmp_path, telecined(pictures), options={"crf": "18", "x264-params": "interlaced=1"})
    milliseconds["telecine"] = added_milliseconds(video)
    print("CPU milliseconds a frame, added to decoding:", milliseconds)
    frames, stretches = restored(video)
    assert kinds(stretches) == ["telecine"]
    assert len(frames) == len(pictures) == 240
    for frame, picture in zip(frames, pictures, strict=True):
        assert np.abs(gray(picture_of(frame)) - gray(picture)).mean() < 3
    assert max(milliseconds.values()) < 6


def added_milliseconds(path: Path) -> float:
    """CPU time of looking at fields and undoing them, for each frame of video; the least of three runs."""
    looked, kept = (min(cpu_seconds(path, treatment) for _ in range(3)) for treatment in ("auto", "keep"))
    with FilmReader(path) as reader:
        return 1000 * (looked - kept) / len(list(reader.frames()))


def cpu_seconds(path: Path, treatment: Literal["auto", "keep"]) -> float:
    start = time.process_time()
    with FilmReader(path, threads=1) as reader:
        for _ in FieldRestorer(treatment, "film-01234567").frames(reader.frames()):
            pass
    return time.process_time() - start


def test_fields_can_be_kept_or_refused(tmp_path: Path) -> None:
    pictures = list(paint_pictures(96, SIZE, scenes=(0, 48)))
    path = film(tmp_path, [*pictures[:48], *telecined(pictures[48:])])
    kept = FieldRestorer("keep", "film-01234567")
    with FilmReader(path) as reader:
        assert [frame.ordinal for frame in kept.frames(reader.frames())] == list(range(108))
    assert kept.stretches == []
    refusing = FieldRestorer("refuse", "film-01234567")
    with FilmReader(path) as reader, pytest.raises(RecordError, match=r"telecine from 0:00:01 on.*'auto'") as caught:
        list(refusing.frames(reader.frames()))
    assert caught.value.record_id == "film-01234567"


def test_telecine_goes_on_after_damage(tmp_path: Path) -> None:
    pictures = list(paint_pictures(112, SIZE, scenes=(0, 70)))
    path = write_film(tmp_path / "film.mp4", telecined(pictures), fps=NTSC, options={"g": "20", "sc_threshold": "0"})
    corrupt(path, 0.42, 0.46)
    restorer = FieldRestorer("auto", "film-01234567")
    with FilmReader(path) as reader:
        frames = list(restorer.frames(reader.frames()))
        [(start, end, _)] = reader.damage
    found = numbers(frames)
    assert found == sorted(set(found))
    assert not [frame for frame in frames if start < frame.seconds < end]
    after = found.index(next(number for number in found if number * 1001 / 24_000 > end))
    assert found[:20] == list(range(20))
    assert found[after:] == list(range(found[after], 112))
    off = [frame.ordinal - number for frame, number in zip(frames, found, strict=True)]
    assert max(map(abs, off)) <= 1  # of the lost frames, one in five was no film frame


@pytest.mark.slow
@pytest.mark.parametrize("beyond", [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (11, 12, 13, 14, 15, 16))])
def test_a_telecined_stretch_after_clean_film_is_found_from_its_start(tmp_path: Path, beyond: int) -> None:
    frames, stretches = restored(film_with_a_stretch(tmp_path, QUIET + beyond))
    assert numbers(frames) == list(range(QUIET + beyond + 72))
    assert kinds(stretches) == ["progressive", "telecine", "progressive"]


@pytest.mark.slow
@pytest.mark.parametrize("hold", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("beyond", [13, *(pytest.param(n, marks=pytest.mark.slow) for n in range(14, 21))])
def test_a_sample_finds_what_looking_at_every_frame_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beyond: int, hold: int
) -> None:
    path = film_with_a_stretch(tmp_path, QUIET + beyond, hold)
    by_sample, stretches = restored(path)
    monkeypatch.setattr(cadence, "QUIET", 10_000)
    by_all, stretches_by_all = restored(path)
    assert kinds(stretches) == kinds(stretches_by_all)
    assert [frame.seconds for frame in by_sample] == [frame.seconds for frame in by_all]


def film_with_a_stretch(folder: Path, clean: int, hold: int = 1) -> Path:
    """Write clean film on ones, twos or threes, with a second of telecine in it."""
    pictures = list(paint_pictures(clean + 72, SIZE, scenes=(0, clean, clean + 24)))
    pictures = [pictures[number - number % hold] for number in range(len(pictures))]
    return film(folder, [*pictures[:clean], *telecined(pictures[clean : clean + 24]), *pictures[clean + 24 :]])


@pytest.mark.slow
def test_a_mixed_frame_is_found_in_a_film_that_was_not_clean_before(tmp_path: Path) -> None:
    pictures = list(paint_pictures(40 + 2 * QUIET, SIZE, scenes=(0, 40)))
    at = 40 + QUIET + 60
    video = [*telecined(pictures[:40]), *pictures[40:at], woven(pictures[at - 1], pictures[at], True), *pictures[at:]]
    frames, _ = restored(film(tmp_path, video))
    assert numbers(frames) == list(range(40 + 2 * QUIET))


@pytest.mark.slow
def test_a_quarter_of_clean_film_is_looked_at_once_ten_seconds_were_clean(tmp_path: Path) -> None:
    watch = CadenceWatch(may_sample=True)
    looked = []
    with FilmReader(film(tmp_path, list(paint_pictures(QUIET + 160, SIZE)))) as reader:
        for frame in reader.frames():
            watched = WatchedFrame(frame)
            assert watch.add(watched) in (None, cadence.PROGRESSIVE)
            looked.append(watched)
    assert all("fields" in vars(watched) for watched in looked[: QUIET - 1])
    assert sum("fields" in vars(watched) for watched in looked[QUIET + 1 :]) <= 160 * 2 / 8
