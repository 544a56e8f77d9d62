"""Results of a study: scores of agents, agreement of participants, and the judge's agreement with them.

    EVALUATION/measures/study.parquet    mean score by agent, game and criterion
    EVALUATION/study/results.json        averages and agreement

Agreement is Krippendorff's alpha for ordinal values: 1 where people rank alike, 0 where they agree as by chance. The
effect of a film's letter on its scores is that of a position on a judge's (`ratings.py`). The judge's agreement is
Spearman's correlation of its scores with people's, over the agents of a game, averaged over games.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from pipeline.core.atomic import replacing, write_json
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, faults_of
from training.evaluation.folder import EvaluationFolder
from training.evaluation.measures import Measure, Metric, read_measures, write_measures
from training.evaluation.ratings import Ratings, agreement, moved_by_order, position_bias
from training.evaluation.study import CRITERIA, CRITERION, LETTERS, Answer, Criterion, read_answers, score

HEADS = ("participant", "game", "criterion", "agent", "shown_as", "rank", "score", "time")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters by which a spreadsheet takes a cell for a formula."""


class CriterionResult(Record):
    """Results of a criterion."""

    criterion: str
    scores: dict[str, float] = Field(description="mean score by agent, over games and participants")
    answers: int
    participants: int
    alpha: float | None = Field(description="agreement of participants; null: no two ranked the same game")
    position_effects: tuple[float, ...] | None = Field(
        None, description="mean gain of a score by letter, from A on; null: no agent was seen at two letters"
    )
    order_p_value: float | None = Field(None, description="probability of such effects if the order did not matter")
    judge: float | None = Field(description="rank correlation of the judge with people; null: not judged, or no order")
    judged_games: int


class StudyResults(Record):
    """`results.json`."""

    agents: tuple[str, ...]
    criteria: tuple[CriterionResult, ...]
    unreadable_lines: int = Field(description="lines of the answers' file that were skipped")


def study_metrics() -> tuple[Metric, ...]:
    """Return the metrics of a study."""
    meaning = "{} Mean score of people's ranks, 10 for the best to 1 for the last."
    return tuple(
        Metric(name=each.metric, title=f"Study: {each.title.lower()}", meaning=meaning.format(each.question))
        for each in CRITERIA
    )


def write_results(evaluation: EvaluationFolder) -> StudyResults:
    """Make measures and results of all complete answers, and write them.

    Raises:
        DiskError: a file cannot be read or written.
        UserError: the judge's measures are damaged.
    """
    answers, unreadable = complete_answers(evaluation)
    agents = tuple(agent.name for agent in evaluation.request.agents)
    measures = evaluation.path / "measures"
    scores = scores_of(answers)
    write_measures(measures / "study.parquet", scores)
    judged = list(read_measures(measures / "judge.parquet"))
    results = StudyResults(
        agents=agents,
        criteria=tuple(_result(each, answers, scores, judged) for each in CRITERIA),
        unreadable_lines=unreadable,
    )
    write_json(evaluation.path / "study" / "results.json", results.model_dump(mode="json"))
    return results


def read_results(evaluation: Path) -> StudyResults | None:
    """Read the results of a study; None: there are none.

    Raises:
        UserError: the file is damaged.
    """
    path = evaluation / "study" / "results.json"
    if not path.exists():
        return None
    try:
        with disk_errors(path):
            return StudyResults.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path}: damaged ({faults_of(error)}); `animegamer evaluate study` makes it anew") from error


def study_notes(evaluation: Path) -> Iterator[str]:
    """Yield sentences on the study for the head of the report.

    Raises:
        UserError: the results are damaged.
    """
    results = read_results(evaluation)
    moved = moved_by_order({each.criterion: each.order_p_value for each in results.criteria}) if results else ""
    if moved:
        yield f"The letter of a film moves people's scores: {moved}."


def complete_answers(evaluation: EvaluationFolder) -> tuple[list[Answer], int]:
    """Return the complete answers about the evaluation's games and agents, and the number of unreadable lines."""
    answers = read_answers(evaluation.path / "study")
    games = [game.name for game in evaluation.benchmark.games]
    return answers.complete(games, [agent.name for agent in evaluation.request.agents]), answers.faults


def scores_of(answers: Iterable[Answer]) -> list[Measure]:
    """Return the mean score by agent, game and criterion."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for answer in answers:
        for rank, agent in enumerate(answer.order, start=1):
            key = (agent, answer.game, CRITERION[answer.criterion].metric)
            found.setdefault(key, []).append(score(rank, len(answer.order)))
    return [
        Measure(agent=agent, game=game, turn=None, metric=metric, value=fmean(values))
        for (agent, game, metric), values in sorted(found.items())
    ]


def ratings_of(answers: Iterable[Answer]) -> list[Ratings]:
    """Return the ratings of each game in complete answers about one criterion."""
    by_game: dict[str, list[Answer]] = {}
    for answer in answers:
        by_game.setdefault(answer.game, []).append(answer)
    return [
        Ratings(
            positions=tuple(tuple(map(answer.shown.index, sorted(answer.shown))) for answer in own),
            scores=tuple(_scores(answer) for answer in own),
        )
        for own in by_game.values()
    ]


def _scores(answer: Answer) -> tuple[float, ...]:
    """Return the scores of the agents, in the order of their names."""
    return tuple(score(answer.order.index(agent) + 1, len(answer.order)) for agent in sorted(answer.order))


def judge_agreement(scores: Iterable[Measure], judged: Iterable[Measure], criterion: Criterion) -> list[float]:
    """Return the rank correlation of judge and people for each game that both rank; games without an order are out."""
    people, judge = _by_game(scores, criterion.metric), _by_game(judged, criterion.judged)
    found = []
    for game in people.keys() & judge.keys():
        agents = sorted(people[game].keys() & judge[game].keys())
        correlation = spearman([people[game][name] for name in agents], [judge[game][name] for name in agents])
        if correlation is not None:
            found.append(correlation)
    return found


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Return the correlation of ranks, equal values sharing their mean rank; None: all of one side are equal."""
    if min(len(set(left)), len(set(right))) < 2:
        return None
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def write_table(path: Path, answers: Iterable[Answer]) -> int:
    """Write complete answers as CSV, a row per rank, and return the number of rows; no cell is taken for a formula.

    Raises:
        DiskError: it cannot be written.
    """
    rows = [row for answer in answers for row in _rows(answer)]
    with replacing(path) as temporary, disk_errors(path), temporary.open("w", encoding="utf-8-sig", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(HEADS)
        lines.writerows([safe_cell(value) if isinstance(value, str) else value for value in row] for row in rows)
    return len(rows)


def safe_cell(text: str) -> str:
    """Return a text that a spreadsheet shows as it is: one that it would take for a formula gets an apostrophe."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _rows(answer: Answer) -> Iterable[tuple[str | int | float, ...]]:
    time = answer.time.isoformat(timespec="seconds")
    for rank, agent in enumerate(answer.order, start=1):
        letter = LETTERS[answer.shown.index(agent)]
        points = round(score(rank, len(answer.order)), 4)
        yield answer.participant, answer.game, answer.criterion, agent, letter, rank, points, time


def _result(
    criterion: Criterion, answers: Iterable[Answer], scores: Sequence[Measure], judged: Sequence[Measure]
) -> CriterionResult:
    own = [answer for answer in answers if answer.criterion == criterion.name]
    points: dict[str, list[float]] = {}
    for answer in own:
        for rank, agent in enumerate(answer.order, start=1):
            points.setdefault(agent, []).append(score(rank, len(answer.order)))
    correlations = judge_agreement(scores, judged, criterion)
    ratings = ratings_of(own)
    bias = position_bias(ratings)
    return CriterionResult(
        criterion=criterion.name,
        scores={agent: fmean(values) for agent, values in sorted(points.items())},
        answers=len(own),
        participants=len({answer.participant for answer in own}),
        alpha=agreement(ratings),
        position_effects=bias.effects if bias else None,
        order_p_value=bias.p_value if bias else None,
        judge=fmean(correlations) if correlations else None,
        judged_games=len(correlations),
    )


def _by_game(measures: Iterable[Measure], metric: str | None) -> dict[str, dict[str, float]]:
    """Return the mean value of a metric by game and agent."""
    found: dict[str, dict[str, list[float]]] = {}
    for each in measures:
        if each.metric == metric:
            found.setdefault(each.game, {}).setdefault(each.agent, []).append(each.value)
    return {game: {agent: fmean(values) for agent, values in agents.items()} for game, agents in found.items()}


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.array(values, float)
    below, equal = (array[:, None] > array).sum(1), (array[:, None] == array).sum(1)
    return np.asarray(below + (equal - 1) / 2, np.float64)
