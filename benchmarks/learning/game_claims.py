"""Claims about the game model: turns learned by heart, use of the past, free text.

Letters of the shapes: N clips, L shot tokens, D their width.
"""

from __future__ import annotations

from itertools import product, starmap

import torch

from benchmarks.learning.bench import Finding
from benchmarks.learning.runs import Learned, game_terms
from examples.world.learning_films import AGAIN
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


def _spread(phase: GamePhase) -> float:
    """Mean squared error of the constant prediction, the mean of the shot tokens."""
    examples = phase.held_out
    tokens_NLD = torch.stack([examples.longest(item).shot_tokens_LD for item in range(len(examples))])
    return float((tokens_NLD - tokens_NLD.mean(dim=0)).square().mean())
