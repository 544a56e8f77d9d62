"""Games along held-out stories: the turns of their scripts, recorded or reconstructed, played, or exchanged at random.

A game plays all clips of a story in order: a turn has the instruction of its clip and the model's own past.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKLCogVideoX
from numpy.typing import NDArray

from examples.miniature.dataset import TRAINED
from examples.miniature.truth import SceneFacts, Truths
from examples.world.puppet_motions import PLANT
from models.config import GameModelConfig, ModelConfig
from models.engine_options import PartProgress, unwatched
from models.turns import GameState, Show, Turn, TurnMaker, turn_seed, unseen
from pipeline.core.progress import watched
from pipeline.publish.samples import Split
from training.baselines.agents import Baseline
from training.data.shards import open_shards
from training.data.turns import PackedTurn, read_turns
from training.phases.autoencoder import reconstructed

SETS: tuple[tuple[str, str, Split], ...] = (("val", "dataset", "val"), ("unseen", "unseen", "val"))
"""Name, dataset and split of the clips measured."""


@dataclass(frozen=True, eq=False)
class ScriptedTurn:
    """Clip of a held-out story with what its script says."""

    packed: PackedTurn
    facts: SceneFacts
    flag_age: int = 0
    """Turns since one last told whether a flag stands here: one that shows or plants it, shows that there is none, or
    begins the story."""
    coats_age: int = 0
    """The same of who wears a raincoat: turns since the one seen longest ago was on screen, or the story began."""
    repeated: bool = False
    """True if the model was trained on a scene of the same look, in another story."""
    game: Hashable = ()
    """The game that the turn is played in; turns of one game depend on each other."""

    @property
    def instruction(self) -> str:
        """Instruction of the turn."""
        return self.packed.turn.instruction


Story = Sequence[ScriptedTurn]


@dataclass(frozen=True, eq=False)
class Shown:
    """Turn of a game, or a recorded clip in its place."""

    scripted: ScriptedTurn
    frames_THWC: NDArray[np.uint8]
    level: int
    """Motion level by the game model, or measured in the data."""
    state: tuple[int, int, int]
    """Social, entertainment, stamina."""
    seconds: float = 0.0
    """Duration of the turn; 0 for a recorded clip."""

    @property
    def facts(self) -> SceneFacts:
        """Facts of its script."""
        return self.scripted.facts


def read_stories(out: Path, data: str, split: Split) -> list[Story]:
    """Read the stories of a split in order, each as a separate game."""
    truths = Truths.read(out)
    trained = truths.looks_in((out / name, "train") for name in TRAINED)
    turns = []
    for packed in read_turns(open_shards(out / data, split)):
        facts = truths.of(packed.turn.sample)
        turns.append(ScriptedTurn(packed, facts, repeated=facts.look in trained, game=(facts.film, facts.story)))
    return [_with_ages(list(story)) for _, story in groupby(turns, lambda turn: turn.game)]


def _with_ages(story: Story) -> Story:
    """Note how long ago flags and raincoats were told."""
    told: dict[str, int] = {}
    noted: list[ScriptedTurn] = []
    for number, turn in enumerate(story):
        facts = turn.facts
        ages = {name: number - told.get(name, 0) for name in (facts.place, *facts.characters)}
        coats = max(ages[name] for name in facts.characters)
        noted.append(replace(turn, flag_age=ages[facts.place], coats_age=coats))
        told |= dict.fromkeys(facts.characters, number)
        if facts.motion == PLANT or facts.shows_flag is not None:
            told[facts.place] = number
    return noted


def recorded(turn: ScriptedTurn, config: ModelConfig) -> Shown:
    """Return a clip of the data at the size of a model."""
    shape, sample = config.shot_decoder, turn.packed.turn.sample
    frames = turn.packed.frames(shape.height, shape.width, shape.frames).numpy()
    return Shown(turn, frames, sample.motion.level, turn.facts.state)


def reconstructed_turns(shown: Sequence[Shown], autoencoder: AutoencoderKLCogVideoX) -> list[Shown]:
    """Return recorded clips as an autoencoder reconstructs them, the upper bound for a shot decoder."""
    frames_NTHWC = torch.from_numpy(np.stack([each.frames_THWC for each in shown]))
    back_NTHWC = reconstructed(autoencoder, frames_NTHWC).numpy()
    return [replace(each, frames_THWC=frames_THWC) for each, frames_THWC in zip(shown, back_NTHWC, strict=True)]


def played(story: Story, maker: TurnMaker, seed: int, *, past: bool = True) -> Iterator[Shown]:
    """Play a story turn by turn.

    Args:
        past: False: every turn is made as if it were the first.
    """
    state, first = GameState(), story[0].facts
    with watched(f"{first.film}, story {first.story}", "with past" if past else "without past") as watch:
        for number, turn in enumerate(story):
            watch(number, len(story))
            before = state if past else replace(state, window=(), last=None)
            made, state = maker.next_turn(before, turn.instruction, turn_seed(seed, number + 1))
            predicted = made.state
            values = (predicted.social, predicted.entertainment, predicted.stamina)
            yield Shown(turn, made.frames_THWC, predicted.level, values, sum(made.seconds.values()))


def exchanged(shown: Sequence[Shown], seed: int) -> list[Shown]:
    """Give every turn what another one shows: what is right then is right by chance."""
    others = random.Random(seed).sample(shown, len(shown))
    return [replace(other, scripted=each.scripted) for each, other in zip(shown, others, strict=True)]


@dataclass(frozen=True)
class MakerWithoutPast:
    """Turns by a baseline, which sees only the instruction and always gives the same level and state.

    The turn's seed is the seed of a game, and the noise is the noise of this game's first turn.
    """

    agent: Baseline
    window_turns: int = GameModelConfig.model_fields["window_turns"].default

    def next_turn(
        self,
        state: GameState,
        instruction: str,
        seed: int,
        progress: PartProgress = unwatched,  # noqa: ARG002
        show: Show = unseen,  # noqa: ARG002
    ) -> tuple[Turn, GameState]:
        """Make a turn; the state of the game stays the same."""
        (turn,) = self.agent.new_game(seed).play(instruction)
        return turn, state
