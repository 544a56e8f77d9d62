"""Audits of a small dataset: samples, results, and comparisons with files of labels."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.errors import UserError
from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import Dataset
from pipeline.publish.vocabulary import load_vocabulary
from pipeline.reviews.applied import load_reviews, save_reviewed
from pipeline.reviews.audit import (
    AuditResults,
    ForeignAuditError,
    Results,
    audit_results,
    compare,
    draw_sample,
    sampled_clips,
)
from pipeline.reviews.audit_sample import (
    ANSWERS_FILE,
    SAMPLE_FILE,
    AuditSample,
    Span,
    Strata,
    draw,
    read_sample,
    save_sample,
)
from pipeline.reviews.decisions import append_decisions
from pipeline.reviews.intervals import Share
from pipeline.reviews.scores import FieldAccuracy
from tests.support.datasets.made_dataset import CAST, MODEL, make_dataset
from tests.support.records import decision, decision_about, sha256_of


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_dataset(tmp_path / "data", captioner=MODEL)


def drawn(dataset: Dataset, size: int = 15, by: Strata | None = None, *, seed: int = 0) -> AuditSample:
    sample = draw_sample(dataset, size, by, seed, blind=True)
    save_sample(dataset.root, sample)
    return sample


def kept(dataset: Dataset) -> Iterator[tuple[Clip, Caption, str]]:
    """Kept clips with their captions and the content hash of their film."""
    for folder in dataset.folders():
        captions = {row.clip_id: row for row in folder.read("captions", Caption)}
        verdicts = {row.clip_id: row for row in folder.read("verdicts", Verdict) if row.keep}
        for clip in folder.read("clips", Clip):
            if clip.clip_id in verdicts:
                yield clip, captions[clip.clip_id], folder.film.sha256


def answer(dataset: Dataset, field: str, *values: Any, path: Path | None = None, **changes: Any) -> None:
    """Answers about the first kept clips, one a clip; `...` repeats what the dataset says."""
    lines = [
        decision_about(clip, sha256, field, getattr(caption, field) if value is ... else value, **changes)
        for (clip, caption, sha256), value in zip(kept(dataset), values, strict=False)
    ]
    assert len(lines) == len(values)
    append_decisions(path or dataset.root / ANSWERS_FILE, lines)


def audited(dataset: Dataset) -> AuditResults:
    found = audit_results(dataset, load_vocabulary(dataset.root).published)
    assert found
    return found


def field_of(results: Results, name: str) -> FieldAccuracy:
    return next(field for field in results.fields if field.field == name)


def best(field: FieldAccuracy) -> Share:
    assert field.best
    return field.best


def test_answers_become_accuracy_and_agreement(dataset: Dataset) -> None:
    assert draw_sample(dataset, 10, "character", 0, blind=False).strata.keys() == {"nobody", CAST[0]}
    sample = drawn(dataset, by="level")
    assert audit_results(dataset, {}) is None
    starts = {clip.clip_id: (sha256, clip.start_seconds) for clip, _, sha256 in kept(dataset)}
    order = [(span.film_sha256, span.start_seconds) for span in sample.spans]
    assert [starts[clip_id] for clip_id in sampled_clips(dataset, sample)] == order
    answer(dataset, "S", *[...] * 12, "dog", "dog", None)
    answer(dataset, "S", *[...] * 9, "dog", reviewer="ben", minute=1)
    answer(dataset, "keep", *[True] * 14, False)
    found = audited(dataset)
    assert (found.clips, found.sample, found.population, found.lost) == (15, 15, 15, 0)
    assert found.reviewers == {"anna": 15, "ben": 10}
    assert sum(stratum.clips for stratum in found.strata) == 15
    subject, keep = field_of(found, "S"), field_of(found, "keep")
    assert best(subject).share == pytest.approx(11 / 14)  # the newest answer stands until the conflict is settled
    assert (subject.answered, subject.unsaid) == (14, 1)
    assert (best(keep).low, best(keep).high) == pytest.approx((14 / 15,) * 2)  # all clips were labelled
    (agreement,) = found.agreement
    assert (agreement.field, agreement.clips, agreement.equal) == ("S", 10, 9)


def test_the_same_answers_score_a_dataset_that_is_built_again(dataset: Dataset) -> None:
    drawn(dataset)
    answer(dataset, "EV", *["sea"] * 15)
    assert best(field_of(audited(dataset), "EV")).share == 0
    for folder in dataset.folders():
        folder.write("captions", [row.model_copy(update={"EV": "seas"}) for row in folder.read("captions", Caption)])
        moved = [(row, {"start_seconds": row.start_seconds + 0.05}) for row in folder.read("clips", Clip)]
        folder.write("clips", [row.model_copy(update=changes) for row, changes in moved])
    folder = dataset.folders()[0]
    verdicts = folder.read("verdicts", Verdict)
    dropped = next(row for row in verdicts if row.keep).clip_id
    folder.write("verdicts", [row.model_copy(update={"keep": row.keep and row.clip_id != dropped}) for row in verdicts])
    found = audited(dataset)
    assert (found.clips, found.lost) == (14, 1)
    assert best(field_of(found, "EV")).share == 1


def test_an_audit_scores_reviews_and_a_comparison_the_machine(dataset: Dataset, tmp_path: Path) -> None:
    reviews = tmp_path / "review.jsonl"
    answer(dataset, "S", *["dog"] * 15, path=reviews)
    answer(dataset, "keep", *[True] * 15, path=reviews)
    found = load_reviews(dataset, reviews)
    for folder in dataset.folders():
        save_reviewed(folder, found.rows(folder, dataset.record.cast))
    drawn(dataset)
    answer(dataset, "S", *["dog"] * 15)
    compared = compare(dataset, reviews, {})
    assert best(field_of(audited(dataset), "S")).share == 1
    machine = best(field_of(compared, "S"))
    assert machine.share == 0
    assert machine.high > 0.1  # a file of labels is not the whole truth


def test_a_file_of_labels_scores_words_names_and_clips_without_an_answer(dataset: Dataset, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    answer(dataset, "characters", *[...] * 14, (CAST[2], "Someone Else"), path=labels)
    answer(dataset, "actor", *[CAST[0]] * 4, path=labels)
    answer(dataset, "MA", "slow", ..., path=labels, reviewer="ben", minute=1)
    (dataset.root / "vocabulary.toml").write_text('[MD]\n"fly" = ["rides a broom over the café"]\n', encoding="utf-8")
    answer(dataset, "MD", *["flies"] * 15, path=labels)
    folder = dataset.folders()[0]
    captions = folder.read("captions", Caption)
    first = next(row.clip_id for row in folder.read("verdicts", Verdict) if row.keep)
    folder.write(
        "captions", [row.model_copy(update={"fault": "odd"}) if row.clip_id == first else row for row in captions]
    )
    found = compare(dataset, labels, load_vocabulary(dataset.root).published)
    assert (found.clips, found.reviewers) == (15, {"anna": 15, "ben": 2})
    names, actor = field_of(found, "characters"), field_of(found, "actor")
    assert (names.labelled, names.answered) == (15, 14)
    assert (actor.labelled, actor.answered, actor.best) == (4, 0, None)
    assert [share.share for share in field_of(found, "MD").accuracy.values()] == [0, 0, 1]


def test_lines_that_cannot_be_used_are_counted_and_named(dataset: Dataset) -> None:
    drawn(dataset)
    answer(dataset, "S", *[...] * 3)
    lost = decision("S", "dog", film_sha256=dataset.folders()[0].film.sha256, start_seconds=900.0, end_seconds=902.0)
    append_decisions(dataset.root / ANSWERS_FILE, [decision("S", "dog", film_sha256=sha256_of("other")), lost])
    with (dataset.root / ANSWERS_FILE).open("ab") as file:
        file.write(b"\x1b[31m\n")
    lines = audited(dataset).lines
    assert (lines.foreign, lines.unmatched, len(lines.faults)) == (1, 1, 1)
    assert lines.faults[0].startswith("line 6: ")


def test_labels_and_an_audit_of_other_films_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    drawn(dataset)
    other = make_dataset(tmp_path / "other", captioner=MODEL, names=("another.mkv",), films=1)
    shutil.copytree(dataset.root / "audit", other.root / "audit")
    with pytest.raises(ForeignAuditError, match=r"sample\.json belongs to another dataset"):
        audit_results(other, {})
    labels = tmp_path / "labels.jsonl"
    append_decisions(labels, [decision("S", "dog", film_sha256=sha256_of("another"))])
    with labels.open("a") as file:
        file.write("no line\n")
    with pytest.raises(UserError, match=r"no label of this dataset's clips: 1 of other films, 0 of no clip, 1 unus"):
        compare(dataset, labels, {})
    for folder in dataset.folders():
        folder.table_path("captions").unlink()
    with pytest.raises(UserError, match="no clip has a caption yet"):
        draw_sample(dataset, 5, None, 0, blind=False)


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
    assert counts["rare"] == 5
    assert counts["two"] == 2
    assert counts["some"] in (7, 8)
    assert counts["common"] == 100 - 5 - 2 - counts["some"]
    assert drawn.strata == {"common": 900, "some": 80, "rare": 18, "two": 2}
    again = [draw(spans(all=500), 100, None, seed, blind=True).spans for seed in (1, 1, 2)]
    assert again[0] == again[1] != again[2]
    early = sum(span.start_seconds < 500 for span in again[0][:50])
    assert 12 <= early <= 38, "the first half of the audit comes from both halves of the film"
    with pytest.raises(UserError, match=r"--by character makes 3 strata"):
        draw(spans(a=1, b=1, c=1), 2, "character", seed=0, blind=False)
    assert read_sample(tmp_path) is None
    save_sample(tmp_path, drawn)
    assert read_sample(tmp_path) == drawn
    (tmp_path / SAMPLE_FILE).write_text("{}")
    with pytest.raises(UserError, match=r"sample\.json: is not a sample"):
        read_sample(tmp_path)
