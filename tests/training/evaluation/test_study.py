"""Study: the folder and its key, orders shown, answers read, scores of ranks, agreement, the judge's agreement."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import av
import pytest
from typer.testing import CliRunner

from flows.cli import app
from pipeline.core.errors import UserError
from pipeline.video.clip_files import clip_shape
from tests.support.painted_games import AGENTS, painted_evaluation, play_painted
from training.evaluation.figures import Figures
from training.evaluation.measures import Measure, read_measures, write_measures
from training.evaluation.study import (
    HEAD,
    MAX_BYTES,
    Answer,
    Study,
    read_answers,
    read_study,
    write_results,
    write_study,
)

ABCD = ("a", "b", "c", "d")


def study_of(games: int = 6, agents: tuple[str, ...] = ABCD) -> Study:
    films = {f"game-{game}": {agent: f"{game}{agent}" for agent in agents} for game in range(games)}
    return Study(study="s", seed="k" * 32, games=films)


def answer(person: int, order: tuple[str, ...], game: str = "game-0", criterion: str = "overall") -> Answer:
    return Answer(person, game, criterion, order, tuple(sorted(order)))


def test_the_folder_tells_nothing_of_the_agents_and_the_key_stands_beside_it(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path)
    for game in ("game-0", "game-1"):  # an agent whose encoder leaves a title
        clip = evaluation.games / "gc" / game / "0002.mp4"
        with av.open(str(clip)) as source, av.open(str(tmp_path / "titled.mp4"), "w") as titled:
            titled.metadata.update(title="by gc", encoder="encoder of gc")
            stream = titled.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                packet.stream = stream
                titled.mux(packet)
        (tmp_path / "titled.mp4").rename(clip)
    folder = tmp_path / "out" / "ranking"
    study = write_study(evaluation, folder)
    assert read_study(folder) == study
    assert {path.name for path in folder.parent.iterdir()} == {"ranking", "ranking.key.json"}
    assert {path.name for path in folder.iterdir()} == {"index.html", "films"}
    films = sorted((folder / "films").iterdir())
    assert {path.stem for path in films} == {film for own in study.games.values() for film in own.values()}
    assert len(films) == 8
    everything = b"".join(path.read_bytes() for path in (folder / "index.html", *films))
    assert [word for word in (*AGENTS, "game-0", str(tmp_path), study.seed) if f'"{word}'.encode() in everything] == []
    assert b"by gc" not in everything
    assert b"encoder of gc" not in everything
    kinds = set()
    for path in films:
        assert (clip_shape(path).frames, clip_shape(path).fps) == (24, Fraction(8))
        with av.open(str(path)) as film:
            assert not {"title", "comment", "artist", "encoder", "creation_time"} & film.metadata.keys()
            kinds.add(json.dumps([film.metadata, film.streams[0].metadata]))
    assert len(kinds) == 1
    assert [path.stat().st_mtime_ns for path in films] == sorted(path.stat().st_mtime_ns for path in films)
    with pytest.raises(UserError, match="already exists"):
        write_study(evaluation, folder)


@pytest.mark.parametrize(
    "games",
    [{"one": {"a": "1"}}, {"one": {"a": "1", "b": "2"}, "two": {"a": "3", "c": "4"}}, {"one": {"a": "1", "b": "1"}}],
)
def test_a_damaged_key_is_named(tmp_path: Path, games: dict[str, dict[str, str]]) -> None:
    (tmp_path / "ranking.key.json").write_text(json.dumps({"study": "s", "seed": "k", "games": games}))
    with pytest.raises(UserError, match=r"ranking\.key\.json is missing or damaged"):
        read_study(tmp_path / "ranking")


def test_clips_of_two_sizes_become_one_film(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, games=1)
    play_painted(evaluation, "gc", "game-0", 3, True, (64, 64))
    small = (evaluation.games / "gc" / "game-0" / "0001.mp4").read_bytes()
    play_painted(evaluation, "gc", "game-0", 3, True, (96, 128))
    (evaluation.games / "gc" / "game-0" / "0003.mp4").write_bytes(small)
    study = write_study(evaluation, tmp_path / "ranking")
    film = clip_shape(tmp_path / "ranking" / "films" / f"{study.games['game-0']['gc']}.mp4")
    assert (film.width, film.height, film.frames) == (128, 96, 24)


def test_only_games_that_every_agent_has_played_are_shown(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path)
    (evaluation.games / "gc" / "game-1" / "turns.jsonl").unlink()
    assert list(write_study(evaluation, tmp_path / "one").games) == ["game-0"]
    (evaluation.games / "gc" / "game-0" / "0002.mp4").write_bytes(b"no film")
    with pytest.raises(UserError, match="0002"):
        write_study(evaluation, tmp_path / "two")
    (evaluation.games / "gc" / "game-0" / "turns.jsonl").unlink()
    with pytest.raises(UserError, match="animegamer evaluate run"):
        write_study(evaluation, tmp_path / "two")
    assert not list(tmp_path.glob("*two*")), "a study that fails leaves nothing behind"
    with pytest.raises(UserError, match="1 agents"):
        write_study(painted_evaluation(tmp_path / "alone", agents=("gc",)), tmp_path / "two")


def test_ranks_of_four_are_the_papers_scores_and_of_others_on_the_line_between() -> None:
    assert answer(1, ("d", "b", "a", "c")).scores == {"a": 4, "b": 7, "c": 1, "d": 10}
    assert answer(1, ("c", "b", "a")).scores == {"a": 1, "b": 5.5, "c": 10}
    assert answer(1, ("b", "a")).scores == {"a": 1, "b": 10}


def test_a_block_of_participants_sees_each_agent_once_at_each_letter() -> None:
    study = study_of()
    for game in ("one", "two"):
        for block in (range(1, 5), range(5, 9)):
            shown = [study.shown(number, game) for number in block]
            assert all(sorted(column) == list(ABCD) for column in zip(*shown, strict=True))
    orders = Counter(study.shown(1, f"game-{game}") for game in range(600))
    assert len(orders) == len(list(permutations(ABCD)))
    assert max(orders.values()) < 60, "no order is preferred over the games; 25 are expected"
    assert study.shown(1, "one") != study.model_copy(update={"seed": "l" * 32}).shown(1, "one")


def saved(path: Path, *rows: str) -> Path:
    path.write_text("\r\n".join([HEAD, *rows, ""]))
    return path


GOOD = "s,3,overall,0d 0b 0a 0c"


def test_answers_name_agents_in_the_order_chosen_and_shown(tmp_path: Path) -> None:
    study = study_of()
    files = [
        saved(tmp_path / "3.csv", GOOD, "s,3,style,1a 1b 1c 1d"),
        saved(tmp_path / "4.csv", "s,4,overall,0a 0b 0c 0d"),
    ]
    first, style, other = read_answers(study, files)
    assert first == Answer(3, "game-0", "overall", ("d", "b", "a", "c"), study.shown(3, "game-0"))
    assert (style.game, style.criterion, other.participant) == ("game-1", "style", 4)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (GOOD.replace("s,", "t,", 1), "line 2: this answers another study, 't'"),
        (f"{GOOD}\n{GOOD}", "line 3: this participant has answered the question already"),
        (GOOD.replace("0c", "0x"), "line 2: these are not the films of one game"),
        (GOOD.replace("0c", "1c"), "line 2: these are not the films of one game"),
        (GOOD.replace("0c", "0a"), "line 2: these are not the films of one game"),
        (GOOD.replace("overall", "=CMD()\x1b[31m"), r"line 2: no criterion '=CMD\(\)\\x1b\[31m'"),
        (GOOD.replace("3", "97"), "line 2: no participant '97'"),
        (GOOD.replace("3", "9" * 5000), "line 2: no participant '9999"),
        (GOOD + ",more", "line 2: 5 columns, not 4"),
        ('s,3,"overall', "line 2: 3 columns, not 4"),
        ("\udcff", "line 1: 'utf-8' codec"),
        ("x" * MAX_BYTES, "line 1: the file is too large"),
    ],
)  # fmt: skip
def test_a_hostile_file_gets_one_line_that_names_it(tmp_path: Path, content: str, fault: str) -> None:
    path = tmp_path / "answers.csv"
    path.write_bytes(f"{HEAD}\n{content}\n".encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=fault) as caught:
        read_answers(study_of(), [path])
    assert str(caught.value).startswith(f"{path}, line ")
    assert len(str(caught.value)) < 250 + len(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_without_our_head_or_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("name,rank\nanna,1\n")
    with pytest.raises(UserError, match="the head is not study,participant,criterion,order"):
        read_answers(study_of(), [tmp_path / "other.csv"])
    path = saved(tmp_path / "3.csv", GOOD)
    with pytest.raises(UserError, match="pass each file once"):
        read_answers(study_of(), [path, path])


def test_the_command_writes_the_study_and_reads_its_answers(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path)
    run = CliRunner().invoke(app, ["evaluate", "study", str(evaluation.path)], catch_exceptions=False)
    assert run.exit_code == 0
    study = read_study(evaluation.path / "study")
    rows = [
        f"{study.study},{number},overall,{' '.join(own[agent] for agent in AGENTS)}"
        for number in (1, 2)
        for own in study.games.values()
    ]
    path = saved(tmp_path / "answers.csv", *rows)
    command = ["evaluate", "study", str(evaluation.path)]
    run = CliRunner().invoke(app, [*command, "--results", str(path)], catch_exceptions=False)
    assert run.exit_code == 0
    assert "Overall" in run.output
    figures = Figures.model_validate_json(evaluation.figures.read_bytes())
    scores = {each.agent: each.value for each in figures.figures if each.metric == "study_overall"}
    assert scores == {"ours": 10, "gc": 7, "gfc": 4, "folder-of-x": 1}
    assert "Krippendorff's alpha: overall 1.00" in (evaluation.path / "report.html").read_text().replace("&#39;", "'")
    run = CliRunner().invoke(app, [*command, str(path)])
    assert run.exit_code == 1, "files without --results"
    run = CliRunner().invoke(app, [*command, "--results", str(tmp_path / "missing.csv")])
    assert run.exit_code == 2


def test_people_who_prefer_a_letter_are_found_out(tmp_path: Path) -> None:
    evaluation, study = painted_evaluation(tmp_path, agents=ABCD, games=6, turns=1), study_of()
    answers = []
    for number in range(1, 5):
        for game in study.games:
            shown = study.shown(number, game)
            answers += [
                Answer(number, game, "style", ABCD, shown),
                Answer(number, game, "overall", shown, shown),
            ]
    found = {each.metric: each for each in write_results(evaluation, study, answers).criteria}
    assert found["study_overall"].position_effects == pytest.approx((4.5, 1.5, -1.5, -4.5)), "A always gets 10, D 1"
    assert found["study_overall"].order_p_value == pytest.approx(0.001)
    assert found["study_overall"].scores == pytest.approx(dict.fromkeys(ABCD, 5.5)), "each agent was at each letter"
    assert found["study_style"].position_effects == pytest.approx((0, 0, 0, 0))
    assert found["study_style"].order_p_value == 1
    assert found["study_context"].order_p_value is None


def test_results_are_means_and_the_judges_correlation_per_game(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, agents=("a", "b", "c"), turns=1)
    study = study_of(2, ("a", "b", "c"))
    answers = [
        answer(1, ("a", "b", "c")),
        answer(2, ("a", "c", "b")),
        answer(1, ("c", "b", "a"), "game-1"),
    ]
    judged = {"game-0": {"a": 9, "b": 5, "c": 5}, "game-1": {"a": 9, "b": 5, "c": 4}}
    write_measures(
        evaluation.path / "measures" / "judge.parquet",
        [
            Measure(agent=agent, game=game, turn=None, metric="judge_oa", value=value)
            for game, values in judged.items()
            for agent, value in values.items()
        ],
    )
    results = write_results(evaluation, study, answers)
    overall, *others = results.criteria
    assert overall.scores == {"a": 5.5, "b": 4.375, "c": 6.625}, "as in the report, games count alike"
    assert (overall.answers, overall.participants, overall.judged_games) == (3, 2, 2)
    # game-0: people 10, 3.25, 3.25 and the judge 9, 5, 5 agree; game-1: opposite
    assert overall.judge == pytest.approx(0)
    assert {each.answers for each in others} == {0}
    measures = list(read_measures(evaluation.path / "measures" / "study.parquet"))
    assert {(each.agent, each.game): each.value for each in measures} == {
        ("a", "game-0"): 10, ("b", "game-0"): 3.25, ("c", "game-0"): 3.25,
        ("a", "game-1"): 1, ("b", "game-1"): 5.5, ("c", "game-1"): 10,
    }  # fmt: skip
    assert {each.metric for each in measures} == {"study_overall"}
    with pytest.raises(UserError, match="has no game-2"):
        write_results(evaluation, study_of(3, ("a", "b", "c")), answers)
