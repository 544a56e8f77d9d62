"""Command `evaluate judge`: scores of all agents by a multimodal model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.console.evaluation import number, print_scores, warn_of_order
from flows.console.progress import Bars
from flows.console.terminal import say
from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from pipeline.captions.cast import Cast
    from training.evaluation.judge_summary import JudgeSummary


def judge(
    out: Annotated[Path, typer.Argument(metavar="EVALUATION", help="Folder of the evaluation.")],
    server: Annotated[
        str, typer.Option(help="Model server with OpenAI's protocol, such as http://127.0.0.1:23333/v1.")
    ],
    model: Annotated[str, typer.Option(help="Name of the multimodal model on the server.")],
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Times that a window is judged, each with the agents in another order; unset: the number of agents, "
            "so that each has each position once.",
        ),
    ] = None,
    cast: Annotated[
        Path | None, typer.Option(help="Reference pictures, a folder per character: their sheet is attached.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="Sampling temperature of the model.")] = 0.0,
    api_key_env: Annotated[str, typer.Option(help="Environment variable that holds the server's key.")] = "",
    most_requests: Annotated[int | None, typer.Option(min=1, help="Requests that may be sent in all.")] = None,
) -> None:
    """Let a multimodal model score the agents side by side, five turns at a time, by six criteria.

    Replies are kept in EVALUATION/judge/replies: after a stop the same command asks only for what is missing. Scores go
    to EVALUATION/measures/judge.parquet, the judge's order bias and agreement with itself to judge/summary.json; then
    figures and report are made anew.

        animegamer evaluate judge eval/ --server http://127.0.0.1:23333/v1 --model MODEL --cast cast/
    """
    from flows.evaluate.reporting import remake_report
    from pipeline.captions.endpoint import Endpoint
    from pipeline.core.progress import watched
    from training.evaluation.folder import EvaluationFolder
    from training.evaluation.judge import judge as judge_agents

    endpoint = Endpoint(
        server,
        model,
        api_key_env,
        temperature=temperature,
        max_tokens=512,
        most_requests=most_requests,
        remedy="start it, or name another with --server and --model",
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
        raise UserError(f"{folder}: holds characters of single films alone; name the folder of one, such as {film}")
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
    cells = [[number(each.alpha)] for each in summary.criteria]
    print_scores(summary.agents, ("agreement",), summary.criteria, titles, cells)
    warn_of_order("the order of the agents", summary.criteria, titles)
