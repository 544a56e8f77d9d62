"""Agents of an evaluation: `NAME=FOLDER` as typed, and the kind and identity of what is in the folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from flows.evaluate.clip_folders import identity_of_clips, survey
from flows.evaluate.typed_agents import TypedAgent
from models.checkpoint import Checkpoint
from pipeline.core.errors import UserError
from pipeline.core.records import faults_of
from training.baselines.folder import BaselineFolder
from training.evaluation.benchmark import Benchmark
from training.evaluation.folder import BASELINES, AgentEntry, AgentKind


def read_agents(typed: Sequence[str], benchmark: Benchmark, router: str = "") -> tuple[AgentEntry, ...]:
    """Return the agents named on the command line; `router` is the language model of the baselines.

    Raises:
        UserError: one is not NAME=FOLDER, a name comes twice, a folder holds nothing that plays or was played, or its
            clips cannot be assigned to the turns of the benchmark.
    """
    agents = tuple(_read_agent(text, benchmark, router) for text in typed)
    names = [agent.name for agent in agents]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--agent {name}: named twice; give each agent a name of its own")
    return agents


def _read_agent(text: str, benchmark: Benchmark, router: str) -> AgentEntry:
    typed = TypedAgent.of(text)
    folder = typed.folder
    kind, identity = _kind_of(typed)
    router = router if kind in BASELINES else ""
    note = survey(folder, benchmark).note if kind == "folder" else _unlike_published(folder, kind, router)
    settings = _settings_of(folder) if kind == "checkpoint" else {}
    place = str(folder.absolute())
    try:
        return AgentEntry(
            name=typed.name, kind=kind, folder=place, identity=identity, router=router, note=note, settings=settings
        )
    except ValidationError as error:
        raise UserError(f"--agent {text}: {faults_of(error)}; use letters, digits, `-`, `_` and `.`") from error


def _unlike_published(folder: Path, kind: AgentKind, router: str) -> str:
    """Say that an agent's weights are random, if they are, and whence a baseline has its scenes."""
    agent = Checkpoint.open(folder) if kind == "checkpoint" else BaselineFolder.open(folder)
    said = []
    if agent.config.size == "tiny":
        said.append("Size tiny: its bases are small, with random weights.")
    if untrained := agent.untrained():
        said.append(f"Never trained: {', '.join(untrained)}.")
    if kind in BASELINES:
        said.append(f"Scenes and states by {router}." if router else "No language model: it predicts no states.")
    return " ".join(said)


def _settings_of(folder: Path) -> dict[str, str]:
    """Return the settings of a checkpoint's networks in print, by dotted name such as `shot_encoder.variant`."""
    config = Checkpoint.open(folder).config
    sections = ("shot_encoder", "shot_decoder", "game_model", "conventions")
    nested = {f"{name}.{key}": value for name in sections for key, value in getattr(config, name).model_dump().items()}
    levels = " / ".join(f"{value:.3g}" for value in config.level_values)
    return {"size": config.size, **{key: str(value) for key, value in nested.items()}, "level_values": levels}


def _kind_of(agent: TypedAgent) -> tuple[AgentKind, str]:
    """Return the kind and the identity of an agent."""
    if agent.holds == "baseline":
        baseline = BaselineFolder.open(agent.folder)
        return baseline.config.kind, baseline.identity()
    if agent.holds == "checkpoint":
        return "checkpoint", Checkpoint.open(agent.folder).identity()
    return "folder", identity_of_clips(agent.folder)
