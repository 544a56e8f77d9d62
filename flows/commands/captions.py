"""Command `caption-server`: lmdeploy with the model for this machine's GPU, kept running until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

import typer
from platformdirs import user_log_path
from rich.markup import escape
from rich.status import Status

from flows.console.terminal import console, say
from pipeline.core.config import CaptionSettings
from pipeline.core.plain_text import printable

SECONDS_BETWEEN_LINES = 30.0
LMDEPLOY_ENVIRONMENT = Path(sys.prefix).parent / ".venv-lmdeploy"
"""Environment that `make lmdeploy-env` makes, beside the one that this command runs in."""


class Card(StrEnum):
    """GPUs that a model is chosen for."""

    gb80 = "80gb"
    two_of_gb48 = "2x48gb"
    gb48 = "48gb"
    gb24 = "24gb"


def caption_server(
    card: Annotated[
        Card | None, typer.Option(help="GPU memory that the model is chosen for; unset: as the driver reports it.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines can reach needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 23333,
    revision: Annotated[
        str | None, typer.Option(help="Commit of the model's repository; unset: the pinned one, or `main`.")
    ] = None,
    environment: Annotated[
        Path, typer.Option(help="Environment of lmdeploy, as `make lmdeploy-env` makes it.", show_default=False)
    ] = LMDEPLOY_ENVIRONMENT,
    log: Annotated[
        Path | None, typer.Option(help="File for the server's output; unset: in the folder of logs of this user.")
    ] = None,
) -> None:
    """Serve the captioner's model with lmdeploy on this machine, until Ctrl-C.

    InternVL2-26B on one GPU of 80 GB or two of 48 GB, its 4-bit version on one of 48 GB, InternVL2-8B on one of 24 GB.
    The first start downloads the weights. A server that dies is started again. If the environment variable
    ANIMEGAMER_API_KEY is set, requests need that key.

        animegamer caption-server --card 48gb

        animegamer build ponyo.mkv --cast cast/ --out data/ --captioner server
    """
    from pipeline.captions.lmdeploy_server import (
        SERVED,
        Listening,
        card_of,
        gpu_memory,
        lmdeploy_program,
        resolved_revision,
    )
    from pipeline.captions.server_process import Limits, check_port, keep_serving

    model = SERVED[card or card_of(gpu_memory())]
    model = replace(model, revision=revision or model.revision)
    listening = Listening(host, port, CaptionSettings().api_key_env)
    program = lmdeploy_program(environment, model, listening, log or user_log_path("animegamer") / "caption-server.log")
    check_port(host, port)
    say(f"starting {model.repository}, revision {model.revision}; its log: {program.log}")

    def settings() -> list[str]:
        values = {"endpoint": listening.base, "model": model.repository, "revision": resolved_revision(model)}
        return ["[captions]", *(f'{key} = "{value}"' for key, value in values.items())]

    with _ServerDisplay(settings) as display:
        keep_serving(program, Limits(), _stopped_by_signals(), display)
    say("stopped")


class _ServerDisplay:
    """Line with the time of the start and the end of the server's log; without a terminal, a line every 30 seconds."""

    def __init__(self, settings: Callable[[], Sequence[str]]) -> None:
        self._settings = settings
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
        say("the server answers; settings for the --config of a build with it:")
        for line in self._settings():
            say(f"  {line}")
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
