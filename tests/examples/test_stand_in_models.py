"""Stand-in for model servers: its stories pass all checks, its scores follow the pictures, and its favour is found."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from examples.evaluation.stand_in_models import FAVOUR, MODEL, serving
from models.tokens import State
from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import Endpoint
from pipeline.core.progress import silent
from pipeline.video.clip_files import read_clip, write_clip
from tests.support.servers.study_page import painted_evaluation
from training.baselines.router import NEUTRAL, LanguageRouter
from training.evaluation.folder import EvaluationFolder
from training.evaluation.judge import judge
from training.evaluation.measures import read_measures
from training.evaluation.story_writer import write_games


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
