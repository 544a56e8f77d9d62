"""Game loop: inputs and effects of a turn."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.checkpoint import Checkpoint
from models.engine import Engine
from models.engine_options import EngineOptions
from models.frames import decode_latents
from models.game import Game
from models.tokens import PastTurn, State
from models.turns import GameState, Turn, Values, turn_seed
from models.untrained import new_checkpoint
from pipeline.core.errors import UserError
from tests.support.networks.painted_engine import PaintedEngine
from tests.support.networks.tiny_models import brief_checkpoint, shake

CALM, LIVELY = State(1, 0, 0, -1), State(5, 1, 1, 1)
STORY = ["Qiqi flies over the sea", "Qiqi sleeps", "Qiqi and Ponyo hug"]


def past(number: int, state: State = CALM) -> PastTurn:
    return PastTurn(f"turn {number}", torch.full((6, 8), float(number)), state)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return shaken(Engine.load(brief_checkpoint(), EngineOptions("cpu", steps=2)))


def shaken(engine: Engine) -> Engine:
    """Engine with changed parameters: untrained, added tokens are all equal and the motion scope has no effect."""
    shake(engine.game_model)
    shake(engine.shot_decoder.time_embedding.motion, by=0.3)
    return engine


def with_levels(engine: Engine, *values: float) -> Engine:
    """Engine of the same networks with other motion scopes for the levels."""
    shot_encoder = Checkpoint.open(brief_checkpoint()).shot_encoder()
    return Engine(
        engine.config.replaced(level_values=values),
        engine.tokenizer,
        engine.game_model,
        shot_encoder,
        engine.shot_decoder,
        engine.autoencoder,
        EngineOptions("cpu", steps=2),
    )


def test_values_move_by_five_and_stay_in_their_range() -> None:
    assert Values().after(LIVELY) == Values(stamina=55, social=55, entertainment=55)
    assert Values().after(CALM) == Values(stamina=45, social=50, entertainment=50)
    tired = alive = Values()
    for _ in range(30):
        tired, alive = tired.after(CALM), alive.after(LIVELY)
    assert tired == Values(stamina=0, social=50, entertainment=50)
    assert alive == Values(100, 100, 100)
    assert tired.after(LIVELY).stamina == 5


@pytest.mark.parametrize("window_turns", [1, 2, 5])
def test_the_window_holds_the_last_turns_each_with_its_own_state(window_turns: int) -> None:
    state = GameState()
    played = [past(number, State(number % 5 + 1, number % 2, 0, 1)) for number in range(1, 51)]
    for count, turn in enumerate(played, start=1):
        state = state.after(turn, window_turns)
        assert state.turns == count
        assert list(state.window) == played[:count][count - min(count, window_turns - 1) :]
    # the published code gave every past turn the values of the latest one, or zeros
    assert [turn.state.level for turn in state.window] == [number % 5 + 1 for number in range(52 - window_turns, 51)]


def test_the_seed_of_a_turn_never_changes() -> None:
    """Seeds are pinned so that games of an earlier version can be reproduced."""
    assert turn_seed(0, 1) == 40684512706987409
    seeds = {turn_seed(seed, number, branch) for seed in range(20) for number in range(20) for branch in range(20)}
    assert len(seeds) == 20**3


def test_a_turn_has_its_documented_fields(engine: Engine) -> None:
    (turn,) = Game(engine).play("Qiqi runs")
    assert (turn.number, turn.instruction) == (1, "Qiqi runs")
    assert (turn.frames_THWC.shape, turn.frames_THWC.dtype) == ((9, 32, 48, 3), np.uint8)
    assert turn.frames_THWC.std() > 1
    assert tuple(turn.shot_tokens_LD.shape) == (80, 128)
    assert turn.scope_px == engine.config.level_values[turn.state.level - 1]
    assert turn.values == Values().after(turn.state)
    assert list(turn.seconds) == ["game model", "denoising", "frames"]
    assert all(taken > 0 for taken in turn.seconds.values())


def test_seed_and_instructions_determine_the_game(engine: Engine) -> None:
    one, same, other = ([*Game(engine, seed).play(STORY[:1])] for seed in (3, 3, 4))
    for turn, again in zip(one, same, strict=True):
        np.testing.assert_array_equal(turn.frames_THWC, again.frames_THWC)
        assert torch.equal(turn.shot_tokens_LD, again.shot_tokens_LD)
    assert (one[0].frames_THWC != other[0].frames_THWC).mean() > 0.5
    (elsewhere,) = Game(engine, 3).play("the night falls")
    assert not torch.equal(elsewhere.shot_tokens_LD, one[0].shot_tokens_LD)


def test_a_game_resumed_from_any_state_is_the_same(engine: Engine) -> None:
    game = Game(engine, 3)
    states, turns = [], []
    for turn in game.play(STORY):
        states.append(game.state)
        turns.append(turn)
    (elsewhere,) = Game(engine, 3, states[0]).play("Qiqi falls into the sea")
    assert not torch.equal(elsewhere.shot_tokens_LD, turns[1].shot_tokens_LD)
    resumed = [*Game(engine, 3, states[0]).play(STORY[1:])]
    for turn, again in zip(turns[1:], resumed, strict=True):
        np.testing.assert_array_equal(turn.frames_THWC, again.frames_THWC)
        assert (turn.number, turn.values) == (again.number, again.values)


def test_a_turn_continues_the_last_shot_while_the_place_stays(tmp_path: Path) -> None:
    config = Checkpoint.open(brief_checkpoint()).config
    shot = config.shot_decoder.model_copy(update={"continues": "place"})
    new_checkpoint(tmp_path / "checkpoint", config.replaced(shot_decoder=shot), seed=1)
    engine = shaken(Engine.load(tmp_path / "checkpoint", EngineOptions("cpu", steps=2)))
    shake(engine.shot_decoder.patch_embed.proj.before, by=0.3)
    game, line = Game(engine, 3), "Character: Qiqi; Motion: {}; Background: {}."
    (first,) = game.play(line.format("run", "daytime beach"))
    begun = game.state
    (second,) = game.play(line.format("jump", "night beach"))
    assert not first.continues
    assert second.continues
    assert begun.last
    assert torch.equal(begun.last.ending_CHW, first.ending_CHW)
    assert first.ending_CHW.shape == (17, 4, 6)
    assert (first.ending_CHW[-1] == 1).all()
    (new,) = Game(engine, 3, replace(begun, last=None)).play(line.format("jump", "night beach"))
    assert torch.equal(new.shot_tokens_LD, second.shot_tokens_LD)
    assert not new.continues
    assert (new.frames_THWC != second.frames_THWC).any()
    for elsewhere in (line.format("jump", "shrine"), "Qiqi jumps"):
        (turn,) = Game(engine, 3, begun).play(elsewhere)
        assert not turn.continues


def test_predictions_depend_on_past_turns(engine: Engine) -> None:
    """Instruction, shot tokens and state of the turn before last each change the prediction."""
    tokens_LD = torch.randn(80, 128, generator=torch.Generator().manual_seed(1))
    first, second = PastTurn("Qiqi runs", tokens_LD, CALM), PastTurn("Qiqi rests", tokens_LD.flip(0), LIVELY)
    others = [
        replace(first, state=LIVELY),
        replace(first, instruction="Ponyo runs"),
        replace(first, shot_tokens_LD=tokens_LD.flip(1)),
    ]

    def predicted(*window: PastTurn) -> torch.Tensor:
        return engine.next_turn(GameState(2, window=window), "Qiqi dances", 0)[0].shot_tokens_LD

    seen_LD = predicted(first, second)
    assert torch.equal(seen_LD, predicted(first, second))
    for other in others:
        assert not torch.equal(seen_LD, predicted(other, second))


def test_the_shot_has_the_scope_of_the_predicted_level(engine: Engine) -> None:
    """The published page passed the social value instead of the level."""
    (turn,) = Game(engine).play("Qiqi runs")
    values = list(engine.config.level_values)
    unused = [value if value == turn.scope_px else value + 0.01 for value in values]
    used = [value + 0.25 if value == turn.scope_px else value for value in values]
    (same,) = Game(with_levels(engine, *unused)).play("Qiqi runs")
    (moved,) = Game(with_levels(engine, *used)).play("Qiqi runs")
    np.testing.assert_array_equal(same.frames_THWC, turn.frames_THWC)
    assert moved.scope_px == turn.scope_px + 0.25
    assert (moved.frames_THWC != turn.frames_THWC).any()


@pytest.fixture(scope="module")
def undisturbed(engine: Engine) -> Turn:
    return next(Game(engine, 5).play("Qiqi runs"))


class CancelledError(Exception):
    """Cancellation by the player."""


@pytest.mark.parametrize("where", [("game model", 1), ("denoising", 1), ("frames", 1)])
def test_a_cancelled_turn_leaves_no_trace(engine: Engine, undisturbed: Turn, where: tuple[str, int]) -> None:
    def cancel(part: str, done: int, total: int) -> None:
        if (part, done) == where:
            raise CancelledError

    game = Game(engine, 5)
    before = game.state
    with pytest.raises(CancelledError):
        next(game.play("Qiqi runs", cancel))
    assert game.state is before
    (turn,) = game.play("Qiqi runs")
    np.testing.assert_array_equal(turn.frames_THWC, undisturbed.frames_THWC)


def test_a_long_game_drops_its_first_turns() -> None:
    engine = PaintedEngine(window_turns=4)
    game = Game(engine)
    kept: list[weakref.ref[Turn]] = []
    tokens: list[weakref.ref[torch.Tensor]] = []
    for turn in game.play(f"turn {number}" for number in range(50)):
        kept.append(weakref.ref(turn))
        tokens.append(weakref.ref(turn.shot_tokens_LD))
        assert len(game.state.window) == min(turn.number, 3)
        engine.seen.clear()
        del turn
        assert sum(reference() is not None for reference in tokens) <= 3
        assert (
            sum(reference() is not None for reference in kept) <= 1
        )  # the game keeps the turn that it has just returned


@pytest.mark.parametrize(("instruction", "reason"), [("  ", "empty"), ("very " * 300, "at most 200")])
def test_an_instruction_that_cannot_be_played_is_refused(engine: Engine, instruction: str, reason: str) -> None:
    game = Game(engine)
    with pytest.raises(UserError, match=reason):
        next(game.play(instruction))
    assert game.state.turns == 0


def test_invalid_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"steps must divide 1000"):
        Engine.load(brief_checkpoint(), EngineOptions("cpu", steps=30))
    with pytest.raises(UserError, match=r"not a checkpoint"):
        Engine.load(tmp_path / "nowhere")


@pytest.mark.slow
def test_offload_plays_the_same_turn_and_decodes_in_tiles(engine: Engine) -> None:
    small = shaken(Engine.load(brief_checkpoint(), EngineOptions("cpu", steps=2, offload=True)))
    tiled = Engine.load(brief_checkpoint(), EngineOptions("cpu", steps=2, tiled=True))
    (turn,), (expected,) = Game(small).play("Qiqi runs"), Game(engine).play("Qiqi runs")
    np.testing.assert_array_equal(turn.frames_THWC, expected.frames_THWC)  # no larger than one tile
    latents_BTCHW = torch.randn(1, 1, 16, 36, 4, generator=torch.Generator().manual_seed(1))
    tiled_BTHWC = decode_latents(small.autoencoder, latents_BTCHW)
    whole_BTHWC = decode_latents(engine.autoencoder, latents_BTCHW)
    assert tiled_BTHWC.shape == whole_BTHWC.shape == (1, 1, 288, 32, 3)
    assert not torch.equal(tiled_BTHWC, whole_BTHWC)
    assert torch.equal(tiled_BTHWC, decode_latents(tiled.autoencoder, latents_BTCHW))
