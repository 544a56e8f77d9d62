"""Demo of the evaluation, whole: from nothing to a report with the judge, and nothing done twice when run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.evaluation.demo import TURNS
from training.evaluation.figures import Figures
from training.evaluation.folder import EvaluationFolder
from training.evaluation.judge_summary import JudgeSummary


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
