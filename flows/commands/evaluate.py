"""Commands `evaluate ...`: a benchmark played by agents. Heavy imports are inside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from flows.commands.benchmark import KeyVariable
from flows.commands.evaluate_scores import judge, study
from flows.commands.model import need_networks
from flows.commands.play import stoppable
from flows.console.progress import Bars, importing
from flows.console.terminal import console, say
from models.engine_options import EngineOptions, Sampler
from pipeline.core.errors import UserError, disk_errors

if TYPE_CHECKING:
    from flows.evaluate.inputs import Yardsticks
    from pipeline.captions.endpoint import Endpoint
    from training.evaluation.figures import Figures
    from training.evaluation.folder import EvaluationFolder

evaluate = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Compare agents on a benchmark: play its games, measure every turn, and report.

    An agent is a checkpoint, a baseline, or a folder of clips. Everything is in one folder, where every command
    resumes the work of the last one:

        animegamer evaluate run eval/ --benchmark games.jsonl --agent ours=run/adapt/result --agent gc=run/gc/result
    """,
)

Out = Annotated[Path, typer.Argument(metavar="EVALUATION", help="Folder of the evaluation.")]


@evaluate.command()
def run(
    out: Out,
    benchmark: Annotated[Path, typer.Option(help="Benchmark file, written by `animegamer benchmark` or by hand.")],
    agent: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=FOLDER",
            help="Checkpoint, baseline (gc, gfc, gsc), or clips of games played elsewhere (GAME/0001.mp4, ...); "
            "the kind is recognised. `full=tokens:run/joint/result` draws the real clips of --data again from their "
            "own shot tokens, without the game model: the paper's table of the tokenizer. Repeatable.",
        ),
    ],
    cast: Annotated[
        Path | None, typer.Option(help="Reference pictures, a folder per character: adds metrics of characters.")
    ] = None,
    clip: Annotated[
        str | None,
        typer.Option(help="CLIP by id or folder; `open-clip:` before it for one of open_clip. Adds CLIP-I and CLIP-T."),
    ] = None,
    dreamsim: Annotated[
        Path | None, typer.Option(help="Folder that the package `dreamsim` has filled: adds DreamSim.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Dataset that the agents were trained on: its optical flow, level edges and real clips."),
    ] = None,
    note: Annotated[list[str], typer.Option(help="Sentence for the head of the report. Repeatable.")] = [],  # noqa: B006  # copied by typer
    seed: Annotated[int, typer.Option(min=0, help="All agents play a game from the same noise.")] = 0,
    steps: Annotated[
        int | None,
        typer.Option(help="Denoising steps of checkpoints, a divisor of 1000. Unset, here and below: their own."),
    ] = None,
    guidance: Annotated[
        float | None, typer.Option(min=1, max=20, help="Guidance scale of checkpoints; a baseline's is in its folder.")
    ] = None,
    sampler: Annotated[Sampler | None, typer.Option(help="Sampler of checkpoints, see `play`.")] = None,
    server: Annotated[
        str | None, typer.Option(help="Server of a language model that gives baselines their scenes and states.")
    ] = None,
    model: Annotated[str, typer.Option(help="Name of that language model on the server.")] = "",
    api_key_env: KeyVariable = "",
    device: Annotated[str | None, typer.Option(help="`cpu`, `cuda` or `cuda:1`. [default: a GPU if available]")] = None,
    offload: Annotated[bool, typer.Option("--offload", help="For a small GPU: one network on it at a time.")] = False,
) -> None:
    """Let every agent play the games it has not played yet, measure every turn, and write figures and report.

    Each game is a folder EVALUATION/games/AGENT/GAME with an mp4 per turn and `turns.jsonl`. After a stop, the same
    command plays only the missing turns and gives the same clips. You can add agents later, but the command stops with
    an error if an agent, the benchmark or a setting has changed. At the end it prints the main metrics, and the options
    that add the metrics left out.

        animegamer evaluate run eval/ --benchmark games.jsonl --agent ours=run/adapt/result --agent others=clips/
    """
    need_networks()
    from flows.evaluate.inputs import Yardsticks

    options = EngineOptions(device, steps, guidance, offload, sampler=sampler, speed="best")
    yardsticks = Yardsticks(cast, clip, dreamsim, data, tuple(note))
    endpoint = _endpoint(server, model, api_key_env)
    _check(out, benchmark, agent, steps, yardsticks)
    with importing():
        from flows.evaluate.run import run_evaluation

    with stoppable(), Bars().watching():
        evaluation = run_evaluation(out, benchmark, agent, options, seed, yardsticks, endpoint)
    _print_figures(evaluation, yardsticks)
    typer.echo(out / "report.html")


def _check(out: Path, benchmark: Path, agents: list[str], steps: int | None, yardsticks: Yardsticks) -> None:
    """Raise a UserError for an unusable input, before we import the networks' packages and play games."""
    from flows.evaluate.inputs import TypedAgent
    from models.engine_options import check_steps
    from training.evaluation.benchmark import read_benchmark

    if steps is not None:
        check_steps(steps)
    read_benchmark(benchmark)
    for text in agents:
        TypedAgent.of(text)
    yardsticks.check()
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)


def _print_figures(evaluation: EvaluationFolder, yardsticks: Yardsticks) -> None:
    from training.evaluation.figures import Figures

    console.print(figures_table(Figures.model_validate_json(evaluation.figures.read_bytes())))
    if left_out := " ".join(yardsticks.left_out(evaluation.benchmark)):
        say(left_out, "yellow")


def figures_table(figures: Figures) -> Table:
    """Table with a row per metric that was measured and a column per agent; the best value of a metric is bold."""
    from training.evaluation.report.tables import PAPER_METRICS, by_metric

    main = {*PAPER_METRICS, "identity", "cast_shown", "as_asked"}
    means = by_metric(figures, [metric for metric in figures.metrics if metric.name in main])
    agents = (Column(escape(name), justify="right", overflow="fold") for name in means.heads)
    table = Table("", *agents, box=None, pad_edge=False, header_style="bold")
    for row in means.rows:
        table.add_row(row.name, *(f"[bold]{cell.value}[/]" if cell.is_best else cell.value for cell in row.cells))
    return table


def _endpoint(server: str | None, model: str, api_key_env: str) -> Endpoint | None:
    from pipeline.captions.endpoint import Endpoint

    if bool(server) != bool(model):
        raise UserError("a language model needs both its --server and its --model")
    return Endpoint(server, model, api_key_env, remedy="start it, or name another with --server") if server else None


@evaluate.command()
def report(out: Out) -> None:
    """Write `report.html`, `figures.json` and `figures.csv` from the measures and the games that are there.

    animegamer evaluate report eval/
    """
    from flows.evaluate.reporting import remake_report
    from training.evaluation.folder import EvaluationFolder

    with EvaluationFolder.locked(out, "report") as evaluation:
        typer.echo(remake_report(evaluation))


evaluate.command()(judge)
evaluate.command()(study)
