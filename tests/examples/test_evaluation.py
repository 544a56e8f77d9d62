"""Demo of the evaluation, whole, and the stand-in models that judge and write in it."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from examples.evaluation.demo import TURNS
from examples.evaluation.stand_in_models import FAVOUR, MODEL, serving
from examples.miniature.clip import PACKED as CLIP
from examples.world.characters import CAST
from examples.world.puppets import Puppet
from examples.world.scenery import GROUND, PLACES, Scenery
from models.shipped import shipped
from models.tokens import State
from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import Endpoint
from pipeline.core.progress import silent
from pipeline.video.clip_files import read_clip, write_clip
from tests.support.painted_games import painted_evaluation
from training.baselines.router import NEUTRAL, LanguageRouter
from training.evaluation.figures import Figures
from training.evaluation.folder import EvaluationFolder
from training.evaluation.judge import judge
from training.evaluation.judge_summary import JudgeSummary
from training.evaluation.measures import read_measures
from training.evaluation.metrics.networks import Picture, load_clip
from training.evaluation.story_writer import write_games


@pytest.mark.nightly
def test_the_demo_plays_judges_and_reports_and_goes_on_from_its_end(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [sys.executable, "-m", "examples.evaluation.demo", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    evaluation = EvaluationFolder.open(out / "evaluation")
    assert [agent.name for agent in evaluation.request.agents] == ["ours", "untrained", "gc"]
    assert [len(game.panels) for game in evaluation.benchmark.games] == [TURNS] * 4
    assert not any(evaluation.missing(agent.name) for agent in evaluation.request.agents)
    figures = Figures.model_validate_json(evaluation.figures.read_bytes())
    assert {metric.name for metric in figures.metrics} >= {"clip_i", "acc_s", "acc_f", "style", "judge_oa"}
    assert not figures.has_random_networks, "so that the best values are marked"
    means = {(each.agent, each.metric): each.value for each in figures.figures if each.turn == each.game is None}
    for metric in ("clip_i", "clip_t_e", "cast_shown", "as_asked"):
        assert means["ours", metric] > max(means["untrained", metric], means["gc", metric]), metric
    assert any("stand" in note and "models" in note for note in figures.notes)
    assert any(note.startswith("Judge: stand-in, 4 windows") for note in figures.notes)
    summary = JudgeSummary.model_validate_json((evaluation.path / "judge" / "summary.json").read_bytes())
    assert (summary.repeats, summary.refused, summary.left_out) == (3, {}, 0)
    assert summary.criteria[0].order_p_value is not None
    assert summary.criteria[0].order_p_value < 0.05, "the stand-in favours the first"
    assert any(each.agent == "gc" and each.metric == "acc_s" for each in figures.figures), "the baseline is routed"
    made = _times(out)
    assert len(made) == 3 * 4 * TURNS + 4 + 4 * TURNS + 4 * 3
    subprocess.run(command, check=True, capture_output=True)
    assert _times(out) == made


def _times(out: Path) -> dict[Path, int]:
    """Return the times of clips and replies."""
    replies = (".games.jsonl-replies/*.json", "evaluation/scenes/*.json", "evaluation/judge/replies/*.json")
    patterns = ("evaluation/games/*/*/*.mp4", *replies)
    return {path: path.stat().st_mtime_ns for pattern in patterns for path in out.glob(pattern)}


def test_the_clip_of_the_demo_tells_characters_and_places_apart() -> None:
    scenes = list(product(shipped().config.characters, PLACES))
    pictures = [picture_of(name, place) for name, place in scenes]
    clip = load_clip(str(CLIP))
    lines = [f"Character: {name}; Motion: walk; Background: daytime {place}." for name, place in scenes]
    nearest = (clip.embed(pictures) @ clip.embed_texts(lines).T).argmax(axis=1)
    assert (nearest == range(len(scenes))).mean() > 0.7
    assert not clip.is_untrained


def picture_of(name: str, place: str) -> Picture:
    scenery = Scenery(place, tuple(CAST.items()))
    picture_HWC = scenery.picture((Puppet(name, name, 160, GROUND),), scenery.whole)
    return np.ascontiguousarray(picture_HWC[..., ::-1])


@pytest.mark.parametrize(
    ("names", "panels"), [(("Ponyo",), 2), (("Ponyo", "Sosuke"), 5), (("Ponyo (girl)", "Lisa", "Ko and Jo"), 10)]
)
def test_stories_pass_all_checks(tmp_path: Path, names: tuple[str, ...], panels: int) -> None:
    with serving() as address:
        written = write_games(tmp_path / "games.jsonl", names, 2, panels, Endpoint(address, MODEL), silent)
    assert (written.refused, written.repaired) == ({}, 0)
    assert len(written.games) == 2 * len(names)
    assert {len(game.panels) for game in written.games} == {panels}
    assert len({tuple(panel.MD for panel in game.panels) for game in written.games}) == len(written.games)


def test_scenes_are_the_instructions_with_the_states_of_their_motion() -> None:
    with serving() as address:
        router = LanguageRouter(Endpoint(address, MODEL))
        scene = router.route((), "Character: Ponyo, Lisa; Motion: barely sit down; Background: shrine.")
        assert scene.description == "Character: Ponyo, Lisa; Motion: barely sit down; Background: shrine."
        assert scene.state == State(level=1, social=1, entertainment=0, stamina=1)
        assert router.route((), "They fly").state == NEUTRAL


@pytest.mark.slow
def test_steadier_frames_get_higher_scores_and_the_favour_is_found(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, agents=("quick", "still"), games=4, turns=5)
    for game in evaluation.benchmark.games:
        for panel in game.panels:  # each clip of the second agent shows the first frame of the first one
            _hold_first_frame(evaluation, game.name, panel.turn)
    with serving() as address:
        summary = judge(evaluation, Endpoint(address, MODEL), 2, Cast(), silent)
    rows = list(read_measures(evaluation.path / "measures" / "judge.parquet"))
    means = {
        (agent, metric): sum(row.value for row in rows if (row.agent, row.metric) == (agent, metric)) / 4
        for agent in ("quick", "still")
        for metric in ("judge_oa", "judge_vc")
    }
    assert means["still", "judge_vc"] == 8
    assert means["quick", "judge_vc"] < 7.5
    assert means["still", "judge_oa"] == 8 + FAVOUR / 2
    biased, *fair = summary.criteria
    assert biased.position_effects == pytest.approx((FAVOUR / 2, -FAVOUR / 2))
    assert all(note.position_effects == pytest.approx((0, 0)) and note.alpha == 1 for note in fair)


def _hold_first_frame(evaluation: EvaluationFolder, game: str, turn: int) -> None:
    quick, still = (evaluation.games / agent / game / f"{turn:04d}.mp4" for agent in ("quick", "still"))
    frames_THWC = read_clip(quick)
    write_clip(still, [frames_THWC[0]] * len(frames_THWC), Fraction(8), 17)
