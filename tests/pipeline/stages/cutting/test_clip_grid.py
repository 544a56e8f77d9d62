"""Clip grid against an independent restatement of its rule, in exact fractions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import pytest
from pydantic import ValidationError

from pipeline.core.config import ClipSettings
from pipeline.stages.cutting.clip_grid import ClipGrid, Piece
from tests.support.media.cut_films import TOLERANCE, on_grid

RATES = [Fraction(24000, 1001), Fraction(24), Fraction(25), Fraction(30000, 1001), Fraction(30), Fraction(60)]


@dataclass(frozen=True)
class Instant:
    ordinal: int
    seconds: float


def constant(rate: Fraction, frames: int, start: Fraction = Fraction(0)) -> list[Fraction]:
    return [start + number / rate for number in range(frames)]


def variable(seed: int, frames: int) -> list[Fraction]:
    chance = random.Random(seed)
    times = [Fraction(0)]
    for _ in range(frames):
        times.append(times[-1] + Fraction(chance.choice([17, 33, 42, 83, 125, 250, 1500]), 1000))
    return times


def chop(
    times: Sequence[Fraction], end: Fraction, settings: ClipSettings, mixed: Sequence[int] = ()
) -> list[Piece[int]]:
    grid: ClipGrid[Instant, int] = ClipGrid(
        settings, lambda frame: frame.ordinal, lambda shown: not {*shown} & {*mixed}
    )
    pieces = [piece for at, time in enumerate(times) for piece in grid.add(Instant(at, float(time)))]
    return pieces + grid.finish(float(end))


@pytest.mark.parametrize("frames", [16, 17])
@pytest.mark.parametrize("seed", range(20))
def test_variable_rates_follow_the_rule(seed: int, frames: int) -> None:
    *times, end = variable(seed, 60)
    pieces = chop(times, end, ClipSettings(frames=frames))
    assert pieces
    wanted, last = on_grid(times, end, frames), expected_last(times, end, frames)
    assert [list(piece.source_frames) for piece in pieces] == wanted
    overlapping = chop(times, end, ClipSettings(frames=frames, placing="overlap"))
    assert [list(piece.source_frames) for piece in overlapping] == [*wanted, *([last] if last else [])]


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_times_rounded_to_a_millisecond_choose_the_same_frames(rate: Fraction) -> None:
    for first in range(24):
        times = constant(rate, round(2.1 * rate), start=first / rate)
        rounded = [Fraction(round(time * 1000), 1000) for time in times]
        [exact] = chop(times, times[0] + Fraction(21, 10), ClipSettings())
        [shaken] = chop(rounded, rounded[0] + Fraction(21, 10), ClipSettings())
        assert shaken.source_frames == exact.source_frames


def test_a_frame_is_kept_once_however_often_it_is_chosen() -> None:
    kept: list[int] = []
    grid: ClipGrid[Instant, None] = ClipGrid(ClipSettings(frames=17), lambda frame: kept.append(frame.ordinal))
    for at, seconds in enumerate((0.0, 1.0, 2.0, 3.0, 4.0)):
        grid.add(Instant(at, seconds))
    grid.finish(4.5)
    assert kept == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("placing", ["grid", "overlap"])
@pytest.mark.parametrize("frames", [16, 17])
def test_a_clip_moves_on_past_mixed_frames(frames: int, placing: Literal["grid", "overlap"]) -> None:
    settings, times = ClipSettings(frames=frames, placing=placing), constant(Fraction(8), 16 * 4 + 5)
    end = times[-1] + Fraction(1, 8)
    pieces = chop(times, end, settings, mixed=range(18, 23))
    starts = [piece.source_frames[0] for piece in pieces]
    assert starts == {"grid": [0, 24, 40], "overlap": [0, 24, 40, 69 - frames]}[placing]
    assert all(
        list(piece.source_frames) == list(range(start, start + frames))
        for piece, start in zip(pieces, starts, strict=True)
    )
    assert [float(piece.start_seconds) for piece in pieces] == [start / 8 for start in starts]


@pytest.mark.parametrize("end", [20, 40, 64])
def test_a_clip_stays_where_no_start_is_better(end: int) -> None:
    times = constant(Fraction(8), end)
    plain = chop(times, times[-1] + Fraction(1, 8), ClipSettings())
    assert chop(times, times[-1] + Fraction(1, 8), ClipSettings(), mixed=range(end)) == plain


@pytest.mark.parametrize("placing", ["grid", "overlap"])
@pytest.mark.parametrize("frames", [16, 17])
def test_a_frame_that_a_wrong_timestamp_holds_ends_the_clips_before_it(
    frames: int, placing: Literal["grid", "overlap"]
) -> None:
    settings = ClipSettings(frames=frames, placing=placing)
    before, after = constant(Fraction(24), 112), constant(Fraction(24), 130, start=Fraction(1000))
    end = after[-1] + Fraction(1000)
    pieces = chop([*before, *after], end, settings)
    alone = [*chop(before, before[-1], settings), *chop(after, after[-1], settings)]
    assert [piece.start_seconds for piece in pieces] == [piece.start_seconds for piece in alone]
    assert [piece.overlap_seconds for piece in pieces] == [piece.overlap_seconds for piece in alone]
    last = [piece.source_frames[-1] for piece in pieces]
    assert (len(pieces), max(last)) == ({"grid": 4, "overlap": 6}[placing], last[-1])
    assert all(len(set(piece.source_frames)) == frames for piece in pieces)


def test_seventeenth_frame_must_be_clean() -> None:
    times = constant(Fraction(25), 50)
    assert len(chop(times, Fraction(2), ClipSettings(frames=16))) == 1
    assert chop(times, Fraction(2), ClipSettings(frames=17)) == []
    [piece] = chop([*times, Fraction(2)], Fraction(51, 25), ClipSettings(frames=17))
    assert piece.source_frames[-1] == 50
    assert (piece.start_seconds, piece.end_seconds) == (0, 2)


def expected_last(times: Sequence[Fraction], end: Fraction, frames: int) -> list[int] | None:
    """Clip of the last clean moments of a grid of 2 seconds at 8 fps, by trying every moment of the row."""
    last = None
    clips = len(on_grid(times, end, frames))
    for number in range(16 * (clips - 1) + 1, 16 * clips) if clips else ():
        moments = [times[0] + Fraction(number + at, 8) for at in range(frames)]
        if moments[0] + 2 <= end + TOLERANCE and moments[-1] + TOLERANCE < end:
            last = [max(at for at, time in enumerate(times) if time <= moment + TOLERANCE) for moment in moments]
    return last


@pytest.mark.parametrize("frames", [16, 17])
@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize("seconds", [1.9, 2.05, 4, 5.3])
def test_constant_rates_follow_the_rule_and_the_last_clip_reaches_back(
    rate: Fraction, frames: int, seconds: float
) -> None:
    times = constant(rate, round(seconds * rate), start=Fraction(5, 7))
    end = times[-1] + 1 / rate
    wanted, last = on_grid(times, end, frames), expected_last(times, end, frames)
    assert [list(piece.source_frames) for piece in chop(times, end, ClipSettings(frames=frames))] == wanted
    pieces = chop(times, end, ClipSettings(frames=frames, placing="overlap"))
    assert [list(piece.source_frames) for piece in pieces] == [*wanted, *([last] if last else [])]
    if last:
        before, piece = pieces[-2:]
        assert 0 < piece.overlap_seconds < 2
        assert piece.overlap_seconds == pytest.approx(before.end_seconds - piece.start_seconds)
        assert end - piece.end_seconds < Fraction(1, 8) + Fraction(1, 100)


def test_overlap_is_refused_where_clips_have_gaps_between_them() -> None:
    with pytest.raises(ValidationError, match=r"seconds = frames / fps; 12 frames at 8 per second last 1\.5 seconds"):
        ClipSettings(frames=12, placing="overlap")


def test_clips_that_would_overlap_are_refused() -> None:
    with pytest.raises(ValidationError, match="longer than the grid"):
        ClipSettings(frames=18)
