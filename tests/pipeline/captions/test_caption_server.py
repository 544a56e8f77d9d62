"""Caption server: its model and command line, and the program kept serving."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.captions.caption_server import (
    LMDEPLOY,
    SERVED,
    SESSION_TOKENS,
    Limits,
    Listening,
    ServerProgram,
    arguments,
    card_of,
    check_port,
    keep_serving,
    lmdeploy_program,
    log_end,
    resolved_revision,
)
from pipeline.captions.cast import MOST_CHARACTERS
from pipeline.captions.endpoint import Picture
from pipeline.captions.questions import GRID_FRAMES, who_question
from pipeline.core.config import CaptionSettings
from pipeline.core.errors import UserError
from prompts.template import load_prompt
from tests.support import records
from tests.support.builds.real_builds import wait_until_gone
from tests.support.media.painted_clips import make_cast
from tests.support.servers.prefect_server import free_port
from tests.support.servers.stand_in_lmdeploy import stand_in_environment, starts_of

ENVIRONMENT = Path(__file__).parents[3] / ".venv-lmdeploy"
PARSED = """
import json, sys
from lmdeploy.cli.cli import CLI
from lmdeploy.cli.serve import SubCliServe
from importlib.metadata import version
SubCliServe.add_parsers()
print(json.dumps([version("lmdeploy"), vars(CLI.parser.parse_args(sys.argv[1:]))], default=str))
"""


@pytest.mark.parametrize(
    ("mebibytes", "card"),
    [
        ([81_559], "80gb"),
        ([24_564, 143_771], "80gb"),
        ([46_068, 46_068], "2x48gb"),
        ([46_068, 24_564], "48gb"),
        ([49_140], "48gb"),
        ([24_564] * 4, "24gb"),
        ([23_034], "24gb"),
    ],
)
def test_the_card_with_the_best_model_is_chosen(mebibytes: list[int], card: str) -> None:
    assert card_of(mebibytes) == card


@pytest.mark.parametrize("mebibytes", [[], [16_384, 16_384]])
def test_gpus_that_are_too_small_are_refused(mebibytes: list[int]) -> None:
    with pytest.raises(UserError, match="needs one of 24 GB"):
        card_of(mebibytes)


def test_other_machines_need_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = stand_in_environment(tmp_path)
    monkeypatch.delenv("THE_KEY", raising=False)
    everywhere = Listening("0.0.0.0", key_env="THE_KEY")  # noqa: S104
    with pytest.raises(UserError, match="put a key into the environment variable THE_KEY"):
        lmdeploy_program(environment, SERVED["24gb"], everywhere, tmp_path / "log")
    monkeypatch.setenv("THE_KEY", "sk-secret")
    program = lmdeploy_program(environment, SERVED["24gb"], everywhere, tmp_path / "log")
    assert program.address == "http://127.0.0.1:23333/v1/models"
    assert program.key == "sk-secret"
    assert not any("sk-secret" in word for word in program.words)


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("0.0.0.0", "http://127.0.0.1:23333/v1"),  # noqa: S104
        ("::", "http://[::1]:23333/v1"),
        ("192.168.1.7", "http://192.168.1.7:23333/v1"),
        ("localhost", "http://localhost:23333/v1"),
    ],
)
def test_the_server_is_asked_where_it_listens(host: str, base: str) -> None:
    assert Listening(host).base == base


def test_a_missing_environment_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run `make lmdeploy-env`"):
        lmdeploy_program(tmp_path / "nowhere", SERVED["24gb"], Listening(), tmp_path / "log")


def test_the_commit_of_a_branch_is_that_of_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert resolved_revision("OpenGVLab/InternVL2-26B-AWQ", "main") == "main"
    reference = tmp_path / "hub" / "models--OpenGVLab--InternVL2-26B-AWQ" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text("0123abcd")
    assert resolved_revision("OpenGVLab/InternVL2-26B-AWQ", "main") == "0123abcd"
    assert resolved_revision("OpenGVLab/InternVL2-26B-AWQ", "4567") == "4567"


def test_code_of_an_unknown_commit_is_not_run(tmp_path: Path) -> None:
    environment = stand_in_environment(tmp_path)
    with pytest.raises(UserError, match=r"InternVL2-26B-AWQ holds code that runs here.*--revision"):
        lmdeploy_program(environment, SERVED["48gb"], Listening(), tmp_path / "log")
    named = lmdeploy_program(environment, replace(SERVED["48gb"], revision="4567"), Listening(), tmp_path / "log")
    assert named.words[named.words.index("--revision") + 1] == "4567"


def test_the_question_about_the_largest_cast_fits_the_session(tmp_path: Path) -> None:
    """A letter is at most one token; a reply, repaired or not, is as long as it may be."""
    cast = make_cast(tmp_path / "cast", *(f"{number:02d} {'x' * 61}" for number in range(MOST_CHARACTERS)))
    settings = CaptionSettings()
    question = who_question(records.clip(), settings, cast)
    tiles = [picture.tiles or 1 for picture in (*cast.sheets, Picture(b"", tiles=GRID_FRAMES))]
    pictures = sum(256 * (count + 1) for count in tiles)  # with a thumbnail each
    repairs = settings.repairs * (settings.max_tokens + len(load_prompt("repair").render(fault="x" * 100)))
    assert pictures + len(question.text) + repairs + settings.max_tokens <= SESSION_TOKENS


@pytest.mark.nightly
@pytest.mark.skipif(not ENVIRONMENT.exists(), reason="no environment with lmdeploy: make lmdeploy-env")
@pytest.mark.parametrize("card", SERVED)
def test_lmdeploy_itself_accepts_every_flag(card: str) -> None:
    model = replace(SERVED[card], revision=SERVED[card].revision or "main")
    program = [ENVIRONMENT / "bin" / "python", "-c", PARSED, *arguments(model, Listening(port=1234))]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr
    version, read = json.loads(done.stdout.splitlines()[-1])
    assert version == LMDEPLOY
    expected = {
        "model_path": model.repository,
        "model_name": model.repository,
        "revision": model.revision,
        "server_name": "127.0.0.1",
        "server_port": 1234,
        "trust_remote_code": True,
        "enable_prefix_caching": True,
        "tp": model.gpus,
        "session_len": SESSION_TOKENS,
        "vision_max_batch_size": 1,
        "model_format": "awq" if "AWQ" in model.repository else None,
    }
    assert {name: read[name] for name in expected} == expected


@pytest.mark.nightly
@pytest.mark.skipif(not ENVIRONMENT.exists(), reason="no environment with lmdeploy: make lmdeploy-env")
def test_lmdeploy_takes_the_key_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With help as its last word lmdeploy prints its usage; with an unknown one it names the arguments it got."""
    monkeypatch.setenv("THE_KEY", "sk-secret")
    program = lmdeploy_program(ENVIRONMENT, SERVED["24gb"], Listening(key_env="THE_KEY"), tmp_path / "log")
    words = [*program.words, "--no-such-flag"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""})
    assert "unrecognized arguments: --no-such-flag" in done.stderr


QUICK = Limits(start_seconds=30, restarts=2, first_pause_seconds=0.1, steady_seconds=600)


class Watched:
    """Watcher that stops the server once it has served so many times."""

    def __init__(self, stop_at: int = 1) -> None:
        self.stop, self.stop_at = threading.Event(), stop_at
        self.lines: list[str] = []
        self.starting_lines: list[str] = []
        self.served = 0

    def starting(self, seconds: float, last_line: str) -> None:  # noqa: ARG002
        self.starting_lines.append(last_line)

    def serving(self) -> None:
        self.served += 1
        if self.served == self.stop_at:
            self.stop.set()

    def say(self, line: str) -> None:
        self.lines.append(line)


def program_of(environment: Path) -> ServerProgram:
    return lmdeploy_program(environment, SERVED["24gb"], Listening(port=free_port()), environment.parent / "server.log")


def run(tmp_path: Path, watched: Watched, limits: Limits = QUICK, **behaviour: Any) -> list[dict[str, Any]]:
    """Serve with the stand-in until the watcher stops it; check that no process is left."""
    environment = stand_in_environment(tmp_path, **behaviour)
    try:
        keep_serving(program_of(environment), limits, watched.stop, watched)
    finally:
        starts = starts_of(environment)
        wait_until_gone("of the server", lambda: alive(starts))
    return starts


def alive(starts: list[dict[str, Any]]) -> list[psutil.Process]:
    pids = [start[name] for start in starts for name in ("pid", "child")]
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return [process for process in processes if process.status() != psutil.STATUS_ZOMBIE]


def test_a_slow_start_is_shown_and_the_end_leaves_no_process(tmp_path: Path) -> None:
    watched = Watched()
    starts = run(tmp_path, watched, start_seconds=1.2)
    assert (len(starts), watched.served, watched.lines) == (1, 1, [])
    assert watched.starting_lines[-1] == "loading: 100%"


@pytest.mark.slow
def test_a_server_that_dies_is_started_again_with_growing_pauses(tmp_path: Path) -> None:
    watched = Watched(stop_at=3)
    assert len(run(tmp_path, watched, dies_after=[0.5, 0.5])) == 3
    said = [line for line in watched.lines if "restart" in line]
    assert said == [
        "the server ended by signal SIGKILL; out of memory?; restart 1 of 2 in 0.1 s",
        "the server ended by signal SIGKILL; out of memory?; restart 2 of 2 in 0.2 s",
    ]


@pytest.mark.slow
def test_restarts_are_bounded(tmp_path: Path) -> None:
    watched = Watched(stop_at=99)
    with pytest.raises(UserError, match="started again 2 times, and ended by signal SIGKILL"):
        run(tmp_path, watched, dies_after=[0.5] * 9)
    assert watched.served == 3


@pytest.mark.slow
def test_a_time_of_service_earns_new_restarts(tmp_path: Path) -> None:
    watched = Watched(stop_at=3)
    assert len(run(tmp_path, watched, replace(QUICK, restarts=1, steady_seconds=0.2), dies_after=[0.9] * 9)) == 3


def test_a_failed_start_shows_the_end_of_the_log_and_is_not_repeated(tmp_path: Path) -> None:
    watched = Watched()
    with pytest.raises(UserError, match=r"did not start: it ended with exit code 3; .*server\.log"):
        run(tmp_path, watched, exit_code=3)
    assert watched.lines == ["  | loading: 100%", "  | ValueError: no such model"]


def test_a_server_that_never_answers_is_ended(tmp_path: Path) -> None:
    watched = Watched()
    with pytest.raises(UserError, match=r"did not answer at .* within 1 s"):
        run(tmp_path, watched, replace(QUICK, start_seconds=1), is_mute=True)


def test_a_stop_during_the_start_ends_the_server(tmp_path: Path) -> None:
    watched = Watched()
    threading.Timer(0.7, watched.stop.set).start()
    started = time.monotonic()
    run(tmp_path, watched, is_mute=True)
    assert time.monotonic() - started < 15
    assert watched.served == 0


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=r"listens at 127.0.0.1 port [0-9]+ already"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_the_end_of_a_log_is_plain_and_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 40_000 + b"\n" + b"\n".join(b"line %d" % number for number in range(30)) + b"\n\xff\n")
    assert log_end(log) == [*(f"line {number}" for number in range(11, 30)), "\N{REPLACEMENT CHARACTER}"]
