"""Commands `caption-server`, lmdeploy kept running until Ctrl-C, and `captions`, a trial of a captioner."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import typer
from platformdirs import user_log_path
from rich.markup import escape
from rich.status import Status

from flows.commands.dataset import DatasetPlace, checked_request, open_workspace, settings_of
from flows.console.terminal import console, say
from pipeline.core.atomic import HeldError, held, replacing
from pipeline.core.config import CaptionSettings, load_config
from pipeline.core.errors import UserError
from pipeline.core.plain_text import printable

if TYPE_CHECKING:
    from pipeline.captions.stage import WriteCaptions
    from pipeline.captions.trial import Trial
    from pipeline.core.store import Dataset
    from pipeline.publish.export.span_captions import SpanCost
    from pipeline.publish.export.trainers import Preset

SECONDS_BETWEEN_LINES = 30.0
LMDEPLOY_ENVIRONMENT = Path(sys.prefix).parent / ".venv-lmdeploy"


def caption_server(
    card: Annotated[
        Literal["80gb", "2x48gb", "48gb", "24gb"] | None,
        typer.Option(help="GPU memory to choose the model for. [default: reported by the driver]"),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. An address that other machines can reach needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 23333,
    revision: Annotated[
        str | None, typer.Option(help="Commit of the model's repository. 48gb needs it. [default: pinned]")
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            help="File for the settings of a build on this machine with this server, written once it answers."
        ),
    ] = None,
    environment: Annotated[
        Path, typer.Option(help="Environment of lmdeploy, as `make lmdeploy-env` makes it.", show_default=False)
    ] = LMDEPLOY_ENVIRONMENT,
    log: Annotated[
        Path | None, typer.Option(help="File for the server's output. [default: in your folder of logs]")
    ] = None,
) -> None:
    """Serve the captioner's model with lmdeploy on this machine, until Ctrl-C.

    The GPUs determine the model: InternVL2-26B for 80 GB or 2 x 48 GB, its 4-bit version for 48 GB, and InternVL2-8B
    for 24 GB. The first start downloads the weights, and a server that dies is restarted. If the environment variable
    ANIMEGAMER_API_KEY is set, requests need that key.

        animegamer caption-server --settings captions.toml

        animegamer build ponyo.mkv --cast cast/ --out data/ --captioner server --config captions.toml
    """
    from pipeline.captions.caption_server import (
        SERVED,
        Limits,
        Listening,
        card_of,
        check_port,
        gpu_memory,
        keep_serving,
        lmdeploy_program,
        resolved_revision,
    )

    model = SERVED[card or card_of(gpu_memory())]
    model = replace(model, revision=revision or model.revision)
    listening = Listening(host, port, CaptionSettings().api_key_env)
    program = lmdeploy_program(environment, model, listening, log or user_log_path("animegamer") / "caption-server.log")
    check_port(host, port)
    if settings:
        settings.parent.mkdir(parents=True, exist_ok=True)  # now, not after a download of an hour
    say(f"starting {model.repository}, revision {model.revision}; its log: {program.log}")

    def lines() -> list[str]:
        commit = resolved_revision(model.repository, str(model.revision))
        values = {"endpoint": listening.base, "model": model.repository, "revision": commit}
        return ["[captions]", *(f'{key} = "{value}"' for key, value in values.items())]

    with _ServerDisplay(lines, settings) as display:
        keep_serving(program, Limits(), _stopped_by_signals(), display)
    say("stopped")


def captions(
    dataset: DatasetPlace,
    tries: Annotated[int, typer.Option("--try", min=1, help="Clips to ask about, spread over the dataset.")] = 20,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML with the section [captions], the only one used; all else is as in the last build."),
    ] = None,
    cast: Annotated[str | None, typer.Option(help="Folder of the cast. [default: from the last build]")] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the server, for the GPU hours.")] = 1,
    price: Annotated[
        float | None, typer.Option("--price-per-million-tokens", min=0, help="Price of a service, for the cost.")
    ] = None,
    spans: Annotated[
        Literal["ltx2", "h3"] | None,
        typer.Option(help="Caption the spans of an export with this preset, in place of the clips; writes no page."),
    ] = None,
    all_spans: Annotated[
        bool,
        typer.Option("--all", help="With --spans: ask about all spans. Try a few first: the cost follows from them."),
    ] = False,
) -> None:
    """Try the caption server on a few clips, and print what the captions of the whole dataset would cost.

    Writes DATASET/captions-try.html with the pictures and the replies side by side. The replies are stored, so no build
    pays again for clips with usable replies. Each trial retries its clips with unusable replies. The clips must exist:
    build them without a server first.

        animegamer captions data/ --try 20 --price-per-million-tokens 0.25

        animegamer captions data/ --spans ltx2 --all
    """
    from flows.console.progress import Bars
    from pipeline.captions.trial import try_captions
    from pipeline.core.progress import watched
    from pipeline.pages.trial import write_trial
    from pipeline.plan.film_stages import captions_of
    from pipeline.publish.export.trainers import PRESETS

    if all_spans and not spans:
        raise UserError("--all needs --spans; a build captions all clips")
    workspace = open_workspace(dataset)
    built = settings_of(workspace)
    asking = load_config(config).captions if config else built.captions
    settings = built.model_copy(update={"captions": asking.model_copy(update={"captioner": "server"})})
    place = cast or workspace.dataset.record.cast_source
    request = checked_request(films=(), out=dataset, cast=place, config=settings)
    page = workspace.dataset.root / "captions-try.html"
    with workspace.locked("animegamer captions"), Bars().watching():
        workspace.dataset.sweep()
        for folder in workspace.dataset.folders():
            with suppress(HeldError), held(folder.path, "animegamer captions"):  # else a worker is writing there
                folder.sweep()
        stage, screened = captions_of(workspace.dataset, request)
        asked = settings.captions
        if spans:
            _caption_spans(workspace.dataset, stage, PRESETS[spans], None if all_spans else tries, price)
            workspace.send()
            return
        with watched(workspace.dataset.root.name, "captions") as watch:
            trial = try_captions(screened, stage, tries, watch)
        figures = _figures(trial, asked.concurrency, gpus, price)
        write_trial(page, trial, stage.cast, f"{asked.model} {asked.revision} at {asked.endpoint}", figures)
        workspace.send()
    for name, value in (*figures, ("page", str(page))):
        typer.echo(f"{name:<12} {value}")


def _caption_spans(
    dataset: Dataset, stage: WriteCaptions, preset: Preset, tries: int | None, price: float | None
) -> None:
    """Ask about `tries` spans, or all, and write their captions for exports; say the cost before and after."""
    from pipeline.captions.trial import try_questions
    from pipeline.core.progress import watched
    from pipeline.publish.export.span_captions import span_cost, span_questions, write_captions

    films = span_questions(dataset, stage, preset)
    before = span_cost(films)
    if tries is None and before.left == before.spans:
        raise UserError(f"the cost of {before.spans} spans is not known yet; first try a few, without --all")
    typer.echo(_span_line(before, price))
    with watched(dataset.root.name, "captions") as watch:
        trial = try_questions(films, before.spans if tries is None else tries, watch, ask_again=False)
    written, after = write_captions(films, preset), span_cost(films)
    typer.echo(f"asked        {trial.asked:,} spans now; {trial.usable_share:.0%} of {len(trial.clips):,} usable")
    typer.echo(f"captions     {written:,} spans, which an export with --preset {preset.name} prefers")
    typer.echo(_span_line(after, price))


def _span_line(cost: SpanCost, price: float | None) -> str:
    """Line with the spans left and their cost, by the tokens of those that were asked about."""
    if cost.tokens_a_span is None or not cost.left:
        return f"spans left   {cost.left:,} of {cost.spans:,}" + ("; cost unknown" if cost.left else "")
    tokens = cost.left * cost.tokens_a_span
    money = f", {tokens / 1e6 * price:,.2f} at {price:g} a million" if price is not None else ""
    return f"spans left   {cost.left:,} of {cost.spans:,}; {tokens / 1e6:,.3g} million tokens{money}"


def _figures(trial: Trial, concurrency: int, gpus: int, price: float | None) -> list[tuple[str, str]]:
    """Names and values of the figures of a trial, for the terminal and the page."""
    count, tokens = len(trial.clips), trial.tokens_a_clip
    rows = [
        ("tried", f"{count:,} of {trial.total:,} clips, {trial.asked:,} of them asked about now"),
        ("usable", f"{trial.usable_share:.0%}"),
        ("tokens", "not reported by the server" if tokens is None else f"{tokens:,.0f} a clip"),
    ]
    if trial.hours_left is not None:
        rows.append(("seconds", f"{trial.seconds / trial.asked:.2g} a clip, with up to {concurrency} requests at once"))
    cost = []
    if trial.hours_left is not None:
        cost.append(f"at most {trial.hours_left:.2g} hours, {trial.hours_left * gpus:.2g} GPU hours")
    if trial.tokens_left is not None:
        cost.append(f"{trial.tokens_left / 1e6:,.3g} million tokens")
        if price is not None:
            cost.append(f"{trial.tokens_left / 1e6 * price:,.2f} at {price:g} a million")
    rows.append(("clips left", f"{trial.left:,}: {'; '.join(cost) or 'cost unknown, nothing was asked'}"))
    return rows


class _ServerDisplay:
    """Line with the time of the start and the end of the server's log; without a terminal, a line every 30 seconds."""

    def __init__(self, settings: Callable[[], Sequence[str]], file: Path | None) -> None:
        self._settings = settings
        self._file = file
        self._status = Status("", console=console)
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def starting(self, seconds: float, last_line: str) -> None:
        text = f"starting, {timedelta(seconds=round(seconds))}: {last_line}"
        if console.is_terminal:
            self._status.update(escape(printable(text)[: console.width - 4]))
            self._status.start()
        elif time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            say(text)

    def serving(self) -> None:
        self._status.stop()
        lines = self._settings()
        say("the server answers; settings for the --config of a build with it:")
        for line in lines:
            say(f"  {line}")
        if self._file:
            with replacing(self._file) as temporary:
                temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
            say(f"written to {self._file}")
        say("Ctrl-C stops the server")

    def say(self, line: str) -> None:
        self._status.stop()
        say(line)


def _stopped_by_signals() -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
