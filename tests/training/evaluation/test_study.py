"""Study without its page: orders shown, scores of ranks, agreement, the judge's agreement, the table."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pytest

from tests.support.servers.study_page import painted_evaluation
from training.evaluation.judge_summary import JUDGE_METRICS
from training.evaluation.measures import Measure, read_measures, write_measures
from training.evaluation.ratings import agreement
from training.evaluation.study import (
    CRITERION,
    Answer,
    Study,
    StudyError,
    append_answer,
    open_study,
    read_answers,
    score,
)
from training.evaluation.study_results import complete_answers, ratings_of, spearman, write_results, write_table

ABCD = ("a", "b", "c", "d")


def answer(person: str, order: tuple[str, ...], game: str = "game-0", criterion: str = "overall") -> Answer:
    return Answer(
        time=datetime(2026, 11, 23, tzinfo=UTC),
        participant=person,
        game=game,
        criterion=criterion,
        order=order,
        shown=tuple(sorted(order)),
    )


def test_ranks_of_four_are_the_papers_scores_and_of_others_on_the_line_between() -> None:
    assert [score(rank, 4) for rank in (1, 2, 3, 4)] == [10, 7, 4, 1]
    assert [score(rank, 3) for rank in (1, 2, 3)] == [10, 5.5, 1]
    assert [score(rank, 2) for rank in (1, 2)] == [10, 1]


def test_a_block_of_participants_sees_each_agent_once_at_each_letter() -> None:
    study = Study(key="k" * 32)
    for game in ("one", "two"):
        for block in (range(4), range(4, 8)):
            shown = [study.shown(number, game, ABCD) for number in block]
            assert all(sorted(column) == list(ABCD) for column in zip(*shown, strict=True))
    orders = Counter(study.shown(0, f"game-{game}", ABCD) for game in range(600))
    assert len(orders) == len(list(permutations(ABCD)))
    assert max(orders.values()) < 60, "no order is preferred over the games; 25 are expected"
    assert study.shown(3, "one", ABCD) == study.shown(3, "one", ABCD[::-1]), "whatever the order of the request"
    assert study.shown(0, "one", ABCD) != Study(key="l" * 32).shown(0, "one", ABCD)


def test_each_participant_has_the_games_in_another_order() -> None:
    study, games = Study(key="k" * 32), [f"game-{number}" for number in range(12)]
    orders = [tuple(study.games_of(number, games)) for number in range(20)]
    assert len(set(orders)) == 20
    assert all(sorted(order) == sorted(games) for order in orders)


def test_participants_are_added_and_keep_their_links(tmp_path: Path) -> None:
    first = open_study(tmp_path / "study", ["anna", "ben"])
    again = open_study(tmp_path / "study", ["ben", "chloe", "chloe"])
    assert [each.name for each in again.participants] == ["anna", "ben", "chloe"]
    assert again.participants[:2] == first.participants
    assert len({each.link for each in again.participants}) == 3
    assert (tmp_path / "study").stat().st_mode & 0o077 == 0, "the links are for the owner alone"
    with pytest.raises(StudyError, match="one line of printable text"):
        open_study(tmp_path / "study", ["a\nb"])
    (tmp_path / "study" / "study.json").write_text("{")
    with pytest.raises(StudyError, match="damaged"):
        open_study(tmp_path / "study", [])


def test_the_last_answer_counts_and_a_torn_line_harms_no_other(tmp_path: Path) -> None:
    append_answer(tmp_path, answer("anna", ABCD))
    append_answer(tmp_path, answer("anna", ABCD[::-1]))
    file = tmp_path / "answers.jsonl"
    with file.open("ab") as lines:
        lines.write(b'{"time": "2026-11')
    append_answer(tmp_path, answer("ben", ABCD))
    found = read_answers(tmp_path)
    assert found.faults == 1
    assert {each.participant: each.order for each in found.current.values()} == {"anna": ABCD[::-1], "ben": ABCD}


@pytest.mark.parametrize("values", [{"order": ("x",)}, {"order": ("a", "a")}, {"criterion": "beauty"}])
def test_a_line_that_ranks_something_else_is_no_answer(tmp_path: Path, values: dict[str, object]) -> None:
    wrong = answer("anna", ABCD).model_copy(update=values)
    (tmp_path / "answers.jsonl").write_text(wrong.model_dump_json() + "\n")
    assert read_answers(tmp_path).faults == 1


def test_agreement_is_one_for_equal_orders_and_negative_for_opposite_ones() -> None:
    games = [f"game-{number}" for number in range(5)]
    alike = [answer(person, ABCD, game) for person in ("anna", "ben", "chloe") for game in games]
    assert agreement(ratings_of(alike)) == pytest.approx(1)
    opposite = [answer("anna", ABCD, game) for game in games] + [answer("ben", ABCD[::-1], game) for game in games]
    found = agreement(ratings_of(opposite))
    assert found is not None
    assert found < -0.5
    swapped = agreement(
        ratings_of(
            [answer("anna", ABCD, game) for game in games] + [answer("ben", ("b", "a", "c", "d"), g) for g in games]
        )
    )
    assert swapped is not None
    assert 0.5 < swapped < 1, "neighbours that are swapped weigh little: the values are ordinal"
    assert agreement(ratings_of([answer("anna", ABCD)])) is None


def test_people_who_prefer_a_letter_are_found_out(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, agents=ABCD, games=6, turns=1)
    study = Study(key="k" * 32)
    for number, person in enumerate(("anna", "ben", "chloe", "dora")):
        for game in (f"game-{game}" for game in range(6)):
            shown = study.shown(number, game, ABCD)
            fair = answer(person, ABCD, game, "style").model_copy(update={"shown": shown})
            append_answer(evaluation.path / "study", fair)
            append_answer(evaluation.path / "study", fair.model_copy(update={"criterion": "overall", "order": shown}))
    found = {each.criterion: each for each in write_results(evaluation).criteria}
    assert found["overall"].position_effects == pytest.approx((4.5, 1.5, -1.5, -4.5)), "A always gets 10, D 1"
    assert found["overall"].order_p_value == pytest.approx(0.001)
    assert found["overall"].scores == pytest.approx(dict.fromkeys(ABCD, 5.5)), "each agent was at each letter"
    assert found["style"].position_effects == pytest.approx((0, 0, 0, 0))
    assert found["style"].order_p_value == 1
    assert found["context"].order_p_value is None


def test_the_criteria_name_metrics_of_the_judge() -> None:
    judged = [each.judged for each in CRITERION.values() if each.judged]
    assert len(judged) == 5
    assert set(judged) < {metric.name for metric in JUDGE_METRICS}


def test_spearman_of_ties_is_that_of_mean_ranks() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert spearman([1, 1], [1, 2]) is None


def test_results_are_means_and_the_judges_correlation_per_game(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, agents=("a", "b", "c"), turns=1)
    study = evaluation.path / "study"
    for each in (
        answer("anna", ("a", "b", "c")),
        answer("ben", ("a", "c", "b")),
        answer("anna", ("c", "b", "a"), "game-1"),
        answer("anna", ("a", "b", "c"), "another-game"),
        answer("anna", ("a", "b"), criterion="style"),  # before agent c joined
    ):
        append_answer(study, each)
    judged = {"game-0": {"a": 9, "b": 5, "c": 5}, "game-1": {"a": 9, "b": 5, "c": 4}}
    write_measures(
        evaluation.path / "measures" / "judge.parquet",
        [
            Measure(agent=agent, game=game, turn=None, metric="judge_oa", value=value)
            for game, values in judged.items()
            for agent, value in values.items()
        ],
    )
    results = write_results(evaluation)
    overall = results.criteria[0]
    assert overall.scores == {
        "a": pytest.approx(7),
        "b": pytest.approx((5.5 + 1 + 5.5) / 3),
        "c": pytest.approx(16.5 / 3),
    }
    assert (overall.answers, overall.participants, overall.judged_games) == (3, 2, 2)
    # game-0: people 10, 3.25, 3.25 and the judge 9, 5, 5 agree; game-1: opposite
    assert overall.judge == pytest.approx(0)
    assert {each.criterion: each.answers for each in results.criteria}["style"] == 0
    measures = list(read_measures(evaluation.path / "measures" / "study.parquet"))
    assert {(each.agent, each.game): each.value for each in measures} == {
        ("a", "game-0"): 10, ("b", "game-0"): 3.25, ("c", "game-0"): 3.25,
        ("a", "game-1"): 1, ("b", "game-1"): 5.5, ("c", "game-1"): 10,
    }  # fmt: skip
    assert {each.metric for each in measures} == {"study_overall"}
    assert {each.metric for each in CRITERION.values()} >= {"study_overall", "study_state"}


def test_no_cell_of_the_table_is_a_formula(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, agents=("a", "b"), turns=1)
    append_answer(evaluation.path / "study", answer("=HYPERLINK(0)", ("b", "a")))
    append_answer(evaluation.path / "study", answer('"; DROP, TABLE\u202e', ("a", "b")))
    answers, _ = complete_answers(evaluation)
    assert write_table(tmp_path / "ranks.csv", answers) == 4
    with (tmp_path / "ranks.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["participant"], row["agent"], row["shown_as"], row["rank"], row["score"]) for row in rows] == [
        ("'=HYPERLINK(0)", "b", "B", "1", "10.0"),
        ("'=HYPERLINK(0)", "a", "A", "2", "1.0"),
        ('"; DROP, TABLE\u202e', "a", "A", "1", "10.0"),
        ('"; DROP, TABLE\u202e', "b", "B", "2", "1.0"),
    ]
