"""`animegamer audit`: the results of a sample, and a file of labels; its page is in `tests/flows/web`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flows.commands.audit import audit
from flows.commands.review import review
from pipeline.core.errors import UserError
from pipeline.core.store import Dataset
from tests.support.audits import answer, start_audit
from tests.support.datasets.made_dataset import MODEL, make_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_dataset(tmp_path / "data", captioner=MODEL)


def test_the_labels_of_two_reviewers_are_printed_and_written(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_audit(dataset, by="level", blind=True)
    answer(dataset, "S", *["fox"] * 6)
    answer(dataset, "S", "dog", "fox", reviewer="ben")
    audit(str(dataset.root), json=tmp_path / "figures.json")
    printed = capsys.readouterr().out
    assert "6 clips labelled of 15 drawn by level from 15, blind to the machine's answers" in printed
    assert "anna (6), ben (2)" in printed
    written = json.loads((tmp_path / "figures.json").read_text())
    (field,), (agreement,) = written["fields"], written["agreement"]
    assert (field["field"], field["answered"]) == ("S", 6)
    assert 0 <= field["shares"]["lemma"]["low"] < field["shares"]["lemma"]["high"] <= 1
    assert (agreement["clips"], agreement["equal"]) == (2, 1)


def test_another_sample_needs_another_folder(dataset: Dataset, tmp_path: Path) -> None:
    start_audit(dataset, size=5)
    for option, found in (({"size": 6}, "size 5"), ({"blind": True}, "blind False"), ({"by": "level"}, "by None")):
        with pytest.raises(UserError, match=f"holds an audit with {found}; omit --{next(iter(option))} to continue"):
            audit(str(dataset.root), **option)
    other = make_dataset(tmp_path / "other", captioner=MODEL, names=("another.mkv",), films=1)
    shutil.copytree(dataset.root / "audit", other.root / "audit")
    with pytest.raises(UserError, match="audit belongs to another dataset"):
        audit(str(other.root))


def test_labels_of_a_file_are_compared(dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = tmp_path / "labels.jsonl"
    answer(dataset, "S", *["fox"] * 8, path=labels)
    with labels.open("a") as file:
        file.write('{"field": "\x1b[31m[bold]"}\n')
    audit(str(dataset.root), against=labels)
    printed = capsys.readouterr().out
    assert "S      exact" in printed
    assert "8 clips labelled; reviewers: anna (8)" in printed
    assert "cannot be read as a decision: line 9" in printed
    assert "\x1b[31m" not in printed


def test_clips_of_an_address_are_not_looked_at_and_its_secret_is_not_shown() -> None:
    for command in (audit, review):
        with pytest.raises(UserError, match="Copy the dataset here") as refusal:
            command("s3://name:secret@bucket/data")
        assert "secret" not in str(refusal.value)


def test_results_need_labels_and_no_options_of_the_page(dataset: Dataset) -> None:
    with pytest.raises(UserError, match="no clip of an audit is labelled yet"):
        audit(str(dataset.root), results=True)
    with pytest.raises(UserError, match="--blind and --reviewer go with the page"):
        audit(str(dataset.root), results=True, blind=True)
    with pytest.raises(UserError, match="--results and --against are two ways"):
        audit(str(dataset.root), results=True, against=dataset.root / "dataset.json")
