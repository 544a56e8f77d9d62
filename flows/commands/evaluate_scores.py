"""Commands `evaluate judge` and `evaluate study`: scores of all agents by a multimodal model, and by people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.benchmark import REMEDY, KeyVariable, MostRequests, Server, Temperature
from flows.console.progress import Bars
from flows.console.terminal import say
from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from pipeline.captions.cast import Cast
    from training.evaluation.judge_summary import JudgeSummary
    from training.evaluation.ratings import CriterionScores


def judge(
    out: Annotated[Path, typer.Argument(metavar="EVALUATION", help="Folder of the evaluation.")],
    server: Server,
    model: Annotated[str, typer.Option(help="Name of the multimodal model on the server.")],
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Judge each window this many times, with the agents in changing order. [default: the number "
            "of agents, so that each has each position once]",
        ),
    ] = None,
    cast: Annotated[
        Path | None, typer.Option(help="Reference pictures, a folder per character: their sheet is attached.")
    ] = None,
    temperature: Temperature = 0.0,
    api_key_env: KeyVariable = "",
    most_requests: MostRequests = None,
) -> None:
    """Let a multimodal model score the agents side by side, five turns at a time, by six criteria.

    Replies are stored in EVALUATION/judge/replies, so after a stop the same command sends only the missing requests.
    Scores go to EVALUATION/measures/judge.parquet, and the judge's order bias and agreement with itself to
    judge/summary.json. Then the command writes figures and report again.

        animegamer evaluate judge eval/ --server http://127.0.0.1:23333/v1 --model MODEL --cast cast/
    """
    from flows.evaluate.reporting import remake_report
    from pipeline.captions.endpoint import Endpoint
    from pipeline.core.progress import watched
    from training.evaluation.folder import EvaluationFolder
    from training.evaluation.judge import judge as judge_agents

    endpoint = Endpoint(
        server, model, api_key_env, temperature=temperature, max_tokens=512, most_requests=most_requests, remedy=REMEDY
    )
    with EvaluationFolder.locked(out, "judge") as evaluation:
        with Bars().watching(), watched(out.name, "judge") as watch:
            orders = repeats or len(evaluation.request.agents)
            summary = judge_agents(evaluation, endpoint, orders, _sheet(cast), watch)
        _print(summary)
        typer.echo(remake_report(evaluation))


def _sheet(folder: Path | None) -> Cast:
    """Return the cast with its sheet, and print what the sheet lacks."""
    from pipeline.captions.cast import load_cast

    cast = load_cast(folder)
    for warning in cast.warnings:
        say(warning, "yellow")
    if cast.films and not cast.sheets:
        film = sorted(cast.films)[0]
        raise UserError(f"{folder} holds only characters of single films: give the folder of one film, such as {film}")
    if cast.films:
        say("characters of single films are not on the sheet", "yellow")
    return cast


def _print(summary: JudgeSummary) -> None:
    from training.evaluation.judge_summary import JUDGE_METRICS, NO_SHEET

    for name, reason in summary.refused.items():
        say(f"left out: {name}: {reason}", "yellow")
    if summary.left_out:
        say(f"{summary.left_out:,} windows are left out: an agent has not played them in full", "yellow")
    if not summary.cast_sha256:
        say(f"{NO_SHEET} (--cast)", "yellow")
    if summary.repeats % len(summary.agents):
        balanced = len(summary.agents)
        say(f"not every agent was at each position equally often; --repeats {balanced} sees to that", "yellow")
    titles = [metric.title for metric in JUDGE_METRICS]
    cells = [[_number(each.alpha)] for each in summary.criteria]
    _print_scores(summary.agents, ("agreement",), summary.criteria, titles, cells)
    _warn_of_order("the order of the agents", summary.criteria, titles)


def study(
    evaluation: Annotated[Path, typer.Argument(metavar="EVALUATION", help="Folder of the evaluation.")],
    answers: Annotated[list[Path], typer.Argument(metavar="FILES", exists=True, dir_okay=False)] = [],  # noqa: B006  # copied by typer
    out: Annotated[Path | None, typer.Option(help="Folder of the study. [default: EVALUATION/study]")] = None,
    results: Annotated[bool, typer.Option("--results", help="Read the answers in FILES, and write results.")] = False,
) -> None:
    """Let people rank the agents' films of each game, by six criteria, blind.

    The command writes a folder with a page that opens from disk, and next to it STUDY.key.json, which says which agent
    made which film. Give the folder to the participants, keep the key, and send each participant a number:
    `index.html?participant=3`. The page saves answers as CSV. With --results, scores go to
    EVALUATION/measures/study.parquet, and the command writes the report again.

        animegamer evaluate study eval/ --out study/

        animegamer evaluate study eval/ --out study/ --results answers-1.csv answers-2.csv
    """
    from training.evaluation.folder import EvaluationFolder
    from training.evaluation.study import PARTICIPANTS, key_path, write_study

    folder = out or evaluation / "study"
    if bool(answers) != results:
        raise UserError("reading answers needs both --results and the files that participants saved")
    if results:
        _read_answers(evaluation, folder, answers)
        return
    say("writing the films")
    made = write_study(EvaluationFolder.open(evaluation), folder)
    say(f"{len(made.games)} games for participants 1 to {PARTICIPANTS}: {folder / 'index.html'}?participant=1")
    say(f"keep {key_path(folder)} to yourself: it says which agent made which film")


def _read_answers(path: Path, folder: Path, answers: list[Path]) -> None:
    """Write results and report, and print mean scores by criterion and agent, with both agreements."""
    from flows.evaluate.reporting import remake_report
    from training.evaluation.folder import EvaluationFolder
    from training.evaluation.study import CRITERIA, read_answers, read_study, write_results

    key = read_study(folder)
    found = read_answers(key, answers)
    with EvaluationFolder.locked(path, "study") as evaluation:
        results = write_results(evaluation, key, found)
        remake_report(evaluation)
    titles = [criterion.title for criterion in CRITERIA]
    cells = [[str(each.answers), _number(each.alpha), _number(each.judge)] for each in results.criteria]
    _print_scores(results.agents, ("answers", "agreement", "judge"), results.criteria, titles, cells)
    _warn_of_order("the letter of a film", results.criteria, titles)


def _print_scores(
    agents: Sequence[str],
    heads: Sequence[str],
    criteria: Sequence[CriterionScores],
    titles: Sequence[str],
    cells: Sequence[Sequence[str]],
) -> None:
    """Print a row per criterion: its title, the score of each agent, then the cells under further heads."""
    rows = [
        [title, *(_number(each.scores.get(agent)) for agent in agents), *more]
        for each, title, more in zip(criteria, titles, cells, strict=True)
    ]
    columns = list(zip(["", *agents, *heads], *rows, strict=True))
    heading, *others = ([cell.rjust(max(map(len, column))) for cell in column] for column in columns)
    left = [title.strip().ljust(len(title)) for title in heading]
    for row in zip(left, *others, strict=True):
        typer.echo("  ".join(row))


def _warn_of_order(what: str, criteria: Sequence[CriterionScores], titles: Sequence[str]) -> None:
    """Warn about criteria whose scores depend on the order; `what` names the position, as `the letter of a film`."""
    from training.evaluation.ratings import NOTED_P_VALUE

    for each, title in zip(criteria, titles, strict=True):
        if each.order_p_value is not None and each.order_p_value < NOTED_P_VALUE:
            effects = " / ".join(f"{effect:+.2f}" for effect in each.position_effects or ())
            said = f"{what} moves it, by position: {effects} (p = {each.order_p_value:.3f})"
            say(f"{title}: {said}", "yellow")


def _number(value: float | None) -> str:
    """Return a value with two digits after the point, or `-`."""
    return "-" if value is None else f"{value:.2f}"
