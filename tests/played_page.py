"""The game page served on loopback from this process, with an engine that paints gradients and can be held."""

from __future__ import annotations

import colorsys
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from flows.game_folder import GameSettings
from flows.play_games import Games
from flows.play_server import PageServer, listening
from models.tokens import PastTurn, State
from models.turns import GameState, Progress, Turn, unwatched

STEPS = 10
CAST = ("Qiqi", "Ponyo", "Sosuke", "Kiki & Jiji")


@dataclass
class GradientEngine:
    """Paints a gradient in the colour of its instruction, with a disc that runs faster the higher the motion level.

    Words in the instruction steer the state: `sleep` rests, `hug` is social, `play` entertains, `level 4` is level 4.
    While `go` is cleared, it waits in the middle of denoising.
    """

    window_turns: int = 5
    size: tuple[int, int] = (64, 96)
    go: threading.Event = field(default_factory=threading.Event)
    seen: list[tuple[GameState, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go.set()

    def next_turn(
        self,
        state: GameState,
        instruction: str,
        seed: int,  # noqa: ARG002 - its pictures are the same for every seed
        progress: Progress = unwatched,
    ) -> tuple[Turn, GameState]:
        self.seen.append((state, instruction))
        progress("game model", 0, 1)
        if "explode" in instruction:
            raise RuntimeError("CUDA error: out of memory <b>now</b>")
        progress("game model", 1, 1)
        for step in range(STEPS):
            progress("denoising", step, STEPS)
            while step == STEPS // 2 and not self.go.wait(0.02):
                progress("denoising", step, STEPS)
        progress("frames", 0, 1)
        level = next((level for level in range(1, 6) if f"level {level}" in instruction), 2)
        answer = State(
            level, int("hug" in instruction), int("play" in instruction), 1 if "sleep" in instruction else -1
        )
        past = PastTurn(instruction, torch.full((4, 8), float(len(self.seen))), answer)
        after = state.after(past, self.window_turns)
        frames = painted(instruction, level, self.size)
        seconds = {"game model": 0.01, "denoising": 0.1, "frames": 0.01}
        turn = Turn(after.turns, instruction, answer, 2.0 * level, after.values, frames, past.shot_tokens_LD, seconds)
        progress("frames", 1, 1)
        return turn, after


def painted(text: str, level: int, size: tuple[int, int]) -> np.ndarray:
    """17 frames (THWC, RGB) of an evening in the colour of the text."""
    height, width = size
    hue = hashlib.sha256(text.encode(errors="replace")).digest()[0] / 256
    top, bottom = (
        np.array(colorsys.hsv_to_rgb(hue + shift, 0.55, light)) for shift, light in ((0, 0.95), (0.12, 0.35))
    )
    rows, columns = np.mgrid[0 : 1 : height * 1j, 0 : width / height : width * 1j]
    frames = []
    for time in np.linspace(0, 1, 17):
        picture = top + (bottom - top) * rows[..., None]
        disc = np.hypot(rows - 0.45, columns - 0.3 - 0.18 * level * time) < 0.14
        picture[disc] = (1.0, 0.93, 0.75)
        frames.append((255 * picture).astype(np.uint8))
    return np.stack(frames)


def settings(checkpoint: str = "gradients") -> GameSettings:
    return GameSettings(checkpoint=checkpoint, window_turns=5, fps=8)


def check(instruction: str) -> None:
    """What the real engine refuses too."""
    if not instruction.strip():
        raise ValueError("the instruction is empty: say what happens, such as `Qiqi runs along the beach at dusk`")
    if len(instruction.split()) > 200:
        raise ValueError(f"the instruction has {len(instruction.split())} tokens, at most 200 fit: shorten it")


@dataclass
class Served:
    """A page under way."""

    address: str
    games: Games
    engine: GradientEngine


@contextmanager
def served(
    folder: Path, engine: GradientEngine | None = None, port: int = 0, checkpoint: str = "gradients"
) -> Iterator[Served]:
    """The page of the games in a folder, on a free port."""
    engine = engine or GradientEngine()
    games = Games(folder / "games", engine, settings(checkpoint), check)
    with listening(port) as listener:
        server = PageServer(games, CAST)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", games, engine)
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive(), "the server did not stop"
