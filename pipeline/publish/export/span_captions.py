"""Captions of whole spans, asked of the captioner: questions, cost, and the table that exports prefer.

    films = span_questions(dataset, stage, PRESETS["ltx2"])
    span_cost(films)                                          # before anything is sent
    try_questions(films, count, progress, ask_again=False)
    write_captions(films, PRESETS["ltx2"])

Spans are those of an export of all kept clips. Their replies are stored as replies about clips are, so none is paid for
twice. A span with a reviewed clip is not asked about: the caption joined from the reviewed ones wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median_high

from pipeline.captions.stage import WriteCaptions
from pipeline.captions.trial import FilmQuestions, trial_captioner, tried_clip
from pipeline.core.errors import UserError
from pipeline.core.records import Clip, SpanCaption
from pipeline.core.store import Dataset, FilmFolder
from pipeline.publish.export.clips import SPANS, FilmSpan, choose_spans, span_key
from pipeline.publish.export.trainers import Preset
from pipeline.publish.seen_clips import SeenClip, seen_clips


@dataclass(frozen=True)
class SpanCost:
    """Spans to ask about, and what an answered one has cost."""

    spans: int
    left: int
    tokens_a_span: float | None
    """Mean number of tokens; None if no span was asked about, or the server reports none."""


def span_questions(dataset: Dataset, stage: WriteCaptions, preset: Preset) -> list[FilmQuestions]:
    """Return the spans of each film as clips to ask about. Raises UserError if there are none."""
    kept = [seen for seen in seen_clips(dataset) if seen.fate == "kept"]
    films = [_questions(folder, stage, preset, kept) for folder in dataset.folders()]
    if not any(film.clips for film in films):
        raise UserError(
            f"{dataset.root}: no scene has {preset.frames} frames at {preset.fps} a second of kept clips without review"
        )
    return films


def _questions(folder: FilmFolder, stage: WriteCaptions, preset: Preset, kept: Iterable[SeenClip]) -> FilmQuestions:
    own = [seen for seen in kept if seen.clip.film_id == folder.film_id]
    spans = [span for span in (choose_spans(folder, own, preset) if own else ()) if not span.is_reviewed]
    clips = [_as_clip(span, preset) for span in spans]
    levels = {clip.clip_id: _level(span) for clip, span in zip(clips, spans, strict=True)}
    covered = {clip.clip_id: tuple(seen.clip for seen in span.clips) for clip, span in zip(clips, spans, strict=True)}
    return FilmQuestions(folder, clips, levels, replace(trial_captioner(stage, folder), spans=covered))


def _as_clip(span: FilmSpan, preset: Preset) -> Clip:
    """Return the record that stands for a span; its hash, which questions depend on, is of all that the span shows."""
    changes = {
        "clip_id": span.id_for(preset),
        "end_seconds": span.end_seconds,
        "frames": preset.frames,
        "sha256": span_key(span, preset),
    }
    return span.clips[0].clip.model_copy(update=changes)


def _level(span: FilmSpan) -> int | None:
    levels = [seen.level for seen in span.clips if seen.level is not None]
    return median_high(levels) if levels else None


def span_cost(films: Sequence[FilmQuestions]) -> SpanCost:
    """Return what is left to ask, and the cost of a span by the stored replies; nothing is sent."""
    tokens, left = [], 0
    for film in films:
        pending = set(film.pending())
        left += len(pending)
        for row, clip in zip(film.captions(), film.clips, strict=True):
            if used := tried_clip(film.folder, clip, None, row).tokens:
                tokens.append(used)
    return SpanCost(sum(len(film.clips) for film in films), left, fmean(tokens) if tokens else None)


def write_captions(films: Sequence[FilmQuestions], preset: Preset) -> int:
    """Write the table of captions of the spans with a usable reply; return their number.

    A span without a reply to the present question keeps its caption from an earlier one.
    """
    count = 0
    for film in films:
        rows = [
            SpanCaption(**row.model_dump(), preset=preset.name, made_from=clip.sha256)
            for row, clip in zip(film.captions(), film.clips, strict=True)
            if row.raw_what is not None and row.fault is None
        ]
        count += len(rows)
        answered = {row.clip_id for row in rows}
        spans = {clip.clip_id: clip.sha256 for clip in film.clips}
        others = [
            row
            for row in film.folder.read_if_made(SPANS, SpanCaption)
            if row.preset != preset.name or (row.clip_id not in answered and spans.get(row.clip_id) == row.made_from)
        ]
        if others or rows or film.folder.table_path(SPANS).exists():
            film.folder.write(SPANS, [*others, *rows])
    return count
