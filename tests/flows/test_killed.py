"""Builds killed by SIGKILL at random moments: the same bytes as an undisturbed build, and no reply paid for twice.

A tenth of the kills hit whole commands, which spend much of their time on their start. The others, nightly, hit builds
forked from a process that has imported the program. The caption server is slow, so that kills hit requests in flight.
Kills form chains of up to five: a fresh build is killed, then the run that repairs it, then its successor; a last run
completes the dataset. ANIMEGAMER_KILLS sets their number: 10 in the gate, 200 in `make soak`. The seed
(ANIMEGAMER_SEED) and the moments are printed with a failure. Kills at each write: `test_killed_at_each_write.py`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psutil
import pytest

from pipeline.captions.reply_cache import Replies
from pipeline.core.records import Caption
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.publish.verify import verify
from tests.support.builds.real_builds import (
    Build,
    Builds,
    Commands,
    contents,
    differences,
    forked_builds,
    leftovers,
    members_of,
    numbered_films,
    users_of,
    wait_until_gone,
    write_config,
)
from tests.support.media.painted_clips import make_cast
from tests.support.servers.caption_server import Answer, CaptionServer, expect_good, good_answer

KILLS = int(os.environ.get("ANIMEGAMER_KILLS", "10"))
SEED = int(os.environ.get("ANIMEGAMER_SEED", "1"))
OF_COMMANDS = max(1, KILLS // 10)
IN_A_CHAIN = 5


@pytest.fixture(
    params=[
        pytest.param(OF_COMMANDS, marks=pytest.mark.slow, id="commands"),
        pytest.param(KILLS - OF_COMMANDS, marks=pytest.mark.nightly, id="forks"),
    ]
)
def killing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Builds, int]]:
    """Starter of builds, and the number of kills."""
    if request.param == OF_COMMANDS:
        yield Commands(tmp_path / "prefect"), request.param
        return
    with forked_builds(tmp_path / "forks") as forks:
        yield forks, request.param


def survivors(builds: Builds, build: Build) -> list[psutil.Process]:
    """Living processes of a build: of a whole command in whatever group."""
    return users_of(builds.home) if isinstance(builds, Commands) else members_of(build.pid)


def finish(build: Build, where: str) -> None:
    assert build.wait() == 0, f"{where}: {build.log.read_text()}"


def kept_replies(root: Path) -> set[tuple[str, int]]:
    """Questions with a reply on disk, each with the number of its clip."""
    kept = set()
    for folder in Dataset(root).folders() if (root / "dataset.json").exists() else []:
        clips = sorted(path.stem for path in (folder.path / "clips").glob("[!.]*.mp4"))
        first = 4 * int(folder.film_id.split("-")[1])
        for path in (folder.path / "replies").glob("[!.]*.json"):
            for exchange in Replies.model_validate_json(path.read_bytes()).exchanges.values():
                kept.add((exchange.request, first + clips.index(path.stem)))
    return kept


@pytest.mark.timeout(300 + 60 * KILLS)
def test_killed_builds_end_with_the_same_bytes_and_repeat_no_paid_question(
    killing: tuple[Builds, int], tmp_path: Path
) -> None:
    (builds, wanted), films, dice = killing, numbered_films(tmp_path / "films"), random.Random(SEED)
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")
    with CaptionServer(lambda request: Answer(good_answer(request).text, delay_seconds=0.15)) as server:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", "concurrency": 2}
        config = write_config(tmp_path / "config.toml", captions=captions)

        def start(root: Path) -> Build:
            server.requests.clear()
            return builds.start(*films, "--out", root, "--config", config, "--cast", tmp_path / "cast")

        def asked() -> set[tuple[str, int]]:
            return {(request.kind, request.number) for request in server.requests}

        whole, began = Dataset(tmp_path / "reference" / "data"), time.monotonic()
        finish(start(whole.root), "undisturbed")
        duration, reference = time.monotonic() - began, contents(whole.root)
        assert verify(whole) == []
        for number, caption in enumerate(row for folder in whole.folders() for row in folder.read("captions", Caption)):
            expect_good(caption, number)
        assert number == 11

        kills, chains = 0, count()
        while kills < wanted:
            root, where, left = tmp_path / f"chain-{next(chains)}" / "data", f"seed {SEED}", duration
            made: dict[Path, int] = {}  # records of finished stages, with their modification times
            kept = set[tuple[str, int]]()
            for _ in range(min(IN_A_CHAIN, wanted - kills)):
                moment = dice.uniform(0, left)
                build = start(root)
                if build.wait(moment) is not None:
                    break
                build.kill()
                wait_until_gone("of the build", lambda build=build: survivors(builds, build))
                kills, left, where = kills + 1, max(left - moment, duration / 4), f"{where}, {moment:.2f} s"
                print(f"kill {kills} of {wanted}: {where}", flush=True)
                assert not asked() & kept, f"asked again: {where}"
                kept = kept_replies(root)
                stages = (path for path in root.glob("films/*/*.json") if path.stem in STAGE_NAMES)
                made = {path: path.stat().st_mtime_ns for path in stages} | made
            finish(start(root), where)
            assert not asked() & kept, f"asked again: {where}"
            assert leftovers(root) == [], where
            assert differences(contents(root), reference) == [], where
            assert {path: path.stat().st_mtime_ns for path in made} == made, f"made twice: {where}"
