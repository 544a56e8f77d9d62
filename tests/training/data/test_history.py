"""Past of a training window: recorded, noisy, predicted; and rollouts of the game model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.checkpoint import Checkpoint
from models.engine import Engine
from models.engine_options import EngineOptions
from models.game import Game
from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.tiny_models import brief_checkpoint, shake
from training.config import WindowSettings
from training.data.feature_cache import Feature, FeatureCache
from training.data.order import Position
from training.data.predictions import after_own, by_windows, drawn_games, last_error, rolled_out
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn
from training.data.windows import NOISE_LEVELS, History, Past, Window, Windows, recorded

SHAPE = (40, 50)
ACROSS = WindowSettings()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> FeatureCache:
    """Two films of about ten turns: recorded tokens are noise of one seed per clip, predictions are a hundred more."""
    root = tmp_path_factory.mktemp("dataset")
    write_shards(make_dataset(root, scenes=4, clips=3, captioner=MODEL), ShardSettings(samples=4, val_share=0))
    read = Catalog.read(open_shards(root, "train"))
    catalog = replace(read, turns=tuple(starmap(consecutive, enumerate(read.turns))))
    features = [Feature(name, SHAPE, torch.float32, {}) for name in ("shot_tokens", "predictions")]
    filled = FeatureCache(root / "features", catalog, features)
    for name, more in (("shot_tokens", 0), ("predictions", 100)):
        filled.fill_from_turns(name, lambda turns, more=more: tokens_of(turns) + more, batch_size=5)
    return filled


def consecutive(number: int, turn: RecordedTurn) -> RecordedTurn:
    """The turn with a number that leaves no gaps in its film."""
    return turn.model_copy(update={"sample": turn.sample.model_copy(update={"index": number})})


def tokens_of(turns: Sequence[RecordedTurn]) -> Tensor:
    seeds = [int(turn.clip_id[-6:]) for turn in turns]
    return torch.stack([torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def drawn(cache: FeatureCache, history: History, count: int = 200) -> list[tuple[Window, Past]]:
    """Pasts of one window, of five turns, in many epochs."""
    windows = Windows(cache.catalog.turns, ACROSS)
    window = windows.longest(6)
    assert len(window.past) == 4
    return [(window, history.drawn(window, cache, Position(epoch, 6))) for epoch in range(count)]


def test_noise_has_the_drawn_level_and_the_network_is_given_its_tenth(cache: FeatureCache) -> None:
    levels = []
    for window, past in drawn(cache, History(noise=0.8)):
        true = recorded(window, cache).shots
        found = [float((past.shots[name] - true[name]).std() / true[name].std()) for name in true]
        assert max(found) - min(found) < 0.1 * max(found)  # one level for the whole window
        assert past.noise_level == pytest.approx(found[0] / 0.8 * NOISE_LEVELS - 0.5, abs=0.8)
        levels.append(past.noise_level)
    assert set(levels) == set(range(NOISE_LEVELS))
    assert max(levels.count(level) for level in range(NOISE_LEVELS)) < 40  # 20 each, uniform


def test_the_past_is_a_function_of_seed_and_position(cache: FeatureCache) -> None:
    window = Windows(cache.catalog.turns, ACROSS).longest(6)
    history, place = History(noise=0.5, seed=3), Position(2, 6)

    def numbers(history: History, place: Position) -> Tensor:
        return torch.stack(list(history.drawn(window, cache, place).shots.values()))

    first = numbers(history, place)
    assert torch.equal(first, numbers(history, place))
    assert not torch.equal(first, numbers(history, Position(3, 6)))
    assert not torch.equal(first, numbers(replace(history, seed=4), place))
    true = torch.stack(list(recorded(window, cache).shots.values()))
    assert torch.equal(numbers(History(), place), true)


@pytest.fixture(scope="module")
def engine() -> Engine:
    engine = Engine.load(brief_checkpoint(), EngineOptions("cpu", steps=2))
    shake(engine.game_model)
    return engine


@pytest.mark.slow
def test_a_rollout_predicts_the_turns_of_a_played_game(cache: FeatureCache, engine: Engine) -> None:
    turns = cache.catalog.turns[:7]  # longer than the window of five
    played = list(Game(engine).play([turn.instruction for turn in turns]))
    found = list(rolled_out(engine.game_model, engine.tokenizer, engine.config, turns))
    for turn, prediction in zip(played, found, strict=True):
        torch.testing.assert_close(prediction.shot_tokens_LD, turn.shot_tokens_LD)
        assert prediction.state == turn.state


def test_the_error_of_a_game_is_that_of_its_last_turn(cache: FeatureCache, engine: Engine) -> None:
    (game,) = drawn_games(cache.catalog.turns, ACROSS, 6, most=1)
    *_, last = rolled_out(engine.game_model, engine.tokenizer, engine.config, game)
    truth = {game[-1].clip_id: last.shot_tokens_LD + 0.5}
    error = float(last_error(engine.game_model, engine.tokenizer, engine.config, truth.__getitem__, game))
    assert error == pytest.approx(0.25)


def test_drawn_games_are_consecutive_turns_the_same_every_time(cache: FeatureCache) -> None:
    turns = cache.catalog.turns
    games = drawn_games(turns, ACROSS, 6, most=3)
    assert games == drawn_games(turns, ACROSS, 6, most=3)
    assert games == drawn_games(turns, ACROSS, 6, most=9)[:3]
    for game in games:
        first = turns.index(game[0])
        assert turns[first : first + 6] == game
        assert len({turn.sample.film_id for turn in game}) == 1
    assert games[0] != games[1]
    assert drawn_games(turns, ACROSS, 15, most=3) == []


def test_a_turn_without_instruction_gets_zeros(cache: FeatureCache) -> None:
    turns = [
        turn.model_copy(update={"instruction": ""}) if n == 1 else turn for n, turn in enumerate(cache.catalog.turns)
    ]
    rows_BLD = by_windows(Windows(turns, ACROSS), lambda windows: torch.ones(len(windows), *SHAPE), SHAPE)(turns[:3])
    assert rows_BLD.mean(dim=(1, 2)).tolist() == [1, 0, 1]


@pytest.mark.slow
def test_rolled_out_predictions_follow_their_own_within_a_shard_and_the_recorded_before_it(
    cache: FeatureCache, engine: Engine
) -> None:
    windows, config = Windows(cache.catalog.turns, ACROSS), engine.config
    shape = (config.shot_encoder.shot_tokens, config.shot_encoder.width)
    film = [turn for turn in windows.turns if turn.sample.film_id == windows.turns[0].sample.film_id]
    first, second = (
        [turn for turn in film if turn.shard == shard] for shard in sorted({turn.shard for turn in film})[:2]
    )

    def predicted(turns: Sequence[RecordedTurn], seed: int, *before: RecordedTurn) -> Tensor:
        def noise(_: str) -> Tensor:
            return torch.randn(shape, generator=torch.Generator().manual_seed(seed))

        encode = by_windows(windows, after_own(engine.game_model, engine.tokenizer, config, noise), shape)
        if before:
            encode(before)
        return encode(turns)

    whole = predicted(first, seed=0)
    assert torch.equal(whole, predicted(first, seed=1))  # nothing recorded is read in the first shard of a film
    expected = rolled_out(engine.game_model, engine.tokenizer, config, first)
    torch.testing.assert_close(whole, torch.stack([each.shot_tokens_LD for each in expected]))
    assert not torch.equal(predicted(second, seed=0), predicted(second, seed=1))
    assert torch.equal(predicted(second, 0), predicted(second, 0, *first))  # whatever the process encoded before


def test_a_value_that_nobody_measured_is_hidden_in_the_recorded_past_of_a_rollout(
    cache: FeatureCache, engine: Engine
) -> None:
    windows, config = Windows(cache.catalog.turns, ACROSS), engine.config
    tokens_LD = torch.zeros(config.shot_encoder.shot_tokens, config.shot_encoder.width)
    *past, target = next(
        window.turns
        for window in map(windows.longest, range(len(windows)))
        if window.past and window.past[-1].shard != window.target.shard
    )

    def predicted(social: int | None) -> Tensor:
        def changed(turn: RecordedTurn) -> RecordedTurn:
            caption = turn.sample.caption.model_copy(update={"SC": social})
            return turn.model_copy(update={"sample": turn.sample.model_copy(update={"caption": caption})})

        predict = after_own(engine.game_model, engine.tokenizer, config, lambda _: tokens_LD)
        return predict([Window((*map(changed, past), target))])

    assert not torch.equal(predicted(None), predicted(0))  # 0 is the filler of an unknown value


def test_the_brief_checkpoint_has_the_window_of_the_rollouts() -> None:
    assert Checkpoint.open(Path(brief_checkpoint())).config.game_model.window_turns == 5
