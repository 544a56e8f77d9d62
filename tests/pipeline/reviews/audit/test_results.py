"""Results of audits of a small data set, and of its comparison with files of labels."""

from __future__ import annotations

import json
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
from pipeline.reviews.audit.accuracy import Confusion, FieldAccuracy
from pipeline.reviews.audit.results import (
    AuditResults,
    ForeignAuditError,
    Results,
    audit_results,
    compare,
    draw_sample,
    sampled_clips,
)
from pipeline.reviews.audit.sampling import ANSWERS_FILE, AuditSample, Strata, save_sample
from pipeline.reviews.decisions import append_decisions
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
    """Answers about the first kept clips, one a clip; `...` repeats what the data set says."""
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


def test_a_sample_is_of_the_kept_clips(dataset: Dataset) -> None:
    sample = drawn(dataset)
    assert set(sampled_clips(dataset, sample)) == {clip.clip_id for clip, _, _ in kept(dataset)}
    some = draw_sample(dataset, 6, None, 3, blind=False)
    order = sampled_clips(dataset, some)
    starts = {clip.clip_id: (sha256, clip.start_seconds) for clip, _, sha256 in kept(dataset)}
    assert [starts[clip_id] for clip_id in order] == [(span.film_sha256, span.start_seconds) for span in some.spans]


def test_strata_are_levels_or_characters(dataset: Dataset) -> None:
    levels = Counter(
        f"level {row.level}" for folder in dataset.folders() for row in folder.read("verdicts", Verdict) if row.keep
    )
    assert draw_sample(dataset, 10, "level", 0, blind=False).strata == levels
    strata = draw_sample(dataset, 10, "character", 0, blind=False).strata
    assert strata == Counter(next(iter(caption.characters or ()), "nobody") for _, caption, _ in kept(dataset))
    assert set(strata) == {"nobody", CAST[0]}


def test_the_accuracy_is_that_of_the_answers(dataset: Dataset) -> None:
    drawn(dataset)
    answer(dataset, "S", *[...] * 12, "dog", "dog", None)
    answer(dataset, "keep", *[True] * 14, False)
    found = audited(dataset)
    assert (found.clips, found.sample, found.population, found.lost) == (15, 15, 15, 0)
    assert found.reviewers == {"anna": 15}
    subject = field_of(found, "S")
    assert subject.best
    assert subject.best.share == pytest.approx(12 / 14)
    assert (subject.answered, subject.unsaid) == (14, 1)
    keep = field_of(found, "keep")
    assert keep.best
    assert (keep.best.share, keep.best.low, keep.best.high) == pytest.approx((14 / 15,) * 3)  # all clips were judged
    assert keep.confusions == (Confusion(answer="keep", label="drop", clips=1),)


def test_only_answers_in_the_sample_count(dataset: Dataset) -> None:
    sample = drawn(dataset, 5)
    answer(dataset, "S", *[...] * 15)
    chosen = {(span.film_sha256, span.start_seconds) for span in sample.spans}
    assert audited(dataset).clips == 5 == len(chosen)


def test_a_rebuilt_data_set_is_scored_again_by_the_same_answers(dataset: Dataset) -> None:
    drawn(dataset)
    answer(dataset, "EV", *["sea"] * 15)
    before = field_of(audited(dataset), "EV").best
    assert before
    assert before.share == 0
    for folder in dataset.folders():
        rows = [row.model_copy(update={"EV": "seas"}) for row in folder.read("captions", Caption)]
        folder.write("captions", rows)
        clips = folder.read("clips", Clip)
        moved = [
            row.model_copy(update={"start_seconds": row.start_seconds + 0.05, "end_seconds": row.end_seconds + 0.05})
            for row in clips
        ]
        folder.write("clips", moved)
    after = field_of(audited(dataset), "EV").best
    assert after
    assert after.share == 1


def test_a_clip_that_is_dropped_since_is_lost(dataset: Dataset) -> None:
    drawn(dataset)
    answer(dataset, "S", *[...] * 15)
    folder = dataset.folders()[0]
    rows = folder.read("verdicts", Verdict)
    first = next(row for row in rows if row.keep)
    changed = {"keep": False, "reasons": ("dark",)}
    folder.write("verdicts", [row.model_copy(update=changed) if row == first else row for row in rows])
    found = audited(dataset)
    assert (found.clips, found.lost) == (14, 1)


def test_a_second_reviewer_continues_the_sample(dataset: Dataset) -> None:
    drawn(dataset)
    answer(dataset, "S", *[...] * 15)
    answer(dataset, "S", *[...] * 9, "dog", reviewer="ben", minute=1)
    found = audited(dataset)
    assert found.reviewers == {"anna": 15, "ben": 10}
    (agreement,) = found.agreement
    assert (agreement.field, agreement.clips, agreement.equal) == ("S", 10, 9)
    assert agreement.alpha is not None
    assert 0.5 < agreement.alpha < 1
    subject = field_of(found, "S").best
    assert subject
    assert subject.share == pytest.approx(14 / 15)  # the newest answer stands until the conflict is settled


def test_lines_that_cannot_be_used_are_counted_and_named(dataset: Dataset) -> None:
    drawn(dataset)
    answer(dataset, "S", *[...] * 3)
    lost = decision("S", "dog", film_sha256=dataset.folders()[0].film.sha256, start_seconds=900.0, end_seconds=902.0)
    append_decisions(dataset.root / ANSWERS_FILE, [decision("S", "dog", film_sha256=sha256_of("other")), lost])
    hostile = b'\x1b[31m\n{"time": NaN}\n' + b"[" * 3000 + b"\n" + b"x" * 100_000 + b"\n\xff\xfe\n"
    with (dataset.root / ANSWERS_FILE).open("ab") as file:
        file.write(hostile)
    lines = audited(dataset).lines
    assert (lines.foreign, lines.unmatched, len(lines.faults)) == (1, 1, 5)
    assert all(fault.isprintable() and len(fault) < 300 for fault in lines.faults)
    assert lines.faults[0].startswith("line 6: ")


def test_an_audit_of_other_films_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    sample = drawn(dataset)
    other = make_dataset(tmp_path / "other", captioner=MODEL, names=("another.mkv",), films=1)
    shutil.copytree(dataset.root / "audit", other.root / "audit")
    for ask in (lambda: audit_results(other, {}), lambda: sampled_clips(other, sample)):
        with pytest.raises(ForeignAuditError, match=r"sample\.json: an audit of other clips"):
            ask()


def test_a_data_set_without_captions_has_no_audit(dataset: Dataset, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    answer(dataset, "S", ..., path=labels)
    for folder in dataset.folders():
        folder.table_path("captions").unlink()
    with pytest.raises(UserError, match="no clip has a caption yet"):
        draw_sample(dataset, 5, None, 0, blind=False)
    with pytest.raises(UserError, match="no clip has a caption yet"):
        compare(dataset, labels, {})


def test_nothing_judged_has_no_results(dataset: Dataset) -> None:
    assert audit_results(dataset, {}) is None
    drawn(dataset)
    assert audit_results(dataset, {}) is None


def test_an_audit_judges_reviews_and_a_comparison_the_machine(dataset: Dataset, tmp_path: Path) -> None:
    reviews = tmp_path / "review.jsonl"
    answer(dataset, "S", *["dog"] * 15, path=reviews)
    found = load_reviews(dataset, reviews)
    for folder in dataset.folders():
        save_reviewed(folder, found.rows(folder, dataset.record.cast))
    drawn(dataset)
    answer(dataset, "S", *["dog"] * 15)
    published, machine = field_of(audited(dataset), "S").best, field_of(compare(dataset, reviews, {}), "S").best
    assert published
    assert machine
    assert (published.share, machine.share) == (1, 0)
    assert machine.high > 0.1  # a file of labels is not taken for the whole truth


def test_a_faulty_caption_is_no_answer_and_the_rules_answer_keep(dataset: Dataset, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    answer(dataset, "S", *[...] * 15, path=labels)
    answer(dataset, "keep", *[True] * 15, path=labels)
    folder = dataset.folders()[0]
    first = next(row.clip_id for row in folder.read("verdicts", Verdict) if row.keep)
    captions, verdicts = folder.read("captions", Caption), folder.read("verdicts", Verdict)
    fault, overruled = {"fault": "unusable"}, {"reasons": ("dark",)}  # and kept by a review
    folder.write("captions", [row.model_copy(update=fault) if row.clip_id == first else row for row in captions])
    folder.write("verdicts", [row.model_copy(update=overruled) if row.clip_id == first else row for row in verdicts])
    found = compare(dataset, labels, {})
    assert (field_of(found, "S").labelled, field_of(found, "S").answered) == (15, 14)
    assert field_of(found, "keep").confusions == (Confusion(answer="drop", label="keep", clips=1),)


def test_labels_of_a_file_are_the_truth_of_a_comparison(dataset: Dataset, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    answer(dataset, "characters", *[...] * 14, (CAST[2], "Someone Else"), path=labels)
    answer(dataset, "actor", *[CAST[0]] * 4, path=labels)
    answer(dataset, "MA", "slow", ..., path=labels, reviewer="ben", minute=1)
    (dataset.root / "vocabulary.toml").write_text('[MD]\n"fly" = ["rides a broom over the café"]\n', encoding="utf-8")
    answer(dataset, "MD", *["flies"] * 15, path=labels)
    found = compare(dataset, labels, load_vocabulary(dataset.root).published)
    assert not isinstance(found, AuditResults)
    assert (found.clips, found.reviewers) == (15, {"anna": 15, "ben": 2})
    names = field_of(found, "characters")
    assert names.best
    assert names.best.share == pytest.approx(14 / 15)
    assert names.precision
    assert names.recall
    assert names.recall.share < names.precision.share < 1
    actor = field_of(found, "actor")
    assert (actor.labelled, actor.answered, actor.best) == (4, 0, None)
    assert {name: share.share for name, share in field_of(found, "MD").accuracy.items()} == {
        "exact": 0,
        "lemma": 0,
        "group": 1,
    }
    assert json.loads(found.model_dump_json())["fields"]


def test_labels_of_other_films_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    append_decisions(labels, [decision("S", "dog", film_sha256=sha256_of("another"))])
    with labels.open("a") as file:
        file.write("no line\n")
    with pytest.raises(UserError, match=r"no label of this data set's clips \(1 of other films, 0 of no clip, 1 unus"):
        compare(dataset, labels, {})
    with pytest.raises(UserError, match="no such file"):
        compare(dataset, tmp_path / "none.jsonl", {})
