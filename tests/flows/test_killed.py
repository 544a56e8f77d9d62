"""Repeatedly killed builds: the same bytes as an undisturbed build, and no paid request repeated.

SIGKILL goes to the whole process group at a moment drawn from the duration of an undisturbed build, and then the same
command runs again. ANIMEGAMER_KILLS sets the total number of kills: 10 in the gate, where only whole commands are
killed, 30 in `make test-nightly`, 200 in `make soak`. Kills at given writes are in `test_killed_at_each_write.py`.

* A tenth of them hit the whole command. A good part of its time is its start, and so are many of these kills.
* The others hit builds forked from a process that has imported the program, on a Prefect server that outlives them, so
  that nearly all kills hit work: half with captions by rules, half with captions by a server.

Kills form chains of up to five: a fresh build is killed, then the run that repairs it, then its successor. The first
moment of a chain is drawn from its own equal slice of the build's duration, the later ones from the expected remainder.
Then a last run is completed and the whole folder is compared. A run that ends before its moment is compared too and is
not counted. The seed (ANIMEGAMER_SEED) and the moments are printed with a failure; machines differ in speed, so equal
moments hit about the same work, not the same instruction.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

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
    prefect_server,
    users_of,
    wait_until_gone,
    write_config,
)
from tests.support.media.painted_clips import make_cast
from tests.support.servers.caption_server import Answer, CaptionServer, Request, expect_good, good_answer

KILLS = int(os.environ.get("ANIMEGAMER_KILLS", "10"))
SEED = int(os.environ.get("ANIMEGAMER_SEED", "1"))
OF_COMMANDS = max(1, KILLS // 10)
OF_FORKS = KILLS - OF_COMMANDS
IN_A_CHAIN = 5

pytestmark = pytest.mark.timeout(300 + 60 * KILLS)


@dataclass
class Chain:
    """Dataset of a chain of kills, with the work that must not be repeated."""

    root: Path
    moments: list[str] = field(default_factory=list)
    made: dict[Path, int] = field(default_factory=dict)
    """Records of finished stages, with their modification times."""

    def note(self) -> None:
        """Record the finished stages after a kill."""
        for path in self.root.glob("films/*/*.json"):
            if path.stem in STAGE_NAMES:
                self.made.setdefault(path, path.stat().st_mtime_ns)

    def check(self, reference: dict[str, bytes]) -> None:
        """Check at the end that the folder equals the reference and that finished stages were not redone."""
        where = f"seed {SEED}, {', '.join(self.moments)}"
        assert leftovers(self.root) == [], where
        assert differences(contents(self.root), reference) == [], where
        again = [str(path.relative_to(self.root)) for path, at in self.made.items() if path.stat().st_mtime_ns != at]
        assert again == [], f"made twice: {where}"


def kill_often(
    builds: Builds,
    command: Callable[[Path], tuple[object, ...]],
    folder: Path,
    wanted: int,
    after_kill: Callable[[Build, Path], None],
) -> None:
    """Kill builds `wanted` times and compare the results; see the module docstring.

    Args:
        builds: starter of builds.
        command: the arguments of a build, given its dataset folder.
        folder: working folder.
        wanted: number of kills.
        after_kill: further check after each kill, given the dataset folder.
    """
    started = time.monotonic()
    first = builds.start(*command(folder / "reference" / "data"))
    assert first.wait() == 0, first.log.read_text()
    duration = time.monotonic() - started
    reference = contents(folder / "reference" / "data")
    assert verify(Dataset(folder / "reference" / "data")) == []
    print(f"\nan undisturbed build takes {duration:.1f} s; {wanted} kills, seed {SEED}")

    dice = random.Random(SEED)
    chains = -(-wanted // IN_A_CHAIN)
    slices = dice.sample(range(chains), chains)  # shuffled, so that a growing load of the machine favours none
    kills = number = 0
    while kills < wanted:
        chain = Chain(folder / f"chain-{number}" / "data")
        slice_ = slices[number % chains]
        left = duration * (1 - (slice_ + 0.5) / chains)
        moment = duration * (slice_ + dice.random()) / chains
        for _ in range(min(IN_A_CHAIN, wanted - kills)):
            build = builds.start(*command(chain.root))
            code = build.wait(moment)
            if code is not None:
                assert code == 0, f"seed {SEED}, {chain.moments}: {build.log.read_text()}"
                break
            build.kill()
            wait_until_gone("of the build's group", partial(members_of, build.pid))
            kills += 1
            chain.moments.append(f"{moment:.2f} s")
            print(f"kill {kills} of {wanted} at {chain.moments[-1]} of its run, {in_flight(chain.root)}", flush=True)
            chain.note()
            after_kill(build, chain.root)
            moment = dice.uniform(0, max(left, duration / 4))
        last = builds.start(*command(chain.root))
        assert last.wait() == 0, f"seed {SEED}, {chain.moments}: {last.log.read_text()}"
        chain.check(reference)
        number += 1
    print(f"survived {kills} kills in {number} chains, {time.monotonic() - started:.0f} s")


def in_flight(root: Path) -> str:
    """Name the step at which a build was killed, as far as its folder shows."""
    if not (root / "dataset.json").exists():
        return "before the plan was made"
    half = f", {len(leftovers(root))} half-written files" if leftovers(root) else ""
    for folder in Dataset(root).folders():
        for stage in STAGE_NAMES:
            if not (folder.path / f"{stage}.json").exists():
                return f"before {folder.film_id} {stage} was done{half}"
    published = root / "published.json"
    done = json.loads(published.read_text()) if published.exists() else {}
    return ("before all was published" if "report" not in done else "after all was published") + half


def no_further_check(build: Build, root: Path) -> None:
    """Check nothing further after a kill."""


@pytest.mark.slow
def test_the_whole_command_survives_kills(tmp_path: Path) -> None:
    films, config = numbered_films(tmp_path / "films"), write_config(tmp_path / "config.toml")
    home = tmp_path / "prefect"

    def no_process_survives(build: Build, root: Path) -> None:
        wait_until_gone("of the build, in whatever group", partial(users_of, home))

    def command(root: Path) -> tuple[object, ...]:
        return (*films, "--out", root, "--config", config)

    kill_often(Commands(home), command, tmp_path, OF_COMMANDS, no_process_survives)


@pytest.mark.nightly
@pytest.mark.usefixtures("prefect")
def test_builds_survive_kills_at_any_moment(tmp_path: Path) -> None:
    films, config = numbered_films(tmp_path / "films"), write_config(tmp_path / "config.toml")

    def command(root: Path) -> tuple[object, ...]:
        return (*films, "--out", root, "--config", config)

    with forked_builds(tmp_path / "forks", prefect_server()) as builds:
        kill_often(builds, command, tmp_path, OF_FORKS // 2, no_further_check)


@pytest.mark.nightly
@pytest.mark.usefixtures("prefect")
def test_no_reply_of_a_caption_server_is_paid_for_twice(tmp_path: Path) -> None:
    """The server is slow, so that kills hit requests in flight; its request log is compared."""
    films = numbered_films(tmp_path / "films")
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")
    kept: dict[Path, set[tuple[str, int]]] = {}

    def slowly(request: Request) -> Answer:
        return Answer(good_answer(request).text, delay_seconds=0.15)

    with CaptionServer(slowly) as server, forked_builds(tmp_path / "forks", prefect_server()) as builds:
        captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", "concurrency": 2}
        config = write_config(tmp_path / "config.toml", captions=captions)

        def no_known_question_was_repeated(root: Path) -> None:
            asked = {(request.kind, request.number) for request in server.requests}
            assert not asked & kept.get(root, set()), f"asked again: {asked & kept[root]}"
            server.requests.clear()

        def look_at_replies(build: Build, root: Path) -> None:
            no_known_question_was_repeated(root)
            kept[root] = kept_replies(root)

        def command(root: Path) -> tuple[object, ...]:
            if root not in kept:  # the first run of a chain: the last one of the chain before has ended
                for before in list(kept)[-1:]:
                    no_known_question_was_repeated(before)
                server.requests.clear()
                kept[root] = set()
            return (*films, "--out", root, "--config", config, "--cast", tmp_path / "cast")

        kill_often(builds, command, tmp_path, OF_FORKS - OF_FORKS // 2, look_at_replies)
        no_known_question_was_repeated(list(kept)[-1])
    folders = Dataset(tmp_path / "reference" / "data").folders()
    for number, caption in enumerate(row for folder in folders for row in folder.read("captions", Caption)):
        expect_good(caption, number)
    assert number == 11


def kept_replies(root: Path) -> set[tuple[str, int]]:
    """Questions with a reply on disk, each with the number of its clip."""
    kept = set()
    for folder in Dataset(root).folders():
        clips = sorted(path.stem for path in (folder.path / "clips").glob("[!.]*.mp4"))
        first = 4 * int(folder.film_id.split("-")[1])
        for path in (folder.path / "replies").glob("[!.]*.json"):
            for exchange in Replies.model_validate_json(path.read_bytes()).exchanges.values():
                kept.add((exchange.request, first + clips.index(path.stem)))
    return kept
