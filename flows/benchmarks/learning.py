"""Learning benchmark: eight claims that training works, measured with tiny networks on a CPU in minutes.

`make bench-learning` runs all, `--only motion` one claim. Painted figures move over painted grounds
(`flows/demos/world/shapes.py`); the clips form an ordinary data set (`flows/demos/world/learning_films.py`) and all
training is by `TrainingRun`. Each measurement is compared with the aim of its claim. This shows that every part can
memorise training clips; it does not show how good the method is on films.

    autoencoder   clips are reconstructed recognisably
    shots         joint training memorises eight clips
    motion        a greater motion scope gives more motion in the drawn clip
    game          the game model memorises twenty turns
    history       without the past, the loss on turns that depend on it is higher
    free-text     trained on several phrasings, the game model understands sentences that it has never seen
    adaptation    the shot decoder adapts to predicted shot tokens
    casts         characters of the same names in two data sets keep their own looks and states
    drift         training on a noisy or predicted past halves the drift of games of twenty turns
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product, starmap
from pathlib import Path
from statistics import fmean

import torch
from rich.console import Console
from rich.table import Table

from flows.benchmarks.learning_casts import learn_casts
from flows.benchmarks.learning_drift import KINDS, drift, game_model, played_tokens, table, untrained
from flows.benchmarks.learning_runs import (
    Learned,
    draw,
    fit_settings,
    game_terms,
    learn,
    measured_scope,
    recipe_of,
    shot_loss,
    with_config,
)
from flows.console.terminal import say
from flows.console.training_bars import TrainBars
from flows.demos.world.learning_films import AGAIN, FASTER, FIRST, SECOND, write_films
from flows.demos.world.shapes import FRAMES, HEIGHT, WIDTH
from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.untrained import new_checkpoint
from training.data.phrasing import HELD_OUT
from training.phases.autoencoder import Fitted, fit_autoencoder, psnr, read_frames, reconstructed
from training.phases.game import GamePhase, without_past
from training.phases.shot import ShotPhase
from training.pictures import Comparison, save_comparisons
from training.recipes import ablation


@dataclass(frozen=True)
class Steps:
    """Optimizer steps of each run; the defaults reach the aims."""

    stills: int = 1000
    clips: int = 700
    shots: int = 1000
    faster: int = 800
    game: int = 450
    free_text: int = 450
    early_game: int = 150
    """Steps of the game model that adaptation uses; kept low, since perfect predictions leave nothing to adapt to."""
    adapt: int = 100
    casts: int = 400
    drift: int = 300
    """Steps of each game model of the drift, first pass included."""
    drift_seeds: int = 3


@dataclass(frozen=True)
class Finding:
    """Result of a claim."""

    aim: str
    measured: str
    reached: bool
    pictures: tuple[Path, ...] = ()


class Bench:
    """Training runs used by the claims, each made at its first access."""

    def __init__(self, out: Path, steps: Steps = Steps()) -> None:
        """Set the output folder; no run is made yet."""
        self.out, self.steps = out, steps

    @cached_property
    def start(self) -> Checkpoint:
        """Untrained checkpoint."""
        folder = self.out / "start"
        return Checkpoint.open(folder) if folder.exists() else new_checkpoint(folder, tiny_config())

    @cached_property
    def fitted(self) -> Fitted:
        """Autoencoder fitted to all clips."""
        data, bars = write_films(self.out / "data" / "all", [FIRST, SECOND, FASTER]), TrainBars()
        with bars.shown():
            settings = fit_settings(self.steps.stills, self.steps.clips)
            return fit_autoencoder(self.start, data, self.out / "autoencoder", settings, bars.step)

    @cached_property
    def eight(self) -> Path:
        """Data set of eight clips."""
        return write_films(self.out / "data" / "eight", [FIRST])

    @cached_property
    def shots(self) -> Learned:
        """Joint training on eight clips."""
        recipe = recipe_of("shot", {"steps": self.steps.shots, "batch_size": 8, "micro_batch": 8})
        return learn("shot", self.out / "shots", self.eight, self.fitted.checkpoint, recipe)

    @cached_property
    def faster(self) -> Learned:
        """Joint training on one clip at five speeds."""
        data = write_films(self.out / "data" / "faster", [FASTER])
        recipe = recipe_of("shot", {"steps": self.steps.faster, "batch_size": 5, "micro_batch": 5})
        return learn("shot", self.out / "faster", data, self.fitted.checkpoint, recipe)

    @cached_property
    def game(self) -> Learned:
        """Game model trained on twenty turns, which include the eight clips."""
        return self.game_from(self.shots.after)

    @cached_property
    def adapted(self) -> Learned:
        """Adaptation to the predictions of a partly trained game model for the eight clips."""
        data = write_films(self.out / "data" / "twenty", [FIRST, SECOND])
        early = recipe_of("game", {"steps": self.steps.early_game, "batch_size": 4, "micro_batch": 4})
        game = learn("game", self.out / "early-game", data, self.shots.after, early)
        recipe = recipe_of("adapt", {"steps": self.steps.adapt, "batch_size": 8, "micro_batch": 8})
        return learn("adapt", self.out / "adapt", self.eight, game.after, recipe)

    def game_from(self, start: Checkpoint, *, history: bool = True) -> Learned:
        """Train the game model on twenty turns, with or without past turns, on shot tokens of `start`."""
        data = write_films(self.out / "data" / "twenty", [FIRST, SECOND])
        recipe = recipe_of("game", {"steps": self.steps.game, "batch_size": 4, "micro_batch": 4})
        if history:
            return learn("game", self.out / "game", data, start, recipe)
        recipe = ablation("no-history", recipe)
        config = start.config.replaced(game_model=recipe.model.game_model)
        start = with_config(start, self.out / "no-history-start", config)
        return learn("game", self.out / "no-history", data, start, recipe)

    def worded(self, share: float) -> Learned:
        """Train the game model on twenty turns with a share of free text, on tokens of an untrained shot encoder."""
        data = write_films(self.out / "data" / "twenty", [FIRST, SECOND])
        loop = {"steps": self.steps.free_text, "batch_size": 4, "micro_batch": 4}
        recipe = recipe_of("game", loop, game={"free_text": share, "windows": {"most_turns": 2}})
        return learn("game", self.out / f"free-text-{share}", data, self.start, recipe)


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
        places = product(range(len(phase.held_out)), range(len(HELD_OUT)))
        found[name] = game_terms(phase, starmap(phase.held_out.typed, places))
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


def casts_claim(bench: Bench) -> Finding:
    """Measure two casts: the game model gives each namesake its own look and states, from its name alone."""
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


_LEAST_DRIFT = 0.02
"""Error that the model's own past adds, as a share of the variance, from which on it counts as a drift."""


def drift_claim(bench: Bench) -> Finding:
    """Measure drift, the error that the model's own past adds in the last turns of long games.

    Without a drift after training on the recorded past there is nothing to reduce, and the aim is not reached.
    """
    out, found = bench.out / "drift", {}
    start = untrained(out)
    for kind in KINDS:
        games = [game_model(out, start, kind, seed, bench.steps.drift) for seed in range(bench.steps.drift_seeds)]
        tokens = played_tokens(out, games[0])
        for past, own in (("recorded past", False), ("own past", True)):
            found[f"{kind}, {past}"] = [drift(each, tokens, own=own) for each in games]
    last = {name: fmean(each.error[-1] for each in games) for name, games in found.items()}
    added = {kind: last[f"{kind}, own past"] - last[f"{kind}, recorded past"] for kind in KINDS}
    reached = added["recorded"] > _LEAST_DRIFT and min(added.values()) <= added["recorded"] / 2
    return Finding("half the drift of the last 5 turns", "\n".join(table(found)), reached)


CLAIMS: Mapping[str, Callable[[Bench], Finding]] = {
    "autoencoder": autoencoder_claim,
    "shots": shots_claim,
    "motion": motion_claim,
    "game": lambda bench: game_claim(bench.game),
    "history": lambda bench: history_claim(bench.game, bench.game_from(bench.shots.after, history=False)),
    "free-text": lambda bench: free_text_claim(bench.worded(0.5), bench.worded(0.0)),
    "adaptation": adaptation_claim,
    "casts": casts_claim,
    "drift": drift_claim,
}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench-learning"), help="folder for everything")
    parser.add_argument("--only", action="append", choices=tuple(CLAIMS), help="only this claim; may be repeated")
    options = parser.parse_args()
    started, bench, findings = time.monotonic(), Bench(options.out), {}
    for name in options.only or CLAIMS:
        findings[name] = CLAIMS[name](bench)
        say(f"{name}: {findings[name].measured} (after {time.monotonic() - started:.0f} s)")
    Console(width=120).print(table_of(findings))
    for finding in findings.values():
        for picture in finding.pictures:
            say(f"to look at: {picture}")
    say(f"{time.monotonic() - started:.0f} s in all, on {torch.get_num_threads()} CPU threads")


def table_of(findings: Mapping[str, Finding]) -> Table:
    """Return a table with a row for each claim."""
    table = Table(
        title=f"learning by tiny networks, painted clips of {FRAMES} frames, {WIDTH}x{HEIGHT}", show_lines=True
    )
    for heading in ("claim", "aim", "measured", "reached"):
        table.add_column(heading)
    for name, finding in findings.items():
        table.add_row(name, finding.aim, finding.measured, "yes" if finding.reached else "NO")
    return table


def _drawn(phase: ShotPhase, scopes: Sequence[float]) -> torch.Tensor:
    """Draw every clip of a phase, each with its motion scope: NTHWC."""
    return torch.stack([draw(phase, item, scope) for item, scope in enumerate(scopes)])


def _compare(folder: Path, captions: Sequence[str], truth_NTHWC: torch.Tensor, drawn_NTHWC: torch.Tensor) -> Path:
    rows = zip(captions, truth_NTHWC.numpy(), drawn_NTHWC.numpy(), strict=True)
    save_comparisons(folder, [Comparison(*row) for row in rows])
    return folder / "sheet.png"


def _spread(phase: GamePhase) -> float:
    """Mean squared error of the constant prediction, the mean of the shot tokens."""
    examples = phase.held_out
    tokens_NLD = torch.stack([examples.longest(item).shot_tokens_LD for item in range(len(examples))])
    return float((tokens_NLD - tokens_NLD.mean(dim=0)).square().mean())


def _row(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


if __name__ == "__main__":
    main()
