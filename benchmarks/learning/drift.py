"""Drift of long games, measured: stories of twenty turns after the recorded past and after the game model's own.

Game models of four kinds are trained on painted stories with equal steps, few and many: on the recorded past, on a
noisy one, on one partly predicted, on both. Other stories are then played, from their instructions alone. Only the
first instruction of a story names its figure: the shot tokens of the past are all that carries it, and an error once
made is fed back.

The shot encoder is untrained: its tokens are a fixed projection of the first frame and the motion text. Two figures are
given for each part of a game: the squared error of the shot tokens, as a share of their variance, and the share of
turns whose tokens are nearest to the right figure's.

Letters of the shapes: N clips, L shot tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Literal, get_args

import torch
from torch import Tensor

from benchmarks.learning.bench import Bench, Finding, spread_of
from benchmarks.learning.runs import Learned, encoded, learn, recipe_of
from benchmarks.learning.stories import GAME, LOOP, PLAYED, learned_data, played_data, untrained
from examples.world.learning_films import ShapeFilm
from models.tokens import PastTurn
from training.data.definitions import Name
from training.data.feature_cache import FeatureCache
from training.data.predictions import rolled_out
from training.data.turns import RecordedTurn
from training.phases.assembly import SplitData

_PART = 5
"""Turns of a part of a game, over which figures are averaged."""
Past = Literal["recorded", "own", "left out"]
"""Past that a turn is predicted after; `own`: the model's own predictions, as in play."""
_KINDS: Mapping[str, dict[str, float]] = {
    "recorded": {},
    "noise": {"history_noise": 0.7},
}
"""Changes to the recipe by kind; 0.7 is the greatest noise of GameNGen."""
_MOST_DRIFT = 0.02
"""Error that the model's own past may add, as a share of the variance."""


@dataclass(frozen=True)
class Drift:
    """Figures of one game model over the parts of its games."""

    error: tuple[float, ...]
    """Squared error of the shot tokens over their variance."""
    figure: tuple[float, ...]
    """Share of turns with the right figure."""


def drift_claim(bench: Bench) -> Finding:
    """Measure drift, the error that the model's own past adds in the last turns of long games.

    Models that hardly use the past cannot drift: they do not reach the aim.
    """
    found: dict[tuple[int, str, Past], list[Drift]] = {}
    for steps, kind in product(bench.steps.drift, _KINDS):
        games = [_game_model(bench.out / "drift", kind, seed, steps) for seed in range(bench.steps.drift_seeds)]
        for past in get_args(Past):
            found[steps, kind, past] = [_drift(each, past) for each in games]
    most = max(bench.steps.drift)
    recorded, own, left_out = (
        fmean(each.error[-1] for each in found[most, "recorded", past]) for past in get_args(Past)
    )
    reached = recorded < left_out / 2 and own - recorded < _MOST_DRIFT
    return Finding(f"error without past halved; own past adds {_MOST_DRIFT}", "\n".join(_table(found)), reached)


def _game_model(out: Path, kind: str, seed: int, steps: int) -> Learned:
    """Return a game model of a kind, trained on the learned stories; its data are the played ones."""
    start, past = untrained(out), _KINDS[kind]
    loop = {**LOOP, "steps": steps, "seed": seed}
    recipe = recipe_of(
        "game", loop, game={**GAME, **past}, model=start.config.model_dump(), validation={"clips": 20, "games": 0}
    )
    learned = learn("game", out / f"{kind}-{steps}-{seed}", learned_data(out), start, recipe)
    names: tuple[Name, ...] = ("patches", "text", "shot_tokens")
    return replace(learned, split=encoded(out / "played", played_data(out), start, recipe, names))


@torch.no_grad()
def _drift(learned: Learned, past: Past) -> Drift:
    """Play the stories and measure each part of the games."""
    looks, cache = _looks(learned.split), learned.split.cache
    variance = float(_stacked(cache, learned.split.catalog.turns).var(dim=0).mean())
    errors: dict[int, list[float]] = {}
    right: dict[int, list[bool]] = {}
    for film, turns in _games(learned.split):
        for number, tokens_LD in enumerate(_predicted(learned, turns, past)):
            truth_LD = cache.get("shot_tokens", turns[number].clip_id)
            errors.setdefault(number // _PART, []).append(float((tokens_LD - truth_LD).square().mean()) / variance)
            figure, _ = min(looks, key=lambda look: float((looks[look] - tokens_LD).square().mean()))
            right.setdefault(number // _PART, []).append(figure == film.turns[number].clip.figure)
    return Drift(tuple(map(fmean, errors.values())), tuple(map(fmean, right.values())))


def _table(found: Mapping[tuple[int, str, Past], Sequence[Drift]]) -> Iterator[str]:
    """Yield a line for each kind and past: mean and standard deviation over the seeds, by part of the game."""
    for (steps, kind, past), seeds in found.items():
        error, figure = (
            " ".join(spread_of(part) for part in zip(*each, strict=True))
            for each in ([seed.error for seed in seeds], [seed.figure for seed in seeds])
        )
        yield f"{steps} steps, {kind}; past {past}: error {error}; right figure {figure}"


def _predicted(learned: Learned, turns: Sequence[RecordedTurn], past: Past) -> Iterator[Tensor]:
    """Yield the predicted shot tokens [L, D] of the turns of a game."""
    model, tokenizer, config = learned.after.game_model(), learned.after.tokenizer(), learned.after.config
    if past == "own":
        yield from (each.shot_tokens_LD for each in rolled_out(model, tokenizer, config, turns))
        return
    cache = learned.split.cache
    before = [PastTurn(turn.instruction, cache.get("shot_tokens", turn.clip_id), turn.state) for turn in turns]
    for number, turn in enumerate(turns):
        known = before[:number] if past == "recorded" else ()
        (prediction,) = rolled_out(model, tokenizer, config, [turn], known)
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
