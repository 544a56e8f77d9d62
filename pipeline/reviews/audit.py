"""Audits of a dataset: its values scored by people's labels of a random sample, or by any file of labels.

An audit scores the dataset as it is published, reviews included. A comparison with a file scores the machine's answers
alone. Both read the tables of captions and verdicts, and never the shards.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.core.errors import UserError
from pipeline.core.records import Caption, Record
from pipeline.core.store import Dataset
from pipeline.reviews.applied import count_reviews, film_clips, load_reviews
from pipeline.reviews.audit_sample import ANSWERS_FILE, AuditSample, Span, Strata, draw, read_sample
from pipeline.reviews.clips import ReviewableClip, reviewable
from pipeline.reviews.decisions import CAPTION_FIELDS, KEEP, Value
from pipeline.reviews.matching import match
from pipeline.reviews.scores import Agreement, FieldAccuracy, Groups, Labelled, accuracies, agreements


class Results(Record):
    """Results of a comparison of a dataset with people's labels."""

    clips: int
    """Clips with a label."""
    origin: str
    """Origin of the clips, such as ` of 200 drawn by level from 5,000`; empty for a file of labels."""
    reviewers: dict[str, int]
    """Clips that each reviewer labelled."""
    fields: list[FieldAccuracy]
    agreement: list[Agreement]
    findings: list[str]
    """Conflicts between reviewers, and lines of the file that have no use, each in a sentence."""

    @property
    def sentence(self) -> str:
        """Number and origin of the labels, and their reviewers."""
        reviewers = ", ".join(f"{name} ({clips})" for name, clips in self.reviewers.items())
        return f"{self.clips:,} clips labelled{self.origin}; reviewers: {reviewers}"


def draw_sample(
    dataset: Dataset, size: int | None = None, by: Strata | None = None, seed: int = 0, blind: bool = False
) -> AuditSample:
    """Draw a sample of the kept clips of a dataset.

    Raises:
        UserError: no kept clip has a caption, or the size does not fit (`draw`).
    """
    clips = [clip for clip in reviewable(dataset, None) if clip.kept]
    if not any(clip.published and not clip.published.fault for clip in clips):
        raise UserError(f"{dataset.root}: no kept clip has a caption yet; run `animegamer build` to its end first")
    return draw([_span(clip, by) for clip in clips], size, by, seed, blind)


def sampled_clips(dataset: Dataset, sample: AuditSample, clips: Sequence[ReviewableClip]) -> dict[str, str]:
    """Return the strata of the kept clips that the sample names, by clip id and in the order of the sample."""
    kept = {clip.clip_id for clip in clips if clip.kept}
    by_clip = match(sample.spans, film_clips(dataset)).by_clip
    by_span = {span: clip_id for clip_id, spans in by_clip.items() for span in spans if clip_id in kept}
    return {by_span[span]: span.stratum for span in sample.spans if span in by_span}


def audit_results(dataset: Dataset, groups: Groups) -> Results | None:
    """Return the results of the audit of a dataset as it is published; None if no clip of the sample is labelled."""
    sample = read_sample(dataset.root)
    if sample is None:
        return None
    clips = reviewable(dataset, dataset.root / ANSWERS_FILE)
    strata = sampled_clips(dataset, sample, clips)
    labelled = [
        Labelled(_values(clip.published, clip.kept), clip.standings, strata[clip.clip_id])
        for clip in clips
        if clip.clip_id in strata and clip.standings
    ]
    by = f" by {sample.by}" if sample.by else ""
    blind = ", blind to the machine's answers" if sample.blind else ""
    lost = f" ({lost} no longer kept)" if (lost := len(sample.spans) - len(strata)) else ""
    origin = f" of {len(sample.spans):,} drawn{by} from {sum(sample.strata.values()):,}{blind}{lost}"
    found = _results(dataset, dataset.root / ANSWERS_FILE, labelled, groups, sample.strata, origin)
    return found if found.clips else None


def compare(dataset: Dataset, path: Path, groups: Groups) -> Results:
    """Compare the machine's answers about a dataset, without its reviews, with a file of labels.

    Raises:
        UserError: the file has no label of the dataset's clips.
    """
    clips = reviewable(dataset, path)
    labelled = [Labelled(_values(clip.caption, clip.keep), clip.standings) for clip in clips if clip.standings]
    found = _results(dataset, path, labelled, groups, {"": math.inf})
    if not found.clips:
        reasons = [f"{path} has no label of this dataset's clips", *found.findings]
        raise UserError("; ".join([*reasons, "give labels of its films"]))
    return found


def _results(
    dataset: Dataset,
    path: Path,
    clips: Sequence[Labelled],
    groups: Groups,
    populations: Mapping[str, float],
    origin: str = "",
) -> Results:
    """Return the results of clips with labels from the file `path`."""
    counts = count_reviews(load_reviews(dataset, path))
    voices = [{name for standing in clip.labels.values() for name in standing.voices} for clip in clips]
    return Results(
        clips=len(clips),
        origin=origin,
        reviewers=dict(sorted(Counter(name for names in voices for name in names).items())),
        fields=accuracies(clips, groups, populations),
        agreement=agreements(clips, groups),
        findings=[*counts.findings, *counts.remarks],
    )


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
    made = caption if caption and not caption.fault else None
    return {KEEP: keep, **({field: getattr(made, field) for field in CAPTION_FIELDS} if made else {})}
