"""`animegamer audit`: the results of a sample, and a file of labels; its page is in `tests/flows/web`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.commands.audit import audit
from flows.commands.review import review
from pipeline.core.errors import UserError
from pipeline.core.records import Clip, Verdict
from pipeline.core.store import Dataset
from pipeline.reviews.audit import draw_sample
from pipeline.reviews.audit_sample import ANSWERS_FILE, save_sample
from pipeline.reviews.decisions import append_decisions
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.records import decision, decision_about


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_dataset(tmp_path / "data", captioner=MODEL)


def test_the_labels_of_two_reviewers_are_printed_and_written(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_sample(dataset.root, drawn := draw_sample(dataset, 6, "level", 4, blind=True))
    for number, span in enumerate(drawn.spans):
        about = {"film_sha256": span.film_sha256, "start_seconds": span.start_seconds, "end_seconds": span.end_seconds}
        voices = [("anna", "fox"), ("ben", ("dog", "fox")[number])] if number < 2 else [("anna", "fox")]
        answers = [decision("S", subject, reviewer=reviewer, **about) for reviewer, subject in voices]
        append_decisions(dataset.root / ANSWERS_FILE, answers)
    figures = tmp_path / "figures.json"
    audit(str(dataset.root), results=True, json=figures)
    printed = capsys.readouterr().out
    assert "6 clips labelled of 6 drawn by level from 15, blind to the machine's answers" in printed
    assert "anna (6), ben (2)" in printed
    written = json.loads(figures.read_text())
    within = {row["stratum"]: row["clips"] for row in written["strata"]}
    assert sum(within.values()) == 6
    assert all(f"{level}  S " in printed for level in within)
    (field,) = written["fields"]
    assert (field["field"], field["answered"]) == ("S", 6)
    assert 0 <= field["accuracy"]["lemma"]["low"] < field["accuracy"]["lemma"]["high"] <= 1
    (agreement,) = written["agreement"]
    assert (agreement["clips"], agreement["equal"]) == (2, 1)


def test_another_sample_needs_another_folder(dataset: Dataset) -> None:
    save_sample(dataset.root, draw_sample(dataset, 5, None, 0, blind=False))
    for option, found in (({"size": 6}, "size 5"), ({"blind": True}, "blind False"), ({"by": "level"}, "by None")):
        with pytest.raises(UserError, match=f"holds an audit with {found}; omit --{next(iter(option))} to continue"):
            audit(str(dataset.root), **option)


def test_labels_of_a_file_are_compared(dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels, figures = tmp_path / "labels.jsonl", tmp_path / "figures.json"
    folder = dataset.folders()[0]
    kept = {row.clip_id for row in folder.read("verdicts", Verdict) if row.keep}
    clips = [clip for clip in folder.read("clips", Clip) if clip.clip_id in kept]
    append_decisions(labels, [decision_about(clip, folder.film.sha256, "S", "fox") for clip in clips])
    with labels.open("a") as file:
        file.write('{"field": "\x1b[31m[bold]"}\n')
    audit(str(dataset.root), against=labels, json=figures)
    printed = capsys.readouterr().out
    assert "S      exact" in printed
    assert "not a decision: line 9" in printed
    assert "\x1b[31m" not in printed
    assert json.loads(figures.read_text())["clips"] == 8


def test_clips_of_an_address_are_not_looked_at_and_its_secret_is_not_shown() -> None:
    for command in (audit, review):
        with pytest.raises(UserError, match="Copy the dataset here") as refusal:
            command("s3://name:secret@bucket/data")
        assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"size": 16}, "keeps 15 clips, fewer than --size 16"),
        ({"results": True}, "no clip is labelled yet"),
        ({"results": True, "against": Path("labels.jsonl")}, "either --results or --against"),
        ({"results": True, "blind": True}, "--blind goes with an audit on the page"),
        ({"json": Path("figures.json")}, "--json goes with --results or --against"),
        ({"against": Path("none.jsonl")}, "no such file"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_a_sentence(
    dataset: Dataset, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UserError, match=expected):
        audit(str(dataset.root), **options)
    assert not (dataset.root / "audit").exists()
