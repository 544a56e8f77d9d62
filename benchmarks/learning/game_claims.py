"""Claims about the game model: turns learned by heart, use of the past, free text, two casts.

The two casts are datasets that show the same deeds in the same places, by figures of the same names but with other
faces, and every deed changes the state of one cast the other way. Only the name of the dataset before the names tells
them apart. The game model gets an instruction without any past, and its shot tokens are compared with the shot tokens
of both casts' clips. For comparison, a game model is trained on the same clips with joined names. The shot encoder is
untrained: its tokens are a random projection, which keeps what a first frame shows.

Letters of the shapes: N clips, B batch, L shot tokens, D their width.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product, starmap
from pathlib import Path

import torch

from benchmarks.learning.bench import Bench, Finding
from benchmarks.learning.runs import Learned, game_terms, learn, recipe_of
from examples.world.learning_films import AGAIN, COAST, HILLS, write_films
from models.checkpoint import Checkpoint
from training.config import Names
from training.data.phrasing import HELD_OUT
from training.phases.game import GamePhase, without_past


def game_claim(learned: Learned) -> Finding:
    """Measure the game model: it predicts all levels and states, and nearly the shot tokens, of its training turns."""
    phases = learned.games(learned.before), learned.games(learned.after)
    before, after = (game_terms(phase, map(phase.held_out.longest, range(len(phase.held_out)))) for phase in phases)
    down = 1 - after["shot_tokens"] / before["shot_tokens"]
    measured = (
        f"levels {after['level_right']:.0%}, states {after['state_right']:.0%}; shot tokens' error "
        f"{before['shot_tokens']:.3f} to {after['shot_tokens']:.4f} ({-down:.1%}; the mean clip: "
        f"{_spread(phases[1]):.4f})"
    )
    reached = after["level_right"] == after["state_right"] == 1 and down >= 0.9
    return Finding("levels and states 100 %, error -90 %", measured, reached)


def history_claim(learned: Learned, memoryless: Learned) -> Finding:
    """Measure history: on turns that depend on the past, the loss is higher if the past is omitted or not trained."""
    phase, single = learned.games(learned.after), memoryless.games(memoryless.after)
    again = [item for item, turn in enumerate(phase.held_out.windows.turns) if AGAIN in turn.instruction]
    loss, left_out, never = (
        game_terms(each, map(examples.longest, again))
        for each, examples in (
            (phase, phase.held_out),
            (phase, without_past(phase.held_out)),
            (single, single.held_out),
        )
    )
    measured = "; ".join(
        f"{name}: loss {terms['loss']:.3f}, states {terms['state_right']:.0%}"
        for name, terms in (("with the past", loss), ("left out", left_out), ("trained without", never))
    )
    reached = loss["loss"] < min(left_out["loss"], never["loss"])
    return Finding("higher without the past", measured, reached)


def free_text_claim(worded: Learned, recorded: Learned) -> Finding:
    """Measure free text: on held-out sentences the loss is lower if training had other sentences."""
    found: dict[str, dict[str, float]] = {}
    for name, learned in (("trained on phrasings", worded), ("on the three fields only", recorded)):
        phase = learned.games(learned.after)
        wordings = product(range(len(phase.held_out)), range(len(HELD_OUT)))
        found[name] = game_terms(phase, starmap(phase.held_out.typed, wordings))
    measured = "; ".join(
        f"{name}: loss {terms['loss']:.3f}, levels {terms['level_right']:.0%}, states {terms['state_right']:.0%}"
        for name, terms in found.items()
    )
    first, second = (terms["loss"] for terms in found.values())
    return Finding("lower with phrasings", measured, first < second)


def casts_claim(bench: Bench) -> Finding:
    """Measure two casts: the game model gives each namesake its own shot tokens and states, from its name alone."""
    apart, joined = (
        learn_casts(bench.out / "casts", bench.start, bench.steps.casts, names) for names in ("apart", "joined")
    )
    measured = "; ".join(
        f"names {names}: {found.nearest} of {found.clips} predictions nearest to their own clip "
        f"(error {found.own:.3f}, from the namesake's {found.namesake:.3f}), states {found.states_right:.0%}"
        for names, found in (("apart", apart), ("joined", joined))
    )
    reached = apart.nearest == apart.clips and apart.states_right == 1
    return Finding("all nearest to their own, states 100 %", measured, reached)


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


def _spread(phase: GamePhase) -> float:
    """Mean squared error of the constant prediction, the mean of the shot tokens."""
    examples = phase.held_out
    tokens_NLD = torch.stack([examples.longest(item).shot_tokens_LD for item in range(len(examples))])
    return float((tokens_NLD - tokens_NLD.mean(dim=0)).square().mean())
