"""Exports killed at each of their writes: what a user changed is kept, and what an export wrote is not taken for it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.config import ShardSettings
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.publish.export.plan import ExportRequest, make_plan
from pipeline.publish.export.run import write_export
from pipeline.publish.export.trainers import TRAINERS
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset

MINE = "My own card, hours of work\n"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    dataset = make_dataset(tmp_path / "data", captioner=MODEL)
    write_shards(dataset, ShardSettings())
    return dataset


def export(dataset: Dataset, out: Path, title: str) -> dict[str, str]:
    """Export for the hub, with a card of this title; return what the user changed."""
    plan = make_plan(dataset, ExportRequest(TRAINERS["huggingface"], out), STAGE_NAMES)
    card = plan.config.card.model_copy(update={"title": title})
    return dict(write_export(replace(plan, config=plan.config.model_copy(update={"card": card}))).edits)


def killed(dataset: Dataset, out: Path, title: str, at: int) -> bool:
    """Export in a process that is killed at this rename, counted from 1; return False if it has fewer."""
    child = os.fork()
    if child == 0:
        seen = 0

        def kill(event: str, _: tuple[Any, ...]) -> None:
            nonlocal seen
            if event == "os.rename":
                seen += 1
                if seen == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        export(dataset, out, title)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def texts(out: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in out.iterdir() if path.is_file()}


@pytest.mark.slow
def test_exports_killed_at_any_write_keep_a_card_of_the_user_and_set_none_of_theirs_aside(
    dataset: Dataset, tmp_path: Path
) -> None:
    start = tmp_path / "start"
    export(dataset, start, "one")
    names = set(texts(start))
    (start / "README.md").write_text(MINE, encoding="utf-8")
    for number in count(1):
        out = shutil.copytree(start, tmp_path / str(number))
        if not killed(dataset, out, "two", number):
            break
        killed(dataset, out, "three", number)
        assert set(export(dataset, out, "four")) <= {"README.md"}, f"after kills at write {number}"
        found = texts(out)
        assert found.keys() == names | {"README.md.old"}, f"after kills at write {number}"
        assert found["README.md.old"] == MINE
        assert 'pretty_name: "four"' in found["README.md"]
        assert "one" not in found["croissant.json"]
    assert number > 5, "the note, the card and its old version were never written"


def test_what_was_set_aside_is_not_replaced_by_what_is_set_aside_later(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number, title in enumerate(("one", "two", "three", "four")):
        export(dataset, out, title)
        (out / "README.md").write_text(f"my version {number}\n", encoding="utf-8")
    assert export(dataset, out, "five") == {"README.md": "README.md.old4"}
    versions = {name: text for name, text in texts(out).items() if ".old" in name}
    assert versions == {f"README.md.old{number + 1 if number else ''}": f"my version {number}\n" for number in range(4)}


@pytest.mark.slow
def test_a_card_changed_after_a_kill_is_set_aside_and_the_new_one_written(dataset: Dataset, tmp_path: Path) -> None:
    start = tmp_path / "out"
    export(dataset, start, "one")
    last: dict[bool, Path] = {}
    for number in count(1):
        copy = shutil.copytree(start, tmp_path / str(number))
        if not killed(dataset, copy, "two", number):
            break
        last['pretty_name: "two"' in texts(copy)["README.md"]] = copy
    assert last.keys() == {False, True}, "killed before and after the card was written"
    for out in last.values():
        (out / "README.md").write_text(MINE, encoding="utf-8")
        assert export(dataset, out, "two") == {"README.md": "README.md.old"}
        assert texts(out)["README.md.old"] == MINE
        assert 'pretty_name: "two"' in texts(out)["README.md"]
