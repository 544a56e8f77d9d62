"""Results of an audit, and of a data set against a file of labels: accuracy of each field, and agreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.core.errors import UserError
from pipeline.core.records import Record
from pipeline.core.store import Dataset
from pipeline.reviews.audit.accuracy import FieldAccuracy, Labelled, accuracies
from pipeline.reviews.audit.agreement import Agreement, agreements
from pipeline.reviews.audit.labels import AuditedClip, LabelFile, audited_clips, read_labels
from pipeline.reviews.audit.readings import Groups
from pipeline.reviews.audit.sampling import (
    ANSWERS_FILE,
    SAMPLE_FILE,
    SIZE,
    AuditSample,
    Span,
    Strata,
    draw,
    read_sample,
)
from pipeline.reviews.decisions import KEEP, Value
from pipeline.reviews.matching import match
from pipeline.reviews.standing import Standing


class ForeignAuditError(UserError):
    """The clips of an audit are not those of the data set."""


class Results(Record):
    """Results of a comparison of a data set with people's labels."""

    clips: int
    """Clips with a label."""
    reviewers: dict[str, int]
    """Clips that each reviewer labelled."""
    fields: tuple[FieldAccuracy, ...]
    agreement: tuple[Agreement, ...]
    lines: LabelFile


class StratumAccuracy(Record):
    """Accuracy within one motion level or one character."""

    stratum: str
    clips: int
    """Judged clips of it."""
    fields: tuple[FieldAccuracy, ...]


class AuditResults(Results):
    """Results of an audit."""

    strata: tuple[StratumAccuracy, ...] = ()
    """Accuracy within each level or character; empty for a simple sample."""

    sample: int
    """Clips in the sample."""
    population: int
    """Clips that the sample was drawn from."""
    lost: int
    """Clips of the sample that are no sample of the data set any more."""
    seed: int
    by: Strata | None
    blind: bool


def draw_sample(dataset: Dataset, size: int | None, by: Strata | None, seed: int, blind: bool) -> AuditSample:
    """Draw a sample of the kept clips of a data set; without a size of `SIZE` clips, or of all if there are fewer.

    Raises:
        UserError: the data set has no captions, or fewer kept clips than the sample shall have.
    """
    clips = [clip for clip in audited_clips(dataset) if clip.kept]
    if not any(clip.published.keys() - {KEEP} for clip in clips):
        raise UserError(f"{dataset.root}: no clip has a caption yet; run `animegamer build` to its end first")
    return draw([_span(clip, by) for clip in clips], size or min(SIZE, len(clips)), by, seed, blind)


def sampled_clips(dataset: Dataset, sample: AuditSample) -> list[str]:
    """Return the ids of the sample's clips that the data set keeps, in the order of the sample.

    Raises:
        ForeignAuditError: the data set keeps none of them.
    """
    return list(_sampled(dataset.root, audited_clips(dataset), sample))


def audit_results(dataset: Dataset, groups: Groups) -> AuditResults | None:
    """Return the results of the audit of a data set as it is published; None if nothing was audited yet.

    Args:
        dataset: the data set.
        groups: values that are published as one.

    Raises:
        ForeignAuditError: the data set keeps no clip of the sample.
        UserError: a file cannot be read.
    """
    sample = read_sample(dataset.root)
    if sample is None:
        return None
    clips = audited_clips(dataset)
    sampled = _sampled(dataset.root, clips, sample)
    labels, lines = read_labels(dataset.root / ANSWERS_FILE, clips)
    answers = {clip_id: fields for clip_id, fields in labels.items() if clip_id in sampled}
    if not answers:
        return None
    published = {clip.clip.clip_id: clip.published for clip in clips}
    labelled = [
        Labelled(published[clip_id], _values(fields), sampled[clip_id].stratum) for clip_id, fields in answers.items()
    ]
    return AuditResults(
        clips=len(answers),
        reviewers=_reviewers(answers.values()),
        fields=tuple(accuracies(labelled, groups, sample.strata)),
        strata=tuple(_by_stratum(labelled, groups, sample.strata)) if sample.by else (),
        agreement=tuple(agreements([_voices(fields) for fields in answers.values()], groups)),
        lines=lines,
        sample=len(sample.spans),
        population=sum(sample.strata.values()),
        lost=len(sample.spans) - len(sampled),
        **sample.model_dump(include={"seed", "by", "blind"}),
    )


def _by_stratum(
    labelled: Sequence[Labelled], groups: Groups, populations: Mapping[str, int]
) -> Iterator[StratumAccuracy]:
    for name in sorted(populations):
        clips = [clip for clip in labelled if clip.stratum == name]
        if clips:
            fields = accuracies(clips, groups, {name: populations[name]})
            yield StratumAccuracy(stratum=name, clips=len(clips), fields=tuple(fields))


def compare(dataset: Dataset, labels: Path, groups: Groups) -> Results:
    """Compare the machine's answers about a data set with a file of labels.

    Args:
        dataset: the data set; its reviews do not count.
        labels: lines of decisions.
        groups: values that are published as one.

    Raises:
        UserError: the data set has no captions, or the file no label of its clips.
    """
    clips = audited_clips(dataset)
    if not any(clip.machine.keys() - {KEEP} for clip in clips):
        raise UserError(f"{dataset.root}: no clip has a caption yet; run `animegamer build` to its end first")
    if not labels.is_file():
        raise UserError(f"{labels}: no such file; give a file of decisions, as `animegamer review` writes it")
    found, lines = read_labels(labels, clips)
    if not found:
        raise UserError(f"{labels}: no label of this data set's clips ({_use_of(lines)})")
    machine = {clip.clip.clip_id: clip.machine for clip in clips}
    labelled = [Labelled(machine[clip_id], _values(fields)) for clip_id, fields in found.items()]
    return Results(
        clips=len(found),
        reviewers=_reviewers(found.values()),
        fields=tuple(accuracies(labelled, groups, None)),
        agreement=tuple(agreements([_voices(fields) for fields in found.values()], groups)),
        lines=lines,
    )


def _span(clip: AuditedClip, by: Strata | None) -> Span:
    strata = {None: "", "level": f"level {clip.level}", "character": clip.character}
    return Span(
        film_sha256=clip.film_sha256,
        start_seconds=clip.clip.start_seconds,
        end_seconds=clip.clip.end_seconds,
        stratum=strata[by],
    )


def _sampled(root: Path, clips: Sequence[AuditedClip], sample: AuditSample) -> dict[str, Span]:
    """Return the spans of the sample by the ids of the kept clips that they are now."""
    films: dict[str, list[AuditedClip]] = {}
    for clip in clips:
        films.setdefault(clip.film_sha256, []).append(clip)
    found = match(sample.spans, {sha256: [clip.clip for clip in rows] for sha256, rows in films.items()})
    kept = {clip.clip.clip_id for clip in clips if clip.kept}
    by_span = {span: clip_id for clip_id, spans in found.by_clip.items() for span in spans if clip_id in kept}
    if not by_span:
        raise ForeignAuditError(
            f"{root / SAMPLE_FILE}: an audit of other clips: this data set keeps none of its {len(sample.spans)}; "
            f"move {(root / SAMPLE_FILE).parent} away to start another"
        )
    return {by_span[span]: span for span in sample.spans if span in by_span}


def _values(fields: Mapping[str, Standing]) -> dict[str, Value]:
    return {field: standing.value for field, standing in fields.items()}


def _voices(fields: Mapping[str, Standing]) -> dict[str, Mapping[str, Value]]:
    return {field: standing.voices for field, standing in fields.items()}


def _reviewers(clips: Iterable[Mapping[str, Standing]]) -> dict[str, int]:
    counts = Counter(name for fields in clips for name in {name for one in fields.values() for name in one.voices})
    return dict(sorted(counts.items()))


def _use_of(lines: LabelFile) -> str:
    return f"{lines.foreign} of other films, {lines.unmatched} of no clip, {len(lines.faults)} unusable"
