"""The game page's server: `animegamer play --serve` opens it on this machine, for its own browser.

serve(Path("checkpoint"), Path("out"))
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import uvicorn  # noqa: TID251 - the one server

from flows.console.terminal import say
from flows.game.records import GameSettings
from flows.web.play_app import make_app
from flows.web.play_games import Games
from models.checkpoint import Checkpoint
from models.engine import GUIDANCE, STEPS, Engine
from models.tokens import instruction_ids
from pipeline.core.errors import UserError

HOST = "127.0.0.1"


def serve(
    checkpoint: Path,
    out: Path,
    port: int = 8731,
    *,
    steps: int = STEPS,
    guidance: float = GUIDANCE,
    device: str | None = None,
    offload: bool = False,
    compile: bool = False,
) -> None:
    """Serve the page of a checkpoint on this machine until Ctrl-C.

    Args:
        checkpoint: a checkpoint folder.
        out: every game is kept in a folder under `OUT/games`.
        port: where to listen on 127.0.0.1; 0 is any free port.
        steps: denoising steps.
        guidance: how strongly the shot tokens are followed.
        device: where to compute; unset: the first GPU, if there is one.
        offload: for a small card, one network on it at a time.
        compile: compile the shot decoder first.

    Raises:
        UserError: the checkpoint cannot be used, or the port is taken; the message says how to mend it.
    """
    with suppress(KeyboardInterrupt), listening(port) as listener:
        opened = Checkpoint.open(checkpoint)
        say("loading the networks")
        engine = Engine.load(
            checkpoint, device=device, steps=steps, guidance=guidance, offload=offload, compile=compile
        )
        settings = GameSettings.of(opened, 0, steps, guidance)
        games = Games(out / "games", engine, settings, partial(instruction_ids, engine.tokenizer))
        say(f"play at http://{HOST}:{listener.getsockname()[1]}/   Ctrl-C stops")
        PageServer(games, opened.config.characters).run(sockets=[listener])
    say("stopped; every game is kept")


def listening(port: int) -> socket.socket:
    """A socket that listens on this machine only; taken before anything slow is done.

    Raises:
        UserError: the port is taken, or not ours to take.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(
            f"port {port} cannot be used ({error.strerror}): is the game open already? Give another with --port"
        ) from error
    return listener


class PageServer(uvicorn.Server):
    """Uvicorn, and at its end the games' drawings end too, so that no page's open connection holds it up."""

    def __init__(self, games: Games, characters: Iterable[str]) -> None:
        super().__init__(
            uvicorn.Config(
                make_app(games, characters),
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=5,
            )
        )
        self.games = games

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the drawings, then the connections, then the worker."""
        self.games.closing = True
        await super().shutdown(sockets)
