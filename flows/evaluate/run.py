"""Evaluation from a request to its report, for `animegamer evaluate run`.

If a network is not given, its metrics are left out, and a note in the report names the option that adds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.evaluate.clip_folders import survey
from flows.evaluate.inputs import TypedAgent, Yardsticks
from flows.evaluate.players import identity_of_agent
from flows.evaluate.playing import play_all
from flows.evaluate.reporting import remake_report
from models.checkpoint import Checkpoint
from models.config import CONFIG, LevelScale, ModelConfig
from models.engine import device_of
from models.engine_options import EngineOptions, check_steps
from pipeline.captions.endpoint import Endpoint
from pipeline.core.atomic import held
from pipeline.core.errors import UserError
from pipeline.core.progress import watched
from pipeline.core.records import faults_of
from training.baselines.folder import BaselineFolder
from training.evaluation.benchmark import Benchmark, read_benchmark
from training.evaluation.folder import AgentEntry, EvaluationFolder, EvaluationRequest
from training.evaluation.measures import write_measures
from training.evaluation.metrics.measure import MetricNetworks, measure
from training.evaluation.metrics.networks import load_clip, load_dreamsim

FROM_TOKENS = "Draws each real clip again from its own shot tokens and motion scope, without the game model."


def read_agents(typed: Sequence[str], benchmark: Benchmark, router: str = "") -> tuple[AgentEntry, ...]:
    """Return the agents named on the command line; `router` is the language model of the baselines.

    Raises:
        UserError: an agent is not NAME=FOLDER, a name is repeated, a folder holds no agent and no clips, or its clips
            cannot be assigned to the turns of the benchmark.
    """
    agents = tuple(_read_agent(text, benchmark, router) for text in typed)
    names = [agent.name for agent in agents]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--agent {name} is given twice; give each agent a different name")
    return agents


def _read_agent(text: str, benchmark: Benchmark, router: str) -> AgentEntry:
    typed, found = TypedAgent.of(text), dict[str, Any]()
    folder, random = typed.folder, list[str]()
    if typed.holds == "clips":
        found["kind"], note = "folder", survey(folder, benchmark).note
    elif typed.holds == "baseline":
        baseline = BaselineFolder.open(folder)
        random = list(_random_weights(baseline))
        note = f"Scenes and states by {router}." if router else "No language model: it predicts no states."
        found |= {"kind": baseline.config.kind, "router": router}
    else:
        checkpoint, from_tokens = Checkpoint.open(folder), typed.holds == "tokens"
        random = list(_random_weights(checkpoint, unused="game model" if from_tokens else ""))
        note = FROM_TOKENS if from_tokens else ""
        found |= {"kind": typed.holds, "settings": _settings_of(checkpoint.config)}
    found |= {"note": " ".join(filter(None, [*random, note])), "is_untrained": bool(random)}
    found["identity"] = identity_of_agent(found["kind"], folder)
    try:
        return AgentEntry(name=typed.name, folder=str(folder.absolute()), **found)
    except ValidationError as error:
        raise UserError(f"--agent {text}: {faults_of(error)}; use letters, digits, `-`, `_` and `.`") from error


def _random_weights(agent: Checkpoint | BaselineFolder, unused: str = "") -> Iterator[str]:
    """Yield sentences on the random weights of an agent, all but those of an `unused` network."""
    if agent.config.size == "tiny":
        yield "Size tiny: its bases are small, with random weights."
    if untrained := [name for name in agent.untrained() if name != unused]:
        yield f"Never trained: {', '.join(untrained)}."


def _settings_of(config: ModelConfig) -> dict[str, str]:
    """Return the settings of a checkpoint's networks as text, by dotted name such as `shot_encoder.variant`."""
    sections = ("shot_encoder", "shot_decoder", "game_model", "conventions", "sampling")
    nested = {f"{name}.{key}": value for name in sections for key, value in getattr(config, name).model_dump().items()}
    levels = " / ".join(f"{value:.3g}" for value in config.level_values)
    of_model = {"encoded_frame": config.encoded_frame, "level_values": levels}
    return {"size": config.size, **{key: str(value) for key, value in nested.items()}, **of_model}


def run_evaluation(
    out: Path,
    benchmark: Path,
    agents: Sequence[str],
    options: EngineOptions = EngineOptions(),
    seed: int = 0,
    yardsticks: Yardsticks = Yardsticks(),
    endpoint: Endpoint | None = None,
) -> EvaluationFolder:
    """Play the missing turns of a new or existing evaluation, measure every turn, and write figures and report.

    Args:
        agents: agents as `NAME=FOLDER` or `NAME=tokens:FOLDER`.
        endpoint: language model that writes the baselines' scenes and states. Without it, baselines draw the
            instructions unchanged.

    Raises:
        UserError: the request cannot be met, or differs from the request in the folder.
    """
    if options.steps is not None:
        check_steps(options.steps)
    games = read_benchmark(benchmark)
    asked = EvaluationRequest(
        benchmark_sha256=games.sha256,
        seed=seed,
        steps=options.steps,
        guidance=options.guidance,
        sampler=options.sampler,
        agents=read_agents(agents, games, endpoint.model if endpoint else ""),
    )
    with held(out, "animegamer evaluate run"):
        evaluation = EvaluationFolder.begin(out, benchmark, asked)
        play_all(evaluation, options, endpoint, yardsticks.data)
        evaluation = measure_games(evaluation, yardsticks, options.device)
        remake_report(evaluation)
    return evaluation


def measure_games(evaluation: EvaluationFolder, yardsticks: Yardsticks, device: str | None) -> EvaluationFolder:
    """Measure every turn that was played, and return the evaluation with notes on the networks and data it used.

    Raises:
        UserError: a network, the cast or a clip cannot be used.
    """
    place = str(device_of(device))
    described, levels = _levels_of(evaluation.request.agents)
    yardsticks = replace(yardsticks, levels=levels)
    networks = MetricNetworks(
        clip=load_clip(yardsticks.clip, place) if yardsticks.clip else None,
        dreamsim=load_dreamsim(yardsticks.dreamsim, place) if yardsticks.dreamsim else None,
        motion=yardsticks.motion,
        motion_size=yardsticks.clip_size,
    )
    turns = [turn for agent in evaluation.request.agents for turn in evaluation.played(agent.name)]
    with watched("turns", "measure") as watch:
        measures = measure(
            turns,
            evaluation.path / "features",
            networks,
            yardsticks.pictures,
            yardsticks.truths(evaluation.benchmark),
            lambda done: watch(done, len(turns)),
        )
        write_measures(evaluation.path / "measures" / "turns.parquet", measures)
    notes = (*yardsticks.notes, *_notes(evaluation.benchmark, yardsticks, networks, described))
    return evaluation.measured_with(yardsticks.options, notes, has_random_networks=bool(networks.untrained))


def _levels_of(agents: Sequence[AgentEntry]) -> tuple[str, LevelScale | None]:
    """Return the first checkpoint that says how the levels of its data were measured: its name, and how."""
    for agent in agents:
        folder = Path(agent.folder)
        is_there = agent.kind in ("checkpoint", "tokens") and (folder / CONFIG).is_file()  # played, then moved away
        if is_there and (levels := ModelConfig.read(folder).levels):
            return agent.name, levels
    return "", None


def _notes(benchmark: Benchmark, yardsticks: Yardsticks, networks: MetricNetworks, described: str) -> Iterator[str]:
    if networks.identities:
        yield f"Networks: {'; '.join(f'{use} by {identity}' for use, identity in networks.identities.items())}."
    if networks.untrained:
        yield f"Random weights, whose similarities say nothing about pictures: {'; '.join(networks.untrained)}."
    yield from yardsticks.left_out(benchmark)
    known = yardsticks.data.absolute().name if yardsticks.data else described
    edges = f"the level edges of {known}" if known else "the published level edges"
    width, height = yardsticks.clip_size
    yield f"Motion: optical flow by {networks.motion.model}, with {edges}, in pixels of clips of {width}x{height}."
