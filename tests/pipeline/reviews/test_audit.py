"""Audits of a small dataset: samples, results, and comparisons with files of labels."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from pipeline.core.errors import UserError
from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import Dataset
from pipeline.publish.vocabulary import load_vocabulary
from pipeline.reviews.applied import load_reviews, save_published
from pipeline.reviews.audit import Results, audit_results, compare, draw_sample, sampled_clips
from pipeline.reviews.audit_sample import ANSWERS_FILE, SAMPLE_FILE, Span, draw, read_sample, save_sample
from pipeline.reviews.clips import reviewable
from tests.support.audits import answer, start_audit
from tests.support.datasets.made_dataset import CAST, MODEL, make_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_dataset(tmp_path / "data", captioner=MODEL)


def rows_of(results: Results | None) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Share, interval, answered, labelled and unsaid clips by field and reading."""
    assert results
    return {row[:2]: row[2:] for field in results.fields for row in field.rows}


def test_answers_become_accuracy_and_agreement(dataset: Dataset) -> None:
    assert draw_sample(dataset, 10, "character").strata.keys() == {"nobody", CAST[0]}
    sample, clips = start_audit(dataset, by="level"), reviewable(dataset, None)
    assert audit_results(dataset, {}) is None
    starts = {clip.clip_id: (clip.film_sha256, clip.start_seconds) for clip in clips}
    order = [(span.film_sha256, span.start_seconds) for span in sample.spans]
    assert [starts[clip_id] for clip_id in sampled_clips(dataset, sample, clips)] == order
    answer(dataset, "S", *[...] * 12, "dog", "dog", None)
    answer(dataset, "S", *[...] * 9, "dog", reviewer="ben", minute=1)
    answer(dataset, "keep", *[True] * 14, False)
    found = audit_results(dataset, {})
    rows = rows_of(found)
    assert found
    assert found.sentence == "15 clips labelled of 15 drawn by level from 15; reviewers: anna (15), ben (10)"
    assert rows["keep", "exact"] == ("93.3%", "93.3 to 93.3%", "15", "15", "0"), "no doubt: all clips were labelled"
    share, _, *counts = rows["S", "exact"]
    assert (share, counts) == (f"{11 / 14:.1%}", ["14", "14", "1"]), "the newest answer stands until it is settled"
    (agreement,) = found.agreement
    assert (agreement.field, agreement.clips, agreement.equal) == ("S", 10, 9)


def test_the_same_answers_score_a_dataset_that_is_built_again(dataset: Dataset) -> None:
    start_audit(dataset)
    answer(dataset, "EV", *["sea"] * 15)
    assert rows_of(audit_results(dataset, {}))["EV", "lemma"][0] == "0.0%"
    for folder in dataset.folders():
        folder.write("captions", [row.model_copy(update={"EV": "seas"}) for row in folder.read("captions", Caption)])
        moved = [(row, {"start_seconds": row.start_seconds + 0.05}) for row in folder.read("clips", Clip)]
        folder.write("clips", [row.model_copy(update=changes) for row, changes in moved])
    folder = dataset.folders()[0]
    first, *others = folder.read("verdicts", Verdict)
    folder.write("verdicts", [first.model_copy(update={"keep": False}), *others])
    found = audit_results(dataset, {})
    assert found
    assert "14 clips labelled of 15 drawn from 15 (1 no longer kept)" in found.sentence
    assert rows_of(found)["EV", "lemma"][0] == "100.0%"


def test_an_audit_scores_reviews_and_a_comparison_the_machine(dataset: Dataset, tmp_path: Path) -> None:
    reviews = tmp_path / "review.jsonl"
    answer(dataset, "S", *["dog"] * 15, path=reviews)
    found = load_reviews(dataset, reviews)
    for folder in dataset.folders():
        save_published(folder, "reviewed", found.rows(folder, dataset.record.cast))
    start_audit(dataset)
    answer(dataset, "S", *["dog"] * 15)
    assert rows_of(audit_results(dataset, {}))["S", "exact"][:2] == ("100.0%", "100.0 to 100.0%")
    assert rows_of(compare(dataset, reviews, {}))["S", "exact"][:2] == ("0.0%", "0.0 to 20.4%"), "not the whole truth"


def test_a_file_of_labels_scores_words_and_clips_without_an_answer(dataset: Dataset, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    answer(dataset, "characters", *[...] * 15, path=labels)
    answer(dataset, "actor", *[CAST[0]] * 4, path=labels)
    (dataset.root / "vocabulary.toml").write_text('[MD]\n"fly" = ["rides a broom over the café"]\n', encoding="utf-8")
    answer(dataset, "MD", *["flies"] * 15, path=labels)
    folder = dataset.folders()[0]
    first, *others = folder.read("captions", Caption)
    folder.write("captions", [first.model_copy(update={"fault": "odd"}), *others])
    rows = rows_of(compare(dataset, labels, load_vocabulary(dataset.root).published))
    assert rows["characters", "exact"][2:] == ("14", "15", "0")
    assert rows["actor", "-"] == ("-", "no answers", "0", "4", "0")
    assert [row[0] for (field, _), row in rows.items() if field == "MD"] == ["0.0%", "0.0%", "100.0%"]


def test_labels_and_an_audit_of_other_films_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    start_audit(dataset)
    answer(dataset, "S", "dog")
    other = make_dataset(tmp_path / "other", captioner=MODEL, names=("another.mkv",), films=1)
    shutil.copytree(dataset.root / "audit", other.root / "audit")
    assert audit_results(other, {}) is None
    with pytest.raises(UserError, match="no label of this dataset's clips; 1 decision about a film that is not in"):
        compare(other, other.root / ANSWERS_FILE, {})
    for folder in dataset.folders():
        folder.table_path("captions").unlink()
    with pytest.raises(UserError, match="no kept clip has a caption yet"):
        draw_sample(dataset)


def spans(**strata: int) -> list[Span]:
    """Spans in time order, stratum by stratum."""
    names = [name for name, count in strata.items() for _ in range(count)]
    return [
        Span(film_sha256="ab" * 32, start_seconds=2.0 * place, end_seconds=2.0 * place + 2, stratum=name)
        for place, name in enumerate(names)
    ]


def test_a_sample_keeps_the_shares_of_strata_and_is_read_as_drawn(tmp_path: Path) -> None:
    drawn = draw(spans(common=900, some=80, rare=18, two=2), 100, "level", seed=3, blind=False)
    counts = Counter(span.stratum for span in drawn.spans)
    assert (counts["rare"], counts["two"], counts.total()) == (5, 2, 100)
    assert counts["some"] in (7, 8)
    assert drawn.strata == {"common": 900, "some": 80, "rare": 18, "two": 2}
    again = [draw(spans(all=500), 100, None, seed, blind=True).spans for seed in (1, 1, 2)]
    assert again[0] == again[1] != again[2]
    early = sum(span.start_seconds < 500 for span in again[0][:50])
    assert 12 <= early <= 38, "the first half of the audit comes from both halves of the film"
    with pytest.raises(UserError, match="keeps 2 clips, fewer than --size 3"):
        draw(spans(a=2), 3, None, seed=0, blind=False)
    with pytest.raises(UserError, match=r"--by character makes 3 strata"):
        draw(spans(a=1, b=1, c=1), 2, "character", seed=0, blind=False)
    assert read_sample(tmp_path) is None
    save_sample(tmp_path, drawn)
    assert read_sample(tmp_path) == drawn
    (tmp_path / SAMPLE_FILE).write_text("{}")
    with pytest.raises(UserError, match=r"sample\.json: is not a sample"):
        read_sample(tmp_path)
