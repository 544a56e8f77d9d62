"""Claims about the shot networks: the autoencoder, joint training, motion scope, adaptation.

Letters of the shapes: N clips, T frames, H W pixels, C colours (RGB).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.learning.bench import Bench, Finding
from benchmarks.learning.runs import draw, measured_scope, shot_loss
from training.phases.autoencoder import psnr, read_frames, reconstructed
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


def _drawn(phase: ShotPhase, scopes: Sequence[float]) -> torch.Tensor:
    """Draw every clip of a phase, each with its motion scope: NTHWC."""
    return torch.stack([draw(phase, item, scope) for item, scope in enumerate(scopes)])


def _compare(folder: Path, captions: Sequence[str], truth_NTHWC: torch.Tensor, drawn_NTHWC: torch.Tensor) -> Path:
    rows = zip(captions, truth_NTHWC.numpy(), drawn_NTHWC.numpy(), strict=True)
    save_comparisons(folder, [Comparison(*row) for row in rows])
    return folder / "sheet.png"


def _row(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)
