"""The clips that the proof of learning is made of, and its cheap claims; `make bench-learning` is the whole of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning.bench import Bench, Steps
from benchmarks.learning.claims import free_text_claim, history_claim
from benchmarks.learning.runs import Learned, game_terms, learn, recipe_of
from examples.world.learning_films import AGAIN, FASTER, FIRST, SECOND, ShapeFilm, ShapeTurn, write_films
from examples.world.shapes import DEEDS, HEIGHT, SPEEDS, WIDTH, ShapeClip, paint
from models.config import tiny_config
from models.untrained import new_checkpoint
from pipeline.core.errors import UserError
from training.data.shards import open_shards
from training.data.sources import open_index
from training.data.turns import RecordedTurn, read_texts
from training.phases.game import GamePhase, without_past


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> dict[ShapeFilm, list[RecordedTurn]]:
    """What the shards of each film say of its clips."""
    films = (FIRST, SECOND, FASTER)
    data = write_films(tmp_path_factory.mktemp("films"), films)
    assert open_index(data).counts.split == {"train": 25, "val": 0}
    read = {film.name: [] for film in films}
    for turn in read_texts(open_shards(data, "train")):
        read[turn.sample.film_id.rpartition("-")[0]].append(turn)
    return {film: read[film.name] for film in films}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_figure_moves_by_its_speed(deed: str) -> None:
    frames_THWC = paint(ShapeClip("Azura", deed, "desert", level=3))
    across, down = (2 * SPEEDS[2] * towards for towards in DEEDS[deed].towards)
    figure_THW = abs(frames_THWC.astype(int) - paint(ShapeClip("Ruby", deed, "desert", level=3))).sum(axis=3) > 60
    moved_HW = np.roll(figure_THW[0], (round(down), round(across)), axis=(0, 1))
    assert (moved_HW == figure_THW[2]).mean() > 0.98
    assert (figure_THW[0] == figure_THW[2]).mean() < 0.95
    assert frames_THWC.shape == (17, HEIGHT, WIDTH, 3)


@pytest.mark.slow
def test_the_flow_stage_measures_the_painted_levels(turns: dict[ShapeFilm, list[RecordedTurn]]) -> None:
    for film, read in turns.items():
        for painted, turn in zip(film.turns, read, strict=True):
            assert turn.sample.motion.level == painted.clip.level
            assert turn.sample.motion.scope_px == pytest.approx(painted.clip.speed, rel=0.1)


def test_only_the_motion_scope_tells_the_faster_clips_apart(turns: dict[ShapeFilm, list[RecordedTurn]]) -> None:
    assert len({turn.instruction for turn in turns[FASTER]}) == 1
    assert len({paint(turn.clip)[0].tobytes() for turn in FASTER.turns}) == 1
    assert len({turn.sample.motion.scope_px for turn in turns[FASTER]}) == 5


def test_no_second_instruction_tells_the_state(turns: dict[ShapeFilm, list[RecordedTurn]]) -> None:
    states = defaultdict(set)
    for film in (FIRST, SECOND):
        for before, turn in zip(turns[film][::2], turns[film][1::2], strict=True):
            assert AGAIN in turn.instruction
            assert AGAIN not in before.instruction
            assert turn.state == before.state
            states[turn.instruction].add(turn.state)
    assert min(map(len, states.values())) >= 3


def test_films_other_than_those_in_the_folder_are_refused(tmp_path: Path) -> None:
    first, other = (ShapeFilm(name, FIRST.turns[:1]) for name in ("first", "other"))
    data = write_films(tmp_path / "data", [first])
    assert write_films(data, [first]) == data
    for films in ([other], [first, other]):
        with pytest.raises(UserError, match="data holds other films than those asked for: remove it"):
            write_films(data, films)


@pytest.mark.slow
def test_a_result_of_an_earlier_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_films(tmp_path / "data", [ShapeFilm("two", FIRST.turns[:2])])
    start = new_checkpoint(tmp_path / "start", tiny_config())
    recipe = recipe_of("game", {"steps": 1, "batch_size": 1, "micro_batch": 1}, game={"windows": {"most_turns": 1}})
    for is_earlier in (False, True):
        learn("game", tmp_path / "run", data, start, recipe)
        assert ("run/game/result is of an earlier run: remove it" in capsys.readouterr().err) == is_earlier


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Learned]:
    """Game models that learned twenty turns in windows of two turns and of one, from an untrained shot encoder."""
    folder = tmp_path_factory.mktemp("learned")
    start = new_checkpoint(folder / "start", tiny_config())
    data = write_films(folder / "data", (FIRST, SECOND))
    loop = {"steps": 250, "batch_size": 4, "micro_batch": 4}
    recipes = {most: recipe_of("game", loop, game={"windows": {"most_turns": most}}) for most in (2, 1)}
    return {most: learn("game", folder / str(most), data, start, recipe) for most, recipe in recipes.items()}


@pytest.mark.nightly
def test_the_game_model_learns_four_turns_and_to_use_the_past(tmp_path: Path) -> None:
    """By the instruction alone the two second turns are one: only the past tells them apart."""
    turns: list[ShapeTurn] = []
    for figure, deed, level, first in (("Sunny", "float up", 2, "desert"), ("Ruby", "visit a friend", 3, "night sea")):
        turns.append(ShapeTurn(ShapeClip(figure, deed, first, level), "all"))
        turns.append(ShapeTurn(ShapeClip(figure, deed, "meadow", level), "again"))
    recipe = recipe_of("game", {"steps": 80, "batch_size": 4, "micro_batch": 4}, game={"windows": {"most_turns": 2}})
    data = write_films(tmp_path / "data", [ShapeFilm("four", tuple(turns))])
    game = learn("game", tmp_path / "run", data, new_checkpoint(tmp_path / "start", tiny_config()), recipe)
    phase = game.games(game.after)
    before, after = terms_of(game.games(game.before)), terms_of(phase)
    assert after["loss"] < 0.2 * before["loss"]
    assert after["shot_tokens"] < 0.5 * before["shot_tokens"]
    assert after["state_right"] > before["state_right"]
    second = [item for item, turn in enumerate(phase.held_out.windows.turns) if AGAIN in turn.instruction]
    known, unknown = (
        game_terms(phase, map(examples.longest, second)) for examples in (phase.held_out, without_past(phase.held_out))
    )
    assert known["loss"] < 0.9 * unknown["loss"]
    assert known["level_right"] > unknown["level_right"]


@pytest.mark.nightly
def test_the_game_model_learns_twenty_turns_by_heart(learned: dict[int, Learned]) -> None:
    game = learned[2]
    before, after = (terms_of(game.games(checkpoint)) for checkpoint in (game.before, game.after))
    assert before["state_right"] < 0.8
    assert after["state_right"] == after["level_right"] == 1
    # about half the benchmark's steps: 77 % down was measured here, 94 % there, where the aim is 90 %
    assert after["shot_tokens"] < 0.3 * before["shot_tokens"]


@pytest.mark.nightly
def test_without_the_past_it_does_not_know_what_only_the_past_tells(learned: dict[int, Learned]) -> None:
    finding = history_claim(learned[2], learned[1])
    assert finding.reached, finding.measured


@pytest.mark.nightly
def test_sentences_never_seen_are_understood_after_other_phrasings(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Steps(free_text=250))
    finding = free_text_claim(bench.worded(0.5), bench.worded(0.0))
    assert finding.reached, finding.measured


def terms_of(phase: GamePhase) -> dict[str, float]:
    return game_terms(phase, map(phase.held_out.longest, range(len(phase.held_out))))
