"""Drift of long games, measured: stories of twenty turns after the recorded past and after the game model's own.

Game models of four kinds are trained on painted stories with equal steps: on the recorded past, on a noisy one, on one
partly predicted, on both. Other stories are then played, from their instructions alone. Only the first instruction of
a story names its figure: the shot tokens of the past are all that carries it, and an error once made is fed back.

The shot encoder is untrained: its tokens are a fixed projection of the first frame and the motion text. Two figures are
given for each part of a game: the squared error of the shot tokens, as a share of their variance, and the share of
turns whose tokens are nearest to the right figure's.

Letters of the shapes: N clips, L shot tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from flows.benchmarks.learning.bench import Bench, Finding
from flows.benchmarks.learning.runs import Learned, encoded, game_terms, learn, recipe_of
from flows.benchmarks.learning.stories import GAME, LOOP, PLAYED, learned_data, played_data, untrained
from flows.demos.world.learning_films import ShapeFilm
from models.checkpoint import Checkpoint
from models.tokens import PastTurn
from training.data.definitions import Name
from training.data.feature_cache import FeatureCache
from training.data.rollout import rolled_out
from training.data.turns import RecordedTurn
from training.phases.assembly import SplitData
from training.phases.game import without_past

_FIRST_PASS = 150
"""Steps of the first pass, where there is one; the second pass has the others."""
_PART = 5
"""Turns of a part of a game, over which figures are averaged."""
_KINDS: Mapping[str, dict[str, Any]] = {
    "recorded": {},
    "noise": {"history_noise": 0.7},
    "predicted": {"history_predicted": 0.5, "first_pass": _FIRST_PASS},
    "both": {"history_noise": 0.7, "history_predicted": 0.5, "first_pass": _FIRST_PASS},
}
"""Changes to the recipe by kind; 0.7 is the greatest noise of GameNGen."""
_LEAST_DRIFT = 0.02
"""Error that the model's own past adds, as a share of the variance, from which on it counts as a drift."""


@dataclass(frozen=True)
class Drift:
    """Figures of one game model over the parts of its games."""

    error: tuple[float, ...]
    """Squared error of the shot tokens over their variance."""
    figure: tuple[float, ...]
    """Share of turns with the right figure."""


def drift_claim(bench: Bench) -> Finding:
    """Measure drift, the error that the model's own past adds in the last turns of long games.

    Models that hardly use the past, or that do not drift after training on the recorded one, have nothing to reduce:
    the aim is then not reached.
    """
    out, found, values = bench.out / "drift", {}, []
    start = untrained(out)
    for kind in _KINDS:
        games = [_game_model(out, start, kind, seed, bench.steps.drift) for seed in range(bench.steps.drift_seeds)]
        values += [_loss_with_and_without_past(each) for each in games]
        for past, own in (("recorded past", False), ("own past", True)):
            found[f"{kind}, {past}"] = [_drift(each, own=own) for each in games]
    known, unknown = map(fmean, zip(*values, strict=True))
    last = {name: fmean(each.error[-1] for each in games) for name, games in found.items()}
    added = {kind: last[f"{kind}, own past"] - last[f"{kind}, recorded past"] for kind in _KINDS}
    reached = known < unknown / 2 and added["recorded"] > _LEAST_DRIFT and min(added.values()) <= added["recorded"] / 2
    value = f"squared error with the past {known:.3f}, without {unknown:.3f}"
    return Finding("half the drift of the last 5 turns", "\n".join([value, *_table(found)]), reached)


def _game_model(out: Path, start: Checkpoint, kind: str, seed: int, steps: int) -> Learned:
    """Return a game model of a kind, trained on the learned stories; its data are the played ones."""
    past = _KINDS[kind]
    loop = {**LOOP, "steps": steps - past.get("first_pass", 0), "seed": seed}
    looks = {"clips": 20, "games": 0}
    recipe = recipe_of("game", loop, game={**GAME, **past}, model=start.config.model_dump(), looks=looks)
    learned = learn("game", out / f"{kind}-{seed}", learned_data(out), start, recipe)
    names: tuple[Name, ...] = ("patches", "text", "shot_tokens")
    return replace(learned, split=encoded(out / "played", played_data(out), start, recipe, names))


def _loss_with_and_without_past(learned: Learned) -> tuple[float, float]:
    """Return the squared error of the shot tokens after the recorded past, and with the past left out."""
    phase = learned.games(learned.after)
    later = [item for item in range(len(phase.held_out)) if len(phase.held_out.windows.longest(item).turns) > 1]
    known, unknown = (
        game_terms(phase, map(examples.longest, later[::_PART]))["shot_tokens"]
        for examples in (phase.held_out, without_past(phase.held_out))
    )
    return known, unknown


@torch.no_grad()
def _drift(learned: Learned, *, own: bool) -> Drift:
    """Play the stories and measure each part of the games.

    Args:
        learned: the game model.
        own: after the model's own predictions; otherwise after the recorded turns.
    """
    looks, cache = _looks(learned.split), learned.split.cache
    variance = float(_stacked(cache, learned.split.catalog.turns).var(dim=0).mean())
    errors: dict[int, list[float]] = {}
    right: dict[int, list[bool]] = {}
    for film, turns in _games(learned.split):
        for number, tokens_LD in enumerate(_predicted(learned, turns, own=own)):
            truth_LD = cache.get("shot_tokens", turns[number].clip_id)
            errors.setdefault(number // _PART, []).append(float((tokens_LD - truth_LD).square().mean()) / variance)
            figure, _ = min(looks, key=lambda look: float((looks[look] - tokens_LD).square().mean()))
            right.setdefault(number // _PART, []).append(figure == film.turns[number].clip.figure)
    return Drift(tuple(map(fmean, errors.values())), tuple(map(fmean, right.values())))


def _table(found: Mapping[str, Sequence[Drift]]) -> Iterator[str]:
    """Yield a line for each kind: mean and standard deviation over the seeds, by part of the game."""
    for name, seeds in found.items():
        error, figure = (
            " ".join(_spread([of(each)[part] for each in seeds]) for part in range(len(of(seeds[0]))))
            for of in _FIGURES
        )
        yield f"{name}: error {error}; right figure {figure}"


_FIGURES: tuple[Callable[[Drift], tuple[float, ...]], ...] = (lambda each: each.error, lambda each: each.figure)


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}" + (f"±{stdev(values):.3f}" if len(values) > 1 else "")


def _predicted(learned: Learned, turns: Sequence[RecordedTurn], *, own: bool) -> Iterator[Tensor]:
    model, tokenizer, config = learned.after.game_model(), learned.after.tokenizer(), learned.after.config
    if own:
        yield from (each.shot_tokens_LD for each in rolled_out(model, tokenizer, config, turns))
        return
    cache = learned.split.cache
    past = [PastTurn(turn.instruction, cache.get("shot_tokens", turn.clip_id), turn.state) for turn in turns]
    for number, turn in enumerate(turns):
        (prediction,) = rolled_out(model, tokenizer, config, [turn], past[:number])
        yield prediction.shot_tokens_LD


def _games(played: SplitData) -> Iterator[tuple[ShapeFilm, tuple[RecordedTurn, ...]]]:
    for film in PLAYED:
        yield film, tuple(turn for turn in played.catalog.turns if turn.sample.film_id.startswith(f"{film.name}-"))


def _looks(played: SplitData) -> dict[tuple[str, str], Tensor]:
    """Return the mean shot tokens of each figure in each place, which the first frame depends on alone."""
    shown: dict[tuple[str, str], list[RecordedTurn]] = {}
    for film, turns in _games(played):
        for painted, turn in zip(film.turns, turns, strict=True):
            shown.setdefault((painted.clip.figure, painted.clip.place), []).append(turn)
    return {look: _stacked(played.cache, turns).mean(dim=0) for look, turns in shown.items()}


def _stacked(cache: FeatureCache, turns: Sequence[RecordedTurn]) -> Tensor:
    return torch.stack([cache.get("shot_tokens", turn.clip_id) for turn in turns])
