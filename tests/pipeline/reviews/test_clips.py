"""Clips to review: the machine's facts of every clip with the standings of its fields."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import Dataset
from pipeline.reviews.clips import reviewable
from pipeline.reviews.decisions import append_decisions
from tests.support.datasets.made_dataset import CAST, MODEL, make_dataset
from tests.support.records import decision_about


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_dataset(tmp_path / "data", captioner=MODEL)


def test_every_clip_comes_with_the_words_of_the_machine(dataset: Dataset) -> None:
    rows = reviewable(dataset, dataset.root / "review.jsonl")
    clips = [clip for folder in dataset.folders() for clip in folder.read("clips", Clip)]
    captions = {row.clip_id: row for folder in dataset.folders() for row in folder.read("captions", Caption)}
    verdicts = {row.clip_id: row for folder in dataset.folders() for row in folder.read("verdicts", Verdict)}
    assert [row.clip_id for row in rows] == [clip.clip_id for clip in clips]
    for row, clip in zip(rows, clips, strict=True):
        assert (row.film_id, row.scene, row.start_seconds) == (clip.film_id, clip.scene, clip.start_seconds)
        verdict = verdicts[clip.clip_id]
        assert (row.keep, row.reasons, row.level) == (verdict.keep, verdict.reasons, verdict.level)
        assert row.caption == captions.get(clip.clip_id)
        assert row.path.is_file()
        assert row.scope_px
        assert row.standings == {}
    assert {(row.film_name, row.film_sha256) for row in rows} == {(e.name, e.sha256) for e in dataset.record.films}


def test_verdicts_are_those_of_the_rules_and_standings_those_of_reviewers(dataset: Dataset) -> None:
    path, [entry, _] = dataset.root / "review.jsonl", dataset.record.films
    folder = dataset.folder(entry.film_id)
    first, second = folder.read("clips", Clip)[:2]
    dark = next(row for row in folder.read("verdicts", Verdict) if not row.keep)
    published = [
        row.model_copy(update={"keep": False, "reasons": ("review",)}) if row.clip_id == first.clip_id else row
        for row in folder.read("verdicts", Verdict)
    ]
    folder.write("verdicts", [row.model_copy(update={"keep": True}) if row == dark else row for row in published])
    append_decisions(
        path,
        [
            decision_about(first, entry.sha256, "keep", False),
            decision_about(second, entry.sha256, "characters", [CAST[2]]),
            decision_about(second, entry.sha256, "characters", [], reviewer="bob"),
        ],
    )
    rows = {row.clip_id: row for row in reviewable(dataset, path)}
    assert (rows[first.clip_id].keep, rows[first.clip_id].reasons) == (True, ())
    assert rows[first.clip_id].standings["keep"].value is False
    assert (rows[dark.clip_id].keep, rows[dark.clip_id].reasons) == (False, dark.reasons)
    standing = rows[second.clip_id].standings["characters"]
    assert (standing.value, standing.conflict) == ((), True)
    assert standing.voices == {"anna": (CAST[2],), "bob": ()}


def test_a_dataset_that_is_not_published_can_be_reviewed(dataset: Dataset) -> None:
    for folder in dataset.folders():
        for table in ("verdicts", "captions", "motion"):
            folder.table_path(table).unlink()
    shutil.rmtree(dataset.folders()[1].path)  # cut by nobody yet
    rows = reviewable(dataset, dataset.root / "review.jsonl")
    assert len(rows) == 10
    assert all(row.caption is None and row.scope_px is None and row.level for row in rows)
    assert {row.keep for row in rows} == {True, False}
