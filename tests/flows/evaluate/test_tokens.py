"""Agents that draw a benchmark's real clips again from their shot tokens: resumed, noted, refused without clips."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.evaluate.inputs import Yardsticks
from flows.evaluate.run import FROM_TOKENS, read_agents, run_evaluation
from models.checkpoint import Checkpoint
from models.checkpoint_writer import save_config
from models.engine_options import EngineOptions
from pipeline.core.errors import UserError
from pipeline.core.progress import Progress, watcher
from tests.support.networks.small_run import small_dataset
from tests.support.networks.tiny_baselines import brief_baseline
from tests.support.networks.tiny_models import copy_of_tiny, tiny_checkpoint
from training.evaluation.benchmark import Panel, read_benchmark, write_benchmark
from training.evaluation.figures import Figures
from training.evaluation.folder import EvaluationFolder, EvaluationRequest
from training.evaluation.held_out import write_held_out

OPTIONS = EngineOptions(device="cpu", steps=1, guidance=1.0)


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    """Two games of one held-out turn."""
    write_held_out(str(small_dataset()), tmp_path / "games.jsonl", turns=1, games=2)
    return tmp_path / "games.jsonl"


class StopsAfterATurn:
    """Watcher that stops the work after the first turn."""

    def begin(self, _subject: str, _name: str) -> Progress:
        def report(done: float, _total: float) -> None:
            if done == 1:
                raise KeyboardInterrupt

        return report

    def end(self, subject: str, name: str, outcome: str) -> None:
        pass


def played(out: Path, benchmark: Path, *agents: str) -> EvaluationFolder:
    return run_evaluation(out, benchmark, agents, OPTIONS, yardsticks=Yardsticks(data=small_dataset()))


def shots(evaluation: EvaluationFolder, agent: str) -> list[bytes]:
    return [turn.clip.read_bytes() for turn in evaluation.played(agent)]


@pytest.mark.slow
def test_clips_are_drawn_again_and_a_stopped_evaluation_resumes_to_the_same_clips(
    tmp_path: Path, benchmark: Path
) -> None:
    agent = f"full=tokens:{tiny_checkpoint()}"
    whole = played(tmp_path / "whole", benchmark, agent)
    assert [turn.line.changes for turn in whole.played("full")] == [None, None], "nothing predicts a state"
    found = {each.metric for each in Figures.model_validate_json(whole.figures.read_bytes()).figures}
    assert {"acc_f", "mae_f", "turn_seconds"} <= found
    assert "acc_s" not in found
    token = watcher.set(StopsAfterATurn())
    try:
        with pytest.raises(KeyboardInterrupt):
            played(tmp_path / "stopped", benchmark, agent)
    finally:
        watcher.reset(token)
    assert EvaluationFolder.open(tmp_path / "stopped").missing("full") == {"held-out-002": 1}
    assert shots(played(tmp_path / "stopped", benchmark, agent), "full") == shots(whole, "full")


def test_the_note_of_a_row_names_its_setting_and_no_game_model(tmp_path: Path, benchmark: Path) -> None:
    still = copy_of_tiny(tmp_path / "still")
    config = Checkpoint.open(still).config
    shot = config.shot_decoder.model_copy(update={"motion_scope": False})
    save_config(still, config.replaced(shot_decoder=shot))
    games = read_benchmark(benchmark)
    entries = read_agents([f"full=tokens:{tiny_checkpoint()}", f"still=tokens:{still}"], games)
    request = EvaluationRequest(benchmark_sha256=games.sha256, agents=entries)
    full, other = (agent.note for agent in EvaluationFolder.begin(tmp_path / "out", benchmark, request).request.agents)
    assert full.endswith(f"Never trained: shot decoder. {FROM_TOKENS}")
    assert other.startswith("Unlike full: shot_decoder.motion_scope False, not True.")


def without_decoder(folder: Path) -> Path:
    shutil.rmtree(copy_of_tiny(folder) / "shot_decoder")
    return folder


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (lambda _: brief_baseline("gc"), "is no checkpoint; name a result of training"),
        (lambda folder: folder / "none", "holds no checkpoint"),
        (without_decoder, "shot_decoder/.* is missing: the checkpoint is incomplete"),
    ],
)
def test_an_agent_without_a_tokenizer_is_refused(
    tmp_path: Path, benchmark: Path, agent: Callable[[Path], Path], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        played(tmp_path / "out", benchmark, f"full=tokens:{agent(tmp_path / 'agent')}")


def test_a_benchmark_without_the_clips_is_refused(tmp_path: Path, benchmark: Path) -> None:
    agent = f"full=tokens:{tiny_checkpoint()}"
    with pytest.raises(UserError, match=r"full draws the real clips again .* name their dataset with --data"):
        run_evaluation(tmp_path / "no data", benchmark, [agent], OPTIONS)
    write_benchmark(written := tmp_path / "written.jsonl", [Panel(game="a", turn=1, words="They run")])
    with pytest.raises(UserError, match=r"full: cannot play turn 1 of game a: it has no real clip; .* from-data"):
        played(tmp_path / "written", written, agent)
    gone = [Panel(game="a", turn=1, words="They run", clip_id="film-0001")]
    write_benchmark(written, gone)
    with pytest.raises(UserError, match=r"no clip film-0001 in its split val; .* write the benchmark again"):
        played(tmp_path / "gone", written, agent)


def test_a_damaged_shard_and_clips_of_another_length_are_refused(tmp_path: Path, benchmark: Path) -> None:
    data = Path(shutil.copytree(small_dataset(), tmp_path / "data"))
    short = copy_of_tiny(tmp_path / "short")
    config = Checkpoint.open(short).config
    save_config(short, config.replaced(shot_decoder=config.shot_decoder.model_copy(update={"frames": 9})))
    with pytest.raises(UserError, match="has 16 frames; this model takes 8 or 9"):
        played(tmp_path / "out", benchmark, f"full=tokens:{short}")
    for shard in (data / "shards").rglob("*.tar"):
        shard.write_bytes(shard.read_bytes()[:-512] + bytes(511) + b"x")
    with pytest.raises(UserError, match="is damaged, with another hash than in the index"):
        run_evaluation(
            tmp_path / "damaged",
            benchmark,
            [f"full=tokens:{tiny_checkpoint()}"],
            OPTIONS,
            yardsticks=Yardsticks(data=data),
        )
