"""Players: agents that play game after game of a benchmark with networks that are loaded once.

`turns` plays the panels that a game folder lacks. A resumed game gets the same turns as an uninterrupted one. The
scenes that a language model writes for the baselines are on disk, so a resumed game does not request a scene twice:

    EVALUATION/scenes/<hash of model, prompt, story and instruction>.json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from pydantic import TypeAdapter, ValidationError

from flows.console.terminal import say
from flows.evaluate.clip_folders import identity_of_clips
from flows.game.folder import GameFolder
from flows.game.play_baseline import baseline_settings
from flows.game.records import GameSettings
from models.checkpoint import Checkpoint
from models.engine import Engine, device_of
from models.engine_options import EngineOptions
from models.tokens import instruction_ids
from models.turns import GameState, Turn, TurnMaker, turn_seed
from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import faults_of
from prompts.template import load_prompt
from training.baselines.agents import AGENTS, Baseline
from training.baselines.folder import BaselineFolder
from training.baselines.router import LanguageRouter, Router, SceneDescription, StoryTurn
from training.data.turns import PackedTurn
from training.evaluation.benchmark import Panel
from training.evaluation.folder import AgentEntry, AgentKind
from training.evaluation.reconstruction import Reconstructor

_SCENE = TypeAdapter(SceneDescription)


class Player(Protocol):
    """Agent that plays games."""

    device: torch.device

    @property
    def networks(self) -> object:
        """The networks, loaded at the first access."""
        ...

    def check(self, panel: Panel) -> None:
        """Raise a UserError if the agent cannot play a panel."""
        ...

    def settings(self, seed: int) -> GameSettings:
        """Return the settings of a game with this seed."""
        ...

    def turns(self, folder: GameFolder, panels: Sequence[Panel]) -> Iterator[Turn]:
        """Yield the turns that a game folder lacks. The caller must save each turn before it requests the next one."""
        ...


class CheckpointPlayer:
    """Player with the networks of a checkpoint."""

    def __init__(self, folder: Path, options: EngineOptions) -> None:
        self.folder, self.options = folder, options
        self.device = device_of(options.device)
        self.checkpoint = Checkpoint.open(folder)
        self._tokenizer = self.checkpoint.tokenizer()

    @cached_property
    def networks(self) -> TurnMaker:
        """The engine."""
        say(f"loading the networks of {self.folder}")
        return Engine.load(self.folder, self.options)

    def check(self, panel: Panel) -> None:
        """Raise a UserError if the instruction is empty or too long."""
        instruction_ids(self._tokenizer, panel.instruction)

    def settings(self, seed: int) -> GameSettings:
        """Return the settings of a game with this seed."""
        return GameSettings.of(self.checkpoint, self.options, seed)

    def turns(self, folder: GameFolder, panels: Sequence[Panel]) -> Iterator[Turn]:
        """Yield the turns that a game folder lacks."""
        for panel in panels[len(folder.turns) :]:
            state, seed = _next_of(folder)
            yield self.networks.next_turn(state, panel.instruction, seed)[0]


class TokensPlayer:
    """Player that draws each panel's real clip again from its own shot tokens, with the networks of a checkpoint."""

    def __init__(self, folder: Path, options: EngineOptions, clips: Mapping[str, PackedTurn]) -> None:
        self.folder, self.options, self.clips = folder, options, clips
        self.device = device_of(options.device)
        self.checkpoint = Checkpoint.open(folder)

    @cached_property
    def networks(self) -> Reconstructor:
        """The networks of tokens and frames."""
        say(f"loading the networks of {self.folder}")
        return Reconstructor(self.checkpoint, self.options)

    def check(self, panel: Panel) -> None:
        """Raise a UserError if the panel has no clip, or the clip is gone, damaged or of another shape."""
        if panel.clip_id is None:
            raise UserError("it has no real clip; take a benchmark that `animegamer benchmark from-data` has written")
        if panel.clip_id not in self.clips:
            raise UserError(
                f"--data has no clip {panel.clip_id} in its split val; name the dataset of the benchmark, or write the "
                "benchmark again with `animegamer benchmark from-data`"
            )
        shot = self.checkpoint.config.shot_decoder
        self.clips[panel.clip_id].frames(shot.height, shot.width, shot.frames)

    def settings(self, seed: int) -> GameSettings:
        """Return the settings of a game with this seed."""
        return GameSettings.of(self.checkpoint, self.options, seed)

    def turns(self, folder: GameFolder, panels: Sequence[Panel]) -> Iterator[Turn]:
        """Yield the turns that a game folder lacks."""
        for panel in panels[len(folder.turns) :]:
            state, seed = _next_of(folder)
            yield self.networks.turn(state, panel.instruction, self.clips[panel.clip_id or ""], seed)


def _next_of(folder: GameFolder) -> tuple[GameState, int]:
    """Return the state and the seed of a game's next turn."""
    state = folder.state_at(folder.turns[-1].id if folder.turns else None)
    return state, turn_seed(folder.settings.seed, state.turns + 1)


class BaselinePlayer:
    """Player with the pipelines of a baseline."""

    def __init__(self, folder: Path, options: EngineOptions, router: Router | None = None) -> None:
        self.folder, self.options, self.router = folder, options, router
        self.device = device_of(options.device)
        self.baseline = BaselineFolder.open(folder)

    @cached_property
    def networks(self) -> Baseline:
        """The pipelines."""
        say(f"loading the networks of {self.folder}")
        kind, options = AGENTS[self.baseline.config.kind], self.options
        return kind.load(self.folder, router=self.router, device=options.device, offload=options.offload)

    def check(self, panel: Panel) -> None:
        """Accept any panel."""

    def settings(self, seed: int) -> GameSettings:
        """Return the settings of a game with this seed."""
        return baseline_settings(self.baseline, seed)

    def turns(self, folder: GameFolder, panels: Sequence[Panel]) -> Iterator[Turn]:
        """Yield the turns that a game folder lacks."""
        instructions = [panel.instruction for panel in panels]
        done = len(folder.turns)
        game = self.networks.new_game(folder.settings.seed)
        game.skip(instructions[:done])
        yield from game.play(instructions[done:])


def identity_of_agent(kind: AgentKind, folder: Path) -> str:
    """Return a hash of everything in an agent's folder that its games depend on. UserError if it cannot be read."""
    if kind == "folder":
        return identity_of_clips(folder)
    if kind == "checkpoint":
        return Checkpoint.open(folder).identity()
    if kind == "tokens":  # no game model, but the encoders of clips
        return fingerprint(Checkpoint.open(folder).as_start())[:16]
    return BaselineFolder.open(folder).identity()


def player_of(
    agent: AgentEntry, options: EngineOptions, router: Router | None, clips: Mapping[str, PackedTurn]
) -> Player:
    """Return the player of an agent that has weights.

    Args:
        router: scenes of a baseline.
        clips: real clips by id, which an agent of kind `tokens` draws again.
    """
    folder = Path(agent.folder)
    if agent.kind == "tokens":
        return TokensPlayer(folder, options, clips)
    return CheckpointPlayer(folder, options) if agent.kind == "checkpoint" else BaselinePlayer(folder, options, router)


class KeptScenes:
    """Router that requests only the scenes that its folder lacks from a language model."""

    def __init__(self, router: LanguageRouter, folder: Path) -> None:
        self._router, self._folder = router, folder

    def route(self, story: Sequence[StoryTurn], instruction: str) -> SceneDescription:
        """Return the scene of the turn after `story`.

        Raises:
            UserError: the language model fails, or a kept scene is damaged.
        """
        asked = {"story": [_asked(turn) for turn in story], "instruction": instruction}
        model = {"model": self._router.endpoint.model, "prompt": load_prompt("scene").identity}
        path = self._folder / f"{fingerprint({**model, **asked})}.json"
        if not path.exists():
            scene = self._router.route(story, instruction)
            with replacing(path) as temporary, disk_errors(path):
                temporary.write_bytes(_SCENE.dump_json(scene))
        try:
            with disk_errors(path):
                return _SCENE.validate_json(path.read_bytes())
        except ValidationError as error:
            raise UserError(f"{path} is damaged ({faults_of(error)}); delete it to request the scene again") from error


def _asked(turn: StoryTurn) -> dict[str, object]:
    """Return what the language model reads of an earlier turn."""
    scene = {"description": turn.scene.description, "state": asdict(turn.scene.state)}
    return {"instruction": turn.instruction, "scene": scene}
