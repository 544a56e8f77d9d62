"""Commands of an evaluation, killed with SIGKILL at work and run again: nothing is played or asked for twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from examples.evaluation.stand_in_models import MODEL, reply_to
from pipeline.video.clip_files import write_clip
from tests.support.media.painted_clips import make_cast, paint_number
from tests.support.networks.tiny_baselines import brief_baseline
from tests.support.networks.tiny_models import brief_checkpoint
from tests.support.servers.caption_server import Answer, CaptionServer, Request
from training.evaluation.benchmark import Panel, read_benchmark, write_benchmark
from training.evaluation.figures import Figures
from training.evaluation.folder import EvaluationFolder

pytestmark = pytest.mark.nightly
DEADLINE_SECONDS = 120
ANIMEGAMER = (sys.executable, "-m", "flows.cli")
NAMES = ("Ponyo", "Sosuke", "Lisa")
AGENTS = ("ours", "gc", "others")
STORIES, WINDOWS, ORDERS = 6, 6, 3


def command(out: Path, benchmark: Path) -> list[str]:
    agents = [f"ours={brief_checkpoint()}", f"gc={brief_baseline('gc')}"]
    options = ["--steps", "2", "--guidance", "1", "--device", "cpu"]
    named = [word for agent in agents for word in ("--agent", agent)]
    return [*ANIMEGAMER, "evaluate", "run", str(out), "--benchmark", str(benchmark), *named, *options]


def clips(out: Path) -> dict[Path, Path]:
    return {path.relative_to(out): path for path in sorted(out.glob("games/*/*/[0-9]*.mp4"))}


def features(out: Path) -> dict[Path, int]:
    """Return the times of the features that are cached."""
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob("features/*/[0-9a-f]*"))}


def kill_when(is_reached: Callable[[], bool], running: subprocess.Popen[bytes]) -> None:
    """Kill a command once a point is reached."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_reached():
        assert running.poll() is None, "the command ended early"
        assert time.monotonic() < deadline, "the point is not reached"
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()


def test_killed_again_and_again_nothing_is_played_twice(tmp_path: Path) -> None:
    benchmark = tmp_path / "games.jsonl"
    asked = {"MD": "run", "EV": "shore", "level": 3, "SC": 0, "ET": 0, "ST": -1}
    write_benchmark(benchmark, [Panel(game=game, turn=turn, **asked) for game in ("a", "b") for turn in (1, 2, 3)])
    subprocess.run(command(tmp_path / "whole", benchmark), check=True, capture_output=True)
    out, times = tmp_path / "killed", dict[Path, int]()
    for count in (2, 5, 8):  # in ours' first game, in its second, in gc's
        with subprocess.Popen(command(out, benchmark), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
            kill_when(lambda count=count: len(clips(out)) >= count, running)
        assert {name: path.stat().st_mtime_ns for name, path in clips(out).items() if name in times} == times
        logged = {turn.clip for agent in ("ours", "gc") for turn in EvaluationFolder.open(out).played(agent)}
        times = {name: path.stat().st_mtime_ns for name, path in clips(out).items() if path in logged}
        assert len(times) >= count - 1, "a turn that is on disk but not logged is one at most"
    with subprocess.Popen(command(out, benchmark), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
        kill_when(lambda: len(features(out)) > 2, running)  # while it measures
    measured = features(out)
    subprocess.run(command(out, benchmark), check=True, capture_output=True)
    assert features(out).items() >= measured.items(), "measured twice"
    after = {name: path.stat().st_mtime_ns for name, path in clips(out).items()}
    assert after.items() >= times.items()
    whole = clips(tmp_path / "whole")
    assert {name: path.read_bytes() for name, path in clips(out).items()} == {
        name: path.read_bytes() for name, path in whole.items()
    }
    assert figures_but_costs(out) == figures_but_costs(tmp_path / "whole")


def figures_but_costs(out: Path) -> list[tuple[object, ...]]:
    """Return all means with their intervals, but for seconds and memory, which differ from run to run."""
    figures = Figures.model_validate_json((out / "figures.json").read_bytes()).figures
    assert len(figures) > 50
    return [tuple(each) for each in figures if not each.metric.endswith(("_seconds", "_gb"))]


class Gate:
    """Answers of the stand-in to as many requests as are allowed; the others wait until the gate ends."""

    def __init__(self) -> None:
        self._left = 0
        self._lock, self._ended = threading.Lock(), threading.Event()

    def allow(self, requests: int) -> None:
        self._left = requests

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self._left -= 1
            waits = self._left < 0
        if waits:
            self._ended.wait(DEADLINE_SECONDS)
        return Answer(reply_to(request.body))

    def end(self) -> None:
        self._ended.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.end()


def test_writer_and_judge_killed_again_and_again_ask_nothing_twice(tmp_path: Path, gate: Gate) -> None:
    make_cast(tmp_path / "cast", *NAMES)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with CaptionServer(gate.answer, read=lambda _: 0) as server:
        options = ("--server", server.address, "--model", MODEL, "--cast", str(tmp_path / "cast"))
        write = ("benchmark", "write", *options, "--games", "2", "--panels", "5", "--out")
        gate.allow(STORIES)
        run(*write, whole / "games.jsonl")
        kill_at(killed / ".games.jsonl-replies", (1, 4), gate, *write, killed / "games.jsonl")
        assert asked(server, gate, *write, killed / "games.jsonl") == STORIES - 4
        assert (killed / "games.jsonl").read_bytes() == (whole / "games.jsonl").read_bytes()

        agents = [f"--agent={name}={played(tmp_path / name, whole / 'games.jsonl')}" for name in AGENTS]
        for out in (whole, killed):
            run("evaluate", "run", out / "eval", "--benchmark", out / "games.jsonl", *agents)
        judge = (*options, "--repeats", str(ORDERS))
        gate.allow(WINDOWS * ORDERS)
        run("evaluate", "judge", whole / "eval", *judge)
        killed_judge = ("evaluate", "judge", killed / "eval", *judge)
        kill_at(killed / "eval" / "judge" / "replies", (2, 9), gate, *killed_judge)
        scores = killed / "eval" / "measures" / "judge.parquet"
        before = settled(server)
        gate.allow(WINDOWS * ORDERS)
        with started(*killed_judge) as running:
            kill_when(scores.exists, running)  # all are answered; figures and report are not made yet
        assert len(server.requests) - before == WINDOWS * ORDERS - 9
        assert asked(server, gate, *killed_judge) == 0
    for name in ("figures.json", "figures.csv", "judge/summary.json"):
        assert (killed / "eval" / name).read_bytes() == (whole / "eval" / name).read_bytes()
    assert "judge_oa" in (killed / "eval" / "figures.csv").read_text()


def run(*words: str | Path) -> None:
    subprocess.run([*ANIMEGAMER, *map(str, words)], check=True, capture_output=True)


def started(*words: str | Path) -> subprocess.Popen[bytes]:
    command = [*ANIMEGAMER, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_at(replies: Path, counts: Sequence[int], gate: Gate, *words: str | Path) -> None:
    """Run a command and kill it when so many replies are stored, for each count anew."""
    stored = 0
    for count in counts:
        gate.allow(count - stored)
        with started(*words) as running:
            kill_when(lambda count=count: len(list(replies.glob("[!.]*.json"))) >= count, running)
        stored = len(list(replies.glob("[!.]*.json")))
        assert stored == count, "no more was answered"


def settled(server: CaptionServer) -> int:
    """Return the number of requests once it stays the same: a busy server reads some after their sender was killed."""
    count = -1
    while count != (count := len(server.requests)):
        time.sleep(1)
    return count


def asked(server: CaptionServer, gate: Gate, *words: str | Path) -> int:
    """Run a command to its end, and return the number of its requests."""
    before = settled(server)
    gate.allow(WINDOWS * ORDERS)
    run(*words)
    return len(server.requests) - before


def played(folder: Path, games: Path) -> Path:
    """Write the clips of an agent, each painted with a number of its own."""
    number = AGENTS.index(folder.name)
    for game in read_benchmark(games).games:
        (folder / game.name).mkdir(parents=True, exist_ok=True)
        for panel in game.panels:
            frames = [paint_number((number + panel.turn) % 9, moment * number) for moment in range(5)]
            write_clip(folder / game.name / f"{panel.turn:04d}.mp4", frames, Fraction(8), 20)
    return folder
