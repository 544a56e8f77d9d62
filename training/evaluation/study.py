"""Study: a folder in which people rank the films of each game, blind, its key, and the results of the answers.

    STUDY/index.html                     page of the study, which opens from disk
    STUDY/films/<random>.mp4             a film of each game by each agent
    STUDY.key.json                       which agent made which film; next to the folder, never inside
    EVALUATION/measures/study.parquet    mean score by agent, game and criterion
    EVALUATION/measures/study.json       averages and agreement

The number of a participant decides the order of games and films. The browser keeps the answers, and saves them as CSV.
"""

from __future__ import annotations

import json
import random
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator

from pipeline.core.atomic import temporary_start, write_json
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, RecordError
from pipeline.video.clip_files import clip_shape, read_frames, write_clip
from training.evaluation.folder import EvaluationFolder
from training.evaluation.measures import Measure, Metric, read_measures, write_measures
from training.evaluation.played import PlayedTurn
from training.evaluation.ratings import CriterionScores, Ratings, moved_by_order, read_scores, scored

MAX_AGENTS = 10
PARTICIPANTS = 96  # balanced for 2, 3, 4, 6 and 8 agents, which divide it
CRF = 17  # x264 quality of the films
DATA = "/* data of the study */ {}"  # in the page, replaced with the games
HEAD = "study,participant,criterion,order"  # of a file of answers
MAX_BYTES = 4 << 20  # of a file of answers; a hundred times a long study


class Criterion(NamedTuple):
    """A criterion that agents are ranked by, and the corresponding metric of the judge, if any."""

    name: str
    title: str
    question: str
    judged: str | None


CRITERIA = (
    Criterion("overall", "Overall", "Which film would you rather play on with?", "judge_oa"),
    Criterion("instruction", "Instruction following", "Does each turn show what its instruction says?", "judge_ta"),
    Criterion("context", "Contextual consistency", "Do turns follow from the turns before, places too?", "judge_conc"),
    Criterion("character", "Character consistency", "Do the characters look the same throughout?", "judge_chac"),
    Criterion("style", "Style consistency", "Does the drawing keep its style?", "judge_vc"),
    Criterion("state", "State update", "Do the values shown at the film change as the turn suggests?", None),
)
STUDY_METRICS = tuple(
    Metric(
        name=f"study_{each.name}",
        title=f"Study: {each.title.lower()}",
        meaning=f"{each.question} Mean score of people's ranks, 10 for the best to 1 for the last.",
    )
    for each in CRITERIA
)


class Study(Record):
    """Key of a study, `STUDY.key.json`."""

    schema_version: Literal[1] = 1
    study: str = Field(description="public name of the study, stored with each answer")
    seed: str = Field(description="secret that all orders depend on")
    games: dict[str, dict[str, str]] = Field(min_length=1, description="random name of the film by game and agent")

    @model_validator(mode="after")
    def _ranks_the_same_agents_in_each_game(self) -> Study:
        films = [film for own in self.games.values() for film in own.values()]
        if len({frozenset(own) for own in self.games.values()}) > 1 or not 2 <= len(self.agents) <= MAX_AGENTS:
            raise ValueError(f"each game needs the same 2 to {MAX_AGENTS} agents")
        if len(set(films)) < len(films):
            raise ValueError("two films have one name")
        return self

    @property
    def agents(self) -> list[str]:
        """Names of the agents, sorted."""
        return sorted(next(iter(self.games.values())))

    def games_of(self, number: int) -> list[str]:
        """Return the games in the order of a participant, whose number counts from 1."""
        return self._random("games", number).sample(list(self.games), len(self.games))

    def shown(self, number: int, game: str) -> tuple[str, ...]:
        """Return the agents of a game in the order shown to a participant: as A, B, C, ...

        Participants in a row see an agent at different letters, until each letter was used once.
        """
        block, turn = divmod(number - 1, len(self.agents))
        order = self._random("agents", block, game).sample(self.agents, len(self.agents))
        return (*order[turn:], *order[:turn])

    def _random(self, *of: object) -> random.Random:
        return random.Random(" ".join(map(str, (self.seed, *of))))


class Answer(NamedTuple):
    """Agents of a game in the order of a participant, the best first, and in the order shown."""

    participant: int
    game: str
    criterion: str
    order: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def scores(self) -> dict[str, float]:
        """Score by agent, in the order of their names; the paper's 10, 7, 4, 1 for four agents."""
        return {agent: 10 - 9 * self.order.index(agent) / (len(self.order) - 1) for agent in sorted(self.order)}


class CriterionResult(CriterionScores):
    """Results of a criterion."""

    answers: int
    participants: int
    judge: float | None = Field(description="rank correlation of the judge with people; null: not judged, or no order")
    judged_games: int


class StudyResults(Record):
    """`measures/study.json`."""

    agents: tuple[str, ...]
    criteria: tuple[CriterionResult, ...]


def key_path(folder: Path) -> Path:
    """Return the path of a study's key, next to its folder."""
    return folder.with_name(f"{folder.name}.key.json")


def read_study(folder: Path) -> Study:
    """Read the key of a study."""
    path = key_path(folder)
    try:
        return Study.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UserError(
            f"{path} is missing or damaged; give the study's folder as --out, or restore its key"
        ) from error


def write_study(evaluation: EvaluationFolder, folder: Path) -> Study:
    """Write a study of the games that all agents have played to the end, and its key.

    Raises:
        UserError: no game can be shown, too few or too many agents, the study exists, or it cannot be written.
    """
    for path in (folder, key_path(folder)):
        if path.exists():
            raise UserError(f"{path} already exists; give another --out, or delete both folder and key")
    played = _played_games(evaluation)
    games = {game: {agent: secrets.token_hex(8) for agent in turns} for game, turns in played.items()}
    study = Study(study=secrets.token_hex(8), seed=secrets.token_hex(16), games=games)
    turns_of = {film: played[game][agent] for game, own in games.items() for agent, film in own.items()}
    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=temporary_start(folder), dir=folder.parent) as temporary:
            content = Path(temporary) / "study"
            (content / "films").mkdir(parents=True)
            # Write the films in the order of their random names, so that not even their times tell the agents apart.
            films = {film: _write_film(film, turns_of[film], content / "films") for film in sorted(turns_of)}
            data = json.dumps(_page_data(study, films, turns_of)).replace("<", "\\u003c")
            page = (files("training.evaluation") / "study_page.html").read_text(encoding="utf-8")
            (content / "index.html").write_text(page.replace(DATA, data), encoding="utf-8")
            write_json(key_path(folder), study.model_dump(mode="json"))
            content.rename(folder)
    return study


def _played_games(evaluation: EvaluationFolder) -> dict[str, dict[str, list[PlayedTurn]]]:
    """Return the turns by game and agent of the games that all agents have played to the end."""
    turns = {agent.name: evaluation.played(agent.name) for agent in evaluation.request.agents}
    if not 2 <= len(turns) <= MAX_AGENTS:
        raise UserError(f"{evaluation.path}: {len(turns)} agents; a study ranks 2 to {MAX_AGENTS}")
    games = {}
    for game in evaluation.benchmark.games:
        played = {agent: [turn for turn in own if turn.panel.game == game.name] for agent, own in turns.items()}
        if all(len(own) == len(game.panels) for own in played.values()):
            games[game.name] = played
    if not games:
        raise UserError(f"{evaluation.path}: no game is complete for every agent; `animegamer evaluate run` plays them")
    return games


def _write_film(name: str, turns: Sequence[PlayedTurn], folder: Path) -> dict[str, Any]:
    """Write the clips of a game as one film, and return its entry for the page: starts of turns in seconds, states.

    All films are encoded again in the same way, so that an agent's encoder leaves no trace. Its picture size and frame
    rate stay.
    """
    clips = [turn.clip for turn in turns]
    try:
        shapes = [clip_shape(clip) for clip in clips]
        width, height, fps = shapes[0].width // 2 * 2, shapes[0].height // 2 * 2, shapes[0].fps
        frames = (frame for clip in clips for frame in read_frames(clip, range, width, height))
        write_clip(folder / f"{name}.mp4", frames, fps, CRF)
    except RecordError as error:
        raise UserError(f"{clips[0].parent}: clip {error}; play the game again, or replace the clip") from error
    starts = [float(count / fps) for count in accumulate((shape.frames for shape in shapes[:-1]), initial=0)]
    states = [turn.line.changes and turn.line.changes.model_dump() for turn in turns]
    return {"name": name, "starts": starts, "states": states}


def _page_data(study: Study, films: dict[str, dict[str, Any]], turns: dict[str, list[PlayedTurn]]) -> dict[str, Any]:
    """Return the data of the page: films sorted by their random names, and orders as indices into this list."""
    names = {game: sorted(own.values()) for game, own in study.games.items()}
    games = []
    for own in names.values():
        has_states = all(any(films[name]["states"]) for name in own)
        criteria = [each.name for each in CRITERIA if has_states or each.name != "state"]
        instructions = [turn.panel.instruction for turn in turns[own[0]]]
        games.append({"instructions": instructions, "criteria": criteria, "films": [films[name] for name in own]})

    def order(number: int, game: str) -> tuple[int, list[int]]:
        shown = [study.games[game][agent] for agent in study.shown(number, game)]
        return list(names).index(game), [names[game].index(film) for film in shown]

    orders = [[order(number, game) for game in study.games_of(number)] for number in range(1, PARTICIPANTS + 1)]
    return {"study": study.study, "criteria": [each._asdict() for each in CRITERIA], "games": games, "orders": orders}


def read_answers(study: Study, paths: Sequence[Path]) -> list[Answer]:
    """Read answers as the page saved them.

    Raises:
        UserError: a file does not hold answers to this study, or two answer the same question.
    """
    found: dict[tuple[int, str, str], Answer] = {}
    for path in paths:
        line = 1
        try:
            if path.stat().st_size > MAX_BYTES:
                raise ValueError("the file is too large")
            head, *rows = path.read_text(encoding="utf-8-sig").splitlines() or [""]
            if head != HEAD:
                raise ValueError(f"the head is not {HEAD}")
            for line, row in enumerate(rows, start=2):  # noqa: B007  # for the error
                answer = _answer(study, row)
                if found.setdefault(answer[:3], answer) is not answer:
                    raise ValueError("this participant has answered the question already; pass each file once")
        except ValueError as error:
            raise UserError(f"{path}, line {line}: {error}; use files as the page saved them") from error
    return list(found.values())


def _answer(study: Study, row: str) -> Answer:
    """Read a row of a file of answers, or raise a ValueError."""
    cells = row.split(",")
    if len(cells) != 4:
        raise ValueError(f"{len(cells)} columns, not 4")
    name, participant, criterion, films = cells
    if name != study.study:
        raise ValueError(f"this answers another study, {name[:40]!r}")
    if participant not in map(str, range(1, PARTICIPANTS + 1)):
        raise ValueError(f"no participant {participant[:40]!r}")
    if criterion not in [each.name for each in CRITERIA]:
        raise ValueError(f"no criterion {criterion[:40]!r}")
    for game, own in study.games.items():
        agents = {film: agent for agent, film in own.items()}
        if sorted(order := films.split(" ")) == sorted(agents):
            number, ranked = int(participant), tuple(agents[film] for film in order)
            return Answer(number, game, criterion, ranked, study.shown(number, game))
    raise ValueError(f"these are not the films of one game, {films[:40]!r}")


def write_results(evaluation: EvaluationFolder, study: Study, answers: Sequence[Answer]) -> StudyResults:
    """Make measures and results of answers, and write them.

    Raises:
        UserError: the evaluation has no such agents or games, or a file cannot be read or written.
    """
    known = {agent.name for agent in evaluation.request.agents} | {game.name for game in evaluation.benchmark.games}
    if unknown := {*study.agents, *study.games} - known:
        raise UserError(f"{evaluation.path}: has no {min(unknown)}; name the evaluation that the study was made from")
    measures = evaluation.path / "measures"
    scores = scores_of(answers)
    write_measures(measures / "study.parquet", scores)
    judged = list(read_measures(measures / "judge.parquet"))
    criteria = tuple(_result(each, answers, scores, judged) for each in CRITERIA)
    results = StudyResults(agents=tuple(study.agents), criteria=criteria)
    write_json(measures / "study.json", results.model_dump(mode="json"))
    return results


def read_results(evaluation: Path) -> StudyResults | None:
    """Read the results of a study; None if there are none."""
    return read_scores(evaluation / "measures" / "study.json", StudyResults, "animegamer evaluate study --results")


def study_notes(evaluation: Path) -> Iterator[str]:
    """Yield sentences on the study for the head of the report."""
    results = read_results(evaluation)
    if results and (moved := moved_by_order(results.criteria)):
        yield f"The letter of a film moves people's scores: {moved}."


def scores_of(answers: Iterable[Answer]) -> list[Measure]:
    """Return the mean score by agent, game and criterion."""
    found = defaultdict(list)
    for answer in answers:
        for agent, score in answer.scores.items():
            found[agent, answer.game, f"study_{answer.criterion}"].append(score)
    return [
        Measure(agent=agent, game=game, turn=None, metric=metric, value=fmean(values))
        for (agent, game, metric), values in sorted(found.items())
    ]


def ratings_of(answers: Iterable[Answer]) -> list[Ratings]:
    """Return the ratings of each game in answers about one criterion."""
    by_game = defaultdict(list)
    for answer in answers:
        by_game[answer.game].append(answer)
    return [
        Ratings(
            tuple(tuple(map(answer.shown.index, sorted(answer.shown))) for answer in own),
            tuple(tuple(answer.scores.values()) for answer in own),
        )
        for own in by_game.values()
    ]


def judge_agreement(scores: Iterable[Measure], judged: Iterable[Measure], criterion: Criterion) -> list[float]:
    """Return Spearman's correlation of judge and people by game, for games that both rank."""
    from scipy.stats import spearmanr  # importing it takes a second

    people, judge = _by_game(scores, f"study_{criterion.name}"), _by_game(judged, criterion.judged)
    found = []
    for game in sorted(people.keys() & judge.keys()):
        agents = sorted(people[game].keys() & judge[game].keys())
        left, right = ([fmean(of[game][agent]) for agent in agents] for of in (people, judge))
        if min(len(set(left)), len(set(right))) > 1:  # equal scores have no order
            found.append(float(spearmanr(left, right).statistic))
    return found


def _by_game(measures: Iterable[Measure], metric: str | None) -> dict[str, dict[str, list[float]]]:
    """Return the values of a metric by game and agent."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in measures:
        if each.metric == metric:
            found[each.game][each.agent].append(each.value)
    return found


def _result(
    criterion: Criterion, answers: Iterable[Answer], scores: Sequence[Measure], judged: Sequence[Measure]
) -> CriterionResult:
    own = [answer for answer in answers if answer.criterion == criterion.name]
    correlations = judge_agreement(scores, judged, criterion)
    by_game = _by_game(scores, f"study_{criterion.name}").values()  # as in figures: games count alike
    means = {agent: fmean(fmean(game[agent]) for game in by_game) for agent in (own[0].scores if own else ())}
    return CriterionResult(
        **scored(f"study_{criterion.name}", means, ratings_of(own)).model_dump(),
        answers=len(own),
        participants=len({answer.participant for answer in own}),
        judge=fmean(correlations) if correlations else None,
        judged_games=len(correlations),
    )
