"""Judge on a real server: preferences recovered, bias found out, replies kept through a kill."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples.world.barcode import read_stripes
from flows.cli import app
from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import Endpoint
from pipeline.core.atomic import held
from pipeline.core.errors import UserError
from pipeline.core.progress import silent
from pipeline.core.records import RecordError
from pipeline.video.clip_files import write_clip
from prompts.evaluation_replies import CRITERIA, example, format_scores, judge_pattern, parse_scores
from prompts.tags import TagError
from tests.support.media.painted_clips import make_cast, paint_number
from tests.support.servers.caption_server import Answer, CaptionServer, Request
from training.evaluation.benchmark import Panel, read_benchmark, write_benchmark
from training.evaluation.figures import Figures
from training.evaluation.folder import AgentEntry, EvaluationFolder, EvaluationRequest
from training.evaluation.judge import MOST_KEPT, StoryPictures, judge
from training.evaluation.judge_summary import JUDGE_METRICS, JudgeSummary
from training.evaluation.measures import read_measures

AGENTS = ("ours", "gc", "others")
WINDOWS = (("a", 5), ("a", 7), ("b", 5))
"""Game and last turn of each window."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluation of three agents: a game of seven turns and one of five; clips show agent + 3 x window."""
    root = tmp_path_factory.mktemp("judged") / "eval"
    panels = [
        Panel(game=game, turn=turn, MD=f"run {turn}") for game, n in (("a", 7), ("b", 5)) for turn in range(1, n + 1)
    ]
    benchmark = root.parent / "games.jsonl"
    write_benchmark(benchmark, panels)
    entries = tuple(AgentEntry(name=name, kind="folder", folder=".", identity=name) for name in AGENTS)
    sha256 = read_benchmark(benchmark).sha256
    EvaluationFolder.begin(root, benchmark, EvaluationRequest(benchmark_sha256=sha256, agents=entries))
    for number, agent in enumerate(AGENTS):
        for panel in panels:
            folder = root / "games" / agent / panel.game
            folder.mkdir(parents=True, exist_ok=True)
            window = 2 if panel.game == "b" else panel.turn > 5
            clip = folder / f"{panel.turn:04d}.mp4"
            write_clip(clip, [paint_number(number + 3 * window, moment) for moment in range(8)], Fraction(8), 20)
            with (folder / "turns.jsonl").open("a", encoding="utf-8") as log:
                log.write(f'{{"id": "{clip.stem}"}}\n')
    return root


@pytest.fixture
def evaluation(played: Path, tmp_path: Path) -> EvaluationFolder:
    root = tmp_path / "eval"
    shutil.copytree(played, root)
    return EvaluationFolder.open(root)


def shown(request: Request) -> list[int]:
    """Numbers in the first frames of the programs' pictures, in the order of the pictures."""
    return [read_stripes(picture[:160, :240]) for picture in request.pictures[-len(AGENTS) :]]


def preference(number: int, criterion: int) -> int:
    """Score of an agent in a window, both known from the number in its clips."""
    agent, window = number % 3, number // 3
    return 9 - 3 * agent + (window + criterion) % 2


def judging(score: Callable[[int, int, int], int]) -> Callable[[Request], Answer]:
    """Judge with a score by the number in the clips, criterion and position."""

    def answer(request: Request) -> Answer:
        numbers = shown(request)
        rows = {
            name: tuple(score(number, criterion, position) for position, number in enumerate(numbers))
            for criterion, name in enumerate(CRITERIA)
        }
        return Answer(f"{format_scores(rows)}\n<WHY>So it is.</WHY>")

    return answer


def ask(evaluation: EvaluationFolder, answer: Callable[[Request], Answer], repeats: int = 3) -> JudgeSummary:
    with CaptionServer(answer, read=lambda _: 0) as server:
        return judge(evaluation, Endpoint(server.address, "m"), repeats, Cast(), silent)


def scores_of(evaluation: EvaluationFolder) -> dict[tuple[str, str, int | None, str], float]:
    rows = list(read_measures(evaluation.path / "measures" / "judge.parquet"))
    return {(row.agent, row.game, row.turn, row.metric): row.value for row in rows}


def test_preferences_are_recovered_exactly_whatever_the_order(evaluation: EvaluationFolder) -> None:
    orders = set()

    def answer(request: Request) -> Answer:
        orders.add(tuple(number % 3 for number in shown(request)))
        return judging(lambda number, criterion, _: preference(number, criterion))(request)

    summary = ask(evaluation, answer)
    assert len(orders) >= 3
    assert scores_of(evaluation) == {
        (agent, *place, metric.name): preference(number + 3 * window, criterion)
        for number, agent in enumerate(AGENTS)
        for window, place in enumerate(WINDOWS)
        for criterion, metric in enumerate(JUDGE_METRICS)
    }
    assert (summary.windows, summary.left_out, summary.refused) == (3, 0, {})
    assert all(note.alpha == pytest.approx(1) for note in summary.criteria)
    assert [list(note.scores) for note in summary.criteria] == [list(AGENTS)] * 6
    assert summary.criteria[0].scores["gc"] == pytest.approx((6 + 7 + 6) / 3)
    assert all(note.order_p_value == 1 for note in summary.criteria)
    assert all(note.position_effects == pytest.approx((0, 0, 0)) for note in summary.criteria)


def test_a_judge_that_prefers_the_first_is_found_out_and_its_bias_cancels(evaluation: EvaluationFolder) -> None:
    def score(number: int, criterion: int, position: int) -> int:
        return 2 + number % 3 + (3 if position == 0 and criterion == 0 else 0)

    summary = ask(evaluation, judging(score), repeats=3)
    biased, *fair = summary.criteria
    assert biased.position_effects == pytest.approx((2, -1, -1))
    assert biased.order_p_value is not None
    assert biased.order_p_value < 0.05
    assert biased.alpha is not None
    assert biased.alpha < 0.8
    assert all(note.order_p_value == 1 for note in fair)
    means = [scores_of(evaluation)[agent, "a", 5, "judge_oa"] for agent in AGENTS]
    assert means == pytest.approx([3, 4, 5])  # each agent was first once


def test_bad_late_and_hostile_replies_are_repaired_or_left_out(evaluation: EvaluationFolder) -> None:
    good = judging(lambda number, criterion, _: preference(number, criterion))

    def answer(request: Request) -> Answer:
        window = shown(request)[0] // 3
        if window == 0 and not request.turn:
            return Answer(good(request).text.replace("<OA>", "<OA>11 "), delay_seconds=0.3)
        if window == 1:
            return Answer("<OA>10 10 10</OA> Ignore the others." * 50)
        return good(request)

    summary = ask(evaluation, answer, repeats=2)
    assert summary.repaired == 2
    assert set(summary.refused) == {"a-0006-1", "a-0006-2"}
    assert "Tag <TA> is missing" in summary.refused["a-0006-1"]
    assert {key[1:3] for key in scores_of(evaluation)} == {("a", 5), ("b", 5)}


def test_pictures_have_a_row_per_scene_and_the_sheet_comes_first(evaluation: EvaluationFolder, tmp_path: Path) -> None:
    requests: list[Request] = []

    def answer(request: Request) -> Answer:
        requests.append(request)
        return judging(lambda number, criterion, _: preference(number, criterion))(request)

    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")
    with CaptionServer(answer, read=lambda _: 0) as server:
        options = ["--server", server.address, "--model", "m", "--repeats", "1", "--cast", str(tmp_path / "cast")]
        done = CliRunner().invoke(app, ["evaluate", "judge", str(evaluation.path), *options])
    assert done.exit_code == 0, done.output
    heights = sorted({request.pictures[-1].shape[0] for request in requests})
    assert heights == [2 * 166 - 6, 5 * 166 - 6]
    assert all(len(request.pictures) == 1 + len(AGENTS) for request in requests)
    assert all("1 = Ponyo\n2 = Sosuke" in request.text for request in requests)
    assert all("in all scenes, and as in their reference pictures" in request.text for request in requests)
    assert any("7. " not in request.text and "2. Motion: run 7." in request.text for request in requests)
    assert all(request.body["response_format"]["regex_schema"] == judge_pattern(3) for request in requests)


@pytest.mark.slow
def test_without_a_cast_no_reference_is_named_and_the_report_says_so(evaluation: EvaluationFolder) -> None:
    texts: list[str] = []

    def answer(request: Request) -> Answer:
        texts.append(request.text)
        return judging(lambda number, criterion, _: preference(number, criterion))(request)

    with CaptionServer(answer, read=lambda _: 0) as server:
        done = CliRunner().invoke(app, judge_command(evaluation, server))
    assert done.exit_code == 0, done.output
    assert len(texts) == 3 * len(AGENTS), "as many orders as agents"
    assert all("in all scenes\n" in text and "The scenes were asked for" in text for text in texts)
    assert not any(word in text for text in texts for word in ("sheet", "reference", "(0)", "(none)"))
    assert "no reference sheet was shown: character consistency is likeness between scenes alone" in done.output
    notes = Figures.model_validate_json(evaluation.figures.read_bytes()).notes
    [note] = [note for note in notes if note.startswith("Judge: m, 3 windows, each judged 3 times")]
    assert "no reference sheet was shown" in note


def test_figures_and_report_are_made_anew_with_the_scores(evaluation: EvaluationFolder) -> None:
    assert not evaluation.figures.exists()

    def score(number: int, criterion: int, position: int) -> int:
        return 2 + number % 3 + 4 * (position == 0)

    with CaptionServer(judging(score), read=lambda _: 0) as server:
        done = CliRunner().invoke(app, judge_command(evaluation, server, "--repeats", "3"))
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == str(evaluation.path / "report.html")
    assert re.search(r"^Overall +3\.33 +4\.33 +5\.33 +-?0\.\d\d$", done.stdout, re.M), done.stdout
    assert "Overall: the order of the agents moves it, by position: +2.67 / -1.33 / -1.33" in done.output
    assert "equally often" not in done.output
    figures = Figures.model_validate_json(evaluation.figures.read_bytes())
    means = {each.agent: each.value for each in figures.figures if each.metric == "judge_oa" and each.count == 3}
    assert means == pytest.approx({agent: 2 + number + 4 / 3 for number, agent in enumerate(AGENTS)})
    assert any("The order of the agents moves the judge's scores: judge_oa (p = 0." in note for note in figures.notes)
    assert "judge_oa" in (evaluation.path / "figures.csv").read_text()
    assert "Multimodal judge" in (evaluation.path / "report.html").read_text()


def test_the_command_in_the_report_asks_nothing_again(evaluation: EvaluationFolder) -> None:
    with CaptionServer(judging(lambda *_: 5), read=lambda _: 0) as server:
        assert CliRunner().invoke(app, judge_command(evaluation, server, "--temperature", "0.7")).exit_code == 0
        [typed] = judge_commands(evaluation)
        asked = len(server.requests)
        done = CliRunner().invoke(app, shlex.split(typed.replace("URL", server.address)))
        assert done.exit_code == 0, done.output
        assert len(server.requests) == asked
    assert "--temperature 0.7" in typed


def judge_commands(evaluation: EvaluationFolder) -> list[str]:
    """Return the commands of the judge that the report prints, without the program's name."""
    page = html.unescape((evaluation.path / "report.html").read_text())
    return re.findall(r"<pre>animegamer (evaluate judge .*?)</pre>", page)


def test_the_judge_asks_nothing_while_another_command_is_at_work_on_the_evaluation(
    evaluation: EvaluationFolder,
) -> None:
    with (
        CaptionServer(judging(lambda *_: 5), read=lambda _: 0) as server,
        held(evaluation.path, "animegamer evaluate run"),
    ):
        done = CliRunner().invoke(app, judge_command(evaluation, server))
        assert done.exit_code == 1
        assert "is held by `animegamer evaluate run`" in done.output
        assert not server.requests
    assert not (evaluation.path / "judge").exists()
    assert not evaluation.figures.exists()


def judge_command(evaluation: EvaluationFolder, server: CaptionServer, *more: str) -> list[str]:
    return ["evaluate", "judge", str(evaluation.path), "--server", server.address, "--model", "m", *more]


def test_a_picture_is_painted_once_for_all_that_ask_at_once(tmp_path: Path) -> None:
    clips = [tmp_path / f"{number}.mp4" for number in range(MOST_KEPT + 1)]
    for number, clip in enumerate(clips):
        write_clip(clip, [paint_number(number % 9, moment) for moment in range(5)], Fraction(8), 20)
    pictures = StoryPictures()
    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(pictures.of, [clips[:1]] * 8)
    assert all(other is first for other in others)
    clips[0].unlink()
    assert pictures.of(clips[:1]) is first
    for clip in clips[1:]:
        pictures.of([clip])
    with pytest.raises(RecordError):
        pictures.of(clips[:1])  # no longer kept: memory does not grow with the games


def questions(requests: Sequence[Request]) -> set[str]:
    return {json.dumps(request.body, sort_keys=True) for request in requests}


@pytest.mark.slow
def test_after_kill_9_nothing_is_asked_twice(evaluation: EvaluationFolder) -> None:
    good = judging(lambda number, criterion, _: preference(number, criterion))

    def slow(request: Request) -> Answer:
        return Answer(good(request).text, delay_seconds=0.0 if next(arrivals) < 3 else 60)

    arrivals = count()
    replies = evaluation.path / "judge" / "replies"
    with CaptionServer(slow, read=lambda _: 0) as server:
        options = ["--repeats", "3", "--server", server.address, "--model", "m"]
        code = "from flows.cli import main; main()"
        command = [sys.executable, "-c", code, "evaluate", "judge", str(evaluation.path), *options]
        process = subprocess.Popen(command, env={**os.environ, "TERM": "dumb"})
        until = time.monotonic() + 60
        while len(list(replies.glob("[!.]*.json"))) < 3 and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        answered = questions(server.requests[:3])
    stored = {path.name: path.read_bytes() for path in replies.glob("[!.]*.json")}
    assert len(stored) == 3
    with CaptionServer(good, read=lambda _: 0) as server:
        summary = judge(evaluation, Endpoint(server.address, "m", max_tokens=512), 3, Cast(), silent)
        asked = questions(server.requests)
        assert len(asked) == 9 - 3
        assert not asked & answered
        total = len(server.requests)  # more, if an attempt failed and was repeated
        written = (evaluation.path / "measures" / "judge.parquet").read_bytes()
        assert judge(evaluation, Endpoint(server.address, "m", max_tokens=512), 3, Cast(), silent) == summary
        assert len(server.requests) == total
    assert {path.name: path.read_bytes() for path in replies.glob("[!.]*.json") if path.name in stored} == stored
    assert (evaluation.path / "measures" / "judge.parquet").read_bytes() == written
    assert json.loads((evaluation.path / "judge" / "summary.json").read_text())["windows"] == 3


def test_an_unplayed_window_is_left_out_and_a_single_agent_refused(evaluation: EvaluationFolder) -> None:
    log = evaluation.games / "gc" / "a" / "turns.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:6]))
    summary = ask(evaluation, judging(lambda number, criterion, _: preference(number, criterion)), repeats=1)
    assert (summary.windows, summary.left_out) == (2, 1)
    assert all(note.order_p_value is None and note.alpha is None for note in summary.criteria)
    alone = evaluation.request.model_copy(update={"agents": evaluation.request.agents[:1]})
    with pytest.raises(UserError, match="a judge compares agents"):
        judge(
            EvaluationFolder(evaluation.path, alone, evaluation.benchmark), Endpoint("http://x", "m"), 1, Cast(), silent
        )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (("<OA>2 6</OA>", "<OA>2</OA>"), "Tag <OA> must hold 2 scores, not 1"),
        (("<OA>2 6</OA>", "<OA>0 6</OA>"), 'whole scores from 1 to 10, not "0"'),
        (("<OA>2 6</OA>", "<OA>2 6.5</OA>"), 'not "6.5"'),
        (("<OA>2 6</OA>", "<OA>2 6</OA><OA>6 2</OA>"), "Tag <OA> is given twice"),
        (("<OA>2 6</OA>", ""), "Tag <OA> is missing"),
    ],
)
def test_a_fault_of_a_reply_is_named(rows: Sequence[str], said: str) -> None:
    reply = example(2)
    assert re.fullmatch(judge_pattern(2), reply)
    assert parse_scores(reply, 2)["OA"] == (2, 6)
    with pytest.raises(TagError, match=re.escape(said)):
        parse_scores(reply.replace(*rows), 2)
