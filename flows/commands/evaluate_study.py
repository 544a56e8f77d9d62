"""Command `evaluate study`: people rank the agents' films on a page; its results and their table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.console.evaluation import ScoredCriterion, number, print_scores, warn_of_order
from flows.console.terminal import say

if TYPE_CHECKING:
    from training.evaluation.study_results import StudyResults


def study(
    out: Annotated[Path, typer.Argument(metavar="EVALUATION", help="Folder of the evaluation.")],
    participant: Annotated[
        list[str] | None,
        typer.Option(help="Name of a participant to add, who gets a link. Repeatable; unset at first: your name."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes any free port.")] = 8733,
    lan: Annotated[
        bool,
        typer.Option("--lan", help="Let other machines of the local network connect; unset: this machine only."),
    ] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ranks to this CSV file, serve nothing.")
    ] = None,
) -> None:
    """Serve a page on which people rank the agents' films of each game, by six criteria, blind.

    Every participant has a secret link, and an order of games and films of their own. Answers are added to
    EVALUATION/study/answers.jsonl before the page shows them as saved. When the page is stopped, and with --export,
    scores go to EVALUATION/measures/study.parquet, and figures and report are made anew.

        animegamer evaluate study eval/ --participant anna --participant ben

        animegamer evaluate study eval/ --export ranks.csv
    """
    if export:
        _export(out, export)
        return
    from flows.commands.review import own_name
    from flows.evaluate.reporting import report_study
    from flows.web.study_app import serve_study
    from pipeline.core.atomic import HeldError
    from training.evaluation.folder import EvaluationFolder
    from training.evaluation.study import read_study

    names = participant or ([] if read_study(out / "study") else [own_name()])
    serve_study(EvaluationFolder.open(out), names, port, lan=lan)
    try:
        report_study(out)
    except HeldError as error:
        say(f"no results yet: {error}", "yellow")
    say("stopped; every answer shown as saved is in the file; `--export FILE.csv` writes results and table")


def _export(out: Path, table: Path) -> None:
    from flows.evaluate.reporting import report_study
    from training.evaluation.folder import EvaluationFolder
    from training.evaluation.study_results import complete_answers, write_table

    rows = write_table(table, complete_answers(EvaluationFolder.open(out))[0])
    say(f"{rows:,} rows in {table}")
    _print(report_study(out))


def _print(results: StudyResults) -> None:
    """Print mean scores by criterion and agent, with both agreements."""
    from training.evaluation.study import CRITERION

    if results.unreadable_lines:
        say(f"{results.unreadable_lines} unreadable lines of answers.jsonl are skipped", "yellow")
    criteria = [
        ScoredCriterion(
            CRITERION[each.criterion].title,
            each.scores,
            (str(each.answers), number(each.alpha), number(each.judge)),
            each.position_effects,
            each.order_p_value,
        )
        for each in results.criteria
    ]
    print_scores(results.agents, ("answers", "agreement", "judge"), criteria)
    warn_of_order("the letter of a film", criteria)
