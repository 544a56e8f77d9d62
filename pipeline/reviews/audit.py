"""Audits of a dataset: its values scored by people's labels of a random sample, or by any file of labels.

An audit scores the dataset as it is published, reviews included. A comparison with a file scores the machine's answers
alone. Both read the tables of captions and verdicts, and never the shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.core.errors import UserError
from pipeline.core.records import Caption, Record
from pipeline.core.store import Dataset
from pipeline.reviews.applied import film_clips, load_reviews
from pipeline.reviews.audit_sample import ANSWERS_FILE, SAMPLE_FILE, SIZE, AuditSample, Span, Strata, draw, read_sample
from pipeline.reviews.clips import ReviewableClip, reviewable
from pipeline.reviews.decisions import CAPTION_FIELDS, KEEP, Standing, Value, standings
from pipeline.reviews.matching import match
from pipeline.reviews.scores import Agreement, FieldAccuracy, Groups, Labelled, accuracies, agreements

Labels = Mapping[str, Mapping[str, Standing]]
"""Standing of each labelled field, by clip id and field."""


class ForeignAuditError(UserError):
    """The dataset keeps no clip of the audit's sample."""


class UnusedLines(Record):
    """Lines of a file of labels that have no use."""

    faults: list[str]
    """Lines that are not decisions, each with its number and the reason."""
    foreign: int
    """Decisions about films outside the dataset."""
    unmatched: int
    """Decisions about a span of film that is not a clip now."""


class Results(Record):
    """Results of a comparison of a dataset with people's labels."""

    clips: int
    """Clips with a label."""
    reviewers: dict[str, int]
    """Clips that each reviewer labelled."""
    fields: list[FieldAccuracy]
    agreement: list[Agreement]
    lines: UnusedLines

    @property
    def sentence(self) -> str:
        """Number and origin of the labels, and their reviewers."""
        reviewers = ", ".join(f"{name} ({clips})" for name, clips in self.reviewers.items())
        return f"{self.clips:,} clips labelled; reviewers: {reviewers}"


class StratumAccuracy(Record):
    """Accuracy within one motion level or one character."""

    stratum: str
    clips: int
    """Labelled clips of the stratum."""
    fields: list[FieldAccuracy]


class AuditResults(Results):
    """Results of an audit."""

    strata: list[StratumAccuracy]
    """Accuracy within each level or character; empty for a simple sample."""
    sample: int
    """Clips in the sample."""
    population: int
    """Clips that the sample was drawn from."""
    lost: int
    """Clips of the sample that the dataset no longer keeps."""
    seed: int
    by: Strata | None
    blind: bool

    @property
    def sentence(self) -> str:
        """Number and origin of the labels, and their reviewers."""
        strata = f" by {self.by}" if self.by else ""
        blind = ", blind to the machine's answers" if self.blind else ""
        lost = f" ({self.lost} no longer kept)" if self.lost else ""
        drawn = f"of {self.sample:,} drawn{strata} from {self.population:,}{blind}{lost}"
        return super().sentence.replace("labelled", f"labelled {drawn}", 1)


def draw_sample(dataset: Dataset, size: int | None, by: Strata | None, seed: int, blind: bool) -> AuditSample:
    """Draw a sample of the kept clips of a dataset; by default `SIZE` clips, or all if there are fewer.

    Raises:
        UserError: the dataset has no captions, or has fewer kept clips than `size`.
    """
    clips = _captioned(dataset)
    spans = [_span(clip, by) for clip in clips if clip.kept]
    return draw(spans, size or min(SIZE, len(spans)), by, seed, blind)


def sampled_clips(dataset: Dataset, sample: AuditSample) -> list[str]:
    """Return the ids of the sample's clips that the dataset keeps, in the order of the sample, or ForeignAuditError."""
    return list(_sampled(dataset, reviewable(dataset, None), sample))


def audit_results(dataset: Dataset, groups: Groups) -> AuditResults | None:
    """Return the results of the audit of a dataset as it is published; None if nothing is labelled yet.

    Raises:
        ForeignAuditError: the dataset keeps no clip of the sample.
        UserError: a file cannot be read.
    """
    sample = read_sample(dataset.root)
    if sample is None:
        return None
    clips = reviewable(dataset, None)
    sampled = _sampled(dataset, clips, sample)
    labels, lines = _read_labels(dataset, dataset.root / ANSWERS_FILE)
    labels = {clip_id: fields for clip_id, fields in labels.items() if clip_id in sampled}
    if not labels:
        return None
    values = {clip.clip_id: _values(clip.published, clip.kept) for clip in clips}
    labelled = [Labelled(values[key], _settled(fields), sampled[key].stratum) for key, fields in labels.items()]
    strata = {name: [clip for clip in labelled if clip.stratum == name] for name in sorted(sample.strata) if sample.by}
    return AuditResults(
        **_figures(labels, groups),
        fields=accuracies(labelled, groups, sample.strata),
        lines=lines,
        strata=[
            StratumAccuracy(
                stratum=name, clips=len(found), fields=accuracies(found, groups, {name: sample.strata[name]})
            )
            for name, found in strata.items()
            if found
        ],
        sample=len(sample.spans),
        population=sum(sample.strata.values()),
        lost=len(sample.spans) - len(sampled),
        **sample.model_dump(include={"seed", "by", "blind"}),
    )


def compare(dataset: Dataset, path: Path, groups: Groups) -> Results:
    """Compare the machine's answers about a dataset, without its reviews, with a file of labels.

    Raises:
        UserError: the dataset has no captions, or the file has no label of its clips.
    """
    values = {clip.clip_id: _values(clip.caption, clip.keep) for clip in _captioned(dataset)}
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a file of decisions, as `animegamer review` writes it")
    labels, lines = _read_labels(dataset, path)
    if not labels:
        raise UserError(
            f"{path} has no label of this dataset's clips: {lines.foreign} of other films, {lines.unmatched} of no "
            f"clip, {len(lines.faults)} unusable; give labels of its films"
        )
    labelled = [Labelled(values[clip_id], _settled(fields)) for clip_id, fields in labels.items()]
    return Results(**_figures(labels, groups), fields=accuracies(labelled, groups, None), lines=lines)


def _figures(labels: Labels, groups: Groups) -> dict[str, Any]:
    """Return the fields of `Results` about the labels alone."""
    voices = [{field: standing.voices for field, standing in fields.items()} for fields in labels.values()]
    reviewers = Counter(name for fields in voices for name in {name for found in fields.values() for name in found})
    return {"clips": len(labels), "reviewers": dict(sorted(reviewers.items())), "agreement": agreements(voices, groups)}


def _captioned(dataset: Dataset) -> list[ReviewableClip]:
    clips = reviewable(dataset, None)
    if all(clip.published is None or clip.published.fault for clip in clips):
        raise UserError(f"{dataset.root}: no clip has a caption yet; run `animegamer build` to its end first")
    return clips


def _span(clip: ReviewableClip, by: Strata | None) -> Span:
    """Return the span of a clip with its stratum: its level, or its actor, else the first character on screen."""
    stratum = f"level {clip.level}" if by == "level" else ""
    if by == "character":
        names = clip.published.characters if clip.published else None
        actor = clip.published.actor if clip.published else None
        stratum = "unknown" if names is None else actor if actor in names else next(iter(names), "nobody")
    return Span(
        film_sha256=clip.film_sha256, start_seconds=clip.start_seconds, end_seconds=clip.end_seconds, stratum=stratum
    )


def _values(caption: Caption | None, keep: bool | None) -> dict[str, Value]:
    values: dict[str, Value] = {KEEP: keep}
    if caption and not caption.fault:
        values |= {field: getattr(caption, field) for field in CAPTION_FIELDS}
    return {field: value for field, value in values.items() if value is not None}


def _read_labels(dataset: Dataset, path: Path) -> tuple[Labels, UnusedLines]:
    found = load_reviews(dataset, path)
    lines = UnusedLines(
        faults=[f"line {fault.line}: {fault.reason}" for fault in found.faults],
        foreign=len(found.foreign),
        unmatched=len(found.unmatched) + len(found.later),
    )
    return {clip_id: standings(decisions) for clip_id, decisions in found.decisions.items()}, lines


def _settled(fields: Mapping[str, Standing]) -> dict[str, Value]:
    return {field: standing.value for field, standing in fields.items()}


def _sampled(dataset: Dataset, clips: Sequence[ReviewableClip], sample: AuditSample) -> dict[str, Span]:
    """Return the spans of the sample by the ids of the kept clips that they match now."""
    kept = {clip.clip_id for clip in clips if clip.kept}
    by_clip = match(sample.spans, film_clips(dataset)).by_clip
    by_span = {span: clip_id for clip_id, spans in by_clip.items() for span in spans if clip_id in kept}
    if not by_span:
        path = dataset.root / SAMPLE_FILE
        raise ForeignAuditError(
            f"{path} belongs to another dataset: this one keeps none of its {len(sample.spans)} clips; move "
            f"{path.parent} away to start a new audit"
        )
    return {by_span[span]: span for span in sample.spans if span in by_span}
