"""Claims of the learning benchmark: each measures a training run and compares with its aim.

Letters of the shapes: N clips, T frames, H W pixels, C colours (RGB), L shot tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product, starmap
from pathlib import Path

import torch

from benchmarks.learning.bench import Bench, Finding
from benchmarks.learning.runs import Learned, draw, game_terms, measured_scope, shot_loss
from examples.world.learning_films import AGAIN
from training.data.phrasing import HELD_OUT
from training.phases.autoencoder import psnr, read_frames, reconstructed
from training.phases.game import GamePhase, without_past
from training.phases.shot import ShotPhase
from training.pictures import Comparison, save_comparisons


def autoencoder_claim(bench: Bench) -> Finding:
    """Measure reconstruction: PSNR of the clips before and after fitting the autoencoder."""
    fitted = bench.fitted
    before, after = fitted.before["train"], fitted.after["train"]
    return Finding("20 dB", f"{before:.1f} dB before, {after:.1f} dB after", after >= 20, (fitted.sheet,))


def shots_claim(bench: Bench) -> Finding:
    """Measure joint training: the loss on eight clips falls, and each drawn clip is nearest to its own target."""
    learned = bench.shots
    before, after = (shot_loss(learned.shots(checkpoint)) for checkpoint in (learned.before, learned.after))
    phase = learned.shots(learned.after)
    truth_NTHWC = read_frames(bench.eight, "train", learned.after.config, len(phase.held_out))
    drawn_NTHWC = _drawn(phase, [turn.sample.motion.scope_px for turn in phase.held_out.turns])
    likeness_NN = torch.stack([psnr(each[None].expand_as(truth_NTHWC), truth_NTHWC) for each in drawn_NTHWC])
    own_N = likeness_NN.diagonal()
    others_N = likeness_NN.clone().fill_diagonal_(-torch.inf).amax(dim=1)
    right = int((own_N > others_N).sum())
    captions = [f"{turn.instruction} {own:.1f} dB" for turn, own in zip(phase.held_out.turns, own_N, strict=True)]
    sheet = _compare(bench.out / "pictures" / "shots", captions, truth_NTHWC, drawn_NTHWC)
    down = 1 - after / before
    measured = (
        f"loss {before:.3f} to {after:.3f} ({-down:.0%}); {right} of {len(own_N)} drawn are nearest to their own: "
        f"{own_N.mean():.1f} dB, the next nearest {others_N.mean():.1f} dB"
    )
    return Finding("loss -70 %, 8 of 8 nearest", measured, down >= 0.7 and right == len(own_N), (sheet,))


def motion_claim(bench: Bench) -> Finding:
    """Measure motion: with one first frame and one text, a greater motion scope gives a clip that moves more."""
    phase = bench.faster.shots(bench.faster.after)
    asked = [turn.sample.motion.scope_px for turn in phase.held_out.turns]
    drawn_NTHWC = _drawn(phase, asked)
    truth_NTHWC = read_frames(bench.out / "data" / "faster", "train", bench.faster.after.config, len(asked))
    folder = bench.out / "pictures" / "motion"
    found, possible = (
        [measured_scope(each, folder / f"{name}-{scope:.1f}.mp4") for scope, each in zip(asked, clips, strict=True)]
        for name, clips in (
            ("drawn", drawn_NTHWC),
            ("decoded", reconstructed(bench.faster.after.autoencoder(), truth_NTHWC)),
        )
    )
    captions = [f"asked {scope:.1f} px, measured {got:.1f} px" for scope, got in zip(asked, found, strict=True)]
    sheet = _compare(folder, captions, truth_NTHWC, drawn_NTHWC)
    measured = f"asked {_row(asked)} px, drawn {_row(found)}; the autoencoder lets through {_row(possible)}"
    return Finding("strictly rising", measured, found == sorted(set(found)), (sheet,))


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


def adaptation_claim(bench: Bench) -> Finding:
    """Measure adaptation: it lowers the shot decoder's loss on the game model's predictions."""
    learned = bench.adapted
    before, after = (shot_loss(learned.adaptation(checkpoint)) for checkpoint in (learned.before, learned.after))
    true = [shot_loss(learned.shots(checkpoint)) for checkpoint in (learned.before, learned.after)]
    measured = (
        f"loss on predictions {before:.3f} to {after:.3f} ({after / before - 1:+.0%}); the loss "
        f"on true tokens: {true[0]:.3f} to {true[1]:.3f}"
    )
    return Finding("lower", measured, after < before)


def _spread(phase: GamePhase) -> float:
    """Mean squared error of the constant prediction, the mean of the shot tokens."""
    examples = phase.held_out
    tokens_NLD = torch.stack([examples.longest(item).shot_tokens_NLD[0] for item in range(len(examples))])
    return float((tokens_NLD - tokens_NLD.mean(dim=0)).square().mean())


def _drawn(phase: ShotPhase, scopes: Sequence[float]) -> torch.Tensor:
    """Draw every clip of a phase, each with its motion scope: NTHWC."""
    return torch.stack([draw(phase, item, scope) for item, scope in enumerate(scopes)])


def _compare(folder: Path, captions: Sequence[str], truth_NTHWC: torch.Tensor, drawn_NTHWC: torch.Tensor) -> Path:
    rows = zip(captions, truth_NTHWC.numpy(), drawn_NTHWC.numpy(), strict=True)
    save_comparisons(folder, [Comparison(*row) for row in rows])
    return folder / "sheet.png"


def _row(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)
