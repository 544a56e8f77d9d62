"""Evaluation from a request to its report, `animegamer evaluate run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flows.evaluate.agents import read_agents
from flows.evaluate.measuring import measure_games
from flows.evaluate.playing import play_all
from flows.evaluate.reporting import remake_report
from flows.evaluate.yardsticks import Yardsticks
from models.engine_options import EngineOptions, check_steps
from pipeline.captions.endpoint import Endpoint
from pipeline.core.atomic import held
from training.evaluation.benchmark import read_benchmark
from training.evaluation.folder import EvaluationFolder, EvaluationRequest


def run_evaluation(
    out: Path,
    benchmark: Path,
    agents: Sequence[str],
    options: EngineOptions = EngineOptions(),
    seed: int = 0,
    yardsticks: Yardsticks = Yardsticks(),
    endpoint: Endpoint | None = None,
) -> EvaluationFolder:
    """Play what is missing of an evaluation, new or existing; measure every turn, and write figures and report.

    Args:
        out: folder of the evaluation.
        benchmark: benchmark file.
        agents: agents as `NAME=FOLDER`.
        options: of the checkpoints' engines.
        seed: of all games.
        yardsticks: cast and networks to measure with.
        endpoint: language model that gives baselines their scenes and states; None: they take instructions as they are.

    Raises:
        UserError: the request cannot be met, or differs from that of the folder; the message names the remedy.
    """
    check_steps(options.steps)
    games = read_benchmark(benchmark)
    asked = EvaluationRequest(
        benchmark_sha256=games.sha256,
        seed=seed,
        steps=options.steps,
        guidance=options.guidance,
        agents=read_agents(agents, games, endpoint.model if endpoint else ""),
    )
    with held(out, "animegamer evaluate run"):
        evaluation = EvaluationFolder.begin(out, benchmark, asked)
        play_all(evaluation, options, endpoint)
        evaluation = measure_games(evaluation, yardsticks, options.device)
        remake_report(evaluation)
    return evaluation
