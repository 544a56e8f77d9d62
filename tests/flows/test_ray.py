"""Stages on a real Ray cluster of two nodes: the same bytes as without, and both nodes at work."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from flows.engine import connected
from pipeline.core.config import RunSettings, checked
from pipeline.core.errors import UserError
from pipeline.plan.request import BuildRequest
from tests.support.datasets.built_dataset import build_here
from tests.support.media.films import make_film
from tests.support.servers.prefect_server import PrefectServer

SMALL = "[looks]\ntext = false\n[clips]\nwidth = 180\nheight = 120\n[run]\nfilms_at_once = 3\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with one CPU each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_AUTH_MODE"] = "disabled"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def shards_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in (root / "shards").rglob("*") if path.is_file()}


def build(films: list[Path], out: Path, *options: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.cli", "build", *map(str, films), "--out", str(out), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.nightly
def test_both_nodes_of_a_cluster_build_the_bytes_of_one_process(tmp_path: Path, cluster: Any) -> None:
    # long enough for the second node to start its process while the first one works
    films = [
        make_film(tmp_path / f"{number}.mp4", frames=1800 + number, scenes=[0, 70 + number]) for number in range(3)
    ]
    build_here(BuildRequest(films=tuple(films), out=tmp_path / "plain", config=checked(tomllib.loads(SMALL), "test")))
    config = tmp_path / "ray.toml"
    config.write_text(f'{SMALL}ray_address = "{cluster.address}"\n')
    with PrefectServer(tmp_path / "server") as server:
        environment = {**server.environment, "RAY_AUTH_MODE": "disabled"}
        done = build(films, tmp_path / "ray", "--config", str(config), "--runner", "ray", environment=environment)
        assert done.returncode == 0, done.stderr
        runs = server.post("task_runs/filter", limit=200)
    assert shards_of(tmp_path / "ray") == shards_of(tmp_path / "plain") != {}
    assert (tmp_path / "ray" / "dataset.json").read_bytes() == (tmp_path / "plain" / "dataset.json").read_bytes()
    spans = sorted((run["start_time"], run["end_time"]) for run in runs if run["name"].endswith(("-crop", "-cut")))
    assert len(spans) == 2 * len(films)
    # each node has one CPU, which these stages take whole: two at a time are on two nodes
    assert [pair for pair in combinations(spans, 2) if pair[1][0] < pair[0][1]]
    again = build(films, tmp_path / "ray", "--config", str(config), "--runner", "ray", environment=environment)
    assert "nothing to do" in again.stderr


@pytest.mark.slow
def test_without_a_cluster_or_a_server_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    settings = RunSettings(runner="ray", ray_address="127.0.0.1:1")
    with (
        temporary_settings(restore_defaults={PREFECT_API_URL}),
        pytest.raises(UserError, match="prefect server start"),
        connected(settings),
    ):
        pass
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
        pytest.raises(UserError, match="ray start --head"),
        connected(settings),
    ):
        pass
