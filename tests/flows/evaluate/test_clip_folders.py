"""Folders of clips as agents: real clips of other rates, lengths, sizes and order, taken in or refused by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.evaluate.clip_folders import bring_in, identity_of_clips, survey
from pipeline.video.clip_files import clip_shape, read_clip, read_clip_gray
from tests.support.datasets.made_evaluation import paint
from tests.support.media.films import make_film
from training.evaluation.benchmark import Benchmark, Panel, read_benchmark, write_benchmark
from training.evaluation.played import PlayedError, read_game

COLOURS = ((200, 40, 40), (40, 200, 40), (40, 40, 200))


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    """Two games of three turns."""
    path = tmp_path / "games.jsonl"
    panels = [Panel(game=game, turn=turn, words=f"{game} {turn}") for game in ("a", "b") for turn in (1, 2, 3)]
    write_benchmark(path, panels)
    return read_benchmark(path)


def colour_of(path: Path) -> int:
    """Return the number of the colour that a clip is painted with."""
    return int(read_clip(path)[0, 0, 0].argmax())


def test_clips_go_by_the_numbers_in_their_names_and_what_is_missing_is_named(
    tmp_path: Path, benchmark: Benchmark
) -> None:
    source, target = tmp_path / "clips", tmp_path / "target"
    for turn in (1, 3):
        paint(source / "a" / f"scene-{turn}.mp4", COLOURS[turn - 1])
        (source / "a" / f"._scene-{turn}.mp4").write_bytes(b"macOS")
    found = survey(source, benchmark)
    assert found.note == "2 clips of 48x32, 0.625 s. Missing games: b. Missing turns: a (turns 2)."
    bring_in(source, benchmark, target)
    turns = read_game("others", benchmark.games[0].panels, target / "a")
    assert [(turn.panel.turn, colour_of(turn.clip)) for turn in turns] == [(1, 0), (3, 2)]
    assert turns[1].clip.read_bytes() == (source / "a" / "scene-3.mp4").read_bytes()


def test_clips_in_another_order_go_by_their_instructions(tmp_path: Path, benchmark: Benchmark) -> None:
    source = tmp_path / "clips"
    order = (3, 1, 2)
    for place, turn in enumerate(order, start=1):
        paint(source / "a" / f"{place:04d}.mp4", COLOURS[turn - 1])
    lines = [{"id": f"{place:04d}", "instruction": f"a {turn}"} for place, turn in enumerate(order, start=1)]
    log = source / "a" / "turns.jsonl"
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert "sorted into the benchmark's order by instruction: a." in survey(source, benchmark).note
    bring_in(source, benchmark, tmp_path / "target")
    turns = read_game("others", benchmark.games[0].panels, tmp_path / "target" / "a")
    assert [(turn.line.instruction, colour_of(turn.clip)) for turn in turns] == [("a 1", 0), ("a 2", 1), ("a 3", 2)]
    log.write_text(json.dumps({"id": "0001", "instruction": "she flies"}) + "\n")
    with pytest.raises(PlayedError, match=r'0001.mp4: was played from "she flies".*delete'):
        survey(source, benchmark)
    (source / "a" / "0001.mp4").rename(source / "a" / "0011.mp4")  # the instruction decides, whatever the number
    log.write_text(json.dumps({"id": "0011", "instruction": "a 3"}) + "\n")
    assert {turn: found.path.name for turn, found in survey(source, benchmark).clips["a"].items()} == {3: "0011.mp4"}
    log.write_text(json.dumps({"id": "0011"}) + "\n")
    with pytest.raises(PlayedError, match=r"line 1: .* no turn 11 of this game; mend or remove the line"):
        survey(source, benchmark)


def test_lines_are_compared_with_their_panels_where_two_panels_are_asked_for_in_the_same_words(tmp_path: Path) -> None:
    words = ("run", "sleep", "run")
    write_benchmark(
        tmp_path / "games.jsonl", [Panel(game="a", turn=turn, words=each) for turn, each in enumerate(words, start=1)]
    )
    benchmark, source = read_benchmark(tmp_path / "games.jsonl"), tmp_path / "clips"
    for turn, colour in enumerate(COLOURS, start=1):
        paint(source / "a" / f"{turn:04d}.mp4", colour)
    log = source / "a" / "turns.jsonl"

    def write_log(turns: Sequence[int], said: Sequence[str]) -> None:
        lines = [{"id": f"{turn:04d}", "instruction": each} for turn, each in zip(turns, said, strict=True)]
        log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    write_log((2, 1, 3), ("sleep", "run", "run"))
    assert "order" not in survey(source, benchmark).note, "lines out of the order of their ids are no other order"
    write_log((1, 2, 3), ("run", "run", "sleep"))
    with pytest.raises(PlayedError, match=r'0002.mp4: was played from "run", but .* "sleep" in turn 2; .*delete'):
        survey(source, benchmark)


def test_another_rate_is_taken_at_ours(tmp_path: Path, benchmark: Benchmark) -> None:
    source, target = tmp_path / "clips", tmp_path / "target"
    paint(source / "a" / "0001.mp4", COLOURS[0], frames=48, size=(32, 240), fps=24)
    assert "resampled from 24 to 8 frames per second" in survey(source, benchmark).note
    bring_in(source, benchmark, target)
    shape = clip_shape(target / "a" / "0001.mp4")
    assert (shape.frames, shape.fps, shape.width, shape.height) == (16, 8, 240, 32)
    taken, given = read_clip(target / "a" / "0001.mp4"), read_clip(source / "a" / "0001.mp4")
    assert abs(taken.astype(int) - given[::3]).mean() < 3, "every third frame"


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ({"pixel_format": "yuv444p", "size": (193, 97)}, "193x97, 0.5 s, encoded again from h264 yuv444p."),
        ({"codec": "mpeg4", "options": {"qscale": "1"}}, "192x96, 0.5 s, encoded again from mpeg4 yuv420p."),
        ({"rotation": 90}, "96x192, 0.5 s, encoded again from h264 yuv420p, turned."),
    ],
)
def test_clips_that_the_readers_would_misread_are_encoded_anew(
    tmp_path: Path, benchmark: Benchmark, encoding: dict[str, Any], said: str
) -> None:
    source, taken = tmp_path / "clips", tmp_path / "target" / "a" / "0001.mp4"
    (source / "a").mkdir(parents=True)
    make_film(source / "a" / "0001.mp4", **{"frames": 4, "fps": 8, "size": (192, 96), **encoding})
    assert said in survey(source, benchmark).note
    bring_in(source, benchmark, tmp_path / "target")
    plain = make_film(tmp_path / "plain.mp4", frames=4, fps=8, size=(192, 96))
    assert clip_shape(taken).is_plain
    for read in (read_clip, read_clip_gray):
        assert np.abs(read(taken).astype(int) - read(plain)).mean() < 5, read.__name__


def test_clips_whose_turn_is_unclear_are_refused(tmp_path: Path, benchmark: Benchmark) -> None:
    for number, (names, said) in enumerate(
        (
            (["a/first.mp4"], "do not say which .*; name them by turn"),
            (["a/0001.mp4", "a/x-1.mp4"], "do not say which"),
            (["a/0004.mp4"], "do not say which"),
            (["A/0001.mp4"], "Its folders are A; rename them to a, b"),
        )
    ):
        for name in names:
            paint(tmp_path / str(number) / name, COLOURS[0])
        with pytest.raises(PlayedError, match=said):
            survey(tmp_path / str(number), benchmark)


def test_damaged_and_still_clips_are_named(tmp_path: Path, benchmark: Benchmark) -> None:
    source = tmp_path / "clips"
    clip = paint(source / "a" / "0002.mp4", COLOURS[0], frames=1)
    with pytest.raises(PlayedError, match=r"0002.mp4: 1 frames .* too few"):
        survey(source, benchmark)
    before = identity_of_clips(source)
    clip.write_bytes(b"not a film")
    assert identity_of_clips(source) != before
    with pytest.raises(PlayedError, match=r"0002.mp4: .*replace it, or remove it"):
        survey(source, benchmark)
