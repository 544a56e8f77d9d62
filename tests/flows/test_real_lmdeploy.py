"""Captions by lmdeploy's own API server, started by `animegamer caption-server`: all of it real but the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from pipeline.captions.caption_server import SERVED
from pipeline.captions.reply_cache import load_replies
from pipeline.core.records import Caption
from pipeline.core.store import Dataset
from prompts.tags import TagError, what_pattern, who_pattern
from prompts.what_replies import parse_what
from prompts.who_replies import parse_who
from tests.support.builds.real_builds import numbered_film, write_config
from tests.support.builds.rebuilt_films import animegamer
from tests.support.media.painted_clips import make_cast
from tests.support.servers.prefect_server import free_port, until
from tests.support.servers.stub_lmdeploy import IMAGE, requests_to, stub_environment, write_repository

ROOT = Path(__file__).parents[2]
LMDEPLOY = ROOT / ".venv-lmdeploy"
TILE = 256
MODEL, NAMES = SERVED["24gb"], ("Ponyo", "Sosuke", "Lisa")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not LMDEPLOY.exists(), reason="no environment with lmdeploy: make lmdeploy-env"),
]


class RealServer(NamedTuple):
    """Server that `animegamer caption-server` has started, and the environment of its stub."""

    address: str
    environment: Path
    output: Path


@pytest.fixture(scope="module")
def lmdeploy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    root, port = tmp_path_factory.mktemp("lmdeploy"), free_port()
    environment, output = stub_environment(root, LMDEPLOY), root / "output"
    write_repository(root / MODEL.repository)
    words = ["--card", "24gb", "--port", str(port), "--environment", str(environment), "--log", str(root / "log")]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "caption-server", *words],
            cwd=root, stderr=file, env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HOME": str(root / "hub")},
        )  # fmt: skip
    try:
        until("lmdeploy answers", lambda: "Ctrl-C stops" in output.read_text() or process.poll() is not None)
        assert process.poll() is None, output.read_text()
        yield RealServer(f"http://127.0.0.1:{port}/v1", environment, output)
    finally:
        process.terminate()
        assert process.wait(60) == 0, output.read_text()


def test_a_build_gets_its_captions_from_lmdeploys_server(tmp_path: Path, lmdeploy: RealServer) -> None:
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")
    settings = {"endpoint": lmdeploy.address, "model": MODEL.repository, "revision": MODEL.revision}
    config = write_config(tmp_path / "config.toml", captions={"captioner": "server", **settings})
    out, film = tmp_path / "data", numbered_film(tmp_path / "film.mp4", 0)
    built = animegamer("build", film, "--out", out, "--cast", tmp_path / "cast", "--config", config)
    assert built.returncode == 0, built.stderr

    captions = [row for folder in Dataset(out).folders() for row in folder.read("captions", Caption)]
    assert [row.fault for row in captions] == [None] * 4
    assert MODEL.revision in (out / "README.md").read_text()
    requests = requests_to(lmdeploy.environment)
    who = [request for request in requests if request["pictures"][0] > TILE]
    what = [request for request in requests if request not in who]
    assert (len(who), len(what)) == (4, 4)
    for request in who:
        assert request["pictures"] == [3 * TILE, 5 * TILE], "a sheet of two panels, four frames, each with a thumbnail"
        assert f"Image-1: <img>{IMAGE}</img>\nImage-2: <img>{IMAGE}</img>\n" in request["prompt"]
        assert request["prompt"].index("1 = Ponyo") > request["prompt"].index("Image-2")
    for request in what:
        assert request["pictures"] == [TILE] * 8
        assert f"Frame-8: <img>{IMAGE}</img>\n" in request["prompt"]
    stored = [load_replies(folder, row.clip_id) for folder in Dataset(out).folders() for row in captions]
    tokens = [exchange.prompt_tokens for replies in stored for exchange in replies.exchanges.values()]
    assert min(tokens) > 8 * TILE


def ask(server: RealServer, pattern: str) -> httpx.Response:
    form = {"type": "regex_schema", "regex_schema": pattern}
    question = {"model": MODEL.repository, "messages": [{"role": "user", "content": "?"}], "max_tokens": 512}
    return httpx.post(f"{server.address}/chat/completions", json={**question, "response_format": form}, timeout=60)


@pytest.mark.parametrize("request_kind", ["who", "what"])
def test_replies_that_our_patterns_allow_are_usable(lmdeploy: RealServer, request_kind: str) -> None:
    """The engine draws at random from what the pattern allows: the form is certain, its content may contradict."""
    pattern = who_pattern(len(NAMES)) if request_kind == "who" else what_pattern(NAMES)
    faults = []
    for _ in range(10):
        choice = ask(lmdeploy, pattern).json()["choices"][0]
        assert choice["finish_reason"] == "stop"
        try:
            (parse_who if request_kind == "who" else parse_what)(choice["message"]["content"], NAMES)
        except TagError as fault:
            faults.append(f"{choice['message']['content']}: {fault}")
    assert len(faults) <= 5, faults


def test_a_pattern_that_lmdeploy_cannot_compile_is_refused(lmdeploy: RealServer) -> None:
    assert ask(lmdeploy, "(").status_code == 400
