"""Measuring of played games: networks as named by the user, and measures of every turn.

Networks that are not named leave out their metrics, and a note in the report names the option that adds them.
"""

from __future__ import annotations

from collections.abc import Iterator

from flows.evaluate.yardsticks import Yardsticks
from models.engine import device_of
from pipeline.core.progress import watched
from training.evaluation.benchmark import Benchmark
from training.evaluation.folder import EvaluationFolder
from training.evaluation.measures import write_measures
from training.evaluation.metrics.dreamsim_network import load_dreamsim
from training.evaluation.metrics.measure import MetricNetworks, measure
from training.evaluation.metrics.networks import load_clip


def measure_games(evaluation: EvaluationFolder, yardsticks: Yardsticks, device: str | None) -> EvaluationFolder:
    """Measure every turn that was played, and return the evaluation with notes of what it was measured with.

    Raises:
        UserError: a network, the cast or a clip cannot be used; the message names the remedy.
    """
    place = str(device_of(device))
    networks = MetricNetworks(
        clip=load_clip(yardsticks.clip, place) if yardsticks.clip else None,
        dreamsim=load_dreamsim(yardsticks.dreamsim, place) if yardsticks.dreamsim else None,
        motion=yardsticks.motion,
        motion_size=yardsticks.clip_size,
    )
    turns = [turn for agent in evaluation.request.agents for turn in evaluation.played(agent.name)]
    with watched("turns", "measure") as watch:
        measures = measure(
            turns,
            evaluation.path / "features",
            networks,
            yardsticks.pictures,
            yardsticks.truths(evaluation.benchmark),
            lambda done: watch(done, len(turns)),
        )
        write_measures(evaluation.path / "measures" / "turns.parquet", measures)
    notes = (*yardsticks.notes, *_notes(evaluation.benchmark, yardsticks, networks))
    return evaluation.measured_with(yardsticks.options, notes)


def _notes(benchmark: Benchmark, yardsticks: Yardsticks, networks: MetricNetworks) -> Iterator[str]:
    if networks.identities:
        yield f"Networks: {'; '.join(f'{use} by {identity}' for use, identity in networks.identities.items())}."
    if networks.untrained:
        yield f"Random weights, whose similarities say nothing about pictures: {'; '.join(networks.untrained)}."
    yield from yardsticks.left_out(benchmark)
    edges = f"the level edges of {yardsticks.data.name}" if yardsticks.data else "the published level edges"
    width, height = yardsticks.clip_size
    yield f"Motion: optical flow by {networks.motion.model}, with {edges}, in pixels of clips of {width}x{height}."
