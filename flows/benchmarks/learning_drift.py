"""Drift of long games, measured: games of twenty turns with the recorded past and with the game model's own.

Game models of four kinds are trained on painted films with equal steps: on the recorded past, on a noisy one, on one
partly predicted, on both. Other films are then played, from their instructions alone. Two thirds of the turns name only
a repetition and a place: their figure has to be carried on from turn to turn, and an error once made is fed back.

The shot encoder is untrained: its tokens are a fixed projection of the first frame and the motion text. Two figures are
given for each part of a game: the squared error of the shot tokens, as a share of their variance, and the share of
turns whose tokens are nearest to the right figure's, of those that name none.

Letters of the shapes: N clips, L shot tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from flows.benchmarks.learning_runs import Learned, learn, recipe_of
from flows.demos.world.learning_films import AGAIN, ShapeFilm, long_film, write_films
from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.tokens import PastTurn
from models.untrained import new_checkpoint
from training.data.encoding import Encoder, Name, open_cache
from training.data.feature_cache import FeatureCache
from training.data.rollout import rolled_out
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn

LEARNED = tuple(long_film(f"learned-{number}") for number in range(12))
PLAYED = tuple(long_film(f"played-{number}") for number in range(6))
FIRST_PASS = 100
"""Steps of the first pass, where there is one; the second pass has the others."""
PART = 5
"""Turns of a part of a game, over which figures are averaged."""
KINDS: Mapping[str, dict[str, Any]] = {
    "recorded": {},
    "noise": {"history_noise": 0.7},
    "predicted": {"history_predicted": 0.5, "first_pass": FIRST_PASS},
    "both": {"history_noise": 0.7, "history_predicted": 0.5, "first_pass": FIRST_PASS},
}
"""Changes to the recipe by kind; 0.7 is the greatest noise of GameNGen."""


@dataclass(frozen=True)
class Drift:
    """Figures of one game model over the parts of its games."""

    error: tuple[float, ...]
    """Squared error of the shot tokens over their variance."""
    figure: tuple[float, ...]
    """Share of turns with the right figure, of those whose instruction names none."""


def untrained(out: Path) -> Checkpoint:
    """Return an untrained checkpoint with 24 shot tokens instead of 80: a step takes a third of the time."""
    tiny = tiny_config()
    encoder = tiny.shot_encoder.model_copy(update={"text_tokens": 8, "image_pixels": 32})
    folder = out / "start"
    config = tiny.replaced(shot_encoder=encoder)
    return Checkpoint.open(folder) if folder.exists() else new_checkpoint(folder, config)


def game_model(out: Path, start: Checkpoint, kind: str, seed: int, steps: int) -> Learned:
    """Return a game model of a kind, trained on the learned films."""
    data = write_films(out / "data" / "learned", LEARNED)
    passes = steps - KINDS[kind].get("first_pass", 0)
    loop = {"steps": passes, "batch_size": 4, "micro_batch": 4, "seed": seed}
    recipe = recipe_of("game", loop, game=KINDS[kind], model=start.config.model_dump(), looks={"clips": 20, "games": 0})
    return learn("game", out / f"{kind}-{seed}", data, start, recipe)


def played_tokens(out: Path, learned: Learned) -> FeatureCache:
    """Return the shot tokens of the films to play."""
    data = write_films(out / "data" / "played", PLAYED)
    names: tuple[Name, ...] = ("patches", "text", "shot_tokens")
    catalog = Catalog.read(open_shards(data, "train"))
    cache = open_cache(out / "played", catalog, learned.before, learned.recipe, names)
    for name in names:
        Encoder(cache, learned.before, learned.recipe).make(name)
    return cache


@torch.no_grad()
def drift(learned: Learned, cache: FeatureCache, *, own: bool) -> Drift:
    """Play the films and measure each part of the games.

    Args:
        learned: the game model.
        cache: from `played_tokens`.
        own: after the model's own predictions; otherwise after the recorded turns.
    """
    figures = _figures(cache)
    variance = float(_stacked(cache, cache.catalog.turns).var(dim=0).mean())
    errors: dict[int, list[float]] = {}
    right: dict[int, list[bool]] = {}
    for film, turns in _games(cache):
        for number, tokens_LD in enumerate(_predicted(learned, cache, turns, own=own)):
            truth_LD = cache.get("shot_tokens", turns[number].clip_id)
            errors.setdefault(number // PART, []).append(float((tokens_LD - truth_LD).square().mean()) / variance)
            if AGAIN in turns[number].instruction:
                nearest = min(figures, key=lambda key: float((figures[key] - tokens_LD).square().mean()))
                right.setdefault(number // PART, []).append(nearest[0] == film.turns[number].clip.figure)
    return Drift(tuple(map(fmean, errors.values())), tuple(map(fmean, right.values())))


def table(found: Mapping[str, Sequence[Drift]]) -> Iterator[str]:
    """Yield a line for each kind: mean and standard deviation over the seeds, by part of the game."""
    for name, seeds in found.items():
        error, figure = (
            " ".join(_spread([of(each)[part] for each in seeds]) for part in range(len(of(seeds[0]))))
            for of in _FIGURES
        )
        yield f"{name}: error {error}; right figure {figure}"


_FIGURES: tuple[Callable[[Drift], tuple[float, ...]], ...] = (lambda each: each.error, lambda each: each.figure)


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f}" + (f"±{stdev(values):.2f}" if len(values) > 1 else "")


def _predicted(learned: Learned, cache: FeatureCache, turns: Sequence[RecordedTurn], *, own: bool) -> Iterator[Tensor]:
    model, tokenizer, config = learned.after.game_model(), learned.after.tokenizer(), learned.after.config
    if own:
        yield from (each.shot_tokens_LD for each in rolled_out(model, tokenizer, config, turns))
        return
    past = [PastTurn(turn.instruction, cache.get("shot_tokens", turn.clip_id), turn.state) for turn in turns]
    for number, turn in enumerate(turns):
        (prediction,) = rolled_out(model, tokenizer, config, [turn], past[:number])
        yield prediction.shot_tokens_LD


def _games(cache: FeatureCache) -> Iterator[tuple[ShapeFilm, tuple[RecordedTurn, ...]]]:
    for film in PLAYED:
        yield film, tuple(turn for turn in cache.catalog.turns if turn.sample.film_id.startswith(f"{film.name}-"))


def _figures(cache: FeatureCache) -> dict[tuple[str, str], Tensor]:
    """Return the mean shot tokens of each figure in each place, which the first frame depends on alone."""
    shown: dict[tuple[str, str], list[RecordedTurn]] = {}
    for film, turns in _games(cache):
        for painted, turn in zip(film.turns, turns, strict=True):
            shown.setdefault((painted.clip.figure, painted.clip.place), []).append(turn)
    return {key: _stacked(cache, turns).mean(dim=0) for key, turns in shown.items()}


def _stacked(cache: FeatureCache, turns: Sequence[RecordedTurn]) -> Tensor:
    return torch.stack([cache.get("shot_tokens", turn.clip_id) for turn in turns])
