"""Commands `benchmark ...`: games that agents are compared on, by a language model or from a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.console.progress import Bars
from flows.console.terminal import say

if TYPE_CHECKING:
    from training.evaluation.benchmark import BenchmarkGame

benchmark = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Write a benchmark: a plain file of games, a line per turn, that every agent plays.",
)

Out = Annotated[Path, typer.Option(help="File to write; a line of JSON per turn, to be edited freely.")]
Server = Annotated[str, typer.Option(help="Model server with OpenAI's protocol, such as http://127.0.0.1:23333/v1.")]
Temperature = Annotated[float, typer.Option(min=0, max=2, help="Sampling temperature of the model.")]
KeyVariable = Annotated[str, typer.Option(help="Environment variable that holds the server's key.")]
MostRequests = Annotated[int | None, typer.Option(min=1, help="Requests that may be sent in all.")]
REMEDY = "start it, or name another with --server and --model"
"""Remedy for a server that does not answer."""


@benchmark.command()
def write(
    cast: Annotated[Path, typer.Option(help="Reference pictures, a folder per character; the names are used.")],
    server: Server,
    model: Annotated[str, typer.Option(help="Name of the model on the server.")],
    out: Out,
    games: Annotated[int, typer.Option(min=1, max=99, help="Stories about each character.")] = 10,
    panels: Annotated[int, typer.Option(min=2, max=50, help="Turns of a story.")] = 10,
    temperature: Temperature = 0.8,
    api_key_env: KeyVariable = "",
    most_requests: MostRequests = None,
) -> None:
    """Let a language model write stories about each character of a cast.

    20 characters with 10 stories of 10 panels are 2,000 rounds, as in the paper. An unusable story is sent back with
    its fault, and left out if that does not help. After a stop the same command asks only for what is missing.

        animegamer benchmark write --cast cast/ --server http://127.0.0.1:8000/v1 --model MODEL --out games.jsonl
    """
    from pipeline.captions.cast import load_cast
    from pipeline.captions.endpoint import Endpoint
    from pipeline.core.progress import watched
    from training.evaluation.story_writer import write_games

    tokens = 200 * panels
    endpoint = Endpoint(
        server,
        model,
        api_key_env,
        temperature=temperature,
        max_tokens=tokens,
        most_requests=most_requests,
        remedy=REMEDY,
    )
    names = load_cast(cast).all_names
    with Bars().watching(), watched(out.name, "stories") as watch:
        written = write_games(out, names, games, panels, endpoint, watch)
    for name, reason in written.refused.items():
        say(f"left out: {name}: {reason}", "yellow")
    if written.repaired:
        say(f"{written.repaired:,} stories were usable after a repair")
    _print(out, written.games)


@benchmark.command()
def from_data(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Dataset: folder or address.")],
    out: Out,
    turns: Annotated[int, typer.Option(min=1, max=500, help="Turns of a game.")] = 10,
    games: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of games, spread over the films. [default: all]")
    ] = None,
) -> None:
    """Take held-out stretches of a dataset as games, with the truth of every turn.

    animegamer benchmark from-data data/ --out games.jsonl
    """
    from flows.commands.model import need_networks

    need_networks()
    from training.evaluation.held_out import write_held_out

    _print(out, write_held_out(data, out, turns, games))


def _print(out: Path, games: Sequence[BenchmarkGame]) -> None:
    from training.evaluation.story_checks import count_games, summary

    for line in summary(count_games(games)):
        say(line)
    typer.echo(out)
