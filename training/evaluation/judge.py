"""Judge: a multimodal model that scores all agents side by side, five turns at a time, by six criteria.

    EVALUATION/judge/replies/<game>-<first turn>-<repeat>.json     replies; no question is sent twice
    EVALUATION/judge/summary.json                                  bias by order, agreement, counts
    EVALUATION/measures/judge.parquet                              scores: a row per agent, window and criterion

A window is five turns in a row. Each window is scored several times, with the agents in another order each time. The
scores belong to the last turn of the window.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from threading import Lock

import cv2
import numpy as np

from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import Endpoint, Message, Picture, user
from pipeline.captions.questions import spread
from pipeline.core.atomic import write_json
from pipeline.core.errors import UserError
from pipeline.core.progress import Progress
from pipeline.video.clip_files import clip_shape, read_frames
from prompts.evaluation_replies import CRITERIA, Scores, example, judge_pattern, parse_scores
from prompts.template import load_prompt
from training.evaluation.folder import EvaluationFolder
from training.evaluation.inquiries import Inquiry, ask_all, model_ingredients
from training.evaluation.judge_summary import JudgeSummary
from training.evaluation.measures import Measure, write_measures
from training.evaluation.played import PlayedTurn, content_hash
from training.evaluation.ratings import CriterionScores, Ratings, scored

WINDOW_TURNS = 5
FRAMES = 5
FIELD = _WIDTH, _HEIGHT = 240, 160
_GAP, _QUALITY = 6, 90
PICTURES = f"{FRAMES} frames in fields of {_WIDTH}x{_HEIGHT} a row, in proportion, quality {_QUALITY}"
"""The pictures as an ingredient of every reply."""
MOST_KEPT = 64
"""Maximum number of pictures in memory (4 MB), enough for the windows of all requests in flight."""


@dataclass(frozen=True)
class Window:
    """Some turns of a game in a row, played by all agents."""

    turns: tuple[tuple[PlayedTurn, ...], ...]
    """Per agent, its turns."""

    @cached_property
    def clip_hashes(self) -> tuple[tuple[str, ...], ...]:
        """Per agent, the hashes of its clips. UserError if a clip cannot be read."""
        return tuple(tuple(content_hash(turn.clip) for turn in turns) for turns in self.turns)

    @property
    def name(self) -> str:
        """Name of the window in file names."""
        first = self.turns[0][0].panel
        return f"{first.game}-{first.turn:04d}"

    def order(self, repeat: int) -> tuple[int, ...]:
        """Return the agents by position in a repeat: a random order that is rotated, then reversed and rotated.

        With as many repeats as agents, each agent has each position once.
        """
        order = list(range(len(self.turns)))
        random.Random(self.name).shuffle(order)
        rounds, start = divmod(repeat, len(order))
        order = order[::-1] if rounds % 2 else order
        return tuple(order[start:] + order[:start])


def judge(
    evaluation: EvaluationFolder, endpoint: Endpoint, repeats: int, cast: Cast, progress: Progress
) -> JudgeSummary:
    """Judge the games that all agents have played, and write the scores and their summary.

    Raises:
        UserError: there are fewer than two agents, nothing to judge or no usable reply, or the service cannot be used.
    """
    agents = tuple(agent.name for agent in evaluation.request.agents)
    if len(agents) < 2:
        raise UserError(f"{evaluation.path} has one agent, but a judge compares agents: add another and play it")
    windows, left_out = find_windows(evaluation, agents)
    if not windows:
        raise UserError(f"{evaluation.path} has no window of turns that all agents have played; play them first")
    pictures = StoryPictures()
    inquiries = [_inquiry(window, repeat, endpoint, cast, pictures) for window in windows for repeat in range(repeats)]
    folder = evaluation.path / "judge"
    answers = ask_all(inquiries, endpoint, folder / "replies", "windows", progress)
    if not answers.usable:
        name, reason = next(iter(answers.refused.items()))
        raise UserError(f"the judge gave no usable reply; {name}: {reason} Name another model")
    judged = [(window, _ratings(window, repeats, answers.usable)) for window in windows]
    judged = [(window, ratings) for window, ratings in judged if ratings]
    measures = [found for window, ratings in judged for found in _measures(agents, window, ratings)]
    write_measures(evaluation.path / "measures" / "judge.parquet", measures)
    summary = JudgeSummary(
        model=endpoint.model,
        prompt=load_prompt("judge").identity,
        temperature=endpoint.temperature,
        cast_sha256=cast.sha256,
        agents=agents,
        repeats=repeats,
        windows=len(judged),
        left_out=left_out,
        refused=answers.refused,
        repaired=answers.repaired,
        criteria=tuple(_scored(name, measures, [ratings[name] for _, ratings in judged]) for name in CRITERIA),
    )
    write_json(folder / "summary.json", summary.model_dump(mode="json"))
    return summary


def find_windows(evaluation: EvaluationFolder, agents: Sequence[str]) -> tuple[list[Window], int]:
    """Return the windows that all agents have played, and the number of other windows."""
    played = {agent: {(t.panel.game, t.panel.turn): t for t in evaluation.played(agent)} for agent in agents}
    windows, left_out = [], 0
    for game in evaluation.benchmark.games:
        for start in range(0, len(game.panels), WINDOW_TURNS):
            keys = [(game.name, panel.turn) for panel in game.panels[start : start + WINDOW_TURNS]]
            if all(key in played[agent] for agent in agents for key in keys):
                windows.append(Window(tuple(tuple(played[agent][key] for key in keys) for agent in agents)))
            else:
                left_out += 1
    return windows, left_out


def _inquiry(window: Window, repeat: int, endpoint: Endpoint, cast: Cast, pictures: StoryPictures) -> Inquiry[Scores]:
    prompt, order = load_prompt("judge"), window.order(repeat)
    scenes = "\n".join(f"{row}. {turn.panel.instruction}" for row, turn in enumerate(window.turns[0], start=1))
    reference = load_prompt("judge-reference").render(cast=cast.listing()) if cast.sheets else ""
    text = prompt.render(
        agents=len(order),
        reference=f"{reference}\n" if reference else "",
        scenes=scenes,
        likeness=", and as in their reference pictures" if reference else "",
        example=example(len(order)),
    )
    ingredients = {
        **model_ingredients(endpoint),
        "prompt": prompt.identity,
        "text": hashlib.sha256(text.encode()).hexdigest()[:16],
        "cast": cast.sha256,
        "pictures": PICTURES,
        "clips": [window.clip_hashes[agent] for agent in order],
        "repeat": repeat,
    }

    def messages() -> list[Message]:
        shown = [pictures.of([turn.clip for turn in window.turns[agent]]) for agent in order]
        return [user(text, (*cast.sheets, *shown))]

    read = partial(parse_scores, programs=len(order))
    return Inquiry(_name(window, repeat), ingredients, messages, read, judge_pattern(len(order)), repairs=1)


def _ratings(window: Window, repeats: int, usable: Mapping[str, Scores]) -> dict[str, Ratings]:
    """Return the ratings of a window by criterion, with the order undone; empty without a usable reply."""
    shown = {repeat: usable[name] for repeat in range(repeats) if (name := _name(window, repeat)) in usable}
    agents = range(len(window.turns))
    positions = {repeat: tuple(map(window.order(repeat).index, agents)) for repeat in shown}
    return {
        criterion: Ratings(
            positions=tuple(positions.values()),
            scores=tuple(tuple(shown[repeat][criterion][place] for place in positions[repeat]) for repeat in shown),
        )
        for criterion in CRITERIA
        if shown
    }


def _measures(agents: Sequence[str], window: Window, ratings: Mapping[str, Ratings]) -> list[Measure]:
    last = window.turns[0][-1].panel
    return [
        Measure(
            agent=agent,
            game=last.game,
            turn=last.turn,
            metric=f"judge_{name.lower()}",
            value=fmean(row[number] for row in found.scores),
        )
        for name, found in ratings.items()
        for number, agent in enumerate(agents)
    ]


def _scored(name: str, measures: Iterable[Measure], windows: Sequence[Ratings]) -> CriterionScores:
    metric, values = f"judge_{name.lower()}", dict[str, list[float]]()
    for each in measures:
        if each.metric == metric:
            values.setdefault(each.agent, []).append(each.value)
    return scored(metric, {agent: fmean(own) for agent, own in values.items()}, windows)


def _name(window: Window, repeat: int) -> str:
    return f"{window.name}-{repeat + 1}"


def story_picture(clips: Sequence[Path]) -> Picture:
    """Paint a picture of scenes: row i is five frames of clip i, in proportion, in fields of one size on white.

    Raises:
        RecordError: a clip cannot be read.
    """
    sheet_HWC = np.full((len(clips) * (_HEIGHT + _GAP) - _GAP, FRAMES * _WIDTH, 3), 255, np.uint8)
    for row, clip in enumerate(clips):
        width, height = clip_shape(clip).within(_WIDTH, _HEIGHT)
        frames_THWC = read_frames(clip, lambda count: spread(count, FRAMES), width, height)
        top = row * (_HEIGHT + _GAP) + (_HEIGHT - height) // 2
        for column, frame_HWC in enumerate(frames_THWC):
            left = column * _WIDTH + (_WIDTH - width) // 2
            sheet_HWC[top : top + height, left : left + width] = frame_HWC
    _, content = cv2.imencode(".jpg", sheet_HWC, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return Picture(content.tobytes(), tiles=12)


class StoryPictures:
    """Cache of the windows' pictures, each painted once for all repeats of its window. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[tuple[Path, ...], _Painting] = {}

    def of(self, clips: Sequence[Path]) -> Picture:
        """Return the picture of scenes. RecordError if a clip cannot be read."""
        with self._lock:
            painting = self._kept.setdefault(tuple(clips), _Painting(clips))
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return painting.picture()


@dataclass
class _Painting:
    """A picture that the first caller paints while other callers wait."""

    clips: Sequence[Path]
    lock: Lock = field(default_factory=Lock)
    painted: Picture | None = None

    def picture(self) -> Picture:
        with self.lock:
            if self.painted is None:
                self.painted = story_picture(self.clips)
            return self.painted
