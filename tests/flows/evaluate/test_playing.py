"""Playing of a benchmark by real tiny networks: stopped and resumed, added to, refused where it differs."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from flows.cli import app
from flows.evaluate.inputs import Yardsticks
from flows.evaluate.playing import play_all
from flows.evaluate.run import read_agents, run_evaluation
from models.checkpoint import Checkpoint
from models.checkpoint_writer import save_config
from models.engine_options import EngineOptions
from pipeline.captions.endpoint import Endpoint
from pipeline.core.errors import UserError
from pipeline.core.progress import Progress, watcher
from tests.support.datasets.made_evaluation import paint
from tests.support.media.painted_clips import make_cast
from tests.support.networks.small_clip import save_small_clip
from tests.support.networks.tiny_baselines import brief_baseline
from tests.support.networks.tiny_models import brief_checkpoint
from tests.support.servers.caption_server import Answer, CaptionServer
from training.evaluation.benchmark import Panel, read_benchmark, write_benchmark
from training.evaluation.figures import Figures
from training.evaluation.folder import AgentEntry, EvaluationError, EvaluationFolder, EvaluationRequest

OPTIONS = EngineOptions(device="cpu", steps=2, guidance=1.0)


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    """Two games of two turns."""
    path = tmp_path / "games.jsonl"
    state: dict[str, Any] = {"EV": "sea shore", "SC": 0, "ET": 0, "ST": -1}
    panels = [
        Panel(game=game, turn=turn, characters=(name,), MD=motion, level=turn + 1, **state)
        for game, name in (("ponyo-01", "Ponyo"), ("lisa-01", "Lisa"))
        for turn, motion in ((1, "run"), (2, "sleep"))
    ]
    write_benchmark(path, panels)
    return path


def contents(evaluation: Path) -> dict[str, bytes]:
    return {str(path.relative_to(evaluation)): path.read_bytes() for path in sorted(evaluation.glob("games/*/*/*.mp4"))}


class StopsAfter:
    """Watcher that stops the work at the n-th report, as Ctrl-C does."""

    def __init__(self, reports: int, said: Callable[[], str] = str) -> None:
        self.left, self.said = reports, said
        self.said_before: list[str] = []

    def begin(self, subject: str, name: str) -> Progress:  # noqa: ARG002
        self.said_before.append(self.said())

        def report(done: float, total: float) -> None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

        return report

    def end(self, subject: str, name: str, outcome: str) -> None:
        pass


@contextmanager
def stopped_after(reports: int, said: Callable[[], str] = str) -> Iterator[StopsAfter]:
    """Expect that the block is stopped after so many reports."""
    token = watcher.set(watching := StopsAfter(reports, said))
    try:
        with pytest.raises(KeyboardInterrupt):
            yield watching
    finally:
        watcher.reset(token)


def agents(*kinds: str) -> list[str]:
    folders = {"ours": brief_checkpoint, "gc": lambda: brief_baseline("gc"), "gsc": lambda: brief_baseline("gsc")}
    return [f"{kind}={folders[kind]()}" for kind in kinds]


@pytest.mark.slow
def test_agents_play_every_game_and_a_stopped_evaluation_goes_on_to_the_same_clips(
    tmp_path: Path, benchmark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = [*agents("ours", "gc"), f"again={brief_checkpoint()}"]
    whole = run_evaluation(tmp_path / "whole", benchmark, twice, OPTIONS)
    assert [len(whole.played(agent)) for agent in ("ours", "gc")] == [4, 4]
    for turn in whole.played("ours"):
        assert turn.line.instruction == turn.panel.instruction
        assert turn.line.first_frame_seconds is not None
        assert turn.seconds is not None
        assert 0 < turn.line.first_frame_seconds < turn.seconds + 0.1
        assert turn.line.device.endswith("CPU threads (" + torch.backends.cpu.get_cpu_capability() + ")")
        assert turn.line.memory_bytes is not None
        assert 100e6 < turn.line.memory_bytes < 20e9
    for turn in whole.played("gc"):
        assert turn.line.device
        assert turn.line.first_frame_seconds
        assert turn.seconds
        assert turn.line.first_frame_seconds >= turn.seconds - 0.01, "its frames come together"
    notes = json.loads((whole.path / "figures.json").read_text())["notes"]
    assert [note for note in notes if note.startswith("ours: 95% of 4 turns showed a frame within ")]
    clips = contents(whole.path)
    assert clips["games/ours/ponyo-01/0001.mp4"] == clips.pop("games/again/ponyo-01/0001.mp4"), "on equal noise"
    seeds = {json.loads(path.read_text())["seed"] for path in whole.games.glob("ours/*/game.json")}
    assert len(seeds) == 2
    capsys.readouterr()
    with stopped_after(3, lambda: capsys.readouterr().err) as watching:  # within ours, after two turns
        run_evaluation(tmp_path / "stopped", benchmark, agents("ours", "gc"), OPTIONS)
    assert "loading the networks" in watching.said_before[0], "before the first turn is timed"
    stopped = EvaluationFolder.open(tmp_path / "stopped")
    assert stopped.missing("ours") == {"lisa-01": 2}
    before = {path: path.stat().st_mtime_ns for path in stopped.games.glob("*/*/*.mp4")}
    resumed = run_evaluation(tmp_path / "stopped", benchmark, agents("ours", "gc"), OPTIONS)
    assert resumed.missing("ours") == {}
    assert contents(resumed.path) == {name: clip for name, clip in clips.items() if "/again/" not in name}
    assert {path: path.stat().st_mtime_ns for path in before} == before, "played twice"


@pytest.mark.slow
def test_a_story_drawn_at_once_resumes_to_the_same_clips(tmp_path: Path, benchmark: Path) -> None:
    whole = run_evaluation(tmp_path / "whole", benchmark, agents("gsc"), OPTIONS)
    with stopped_after(2):  # after the first of two turns
        run_evaluation(tmp_path / "stopped", benchmark, agents("gsc"), OPTIONS)
    assert EvaluationFolder.open(tmp_path / "stopped").missing("gsc") == {"ponyo-01": 1, "lisa-01": 2}
    resumed = run_evaluation(tmp_path / "stopped", benchmark, agents("gsc"), OPTIONS)
    assert contents(resumed.path) == contents(whole.path)


@pytest.mark.slow
def test_a_baseline_gets_its_states_from_a_language_model_and_asks_for_no_scene_twice(
    tmp_path: Path, benchmark: Path
) -> None:
    asleep = {"scene": "A girl at the sea.", "motion_level": 1, "social": 0, "entertainment": 0, "stamina": -1}
    with CaptionServer(lambda _: Answer(json.dumps(asleep))) as server:
        endpoint = Endpoint(server.address, "director", attempts=1)
        out, named = tmp_path / "out", agents("gc")
        with stopped_after(3):  # after two turns
            run_evaluation(out, benchmark, named, OPTIONS, endpoint=endpoint)
        with pytest.raises(UserError, match="gc is routed by director: name that model with --server"):
            run_evaluation(out, benchmark, [f"again={brief_baseline('gc')}"], OPTIONS)
        with pytest.raises(EvaluationError, match=r"\(gc \w+, routed by director\), not"):
            run_evaluation(out, benchmark, named, OPTIONS)
        routed = run_evaluation(out, benchmark, named, OPTIONS, endpoint=endpoint)
        assert len(server.requests) == 4, "one a turn"
    assert {turn.line.level for turn in routed.played("gc")} == {1}
    assert share_of_states(routed) == {"acc_s": 1.0}
    assert "Scenes and states by director." in routed.request.agents[0].note
    plain = run_evaluation(tmp_path / "plain", benchmark, agents("gc"), OPTIONS)
    assert share_of_states(plain) == {}
    assert "No language model: it predicts no states." in plain.request.agents[0].note


def share_of_states(evaluation: EvaluationFolder) -> dict[str, float]:
    """Return the share of right states, if it was measured."""
    figures = Figures.model_validate_json(evaluation.figures.read_bytes()).figures
    return {each.metric: each.value for each in figures if each.metric == "acc_s" and not (each.game or each.turn)}


@pytest.mark.slow
def test_another_benchmark_agent_or_setting_is_refused_and_a_new_agent_joins(tmp_path: Path, benchmark: Path) -> None:
    out, clips = tmp_path / "out", tmp_path / "clips"
    shutil.copytree(run_evaluation(tmp_path / "first", benchmark, agents("gc"), OPTIONS).games / "gc", clips)
    run_evaluation(out, benchmark, [f"others={clips}"], OPTIONS)
    with pytest.raises(EvaluationError, match="begun with seed 0, not 1"):
        run_evaluation(out, benchmark, [f"others={clips}"], OPTIONS, seed=1)
    with pytest.raises(EvaluationError, match=r"its agent others was .*clips \(folder .*, not .*\(gc "):
        run_evaluation(out, benchmark, [f"others={brief_baseline('gc')}"], OPTIONS)
    joined = run_evaluation(out, benchmark, agents("gc"), OPTIONS)
    assert [agent.name for agent in joined.request.agents] == ["others", "gc"]
    write_benchmark(benchmark, [Panel(game="other", turn=1, words="They fall asleep")])
    with pytest.raises(EvaluationError, match="begun with benchmark_sha256"):
        run_evaluation(out, benchmark, agents("gc"), OPTIONS)


def test_the_report_names_random_weights_and_its_command_makes_the_same_figures(
    tmp_path: Path, benchmark: Path
) -> None:
    for turn in (1, 2):
        paint(tmp_path / "clips" / "ponyo-01" / f"{turn}.mp4", (40, 100 * turn, 90))
    make_cast(tmp_path / "cast", "Ponyo", "Lisa")
    yardsticks = Yardsticks(tmp_path / "cast", str(save_small_clip(tmp_path / "clip")), notes=("It's a test.",))
    evaluation = run_evaluation(tmp_path / "out", benchmark, [f"others={tmp_path / 'clips'}"], yardsticks=yardsticks)
    page, before = (evaluation.path / "report.html").read_text(), evaluation.figures.read_bytes()
    assert "Random weights, whose similarities say nothing about pictures: CLIP; identity, cast and places." in page
    found = re.search(r"<pre>animegamer (evaluate run .*?)</pre>", page)
    assert found
    evaluation.figures.unlink()
    done = CliRunner().invoke(app, shlex.split(html.unescape(found[1])))
    assert done.exit_code == 0, done.output
    assert re.search(r"^CLIP-T ↑ +[0-9.−]+$", done.output, re.MULTILINE)
    assert "\nDreamSim is not measured: --dreamsim names the folder of its weights.\n" in done.output
    assert evaluation.figures.read_bytes() == before


def begun(out: Path, benchmark: Path, *typed: str) -> EvaluationFolder:
    """Begin or continue an evaluation with these agents."""
    games = read_benchmark(benchmark)
    request = EvaluationRequest(benchmark_sha256=games.sha256, agents=read_agents(typed, games))
    return EvaluationFolder.begin(out, benchmark, request)


def test_an_agent_whose_own_sampling_has_changed_is_not_continued() -> None:
    def asked(steps: int | None, own: str) -> EvaluationRequest:
        settings = {"sampling.steps": own, "shot_decoder.width": "96"}
        agent = AgentEntry(name="ours", kind="checkpoint", folder=".", identity="same", settings=settings)
        return EvaluationRequest(benchmark_sha256="", steps=steps, agents=(agent,))

    assert asked(50, "10").joined(asked(50, "4")).agents, "all checkpoints are played in 50 steps"
    with pytest.raises(ValueError, match=r"its agent ours had sampling\.steps 10, not 4"):
        asked(None, "10").joined(asked(None, "4"))


def test_a_folder_of_clips_that_has_changed_or_is_gone_is_not_brought_in(
    tmp_path: Path, benchmark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, first, other = tmp_path / "out", tmp_path / "first", tmp_path / "other"
    for folder in (first, other):
        paint(folder / "ponyo-01" / "1.mp4", (40, 100, 90))
    play_all(begun(out, benchmark, f"first={first}"), OPTIONS)
    paint(first / "lisa-01" / "1.mp4", (40, 100, 90))  # the agent's note says that this game is missing
    play_all(begun(out, benchmark, f"second={other}"), OPTIONS)
    shutil.rmtree(first)
    evaluation = begun(out, benchmark, f"third={other}")
    play_all(evaluation, OPTIONS)
    played = {name: [turn.panel.game for turn in evaluation.played(name)] for name in ("first", "second", "third")}
    assert all(games == ["ponyo-01"] for games in played.values()), played
    assert capsys.readouterr().err.count(f"first: {first} has changed or is gone; its missing turns stay missing") == 2


def test_missing_turns_of_an_agent_whose_weights_have_changed_stay_missing(
    tmp_path: Path, benchmark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, clips = tmp_path / "ours", tmp_path / "clips"
    shutil.copytree(brief_baseline("gc"), ours)
    paint(clips / "ponyo-01" / "1.mp4", (40, 100, 90))
    begun(tmp_path / "out", benchmark, f"ours={ours}")  # killed before its first turn
    weights = next(ours.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    evaluation = begun(tmp_path / "out", benchmark, f"others={clips}")
    play_all(evaluation, OPTIONS)
    assert (len(evaluation.played("ours")), len(evaluation.played("others"))) == (0, 1)
    assert f"ours: {ours} has changed or is gone; its missing turns stay missing" in capsys.readouterr().err


def test_clips_whose_copying_was_stopped_are_brought_in_by_the_next_run(tmp_path: Path, benchmark: Path) -> None:
    out, first = tmp_path / "out", tmp_path / "first"
    for game in ("ponyo-01", "lisa-01"):
        paint(first / game / "1.mp4", (40, 100, 90))
    stopped = begun(out, benchmark, f"first={first}")
    play_all(stopped, OPTIONS)
    shutil.rmtree(stopped.games / "first" / "lisa-01")  # as if stopped before its second game
    resumed = begun(out, benchmark, f"second={first}")
    play_all(resumed, OPTIONS)
    assert [turn.panel.game for turn in resumed.played("first")] == ["ponyo-01", "lisa-01"]


def test_agents_that_cannot_play_are_named(tmp_path: Path, benchmark: Path) -> None:
    folder = brief_baseline("gc")
    for typed, said in (
        (["ours"], "give NAME=FOLDER"),
        ([f"../up={folder}"], "use letters"),
        ([f"a={folder}", f"a={folder}"], "given twice"),
        ([f"a={folder}/none"], "holds no checkpoint"),
    ):
        with pytest.raises(UserError, match=said):
            run_evaluation(tmp_path / "out", benchmark, typed)


@pytest.fixture
def ablations(tmp_path: Path) -> list[str]:
    """Checkpoints `ours`, and `linear` and `released`, which differ from it in one setting each; as typed."""
    config = Checkpoint.open(brief_checkpoint()).config
    linear = config.replaced(shot_encoder=config.shot_encoder.model_copy(update={"variant": "linear"}))
    doubled = config.replaced(conventions=config.conventions.model_copy(update={"doubled_end_tag": True}))
    for name, other in (("linear", linear), ("released", doubled)):
        save_config(Path(shutil.copytree(brief_checkpoint(), tmp_path / name)), other)
    return [f"ours={brief_checkpoint()}", *(f"{name}={tmp_path / name}" for name in ("linear", "released"))]


TINY = "Size tiny: its bases are small, with random weights."
NOTES = {
    "gc": f"{TINY} Never trained: video pipeline. No language model: it predicts no states.",
    "ours": f"{TINY} Never trained: game model, shot decoder.",
    "linear": f"Unlike ours: shot_encoder.variant linear, not mlp. {TINY} Never trained: game model, shot decoder.",
    "released": f"Unlike ours: conventions.doubled_end_tag True, not False. {TINY} "
    "Never trained: game model, shot decoder.",
}


def notes_of(evaluation: EvaluationFolder) -> dict[str, str]:
    return {agent.name: agent.note for agent in evaluation.request.agents}


def test_the_note_of_an_ablation_names_its_setting_whenever_it_joins(
    tmp_path: Path, benchmark: Path, ablations: list[str]
) -> None:
    ours, linear, released = ablations
    gc, out = f"gc={brief_baseline('gc')}", tmp_path / "out"
    assert notes_of(begun(tmp_path / "at once", benchmark, gc, *ablations)) == NOTES
    begun(out, benchmark, gc, ours, linear)
    assert notes_of(begun(out, benchmark, released)) == NOTES
    for typed in (linear, released, ours, gc):
        assert notes_of(begun(out, benchmark, typed)) == NOTES
