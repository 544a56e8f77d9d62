"""Evaluation folder: its request, its copy of the benchmark, and the paths of everything in it.

    EVALUATION/
      evaluation.json      request: benchmark, seed, settings, and the identity of each agent
      benchmark.jsonl      copy of the benchmark
      games/<agent>/<game>/      game folders: `turns.jsonl` and an mp4 per turn
      scenes/              scenes of the baselines, by a language model
      measures/            tables of measures
      figures.json  figures.csv  report.html

An evaluation keeps its benchmark, its settings and its agents. It rejects a request that differs, but accepts new
agents. Commands that write measures, figures or report lock the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError

from models.engine_options import Sampler
from pipeline.core.atomic import held, replacing, write_json
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, faults_of
from training.evaluation.benchmark import Benchmark, read_benchmark
from training.evaluation.played import PlayedTurn, read_game

AgentKind = Literal["checkpoint", "tokens", "gc", "gfc", "gsc", "folder"]
BASELINES: tuple[AgentKind, ...] = ("gc", "gfc", "gsc")


class EvaluationError(UserError):
    """An evaluation cannot be started or continued as requested; the message gives the difference and the remedy."""


class AgentEntry(Record):
    """An agent of an evaluation."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="name in print; also a folder's name")
    kind: AgentKind
    folder: str = Field(description="folder of its weights or its clips, where it was last found")
    identity: str = Field(description="hash of everything that its games depend on, except the router")
    router: str = Field("", description="language model that gives a baseline its scenes and states")
    note: str = Field("", description="note for readers of its figures")
    is_untrained: bool = Field(False, description="a network of it has random weights")
    settings: dict[str, str] = Field({}, description="settings of a checkpoint's networks in print, by dotted name")

    def noted_beside(self, first: AgentEntry) -> Self:
        """Return a checkpoint with a note of its ablation: the settings in which it differs from the first one."""
        theirs = first.settings
        changed = [f"{key} {value}, not {theirs[key]}"
                   for key, value in self.settings.items() if value != theirs.get(key, value)]  # fmt: skip
        difference = f"Unlike {first.name}: {'; '.join(changed)}." if changed else ""
        return self.model_copy(update={"note": " ".join(filter(None, (difference, self.note)))})

    @property
    def in_print(self) -> str:
        """Folder, and everything that its games depend on."""
        routed = f", routed by {self.router}" if self.router else ""
        return f"{self.folder} ({self.kind} {self.identity}{routed})"


class EvaluationRequest(Record):
    """`evaluation.json`."""

    schema_version: Literal[1] = 1
    benchmark_sha256: str
    seed: int = Field(0, ge=0, description="all agents play a game from the same seed, every game from another")
    steps: int | None = Field(50, ge=1, description="denoising steps of checkpoints; null here and below: their own")
    guidance: float | None = Field(6.0, ge=0, description="guidance scale of checkpoints")
    sampler: Sampler | None = Field(None, description="sampler of checkpoints")
    agents: tuple[AgentEntry, ...] = Field(min_length=1)
    options: tuple[str, ...] = Field((), description="options that its games were last measured with, as typed")
    has_random_networks: bool = Field(False, description="a network that measured them has random weights")
    notes: tuple[str, ...] = Field((), description="sentences on the networks and data of the last measurement")

    def joined(self, asked: EvaluationRequest) -> EvaluationRequest:
        """Return this request with the agents of another, whose notes list differences from the first checkpoint.

        Raises:
            ValueError: the requests differ in anything else.
        """
        for name in ("benchmark_sha256", "seed", "steps", "guidance", "sampler"):
            if getattr(self, name) != getattr(asked, name):
                raise ValueError(f"it was begun with {name} {getattr(self, name)}, not {getattr(asked, name)}")
        stored = {agent.name: agent for agent in self.agents}
        known = stored | {agent.name: agent for agent in asked.agents}  # the folders may have moved
        first = next((agent for agent in known.values() if agent.settings), None)
        for agent in asked.agents:
            before = stored.get(agent.name, agent)
            if (before.identity, before.router) != (agent.identity, agent.router):
                raise ValueError(f"its agent {agent.name} was {before.in_print}, not {agent.in_print}")
            for key, value in self._own_sampling(agent).items():
                if (was := before.settings.get(key, value)) != value:
                    raise ValueError(f"its agent {agent.name} had {key} {was}, not {value}")
            if first and agent.settings:
                known[agent.name] = agent.noted_beside(first)
        return self.model_copy(update={"agents": tuple(known.values())})

    def _own_sampling(self, agent: AgentEntry) -> dict[str, str]:
        """Return the sampling of a checkpoint that the request leaves to it; its identity does not contain it."""
        prefix = "sampling."
        own = {key: value for key, value in agent.settings.items() if key.startswith(prefix)}
        return {key: value for key, value in own.items() if getattr(self, key.removeprefix(prefix), None) is None}


@dataclass(frozen=True)
class EvaluationFolder:
    """Evaluation folder with its request and benchmark."""

    path: Path
    request: EvaluationRequest
    benchmark: Benchmark

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing evaluation. EvaluationError if there is none, or it is damaged."""
        file = path / "evaluation.json"
        try:
            request = EvaluationRequest.model_validate_json(file.read_bytes())
        except OSError as error:
            raise EvaluationError(
                f"{path} holds no evaluation ({error.strerror}); start one with `animegamer evaluate run`"
            ) from error
        except ValidationError as error:
            raise EvaluationError(f"{file} is damaged ({faults_of(error)}); use another folder") from error
        benchmark = read_benchmark(path / "benchmark.jsonl")
        if benchmark.sha256 != request.benchmark_sha256:
            raise EvaluationError(f"{path / 'benchmark.jsonl'} has changed since the evaluation began; copy it again")
        return cls(path, request, benchmark)

    @classmethod
    @contextmanager
    def locked(cls, path: Path, command: str) -> Iterator[Self]:
        """Open an existing evaluation, locked against other commands of `evaluate` until the block ends.

        Raises:
            EvaluationError: as `open`.
            HeldError: another command is using the folder.
        """
        cls.open(path)  # a folder that is no evaluation gets no lock
        with held(path, f"animegamer evaluate {command}"):
            yield cls.open(path)

    @classmethod
    def begin(cls, path: Path, benchmark: Path, asked: EvaluationRequest) -> Self:
        """Open a new or existing evaluation, and add the new agents.

        Raises:
            EvaluationError: the folder holds another evaluation, or other files.
        """
        request = asked.joined(asked)  # so that its notes name differences from its first checkpoint
        if (path / "evaluation.json").exists():
            try:
                request = cls.open(path).request.joined(asked)
            except ValueError as error:
                raise EvaluationError(f"{path}: {error}; use the same, or another folder") from error
        elif path.is_dir() and any(file.name != "benchmark.jsonl" for file in path.glob("[!.]*")):
            raise EvaluationError(f"{path} is not empty and holds no evaluation; name another folder")
        with replacing(path / "benchmark.jsonl") as temporary, disk_errors(benchmark):
            temporary.write_bytes(benchmark.read_bytes())
        write_json(path / "evaluation.json", request.model_dump(mode="json"))
        return cls.open(path)

    def measured_with(self, options: Sequence[str], notes: Sequence[str], *, has_random_networks: bool = False) -> Self:
        """Record options and notes of the measurement, and return the updated evaluation."""
        measured = {"options": tuple(options), "notes": tuple(notes), "has_random_networks": has_random_networks}
        request = self.request.model_copy(update=measured)
        write_json(self.path / "evaluation.json", request.model_dump(mode="json"))
        return replace(self, request=request)

    @property
    def games(self) -> Path:
        """Folder of the games, by agent and game."""
        return self.path / "games"

    @property
    def figures(self) -> Path:
        """`figures.json`."""
        return self.path / "figures.json"

    def played(self, agent: str) -> list[PlayedTurn]:
        """Return the turns that an agent has played, in the benchmark's order. PlayedError if a log is damaged."""
        folders = [(game, self.games / agent / game.name) for game in self.benchmark.games]
        turns = [turn for game, folder in folders for turn in read_game(agent, game.panels, folder)]
        [entry] = (each for each in self.request.agents if each.name == agent)
        is_stateless = entry.kind == "tokens" or (entry.kind in BASELINES and not entry.router)
        return [turn.without_changes() for turn in turns] if is_stateless else turns

    def missing(self, agent: str) -> dict[str, int]:
        """Return the number of turns that an agent has not played, by game; games played in full are left out."""
        done = [turn.panel.game for turn in self.played(agent)]
        left = {game.name: len(game.panels) - done.count(game.name) for game in self.benchmark.games}
        return {name: count for name, count in left.items() if count}
