"""Command `evaluate study`: a folder in which people rank the agents' films, and the results of their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.console.evaluation import number, print_scores, warn_of_order
from flows.console.terminal import say
from pipeline.core.errors import UserError


def study(
    evaluation: Annotated[Path, typer.Argument(metavar="EVALUATION", help="Folder of the evaluation.")],
    answers: Annotated[list[Path], typer.Argument(metavar="FILES", exists=True, dir_okay=False)] = [],  # noqa: B006  # copied by typer
    out: Annotated[Path | None, typer.Option(help="Folder of the study. [default: EVALUATION/study]")] = None,
    results: Annotated[bool, typer.Option("--results", help="Read the answers in FILES, and write results.")] = False,
) -> None:
    """Let people rank the agents' films of each game, by six criteria, blind.

    Writes a folder with a page that opens from disk, and STUDY.key.json beside it, which says who made which film. Give
    the folder to the participants, keep the key, and send each a number: `index.html?participant=3`. The page saves
    answers as CSV. With --results, scores go to EVALUATION/measures/study.parquet, and the report is written again.

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
    cells = [[str(each.answers), number(each.alpha), number(each.judge)] for each in results.criteria]
    print_scores(results.agents, ("answers", "agreement", "judge"), results.criteria, titles, cells)
    warn_of_order("the letter of a film", results.criteria, titles)
