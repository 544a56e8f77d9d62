"""Strips of games: instructions with a frame of every agent's turns, and each agent's worst turns."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from pipeline.core.records import RecordError
from pipeline.video.clip_files import clip_shape, read_frames
from training.evaluation.benchmark import BenchmarkGame, Panel
from training.evaluation.folder import EvaluationFolder
from training.evaluation.measures import Metric, all_measures
from training.evaluation.played import PlayedTurn
from training.evaluation.report.tables import in_print

WIDTH, HEIGHT = 168, 112
"""Field of a picture, 3:2 as the clips of the dataset; a clip of another shape keeps its proportions."""
_QUALITY = 72
MOST_GAMES = 6
MOST_TURNS = 10
WORST = 4


@dataclass(frozen=True)
class Picture:
    """A frame of a clip as a data URI, empty if the clip cannot be read, and the clip's address from the report."""

    uri: str
    clip: str


@dataclass(frozen=True)
class Strip:
    """A game: its panels, and each agent's picture of each panel, or None if the turn is missing."""

    game: str
    panels: tuple[Panel, ...]
    rows: tuple[tuple[str, tuple[Picture | None, ...]], ...]
    turns: int
    """Turns of the game; those shown are evenly spaced, from the first to the last."""


@dataclass(frozen=True)
class WorstTurn:
    """A turn with a low value of the metric that the section names."""

    game: str
    turn: int
    instruction: str
    value: str
    picture: Picture


@dataclass(frozen=True)
class Worst:
    """The worst turns of an agent."""

    agent: str
    turns: tuple[WorstTurn, ...]


def strips(evaluation: EvaluationFolder, agents: Sequence[str]) -> list[Strip]:
    """Return strips of some games, one of each character first."""
    played = {agent: _by_place(evaluation.played(agent)) for agent in agents}
    return [_strip(evaluation.path, game, played) for game in _chosen(evaluation.benchmark.games)]


def worst_turns(evaluation: EvaluationFolder, metric: Metric) -> list[Worst]:
    """Return each agent's worst turns by a metric."""
    measures = [row for row in all_measures(evaluation.path) if row.metric == metric.name]
    sign = 1 if metric.better == "higher" else -1
    found = []
    for agent in [entry.name for entry in evaluation.request.agents]:
        played = _by_place(evaluation.played(agent))
        own = [each for each in measures if each.agent == agent and each.turn is not None]
        lowest = sorted(own, key=lambda each: (sign * each.value, each.game, each.turn))[:WORST]
        turns = tuple(
            _worst_turn(evaluation.path, played[each.game, each.turn or 0], each.value)
            for each in lowest
            if (each.game, each.turn) in played
        )
        if turns:
            found.append(Worst(agent, turns))
    return found


def _chosen(games: Sequence[BenchmarkGame]) -> list[BenchmarkGame]:
    """Return the first game of each character, then further games, up to MOST_GAMES in the benchmark's order."""
    firsts = {game.character: game for game in reversed(games)}.values()
    taken = sorted(games, key=lambda game: game not in firsts)[:MOST_GAMES]
    return [game for game in games if game in taken]


def _by_place(turns: Sequence[PlayedTurn]) -> dict[tuple[str, int], PlayedTurn]:
    return {(turn.panel.game, turn.panel.turn): turn for turn in turns}


def _strip(root: Path, game: BenchmarkGame, played: Mapping[str, Mapping[tuple[str, int], PlayedTurn]]) -> Strip:
    places = np.linspace(0, len(game.panels) - 1, min(len(game.panels), MOST_TURNS)).round().astype(int)
    shown = tuple(game.panels[place] for place in places)
    rows = []
    for agent, turns in played.items():
        found = [turns.get((game.name, panel.turn)) for panel in shown]
        rows.append((agent, tuple(_picture(root, turn.clip) if turn else None for turn in found)))
    return Strip(game.name, shown, tuple(rows), len(game.panels))


def _worst_turn(root: Path, turn: PlayedTurn, value: float) -> WorstTurn:
    panel = turn.panel
    return WorstTurn(panel.game, panel.turn, panel.instruction, in_print(value), _picture(root, turn.clip))


def _picture(root: Path, clip: Path) -> Picture:
    address = clip.relative_to(root).as_posix()
    try:
        width, height = clip_shape(clip).within(WIDTH, HEIGHT)
        frame_HWC = read_frames(clip, lambda frames: [frames // 2], width, height)[0]
    except RecordError:  # show the clip without a picture; measuring reports the error
        return Picture("", address)
    _, jpg = cv2.imencode(".jpg", frame_HWC, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return Picture(f"data:image/jpeg;base64,{base64.b64encode(jpg.tobytes()).decode('ascii')}", address)
