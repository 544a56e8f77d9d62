"""Camera benchmark: its labels, its clips of a film, and its tables."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from benchmarks.camera import FRAMES, Case, composed, composed_table, confusion, film_clips, read_labels
from pipeline.video.clip_files import read_clip_gray, write_clip


def test_a_hundred_stretches_are_spread_over_the_film_and_both_halves_have_moves() -> None:
    labels = read_labels()
    assert Counter(label.drawn for label in labels) == {"spread": 100, "moving": 31}
    assert len({label.shot for label in labels if label.drawn == "spread"}) == 81
    starts = [label.start_seconds for label in labels]
    assert starts == sorted(starts)
    for half in range(2):
        kinds = {label.kind for label in labels if label.shot % 2 == half}
        assert {"static", "pan", "tilt", "zoom", "follow", None} <= kinds


def test_clips_of_a_film_hold_every_third_frame_from_their_start(tmp_path: Path) -> None:
    lumas = np.arange(120, dtype=np.uint8)
    film = tmp_path / "film.mp4"
    write_clip(film, (np.full((48, 72, 3), 2 * luma, np.uint8) for luma in lumas), Fraction(24), crf=1)
    for start, path in zip((0.25, 2.5), film_clips(film, (0.25, 2.5), tmp_path), strict=True):
        seen_T = read_clip_gray(path).mean(axis=(1, 2))
        assert seen_T == pytest.approx([2 * (24 * start + 3 * number) for number in range(FRAMES)], abs=1.5)


def test_the_part_of_the_camera_is_measured_in_front_of_a_nearer_plane_and_a_figure() -> None:
    cases = [Case("pan", "left", 6.0, "painted"), Case("static", None, 6.0, "painted")]
    measured = list(composed(cases))
    assert [found.camera_px for _, found in measured] == pytest.approx([6.0, 0.0], rel=0.1)
    table = composed_table(measured)
    assert [next(iter(column.cells)) for column in table.columns][:3] == ["static", "1", "1"]


def test_the_rates_count_an_answer_where_the_eye_is_undecided_as_wrong() -> None:
    table = confusion("title", [("pan", "pan"), ("pan", None), (None, "static"), ("static", "static")])
    assert table.row_count == 3
    assert table.caption == "3 of 4 decided, 2 of them right (66.7%); 1 of 2 answers `static` are right"
