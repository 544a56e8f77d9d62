"""Game from a file with a baseline, `animegamer play --agent`; the game folder has the same format as the model's.

    play_baseline("gc", Path("game.txt"), Path("run/gc/result"), Path("out"))

GC and GFC draw turn by turn, so a stopped or extended game can resume. GSC draws the pictures of a whole story at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flows.console.terminal import say
from flows.game.folder import GameFolder
from flows.game.game_file import read_game_file
from flows.game.play_file import FILM, is_unfinished, line_of, opened_game
from flows.game.records import GameError, GameSettings
from pipeline.core.progress import watched
from training.baselines.agents import AGENTS, Baseline
from training.baselines.config import BaselineKind
from training.baselines.folder import BaselineFolder

FPS = 8
"""Frames per second of the shots, as CogVideoX draws them."""


def play_baseline(
    kind: BaselineKind,
    game: Path,
    folder: Path,
    out: Path,
    *,
    seed: int = 0,
    device: str | None = None,
    offload: bool = False,
) -> Path:
    """Play the instructions of a game file unchanged, keep every turn in `out`, and return the film of the game.

    Args:
        out: game folder: new, empty, or holding the start of the same game.

    Raises:
        UserError: the game file, the baseline or the game folder cannot be used.
    """
    agent = AGENTS[kind]
    baseline = agent.open(folder)
    instructions = read_game_file(game)
    with opened_game(out, baseline_settings(baseline, seed), instructions) as played:
        if is_unfinished(played, instructions):
            if played.turns and agent.whole_story:
                raise GameError(f"{out}: {kind} draws a whole story at once, so it cannot resume; name another --out")
            say("loading the networks")
            _play_on(played, agent.load(folder, seed=seed, device=device, offload=offload), instructions)
    return out / FILM


def baseline_settings(baseline: BaselineFolder, seed: int) -> GameSettings:
    """Return the settings of a game with a baseline."""
    video = baseline.config.video
    return GameSettings(
        seed=seed,
        steps=video.steps,
        guidance=video.guidance,
        checkpoint=baseline.identity(),
        window_turns=1,  # earlier turns are not an input
        fps=FPS,
    )


def _play_on(folder: GameFolder, agent: Baseline, instructions: Sequence[str]) -> None:
    """Play the remaining instructions into the game folder, and print a line for each turn."""
    done, total = len(folder.turns), len(instructions)
    if done:
        say(f"resuming after turn {done} of {total}")
    agent.skip(instructions[:done])
    with watched(folder.path.name, "play") as watch:
        watch(done, total)
        for turn in agent.play(instructions[done:]):
            before = folder.turns[-1] if folder.turns else None
            record = folder.keep(turn, before.id if before else None)
            watch(turn.number, total)
            say(line_of(record, before))
