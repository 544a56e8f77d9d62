"""Builds of a series by a Prefect worker and on Ray: the bytes of one process, and no question about an opening."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.core.store import Dataset
from tests.support.builds.real_builds import contents, differences, write_config
from tests.support.media.painted_seasons import STORY, painted_season
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_what
from tests.support.servers.prefect_server import PrefectServer

EPISODES = 3
BUILD_SECONDS = 900
"""Longest build: a busy machine needs minutes until Ray's workers have started."""


def build(
    films: list[Path], server: PrefectServer, folder: Path, runner: str, ray_address: str = "auto", **changes: str
) -> dict[str, bytes]:
    """Build the films; check what the captioner was asked, and when; return tables and shards."""
    compared_before: list[int] = []

    def answer(request: Request) -> Answer:
        compared_before.append(sum(each.film.compared is not None for each in Dataset(folder).folders()))
        return Answer(good_what(0, request.found))

    with CaptionServer(answer) as captions:
        asks = {"captioner": "server", "endpoint": captions.address, "model": "test-model"}
        run = {"threads": 1, "films_at_once": EPISODES, "runner": runner, "ray_address": ray_address}
        path = folder.with_suffix(".toml")
        config = write_config(path, captions=asks, selection={"logo": "flag"}, run=run)
        options = ("--out", str(folder), "--config", str(config))
        server.run("animegamer", "build", *map(str, films), *options, changes=changes, seconds=BUILD_SECONDS)
    assert len(captions.requests) == EPISODES * STORY, "one question about each clip of the stories"
    assert compared_before[0] == EPISODES
    made = contents(folder)
    return {path: made[path] for path in made if path.startswith("shards/") or path.endswith(".parquet")}


@pytest.mark.nightly
@pytest.mark.timeout(2 * BUILD_SECONDS)
def test_a_worker_builds_a_season_as_one_process_does(tmp_path: Path) -> None:
    films = painted_season(tmp_path / "films", EPISODES)
    with PrefectServer(tmp_path / "prefect") as server:
        alone = build(films, server, tmp_path / "alone", "threads", PREFECT_API_URL="")
        server.run("animegamer", "deploy")
        with server.worker("one"):
            built = build(films, server, tmp_path / "built", "workers")
    assert differences(built, alone) == []


@pytest.mark.nightly
@pytest.mark.timeout(2 * BUILD_SECONDS)
def test_two_nodes_of_ray_build_a_season_as_one_process_does(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    os.environ["RAY_AUTH_MODE"] = "disabled"
    films = painted_season(tmp_path / "films", EPISODES)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    try:
        with PrefectServer(tmp_path / "prefect") as server:
            alone = build(films, server, tmp_path / "alone", "threads", PREFECT_API_URL="")
            built = build(films, server, tmp_path / "built", "ray", cluster.address, RAY_AUTH_MODE="disabled")
    finally:
        cluster.shutdown()
    assert differences(built, alone) == []
