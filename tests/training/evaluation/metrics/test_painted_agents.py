"""Truth of the metrics: painted agents with one known defect each, measured on their encoded clips."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.metrics import SLOPE_SHARE, faults, known_slopes, play_and_measure, slope_errors
from examples.evaluation.painted_agents import (
    AGENTS,
    SETTINGS,
    PaintedAgent,
    reference_pictures,
    write_games,
    write_played,
)
from tests.support.networks.small_clip import save_small_clip
from training.evaluation.figures import Figures
from training.evaluation.measures import Measure
from training.evaluation.metrics.measure import MetricNetworks, measure
from training.evaluation.metrics.networks import load_clip


def overall(figures: Figures, agent: str) -> dict[str, float]:
    return {
        each.metric: each.value
        for each in figures.figures
        if each.agent == agent and each.game is None and each.character is None and each.turn is None
    }


@pytest.mark.slow
def test_a_defect_worsens_its_metrics_and_leaves_the_others_alone(tmp_path: Path) -> None:
    agents = [PaintedAgent("perfect"), PaintedAgent("other", "wrong character"), PaintedAgent("fast", "too fast")]
    figures = play_and_measure(tmp_path, write_games(tmp_path / "games.jsonl", games=3, turns=6), agents)
    perfect, other, fast = (overall(figures, agent.name) for agent in agents)
    assert {metric for metric in ("acc_f", "acc_s", "cast_shown", "place_kept") if perfect[metric] != 1} == set()
    assert other["cast_shown"] == 0
    assert other["clip_i"] < perfect["clip_i"] - 0.3
    assert other["acc_f"] == other["place_kept"] == fast["cast_shown"] == 1
    assert fast["acc_f"] < 0.5
    assert fast["mae_f"] > 1


@pytest.mark.nightly
def test_every_defect_worsens_the_metrics_named_for_it_and_slopes_are_recovered(tmp_path: Path) -> None:
    games = 10
    known = known_slopes(1 / games)
    benchmark = write_games(tmp_path / "games.jsonl", games)
    figures = play_and_measure(tmp_path, benchmark, [*AGENTS, *(each.agent for each in known)])
    assert faults(figures) == []
    assert max(slope_errors(figures, known, 1 / games).values()) < SLOPE_SHARE


def measured(folder: Path, networks: MetricNetworks, truths: dict[str, Path]) -> list[Measure]:
    benchmark = write_games(folder / "games.jsonl", games=2, turns=4)
    played = write_played(folder / "games", benchmark, AGENTS[:1])
    return list(measure(played, folder / "features", networks, reference_pictures(), truths))


def test_with_a_random_clip_equal_clips_have_similarity_1_and_others_less(tmp_path: Path) -> None:
    clip = load_clip(str(save_small_clip(tmp_path / "clip")))
    benchmark = write_games(tmp_path / "games.jsonl", games=2, turns=4)
    played = write_played(tmp_path / "games", benchmark, AGENTS[:1])
    known = [turn.panel.model_copy(update={"clip_id": f"{turn.panel.game}-{turn.panel.turn}"}) for turn in played]
    turns = [type(turn)(turn.agent, panel, turn.clip, turn.line) for turn, panel in zip(played, known, strict=True)]
    ids = [panel.clip_id or "" for panel in known]
    for clips, is_equal in (([turn.clip for turn in turns], True), ([turn.clip for turn in turns[::-1]], False)):
        truths = dict(zip(ids, clips, strict=True))
        found = list(measure(turns, tmp_path / "features", MetricNetworks(clip, motion=SETTINGS), truths=truths))
        for metric in ("clip_i_truth", "appearance_truth"):
            values = [each.value for each in found if each.metric == metric]
            assert len(values) == len(turns)
            assert (min(values) > 1 - 1e-5) == is_equal


def test_a_network_that_is_absent_leaves_its_metrics_out_and_the_appearance_takes_its_place(tmp_path: Path) -> None:
    metrics = {each.metric for each in measured(tmp_path, MetricNetworks(motion=SETTINGS), {})}
    assert {"acc_f", "acc_s", "style", "identity", "cast_shown", "copies", "turn_seconds"} <= metrics
    assert not {"clip_i", "dreamsim", "clip_t", "clip_t_e"} & metrics
