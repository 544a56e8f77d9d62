"""Small painted games of an evaluation; each agent paints in its own colour."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from pipeline.video.clip_files import write_clip
from training.evaluation.benchmark import Panel, read_benchmark, write_benchmark
from training.evaluation.folder import AgentEntry, EvaluationFolder, EvaluationRequest

COLOURS = {"ours": (170, 120, 60), "gc": (70, 150, 80), "gfc": (80, 90, 190), "folder-of-x": (150, 70, 140)}
"""Colour (BGR) of each agent's background."""
GRAY = (90, 90, 90)
AGENTS = tuple(COLOURS)
MOTIONS = ("run along the beach", "wave at a ship", "sit down on the sand", "look at the waves")
STATES = '"changes": {"stamina": -1, "social": 1, "entertainment": 0}'


def painted_evaluation(
    root: Path,
    *,
    agents: Sequence[str] = AGENTS,
    games: int = 2,
    turns: int = 3,
    with_states: bool = True,
    words: str | None = None,
    size: tuple[int, int] = (64, 96),
) -> EvaluationFolder:
    """Make an evaluation whose games all agents have played.

    Args:
        with_states: the agents give character values.
        words: instruction in free words for every panel.
        size: height and width of the clips.
    """
    path = root / "games.jsonl"
    panels = [
        Panel(game=f"game-{game}", turn=turn, characters=("Ponyo",), MD=MOTIONS[turn % 4], EV="sea shore", words=words)
        for game in range(games)
        for turn in range(1, turns + 1)
    ]
    write_benchmark(path, panels)
    entries = tuple(AgentEntry(name=name, kind="folder", folder=str(root / name), identity=name) for name in agents)
    request = EvaluationRequest(benchmark_sha256=read_benchmark(path).sha256, agents=entries)
    evaluation = EvaluationFolder.begin(root / "evaluation", path, request)
    for agent in agents:
        for game in range(games):
            play_painted(evaluation, agent, f"game-{game}", turns, with_states, size)
    return evaluation


def play_painted(
    evaluation: EvaluationFolder, agent: str, game: str, turns: int, with_states: bool, size: tuple[int, int]
) -> None:
    """Write the game folder of an agent: clips of 8 frames with a disc that moves on from turn to turn."""
    folder = evaluation.games / agent / game
    folder.mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]] / size[0]
    for turn in range(1, turns + 1):
        frames_THWC = np.empty((8, *size, 3), np.uint8)
        frames_THWC[:] = np.array(COLOURS.get(agent, GRAY), np.uint8)
        for number, frame_HWC in enumerate(frames_THWC):
            across = 0.2 + 1.1 * (turn - 1 + number / 8) / turns
            frame_HWC[np.hypot(rows - 0.5, columns - across) < 0.15] = (200, 235, 250)
        write_clip(folder / f"{turn:04d}.mp4", frames_THWC, Fraction(8), 17)
    ends = f", {STATES}" if with_states else ""
    (folder / "turns.jsonl").write_text("".join(f'{{"id": "{turn:04d}"{ends}}}\n' for turn in range(1, turns + 1)))
