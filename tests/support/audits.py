"""Audit of a dataset without its page: the sample, and answers of a reviewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.core.store import Dataset
from pipeline.reviews.audit import draw_sample
from pipeline.reviews.audit_sample import ANSWERS_FILE, AuditSample, save_sample
from pipeline.reviews.clips import reviewable
from pipeline.reviews.decisions import append_decisions
from tests.support.records import decision


def start_audit(dataset: Dataset, **options: Any) -> AuditSample:
    """Draw a sample with these options of `draw_sample`, by default of all clips, and store it in the dataset."""
    sample = draw_sample(dataset, **options)
    save_sample(dataset.root, sample)
    return sample


def answer(dataset: Dataset, field: str, *values: Any, path: Path | None = None, **changes: Any) -> None:
    """Answer about the first kept clips, one value a clip, by default in the audit; `...` repeats the caption."""
    clips = [clip for clip in reviewable(dataset, None) if clip.kept][: len(values)]
    lines = [
        decision(
            field,
            getattr(clip.caption, field) if value is ... else value,
            film_sha256=clip.film_sha256,
            start_seconds=clip.start_seconds,
            end_seconds=clip.end_seconds,
            **changes,
        )
        for clip, value in zip(clips, values, strict=True)
    ]
    append_decisions(path or dataset.root / ANSWERS_FILE, lines)
