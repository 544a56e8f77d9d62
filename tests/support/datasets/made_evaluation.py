"""Evaluation of painted clips with figures made by hand: agents `ours`, `gc` and `others`, a protagonist per game.

The figures follow a rule, so that a test knows them: `ours` is best at turn 1 and falls, the others are level.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from pipeline.core.atomic import write_json
from pipeline.video.clip_files import write_clip
from training.evaluation.benchmark import Panel, read_benchmark, write_benchmark
from training.evaluation.figures import AgentNote, Figure, Figures, Slope
from training.evaluation.folder import AgentEntry, EvaluationFolder, EvaluationRequest
from training.evaluation.measures import Measure, Metric, write_measures

AGENTS = ("ours", "gc", "others")
NAMES = ("Ponyo", "Sosuke", "Lisa")
METRICS = (
    Metric(name="clip_i", title="CLIP-I", meaning="Likeness of the clip to the character's reference pictures."),
    Metric(name="clip_t", title="CLIP-T", meaning="Likeness of the clip to its instruction."),
    Metric(name="mae_f", title="MAE-F", meaning="Distance of the motion level from the one asked for.", better="lower"),
    Metric(name="returns", title="Return to a place", meaning="Likeness of a place to its first showing."),
    Metric(name="judge_oa", title="Judge: overall", meaning="Overall quality, 1 to 10."),
)


def value(agent: str, metric: str, game: int, turn: int) -> float:
    """Return the made value of a measure."""
    fall = 0.02 * turn if agent == "ours" else 0.0
    return round(0.9 - 0.1 * AGENTS.index(agent) - fall + 0.01 * game + 0.05 * len(metric), 4)


def paint(path: Path, colour: Sequence[int], frames: int = 5, size: tuple[int, int] = (32, 48), fps: int = 8) -> Path:
    """Write a clip of one colour with a white square that moves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frames_THWC = np.empty((frames, *size, 3), np.uint8)
    frames_THWC[:] = np.array(colour, np.uint8)
    for number in range(frames):
        frames_THWC[number, 8:20, 4 + 4 * number : 16 + 4 * number] = 255
    write_clip(path, frames_THWC, Fraction(fps), 17)
    return path


def make_evaluation(root: Path, games: int = 3, turns: int = 4, motion: str = "run") -> EvaluationFolder:
    """Make an evaluation with all its clips, measures and figures; the last turn of `others`' last game is missing."""
    path, out = root / "games.jsonl", root / "evaluation"
    panels = [
        Panel(game=f"game-{game}", turn=turn, characters=(NAMES[game % len(NAMES)],), MD=motion, EV="shore", level=3)
        for game in range(games)
        for turn in range(1, turns + 1)
    ]
    write_benchmark(path, panels)
    entries = tuple(AgentEntry(name=name, kind="folder", folder=str(root / name), identity=name) for name in AGENTS)
    request = EvaluationRequest(benchmark_sha256=read_benchmark(path).sha256, agents=entries)
    evaluation = EvaluationFolder.begin(out, path, request)
    measures = []
    for agent in AGENTS:
        for game in range(games):
            folder = evaluation.games / agent / f"game-{game}"
            played = turns - 1 if (agent, game) == ("others", games - 1) else turns
            for turn in range(1, played + 1):
                paint(folder / f"{turn:04d}.mp4", (40 + 50 * AGENTS.index(agent), 10 * turn, 60 * (game % 4)))
                measures += [
                    Measure(agent=agent, game=f"game-{game}", turn=turn, metric=metric.name,
                            value=value(agent, metric.name, game, turn))
                    for metric in METRICS
                ]  # fmt: skip
            lines = "".join(f'{{"id": "{turn:04d}"}}\n' for turn in range(1, played + 1))
            (folder / "turns.jsonl").write_text(lines)
    write_measures(out / "measures" / "turns.parquet", measures)
    write_json(evaluation.figures, _figures(evaluation, measures).model_dump(mode="json"))
    return evaluation


def _figures(evaluation: EvaluationFolder, measures: Sequence[Measure]) -> Figures:
    turns = sorted({each.turn for each in measures if each.turn})
    protagonists = {game.name: game.character for game in evaluation.benchmark.games}
    figures = []
    for agent in AGENTS:
        for metric in METRICS:
            own = [each for each in measures if each.agent == agent and each.metric == metric.name]
            figures.append(_figure(agent, metric.name, own))
            figures += [_figure(agent, metric.name, [e for e in own if e.turn == turn], turn=turn) for turn in turns]
            figures += [
                _figure(agent, metric.name, [e for e in own if protagonists[e.game] == name], character=name)
                for name in dict.fromkeys(protagonists.values())
            ]
    return Figures(
        benchmark_sha256=evaluation.benchmark.sha256,
        agents=tuple(AgentNote(name=name, kind="folder", note=f"clips of {name}") for name in AGENTS),
        metrics=METRICS,
        figures=tuple(figures),
        slopes=tuple(Slope(agent="ours", metric=metric.name, value=-0.02, low=-0.03, high=-0.01) for metric in METRICS),
        notes=("CLIP has random weights here: its figures say nothing about pictures.",),
    )


def _figure(agent: str, metric: str, own: Sequence[Measure], **of: str | int | None) -> Figure:
    mean = sum(each.value for each in own) / len(own)
    return Figure(agent=agent, metric=metric, value=mean, low=mean - 0.03, high=mean + 0.03, count=len(own), **of)
