"""Predictions of recorded turns and rollouts of the game model: what phase c trains on, and the error of a game."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from itertools import starmap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.engine import Engine
from models.engine_options import EngineOptions
from models.game import Game
from models.tokens import TokenPrompt
from pipeline.core.config import ShardSettings
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.small_game_model import STATE, mistral_tokenizer
from tests.support.networks.small_run import small_recipe
from tests.support.networks.tiny_models import brief_checkpoint, shake
from training.config import WindowSettings
from training.data.feature_cache import FeatureCache
from training.data.predictions import after_own, by_windows, drawn_games, last_error, rolled_out
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn
from training.data.windows import Window, Windows
from training.phases.assembly import SplitData, adapt_phase

CONFIG = tiny_config()
SHAPE = (CONFIG.shot_encoder.shot_tokens, CONFIG.shot_encoder.width)
ACROSS = WindowSettings()


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordedTurn, ...]:
    """Two films of about ten turns without gaps."""
    root = tmp_path_factory.mktemp("dataset")
    write_shards(make_dataset(root, scenes=4, clips=3, captioner=MODEL), ShardSettings(samples=4, val_share=0))
    read = Catalog.read(open_shards(root, "train"))
    return tuple(starmap(consecutive, enumerate(read.turns)))


def consecutive(number: int, turn: RecordedTurn) -> RecordedTurn:
    """The turn with a number that leaves no gaps in its film."""
    return turn.model_copy(update={"sample": turn.sample.model_copy(update={"index": number})})


@pytest.fixture(scope="module")
def engine() -> Engine:
    engine = Engine.load(brief_checkpoint(), EngineOptions("cpu", steps=2, precision="float32"))
    shake(engine.game_model)
    return engine


@pytest.mark.slow
def test_a_rollout_predicts_the_turns_of_a_played_game(films: tuple[RecordedTurn, ...], engine: Engine) -> None:
    turns = films[:7]  # longer than the window of five
    played = list(Game(engine).play([turn.instruction for turn in turns]))
    found = list(rolled_out(engine.game_model, engine.tokenizer, engine.config, turns))
    for turn, prediction in zip(played, found, strict=True):
        torch.testing.assert_close(prediction.shot_tokens_LD, turn.shot_tokens_LD)
        assert prediction.state == turn.state


@pytest.mark.slow
def test_the_error_of_a_game_is_that_of_its_last_turn(films: tuple[RecordedTurn, ...], engine: Engine) -> None:
    (game,) = drawn_games(films, ACROSS, 6, most=1)
    *_, last = rolled_out(engine.game_model, engine.tokenizer, engine.config, game)
    truth = {game[-1].clip_id: last.shot_tokens_LD + 0.5}
    error = float(last_error(engine.game_model, engine.tokenizer, engine.config, truth.__getitem__, game))
    assert error == pytest.approx(0.25)


def test_drawn_games_are_consecutive_turns_the_same_every_time(films: tuple[RecordedTurn, ...]) -> None:
    turns = films
    games = drawn_games(turns, ACROSS, 6, most=3)
    assert games == drawn_games(turns, ACROSS, 6, most=3)
    assert games == drawn_games(turns, ACROSS, 6, most=9)[:3]
    for game in games:
        first = turns.index(game[0])
        assert turns[first : first + 6] == game
        assert len({turn.sample.film_id for turn in game}) == 1
    assert games[0] != games[1]
    assert drawn_games(turns, ACROSS, 15, most=3) == []


def test_a_turn_without_instruction_gets_zeros(films: tuple[RecordedTurn, ...]) -> None:
    turns = [turn.model_copy(update={"instruction": ""}) if n == 1 else turn for n, turn in enumerate(films)]
    rows_BLD = by_windows(Windows(turns, ACROSS), lambda windows: torch.ones(len(windows), *SHAPE), SHAPE)(turns[:3])
    assert rows_BLD.mean(dim=(1, 2)).tolist() == [1, 0, 1]


@pytest.mark.slow
def test_rolled_out_predictions_follow_their_own_within_a_shard_and_the_recorded_before_it(
    films: tuple[RecordedTurn, ...], engine: Engine
) -> None:
    windows, config = Windows(films, ACROSS), engine.config
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
    films: tuple[RecordedTurn, ...], engine: Engine
) -> None:
    windows, config = Windows(films, ACROSS), engine.config
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


class Predicts:
    """Game model that predicts noise, and knows which of its predictions are still in memory."""

    def __init__(self) -> None:
        self.made: weakref.WeakSet[Tensor] = weakref.WeakSet()

    def predict(self, _prompt: TokenPrompt) -> SimpleNamespace:
        tokens_LD = torch.randn(SHAPE)
        self.made.add(tokens_LD)
        return SimpleNamespace(shot_tokens_LD=tokens_LD, state=STATE)


def test_only_predictions_that_a_window_can_reach_are_kept(films: tuple[RecordedTurn, ...]) -> None:
    film = [turn for turn in films if turn.sample.film_id == films[0].sample.film_id]
    windows, model = Windows(film, ACROSS), Predicts()
    predict = after_own(model, mistral_tokenizer(), CONFIG, lambda _: torch.zeros(SHAPE))  # type: ignore[arg-type]
    for item in range(len(windows)):
        predict([windows.longest(item)])
    gc.collect()
    assert len(windows) > CONFIG.game_model.window_turns >= len(model.made)


def test_turns_that_are_in_no_window_are_not_adapted_to(films: tuple[RecordedTurn, ...], tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(brief_checkpoint())

    def examples(turns: tuple[RecordedTurn, ...]) -> int:
        catalog = Catalog("", turns, ())
        data = SplitData(catalog, FeatureCache(tmp_path, catalog, ()))
        return len(adapt_phase(small_recipe(), checkpoint, checkpoint.config, data, None).examples)

    shared = films[3].model_copy(update={"sample": films[3].sample.model_copy(update={"overlap_seconds": 0.5})})
    assert examples((*films[:3], shared, *films[4:])) == examples(films) - 1
