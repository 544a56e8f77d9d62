"""Two casts in one model: characters of the same names in two data sets keep their own looks and states.

Both data sets show the same deeds in the same places, by figures of the same names but other looks, and every deed
changes the state of one cast the other way. Only the name of the data set before the names tells them apart. The game
model gets an instruction without any past; its shot tokens, from which the shot decoder draws, are compared with those
of the clips of both casts. For comparison, a game model is trained on the same clips with joined names.

The shot tokens are those of an untrained shot encoder: a random projection, which keeps the looks of a first frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.learning.runs import game_terms, learn, recipe_of
from examples.world.learning_films import COAST, HILLS, write_films
from models.checkpoint import Checkpoint
from training.config import Names
from training.phases.game import without_past


@dataclass(frozen=True)
class CastResult:
    """Measurements of a game model on the instructions of both casts, without any past."""

    clips: int
    states_right: float
    """Share of the levels and states."""
    nearest: int
    """Clips whose predicted shot tokens are nearer to their own than to those of any other clip."""
    own: float
    """Mean squared error of the predicted shot tokens."""
    namesake: float
    """Mean squared difference of the predicted shot tokens from those of the namesake at the same deed."""


def learn_casts(out: Path, start: Checkpoint, steps: int, names: Names) -> CastResult:
    """Train a game model on both casts, their names joined or kept apart, and measure it; an earlier result is used."""
    data = [str(write_films(out / film.name, [film])) for film in (HILLS, COAST)]
    loop = {"steps": steps, "batch_size": 8, "micro_batch": 8}
    recipe = recipe_of("game", loop, data={"names": names}, game={"windows": {"most_turns": 1}})
    learned = learn("game", out / f"game-{names}", data, start, recipe)
    phase = learned.games(learned.after)
    examples = without_past(phase.held_out)
    count = len(examples)
    terms = game_terms(phase, map(examples.longest, range(count)))
    items = [examples.longest(item) for item in range(count)]
    with torch.no_grad():
        predicted_BLD = phase.network.game_model([item.prompt for item in items]).shot_tokens_BLD.float()
    wanted_BLD = torch.stack([item.shot_tokens_LD for item in items])
    error_BB = (predicted_BLD[:, None] - wanted_BLD[None]).square().mean(dim=(2, 3))
    own = torch.arange(count)
    namesake = (own + count // 2) % count
    return CastResult(
        count,
        terms["state_right"],
        int((error_BB.argmin(dim=1) == own).sum()),
        float(error_BB[own, own].mean()),
        float(error_BB[own, namesake].mean()),
    )
