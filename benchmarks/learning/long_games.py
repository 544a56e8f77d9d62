"""Claims about long games: their drift, and the predictions that adaptation trains on.

Painted stories are learned, and other stories are played. Only the first instruction of a played story names its
figure: the shot tokens of the past are all that carries it from turn to turn, and an error once made is fed back. A
game model of the recipe `tiny` ignores the past after 300 steps. With 8 shot tokens of width 64, wider adapters and a
single past turn it uses the past after 400 steps, which take 40 seconds of CPU time.

Drift compares stories of twenty turns after the recorded past and after the model's own, for models trained on the
recorded past and on a noisy one. The shot encoder is untrained: its tokens are a fixed projection of first frame and
motion text. Each part of a game has two figures: the squared error of the shot tokens, as a share of their variance,
and the share of turns whose tokens are nearest to the right figure's.

The modes of `adapt.predictions` each adapt the shot decoder to predictions of the learned stories. Its loss is measured
on other stories, after predictions that are rolled out as in play.

Letters of the shapes: N clips, L shot tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from benchmarks.learning.bench import Bench, Finding, spread_of
from benchmarks.learning.runs import (
    Learned,
    encoded,
    fit_settings,
    learn,
    recipe_of,
    say_if_earlier,
    shot_loss,
)
from examples.world.learning_films import ShapeFilm, story, write_films
from flows.console.progress import TrainBars
from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.tokens import PastTurn
from models.untrained import new_checkpoint
from training.config import Predictions, Recipe
from training.data.definitions import FROZEN, Name
from training.data.feature_cache import FeatureCache
from training.data.predictions import rolled_out
from training.data.turns import RecordedTurn
from training.phases.assembly import SplitData
from training.phases.autoencoder import fit_autoencoder
from training.recipes import merged, tiny

LEARNED = tuple(story(f"learned-{number}", named=0.2) for number in range(12))
PLAYED = tuple(story(f"played-{number}", named=0) for number in range(18))
LOOP: dict[str, Any] = {"batch_size": 8, "micro_batch": 8, "learning_rate": 4e-3, "rate_warm_up": 10}
"""Settings of the game model's loop, apart from steps and seed."""
GAME: dict[str, Any] = {"alpha": 4.0, "windows": {"most_turns": 2}}
"""Settings of phase b."""
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
_STILLS, _CLIPS, _SHOTS, _GAME, _ADAPT = 500, 200, 600, 400, 200
"""Steps of the autoencoder on stills and on clips, of joint training, of phases b and c."""
_MEASURED_CLIPS = 120
_NOT_ADAPTED = "not adapted"


def learned_data(out: Path) -> Path:
    """Return the dataset of the stories to learn."""
    return write_films(out / "data" / "learned", LEARNED)


def played_data(out: Path) -> Path:
    """Return the dataset of the stories to play, which are never trained on."""
    return write_films(out / "data" / "played", PLAYED)


def untrained(out: Path) -> Checkpoint:
    """Return an untrained checkpoint of the small networks."""
    tiny, folder = tiny_config(), out / "start"
    config = tiny.replaced(
        shot_encoder=tiny.shot_encoder.model_copy(update={"text_tokens": 4, "image_pixels": 16, "width": 64}),
        game_model=tiny.game_model.model_copy(update={"lora_rank": 32, "lora_alpha": 32, "window_turns": 2}),
    )
    return Checkpoint.open(folder) if folder.exists() else new_checkpoint(folder, config)


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
    figures, cache = _figures(learned.split), learned.split.cache
    variance = float(_stacked(cache, learned.split.catalog.turns).var(dim=0).mean())
    errors: dict[int, list[float]] = {}
    right: dict[int, list[bool]] = {}
    for film, turns in _games(learned.split):
        for number, tokens_LD in enumerate(_predicted(learned, turns, past)):
            truth_LD = cache.get("shot_tokens", turns[number].clip_id)
            errors.setdefault(number // _PART, []).append(float((tokens_LD - truth_LD).square().mean()) / variance)
            figure, _ = min(figures, key=lambda shown: float((figures[shown] - tokens_LD).square().mean()))
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


def _figures(played: SplitData) -> dict[tuple[str, str], Tensor]:
    """Return the mean shot tokens of each figure in each place, which the first frame depends on alone."""
    shown: dict[tuple[str, str], list[RecordedTurn]] = {}
    for film, turns in _games(played):
        for painted, turn in zip(film.turns, turns, strict=True):
            shown.setdefault((painted.clip.figure, painted.clip.place), []).append(turn)
    return {each: _stacked(played.cache, turns).mean(dim=0) for each, turns in shown.items()}


def _stacked(cache: FeatureCache, turns: Sequence[RecordedTurn]) -> Tensor:
    return torch.stack([cache.get("shot_tokens", turn.clip_id) for turn in turns])


def predictions_claim(bench: Bench) -> Finding:
    """Measure the modes: the default lowers the loss, and no other mode lowers it further with every seed."""
    out = bench.out / "predictions"
    shots = _shots(out)
    rows = [_losses(out, shots, seed) for seed in range(bench.steps.prediction_seeds)]
    measured = "; ".join(f"{name} {spread_of([row[name] for row in rows])}" for name in rows[0])
    default = tiny().adapt.predictions
    others = set(rows[0]) - {default, _NOT_ADAPTED}
    helps = fmean(row[default] for row in rows) < fmean(row[_NOT_ADAPTED] for row in rows)
    beaten = any(all(row[mode] < row[default] for row in rows) for mode in others)
    return Finding(f"lower; no mode always below `{default}`", measured, helps and not beaten)


def _losses(out: Path, shots: Checkpoint, seed: int) -> dict[str, float]:
    """Return the shot decoder's loss on rolled-out predictions of the played stories: not adapted, and by mode."""
    data, plain = learned_data(out), _recipe(shots, seed)
    folder, features = out / f"game-{seed}", out / "features"
    game = learn("game", folder, data, shots, plain, features)
    measured = _on_played(out, game)
    found = {_NOT_ADAPTED: shot_loss(measured.adaptation(game.after))}
    for mode in get_args(Predictions):
        recipe = Recipe.model_validate(merged(plain.model_dump(), {"adapt": {"predictions": mode}}))
        learned = learn("adapt", out / f"{mode}-{seed}", data, game.after, recipe, features)
        found[mode] = shot_loss(measured.adaptation(learned.after))
    return found


def _shots(out: Path) -> Checkpoint:
    """Return a checkpoint with the autoencoder fitted to the learned stories, and the shot networks trained on them."""
    bars, data = TrainBars(), learned_data(out)
    say_if_earlier(out / "autoencoder" / "clips" / "result")
    with bars.shown():
        settings = fit_settings(_STILLS, _CLIPS)
        start = fit_autoencoder(untrained(out), data, out / "autoencoder", settings, bars.step).checkpoint
    loop = {"steps": _SHOTS, "batch_size": 8, "micro_batch": 8}
    recipe = recipe_of("shot", loop, game=GAME, model=start.config.model_dump())
    return learn("shot", out / "shots", data, start, recipe, out / "features").after


def _recipe(shots: Checkpoint, seed: int) -> Recipe:
    """Return the recipe of phases b and c."""
    adapt = {"loop": {"steps": _ADAPT, "batch_size": 8, "micro_batch": 8, "seed": seed, "save_every": 1000}}
    validation = {"clips": _MEASURED_CLIPS, "games": 0}
    loop = {**LOOP, "steps": _GAME, "seed": seed}
    return recipe_of("game", loop, game=GAME, adapt=adapt, model=shots.config.model_dump(), validation=validation)


def _on_played(out: Path, game: Learned) -> Learned:
    """Return training with the played stories to measure on, and their rolled-out predictions by its game model."""
    names = (*FROZEN, "shot_tokens", "predictions")
    split = encoded(out / "played", played_data(out), game.after, game.recipe, names, rollout=True)
    return replace(game, split=split)
