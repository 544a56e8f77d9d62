"""Playing of a benchmark: the missing turns of every agent's every game, in EVALUATION/games/<agent>/<game>/.

A turn is on disk before the next one is played, so a stop costs at most one turn. Finished turns are not played again,
and a resumed game has the same clips as an uninterrupted one. Each turn is stored with its cost: the time to its first
frame, the device, and the peak memory of the GPU or, without a GPU, of the process.
"""

from __future__ import annotations

import hashlib
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from flows.console.terminal import say
from flows.evaluate.clip_folders import bring_in
from flows.evaluate.players import KeptScenes, Player, identity_of_agent, player_of
from flows.game.play_file import resumed_or_new
from flows.game.records import TurnCost
from models.engine import name_of
from models.engine_options import EngineOptions
from models.turns import Turn
from pipeline.captions.endpoint import Endpoint
from pipeline.core.errors import UserError
from pipeline.core.progress import Watch, watched
from training.baselines.router import LanguageRouter, Router
from training.data.turns import PackedTurn
from training.evaluation.benchmark import Benchmark, BenchmarkGame
from training.evaluation.folder import AgentEntry, EvaluationFolder
from training.evaluation.reconstruction import real_clips

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Value that makes Linux reset its peak of resident memory."""


def play_all(
    evaluation: EvaluationFolder, options: EngineOptions, endpoint: Endpoint | None = None, data: Path | None = None
) -> None:
    """Play the missing turns, agent by agent. Only one agent's networks are loaded at a time.

    All agents are checked before the first turn is played. One that joined earlier may have changed or moved since:
    its missing turns stay missing.

    Args:
        endpoint: language model that routes the baselines.
        data: dataset with the real clips, for agents that draw them again.

    Raises:
        UserError: an agent cannot play a turn, or a folder cannot be used.
    """
    agents = [agent for agent in evaluation.request.agents if evaluation.missing(agent.name) and _is_there(agent)]
    clips = _real_clips(evaluation, agents, data)

    def player(agent: AgentEntry) -> Player:
        return player_of(agent, options, _router_of(agent, evaluation, endpoint), clips)

    for agent in agents:
        if agent.kind != "folder":
            _check(agent, player(agent), evaluation.benchmark)
    for agent in agents:
        if agent.kind == "folder":
            bring_in(Path(agent.folder), evaluation.benchmark, evaluation.games / agent.name)
        else:
            _play_games(evaluation, agent, player(agent))


def _is_there(agent: AgentEntry) -> bool:
    """Return whether an agent's folder is as its note says, and say so if it is not."""
    with suppress(UserError):
        if identity_of_agent(agent.kind, Path(agent.folder)) == agent.identity:
            return True
    say(f"{agent.name}: {agent.folder} has changed or is gone; its missing turns stay missing")
    return False


def _real_clips(evaluation: EvaluationFolder, agents: Sequence[AgentEntry], data: Path | None) -> dict[str, PackedTurn]:
    """Return the benchmark's real clips, if an agent draws them again. UserError without a dataset."""
    names = [agent.name for agent in agents if agent.kind == "tokens"]
    panels = [panel for game in evaluation.benchmark.games for panel in game.panels]
    if not names or not any(panel.clip_id for panel in panels):
        return {}
    if data is None:
        raise UserError(f"{names[0]} draws the real clips again from their shot tokens; name their dataset with --data")
    return real_clips(str(data), panels)


def _router_of(agent: AgentEntry, evaluation: EvaluationFolder, endpoint: Endpoint | None) -> Router | None:
    if not agent.router:
        return None
    if endpoint is None or endpoint.model != agent.router:
        raise UserError(f"{agent.name} is routed by {agent.router}: name that model with --server and --model")
    return KeptScenes(LanguageRouter(endpoint), evaluation.path / "scenes")


def game_seed(seed: int, game: str) -> int:
    """Return the seed of a game, which is equal for all agents and differs between games."""
    return int.from_bytes(hashlib.sha256(f"{seed} {game}".encode()).digest()[:6], "big")


def _check(agent: AgentEntry, player: Player, benchmark: Benchmark) -> None:
    for game in benchmark.games:
        for panel in game.panels:
            try:
                player.check(panel)
            except UserError as error:
                raise UserError(f"{agent.name}: cannot play turn {panel.turn} of game {game.name}: {error}") from error


def _play_games(evaluation: EvaluationFolder, agent: AgentEntry, player: Player) -> None:
    missing = evaluation.missing(agent.name)
    total = sum(len(game.panels) for game in evaluation.benchmark.games)
    done = total - sum(missing.values())
    say(f"{agent.name}: {done} of {total} turns played before" if done else f"{agent.name}: {total} turns to play")
    _ = player.networks  # load them now, so that the cost of the first turn does not include it
    with watched(agent.name, "play") as watch:
        watch(done, total)
        for game in evaluation.benchmark.games:
            if game.name in missing:
                folder = evaluation.games / agent.name / game.name
                _play_game(folder, game, player, game_seed(evaluation.request.seed, game.name), watch, done, total)
                done += missing[game.name]


def _play_game(path: Path, game: BenchmarkGame, player: Player, seed: int, watch: Watch, done: int, total: int) -> None:
    """Play the missing turns of a game; `done` of `total` turns of the agent are there."""
    instructions = [panel.instruction for panel in game.panels]
    folder = resumed_or_new(path, player.settings(seed), instructions)
    for turn, cost in with_costs(player.turns(folder, game.panels), player.device):
        folder.keep(turn, folder.turns[-1].id if folder.turns else None, cost)
        done += 1
        watch(done, total)


def with_costs(turns: Iterator[Turn], device: torch.device) -> Iterator[tuple[Turn, TurnCost]]:
    """Yield each turn with its cost. Baselines draw a shot's frames together, so the first one comes with the last."""
    while True:
        _reset_peak(device)
        started = time.perf_counter()
        turn = next(turns, None)
        if turn is None:
            return
        yield turn, TurnCost(time.perf_counter() - started, _peak_bytes(device), name_of(device))


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # without Linux, or in a container that forbids the reset: report the peak since the start
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if _STATUS.exists():
        lines = dict(line.split(":", 1) for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
