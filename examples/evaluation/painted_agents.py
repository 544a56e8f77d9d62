"""Painted agents: games of moving shapes, played perfectly or with one known defect, as truth for metrics.

    benchmark = write_games(Path("games.jsonl"), games=12, turns=10)
    write_played(Path("evaluation/games"), benchmark, AGENTS)

A game is a story of one figure that visits places and returns. The first agent follows the script, and every other
agent differs in one respect. A defect appears in every turn, or in a share of the games that grows turn by turn, so
that the slope of a metric is known.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from PIL import Image

from examples.world.learning_films import EDGES, MOTION
from examples.world.shapes import DEEDS, FIGURES, HEIGHT, PLACES, SPEEDS, WIDTH, ShapeClip, paint
from examples.world.textures import Picture
from pipeline.captions.rules import ADVERBS
from pipeline.core.atomic import replacing
from pipeline.video.clip_files import write_clip
from training.evaluation.benchmark import Benchmark, BenchmarkGame, Panel, read_benchmark, write_benchmark
from training.evaluation.played import PlayedChanges, PlayedLine, PlayedTurn

Defect = Literal[
    "none", "drifts", "wrong character", "forgets the place", "frozen", "too fast", "wrong state", "late", "copies"
]
SETTINGS = MOTION.model_copy(update={"edges": EDGES})
"""Optical flow and level edges that fit the shapes."""
DRIFT_FROM = 6
_DRIFT_STEP = 0.15
"""Share of the drift's tint in the picture, more by as much in every turn; 0.75 at most."""
_TINT = np.array((200, 0, 200), np.float64)
_FPS, _CRF = Fraction(8), 17
_SECONDS = 2.0


@dataclass(frozen=True)
class PaintedAgent:
    """An agent with a defect, in all games or in a share of them that grows by `per_turn` from none at turn 1."""

    name: str
    defect: Defect = "none"
    per_turn: float | None = None

    def fails(self, game: int, games: int, turn: int) -> bool:
        """Return True if the defect appears in a turn of the game with an index among `games`."""
        if self.defect == "drifts":
            return turn >= DRIFT_FROM
        # the games take turns to be the first that fail, so that none fails in every turn
        rank = (game + turn * 7) % games
        return self.per_turn is None or rank < round(self.per_turn * (turn - 1) * games)


AGENTS = tuple(
    PaintedAgent(defect.replace(" ", "-") if defect != "none" else "perfect", defect)
    for defect in (
        *("none", "drifts", "wrong character", "forgets the place", "frozen", "too fast", "wrong state", "late"),
        "copies",
    )
)  # fmt: skip
"""The perfect agent, then one for each defect."""


def write_games(path: Path, games: int = 12, turns: int = 10) -> Benchmark:
    """Write a benchmark of painted games and read it back; the same numbers give the same file."""
    write_benchmark(path, [panel for number in range(games) for panel in _story(number, turns)])
    return read_benchmark(path)


def reference_pictures() -> dict[str, list[Image.Image]]:
    """Return the reference pictures of the figures: portraits, one at each place."""
    return {figure: [Image.fromarray(_portrait(figure, place)[..., ::-1]) for place in PLACES] for figure in FIGURES}


def write_played(root: Path, benchmark: Benchmark, agents: Iterable[PaintedAgent]) -> list[PlayedTurn]:
    """Write the games of agents as game folders, `<agent>/<game>/`, and return their turns; clips that exist stay."""
    played = []
    for agent in agents:
        for number, game in enumerate(benchmark.games):
            failing = [agent.fails(number, len(benchmark.games), panel.turn) for panel in game.panels]
            played += _write_game(root / agent.name / game.name, agent, game, failing)
    return played


def _story(number: int, turns: int) -> list[Panel]:
    """Return the panels of a game: a figure acts at places, stays at most two turns, and returns."""
    dice, figure = random.Random(f"story {number}"), list(FIGURES)[number % len(FIGURES)]
    places = dice.sample(list(PLACES), len(PLACES))
    panels, place = [], places[0]
    for turn in range(1, turns + 1):
        if turn > 1 and dice.random() < 0.8:
            place = dice.choice([each for each in places if each != place])
        deed, level = dice.choice(list(DEEDS)), (number + turn) % len(SPEEDS) + 1
        truth = DEEDS[deed]
        panels.append(
            Panel(
                game=f"painted-{number:02d}",
                turn=turn,
                characters=(figure,),
                MD=deed,
                MA=ADVERBS[level],
                EV=place,
                level=level,
                SC=truth.social,
                ET=truth.entertainment,
                ST=truth.stamina,
            )
        )
    return panels


def _write_game(folder: Path, agent: PaintedAgent, game: BenchmarkGame, failing: Sequence[bool]) -> list[PlayedTurn]:
    folder.mkdir(parents=True, exist_ok=True)
    turns = []
    for panel, fails in zip(game.panels, failing, strict=True):
        defect = agent.defect if fails else "none"
        clip = folder / f"{panel.turn:04d}.mp4"
        if not clip.exists():
            with replacing(clip) as temporary:
                write_clip(temporary, _frames(game.panels, panel, defect), _FPS, _CRF)
        turns.append(PlayedTurn(agent.name, panel, clip, _line(panel, defect)))
    with replacing(folder / "turns.jsonl") as temporary:
        temporary.write_text("".join(f"{turn.line.model_dump_json(exclude_none=True)}\n" for turn in turns))
    return turns


def _line(panel: Panel, defect: Defect) -> PlayedLine:
    deed = DEEDS[panel.MD or ""]
    shown = deed.reversed() if defect == "wrong state" else deed
    seconds = _SECONDS * (3 if defect == "late" else 1)
    return PlayedLine(
        id=f"{panel.turn:04d}",
        instruction=panel.instruction,
        level=panel.level,
        changes=PlayedChanges(stamina=shown.stamina, social=shown.social, entertainment=shown.entertainment),
        seconds={"all": seconds},
        first_frame_seconds=seconds / 2,
        memory_bytes=10**9,
    )


def _frames(panels: Sequence[Panel], panel: Panel, defect: Defect) -> Picture:
    """Paint a panel with a defect, BGR [T, H, W, 3]."""
    figure, place, level = panel.characters[0], panel.EV or "", panel.level or 1
    if defect == "wrong character":
        figure = _after(list(FIGURES), figure)
    if defect == "forgets the place":  # another place in every stay, so that no two visits agree
        place = _after(list(PLACES), place, _visits(panels[: panel.turn]))
    if defect == "too fast":
        level = min(level + 2, len(SPEEDS))
    frames_THWC = paint(ShapeClip(figure, panel.MD or "", place, level))
    if defect == "frozen":
        frames_THWC = np.repeat(frames_THWC[:1], len(frames_THWC), axis=0)
    if defect == "copies":
        frames_THWC[0] = _portrait(figure, place)
    if defect == "drifts":
        share = min(_DRIFT_STEP * (panel.turn - DRIFT_FROM + 1), 0.75)
        frames_THWC = ((1 - share) * frames_THWC + share * _TINT).round().astype(np.uint8)
    return frames_THWC


def _visits(panels: Sequence[Panel]) -> int:
    """Return the number of earlier visits to the place of the last panel; turns in a row are one visit."""
    places = [panel.EV for panel in panels]
    starts = [turn for turn, place in enumerate(places) if turn == 0 or places[turn - 1] != place]
    return sum(places[turn] == places[-1] for turn in starts) - 1


def _portrait(figure: str, place: str) -> Picture:
    """Paint a figure from near, in a picture of the clips' size."""
    near_HWC = paint(ShapeClip(figure, "float up", place, 1))[0, 6:58, 10:86]
    return np.asarray(cv2.resize(near_HWC, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC), np.uint8)


def _after(names: Sequence[str], name: str, steps: int = 1) -> str:
    return names[(names.index(name) + steps) % len(names)]
