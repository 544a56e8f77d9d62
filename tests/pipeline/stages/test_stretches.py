"""Stretches to leave out: ranges, chapters in two languages, and the verdicts of the clips in them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from pipeline.core.config import SelectionSettings, checked
from pipeline.core.errors import UserError
from pipeline.core.film_settings import range_seconds
from pipeline.core.records import Chapter, Film, make_film_id
from pipeline.publish.coverage import film_spans, totals
from pipeline.stages.probe import probe
from pipeline.stages.selection import FilmFacts, Screen, verdicts_of
from pipeline.stages.stretches import kind_of_chapter, stretches_of
from tests.support import records
from tests.support.datasets.made_dataset import EDGES

KINDS = {
    "opening": (
        "OP",
        "Opening",
        "ＯＰ",
        "オープニング",
        "NCOP1",
        "Opening Theme: Shinsekai",
        "OP「残酷な天使のテーゼ」",
    ),
    "ending": ("ED", "ED2", "Ending", "エンディング", "End Credits", "ending - Fly Me to the Moon"),
    "recap": ("Recap", "あらすじ", "前回のあらすじ", "Previously on Kiki"),
    "preview": ("Preview", "予告", "次回予告", "Next Episode Preview"),
    None: ("Avant", "Part A", "Aパート", "Chapter 1", "Operation Ypres", "The Ending of an Era", "Ed and Al", "", None),
}


@pytest.mark.parametrize(("title", "kind"), [(title, kind) for kind, titles in KINDS.items() for title in titles])
def test_a_chapter_is_known_by_its_name(title: str | None, kind: str | None) -> None:
    assert kind_of_chapter(title) == kind


def film(*chapters: tuple[float, float, str | None], **changes: Any) -> Film:
    rows = [Chapter(start_seconds=start, end_seconds=end, title=title) for start, end, title in chapters]
    return records.film(chapters=rows, **changes)


def left_out(film: Film, **settings: Any) -> list[tuple[float, float, str]]:
    stretches = stretches_of(film, SelectionSettings(**settings))
    return [(one.start_seconds, one.end_seconds, one.reason) for one in stretches]


def test_openings_and_endings_are_left_out_and_other_chapters_if_the_settings_say_so() -> None:
    episode = film(
        (0, 5, "Recap"), (5, 30, "OP"), (30, 70, "Part A"), (70, 95, "ED"), (95, 300, "Preview"), (300, 310, "OP")
    )
    assert left_out(episode) == [(5, 30, "opening"), (70, 95, "ending")], "one chapter lies beyond the end"
    assert left_out(episode, openings="keep", endings="first", recaps="drop", previews="drop") == [
        (0, 5, "recap"),
        (95, 100, "preview"),
    ]


def test_a_film_has_its_own_ranges_or_those_of_all() -> None:
    assert left_out(film(), skip=("0:00-1:30", "1:20-")) == [(0, 90, "skipped"), (80, 100, "skipped")]
    assert left_out(film(skip=("10-20.5",)), skip=("0:00-1:30",)) == [(10, 20.5, "skipped")]
    assert left_out(film(skip=()), skip=("0:00-1:30",)) == []
    assert left_out(film(), skip=("1:39.5-2:00", "1:40-", "3:00-4:00")) == [(99.5, 100, "skipped")]
    assert range_seconds("1:02:03.5 – 1:05:00") == (3723.5, 3900)


@pytest.mark.parametrize(
    ("text", "fault"),
    [("1:30-0:30", "ends before it starts"), ("5-5", "ends before"), ("first", "is not a range such as")],
)
def test_a_wrong_range_is_rejected_with_its_film(text: str, fault: str) -> None:
    with pytest.raises(UserError, match=f"'{text}' of 'Kiki - 07.mkv' {fault}"):
        checked({"films": [{"match": "Kiki - 07.mkv", "skip": [text]}]}, "my.toml")
    with pytest.raises(UserError, match=rf"selection\.skip\.0: .*'{text}' {fault}"):
        checked({"selection": {"skip": [text]}}, "my.toml")


def test_every_clip_in_a_stretch_is_dropped_and_its_time_counts_as_the_stretch() -> None:
    episode = film((0, 10.1, "Opening"), seconds=40.0, skip=("30.05-",))
    clips = tuple(records.clip(start_seconds=2.0 * index, index=index) for index in range(20))
    looks = {clip.clip_id: records.looks(clip.clip_id, hashes=()) for clip in clips}
    stretches = stretches_of(episode, SelectionSettings())
    facts = FilmFacts(episode.film_id, clips, looks, dict.fromkeys(looks, 3), None, {}, stretches=stretches)
    verdicts = verdicts_of([facts], SelectionSettings())[episode.film_id]
    reasons = [verdict.reasons for verdict in verdicts]
    # the chapter touches the sixth clip by less than its error; a skipped range is exact
    assert reasons == [*[("opening",)] * 5, *[()] * 10, *[("skipped",)] * 5]
    scene = records.scene(end_seconds=40.0)
    spans = film_spans(episode, [scene], [], clips[1:-1], verdicts, None, stretches)
    seconds = totals(spans)
    assert seconds == pytest.approx({("dropped", "opening"): 10, ("kept", ""): 20, ("dropped", "skipped"): 10})


def test_only_films_with_something_to_leave_out_are_screened_again() -> None:
    plain, skipping = (
        Screen(settings, EDGES) for settings in (SelectionSettings(), SelectionSettings(skip=("0:00-0:05",)))
    )
    assert plain.ingredients() == skipping.ingredients()
    assert plain.film_ingredients(film((0, 50, "Part A"))) == {}
    assert plain.film_ingredients(film((0, 50, "OP"))) == {"left_out": [[0, 50, "opening"]]}
    assert skipping.film_ingredients(film()) == {"left_out": [[0, 5, "skipped"]]}


def test_the_chapters_of_a_file_are_read_from_its_first_frame(tmp_path: Path) -> None:
    """A Matroska file whose first frame is shown at one second, with a chapter without a name."""
    path = tmp_path / "film.mkv"
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=24)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        names = ({"title": "オープニング"}, {})
        container.set_chapters(
            [
                {"id": number, "start": start, "end": start + 2000, "time_base": Fraction(1, 1000), "metadata": name}
                for number, (start, name) in enumerate(zip((1000, 3000), names, strict=True), start=1)
            ]
        )
        for number in range(24, 96):
            frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 24)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    found = probe(path, make_film_id(path.name, "0" * 64), "0" * 64)
    assert [(row.start_seconds, row.end_seconds, row.title) for row in found.chapters or ()] == [
        (0.0, 2.0, "オープニング"),
        (2.0, 4.0, None),
    ]
