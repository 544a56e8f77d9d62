"""Benchmark of the metrics: painted agents with one known defect each, and the metrics that have to notice it.

    make bench-metrics

A metric must fall clearly under each defect that NAMED names for it, and under no other by more than a third as far as
under the least of those. A perfect agent has 1 on metrics that are shares. Defects that become more frequent turn by
turn have slopes that the painter knows.

CLIP and DreamSim are the painted network (`examples/evaluation/painted_network.py`), since it needs no weights; the
appearance, the hashes and the optical flow are those of every evaluation.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.evaluation.painted_agents import (
    AGENTS,
    SETTINGS,
    Defect,
    PaintedAgent,
    reference_pictures,
    write_games,
    write_played,
)
from examples.evaluation.painted_network import PaintedNetwork
from training.evaluation.benchmark import Benchmark
from training.evaluation.figures import AgentNote, Figures, make_figures
from training.evaluation.metrics.catalogue import METRICS
from training.evaluation.metrics.measure import MetricNetworks, measure

NAMED: dict[Defect, tuple[str, ...]] = {
    "drifts": ("style", "clip_t", "clip_t_e", "identity", "cast_shown", "place_kept", "place_memory"),
    "wrong character": ("clip_i", "dreamsim", "clip_t", "identity", "cast_shown"),
    "forgets the place": ("clip_t", "clip_t_e", "place_kept", "place_memory"),
    "frozen": ("acc_f", "mae_f"),
    "too fast": ("acc_f", "mae_f"),
    "wrong state": ("acc_s", "mae_s"),
    "late": ("turn_seconds", "first_frame_seconds"),
    "copies": ("copies",),
}
"""Metrics that each defect must worsen."""
CLEARLY = {
    **dict.fromkeys(("clip_i", "dreamsim", "style", "clip_t", "clip_t_e", "place_memory", "identity"), 0.08),
    **dict.fromkeys(("acc_f", "acc_s", "cast_shown", "place_kept"), 0.15),
    **dict.fromkeys(("mae_f", "mae_s", "turn_seconds", "first_frame_seconds", "copies"), 0.5),
}
"""Least change that counts as clear."""
OTHERS_SHARE = 1 / 3
SLOPE_SHARE = 0.1
"""Most error of a slope, as a share of it."""


@dataclass(frozen=True)
class KnownSlope:
    """A defect that grows by a share of the games per turn, and the metric's slope for a share of 1 per turn."""

    agent: PaintedAgent
    metric: str
    whole: float


def known_slopes(per_turn: float) -> tuple[KnownSlope, ...]:
    """Return agents whose defect appears in a share of the games that grows by `per_turn`."""

    def growing(defect: Defect) -> PaintedAgent:
        return PaintedAgent(f"more-often-{defect.replace(' ', '-')}", defect, per_turn)

    return (
        KnownSlope(growing("wrong character"), "cast_shown", -1.0),
        KnownSlope(growing("wrong state"), "acc_s", -1.0),
        KnownSlope(growing("late"), "turn_seconds", 4.0),
    )


def play_and_measure(root: Path, benchmark: Benchmark, agents: Sequence[PaintedAgent]) -> Figures:
    """Play a benchmark by painted agents, measure it and return its figures."""
    network = PaintedNetwork()
    played = write_played(root / "games", benchmark, agents)
    networks = MetricNetworks(network, network, SETTINGS)
    measures = measure(played, root / "features", networks, reference_pictures())
    notes = [AgentNote(name=agent.name, kind="painted") for agent in agents]
    return make_figures(measures, benchmark, notes, [metric for metric in METRICS if metric.name in CLEARLY])


def worsening(figures: Figures) -> Callable[[str, str], float]:
    """Return a function of an agent and a metric: how much worse the agent is than the perfect one."""
    means = {
        (each.agent, each.metric): each.value
        for each in figures.figures
        if each.game is None and each.character is None and each.turn is None
    }
    sign = {metric.name: 1 if metric.better == "higher" else -1 for metric in figures.metrics}
    return lambda agent, metric: sign[metric] * (means["perfect", metric] - means[agent, metric])


def faults(figures: Figures) -> list[str]:
    """Return the claims at the top of this file that the figures contradict, as sentences."""
    worse, found = worsening(figures), []
    for metric in figures.metrics:
        name = metric.name
        named = {agent.name for agent in AGENTS if name in NAMED.get(agent.defect, ())}
        least = min(worse(agent, name) for agent in named)
        if least < CLEARLY[name]:
            found.append(f"{name} worsens by {least:.3f} only")
        others = {agent.name: worse(agent.name, name) for agent in AGENTS if agent.name not in named}
        found += [
            f"{name} moves by {change:.3f} under {agent}, by {least:.3f} under a defect of its own"
            for agent, change in others.items()
            if abs(change) > OTHERS_SHARE * least
        ]
    shares = {metric.name for metric in figures.metrics if metric.is_share and metric.better == "higher"}
    perfect = [each for each in figures.figures if each.agent == "perfect" and each.metric in shares]
    return found + [f"the perfect agent has {each.metric} {each.value}" for each in perfect if each.value != 1]


def slope_errors(figures: Figures, known: Sequence[KnownSlope], per_turn: float) -> dict[str, float]:
    """Return the error of each known slope as a share of it, by agent."""
    measured = {(each.agent, each.metric): each.value for each in figures.slopes}
    return {
        each.agent.name: abs(measured[each.agent.name, each.metric] / (each.whole * per_turn) - 1) for each in known
    }


def table_of(figures: Figures) -> Table:
    """Return the worsening of each metric by each defect; those that must worsen are marked."""
    worse = worsening(figures)
    table = Table("defect", *(metric.title for metric in figures.metrics), title="worse than the perfect agent by")
    for agent in AGENTS[1:]:
        named = NAMED[agent.defect]
        cells = [(metric.name in named, worse(agent.name, metric.name)) for metric in figures.metrics]
        table.add_row(agent.defect, *(f"{round(value, 2) + 0.0:.2f}{'*' if marked else ''}" for marked, value in cells))
    return table


def main() -> None:
    """Measure, print the table, and exit with 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=20)
    given = parser.parse_args()
    per_turn = 1 / given.games
    known = known_slopes(per_turn)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        benchmark = write_games(root / "games.jsonl", given.games)
        figures = play_and_measure(root, benchmark, [*AGENTS, *(each.agent for each in known)])
    console = Console(width=200)
    console.print(table_of(figures))
    errors = slope_errors(figures, known, per_turn)
    for each in known:
        console.print(f"slope of {each.metric}, {each.agent.name}: off by {errors[each.agent.name]:.1%}")
    wrong = faults(figures) + [f"slope of {name}" for name, error in errors.items() if error > SLOPE_SHARE]
    console.print("\n".join(wrong) or "every claim holds")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
