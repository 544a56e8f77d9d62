"""Clips of an export, or spans of several clips, with their files and captions.

A span is cut for models that want sound and longer clips. It starts with a chosen clip, lies in one scene, and covers
chosen clips alone: nothing that was dropped. Spans do not overlap. Its caption is joined from the captions of the clips
that it covers, unless the captioner was asked for one (`span_captions.py`). If captions cover less than half of the
span, it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from pipeline.core.dialogue import NO_DIALOGUE, Dialogue, SpokenLine
from pipeline.core.errors import UserError
from pipeline.core.ingredients import fingerprint
from pipeline.core.plain_text import counted
from pipeline.core.records import Caption, Clip, SpanCaption
from pipeline.core.store import Dataset, FilmFolder
from pipeline.publish.export.captions import CaptionForm, CaptionStyle
from pipeline.publish.export.film_checks import inside_scenes
from pipeline.publish.export.references import REFERENCES, Portrait
from pipeline.publish.export.trainers import Preset, Trainer, pace
from pipeline.publish.samples import is_by_rules_alone
from pipeline.publish.seen_clips import SeenClip
from pipeline.publish.vocabulary import Vocabulary, load_vocabulary
from pipeline.stages.cutting.clip_grid import TOLERANCE_SECONDS

RULES = "rules"
SPANS = "spans"
LEAST_CAPTIONED = 0.5
"""Least share of a span that captions cover."""


@dataclass(frozen=True)
class ExportClip:
    """A clip of the export: its file, relative to the export, and its caption."""

    seen: SeenClip
    file: str
    caption: str
    source: Path
    """Clip file of the dataset."""
    said: tuple[SpokenLine, ...] | None = None
    """Lines heard in the clip, in seconds from its start, if the export has dialogue and the film subtitles."""
    reference: Portrait | None = None
    """Its character in another scene, if the export has references."""

    @property
    def reference_file(self) -> str:
        """Path of its reference in the export."""
        return f"{REFERENCES}/{Path(self.file).stem}.jpg"


@dataclass(frozen=True)
class FilmSpan:
    """Stretch of a film that an export shows, and the chosen clips that it covers, in time order."""

    clips: tuple[SeenClip, ...]
    start_seconds: float
    end_seconds: float
    asked: Caption | None = None
    """Caption of the whole span, if the captioner was asked for it and no clip is reviewed."""

    def share_of(self, clips: Sequence[SeenClip]) -> float:
        """Share of the span that some of its clips cover."""
        covered, until = 0.0, self.start_seconds
        for clip in (seen.clip for seen in clips):
            end = min(clip.end_seconds, self.end_seconds)
            covered += max(0.0, end - max(clip.start_seconds, until))
            until = max(until, end)
        return covered / (self.end_seconds - self.start_seconds)

    @property
    def is_reviewed(self) -> bool:
        """True if a reviewer confirmed or corrected the caption of one of its clips."""
        return any(seen.reviewed is not None and seen.reviewed.fields for seen in self.clips)

    def id_for(self, preset: Preset) -> str:
        """Id of the span: that of its first clip, and the preset."""
        return f"{self.clips[0].clip.clip_id}-{preset.name}"


def span_key(span: FilmSpan, preset: Preset) -> str:
    """Return the fingerprint of a span: its frames and rate, and the clips that it covers."""
    covered = [[seen.clip.sha256, seen.clip.start_seconds] for seen in span.clips]
    return fingerprint({"frames": preset.frames, "fps": preset.fps, "start": span.start_seconds, "clips": covered})


def choose_spans(folder: FilmFolder, kept: Sequence[SeenClip], preset: Preset) -> Iterator[FilmSpan]:
    """Yield the spans of a film for a preset; `kept` are its chosen clips in time order."""
    inside, chosen = inside_scenes(folder, preset), {seen.clip.clip_id: seen for seen in kept}
    length = float(preset.frames * pace(folder.film) / preset.fps)
    every = sorted(folder.read("clips", Clip), key=lambda clip: clip.start_seconds)
    until = 0.0
    for place, first in enumerate(every):
        start, end = first.start_seconds, first.start_seconds + length
        if first.clip_id not in inside or start < until - TOLERANCE_SECONDS:
            continue
        # The clip before may reach into the span if clips overlap; such a span would bear the earlier clip's name.
        near = (clip for clip in every[max(0, place - 1) :] if clip.start_seconds < end - TOLERANCE_SECONDS)
        covered = [clip.clip_id for clip in near if clip.end_seconds > start + TOLERANCE_SECONDS]
        if covered[0] == first.clip_id and chosen.keys() >= set(covered):
            yield FilmSpan(tuple(chosen[clip_id] for clip_id in covered), start, end)
            until = end


@dataclass(frozen=True)
class ClipForm:
    """Form of the clips of an export."""

    trainer: Trainer
    style: CaptionStyle
    preset: Preset | None
    """Preset by which the clips are cut again."""
    dialogue: bool

    def clips(self, dataset: Dataset, kept: Sequence[SeenClip]) -> tuple[tuple[ExportClip, ...], list[str]]:
        """Return the clips or spans with a caption, and notices. Raises UserError if there are none."""
        spans: list[FilmSpan] = []
        vocabulary = load_vocabulary(dataset.root)
        for film_id in dict.fromkeys(seen.clip.film_id for seen in kept):
            own = [seen for seen in kept if seen.clip.film_id == film_id]
            spans += self._spans(dataset.folder(film_id), own, vocabulary)
        if not spans:
            assert self.preset
            raise UserError(f"no scene has {self.preset.frames} frames at {self.preset.fps} a second of chosen clips")
        dialogues = {film_id: self._dialogue(dataset, film_id) for film_id in {seen.clip.film_id for seen in kept}}
        clips, shares = [], []
        for span in spans:
            first = span.clips[0].clip
            if clip := self._clip(dataset, span, dialogues[first.film_id]):
                clips.append(clip)
                shares.append(self._captioned_share(span))
        if not clips:
            raise UserError(_no_captions(self.style.form, by_rules=dataset.record.captioner == RULES))
        notices = self._span_notices(kept, spans, shares) if self.has_spans else []
        if not self.has_spans and len(clips) < len(kept):
            missing = len(kept) - len(clips)
            notices.append(f"{missing} of {len(kept)} clips left out: they have no {self.style.form} as caption")
        if by_rules := sum(is_by_rules_alone(said) for clip in clips if (said := clip.seen.answer)):
            notices.append(
                f"{by_rules} of {len(clips)} captions come from rules alone and name no subject or character"
            )
        return tuple(clips), notices

    @property
    def has_spans(self) -> bool:
        """True if the clips are spans of several clips."""
        return self.preset is not None and self.preset.spans

    def _spans(self, folder: FilmFolder, kept: Sequence[SeenClip], vocabulary: Vocabulary) -> Iterator[FilmSpan]:
        if self.preset and self.preset.spans:
            asked = {row.made_from: row for row in folder.read_if_made(SPANS, SpanCaption)}
            for span in choose_spans(folder, kept, self.preset):
                row = None if span.is_reviewed else asked.get(span_key(span, self.preset))
                yield replace(span, asked=vocabulary.applied(row) if row and self.style.of(row) else None)
            return
        seconds = float(self.preset.frames * pace(folder.film) / self.preset.fps) if self.preset else None
        for seen in kept:
            start, end = seen.clip.start_seconds, seen.clip.end_seconds
            yield FilmSpan((seen,), start, start + seconds if seconds else end)

    def _dialogue(self, dataset: Dataset, film_id: str) -> Dialogue:
        return Dialogue.of(dataset.folder(film_id)) if self.dialogue else NO_DIALOGUE

    def _clip(self, dataset: Dataset, span: FilmSpan, dialogue: Dialogue) -> ExportClip | None:
        """Return the clip of a span; None without a caption, or if captions cover too little of it."""
        seen, times = span.clips[0], (span.start_seconds, span.end_seconds)
        captions = [span.asked] if span.asked else [each.answer for each in span.clips]
        caption = self.style.joined(captions, dialogue.mostly_within(*times))
        if caption is None or (self.has_spans and self._captioned_share(span) < LEAST_CAPTIONED):
            return None
        source = dataset.folder(seen.clip.film_id).clip_path(seen.clip.clip_id)
        return ExportClip(seen, _file_of(self.trainer, seen), caption, source, dialogue.within(*times))

    def _captioned_share(self, span: FilmSpan) -> float:
        """Share of a span that captions of the wanted form cover."""
        return 1.0 if span.asked else span.share_of([each for each in span.clips if self.style.of(each.answer)])

    def _span_notices(self, kept: Sequence[SeenClip], spans: Sequence[FilmSpan], shares: Sequence[float]) -> list[str]:
        seconds = spans[0].end_seconds - spans[0].start_seconds
        covered = {seen.clip.clip_id for span in spans for seen in span.clips}
        notices = [
            f"{counted(len(shares), 'span')} of {seconds:.3g} seconds: captions cover {fmean(shares):.0%} on average, "
            f"{min(shares):.0%} at least"
        ]
        if sparse := len(spans) - len(shares):
            notices.append(f"{counted(sparse, 'span')} left out: captions cover less than half of each")
        if outside := len(kept) - len(covered):
            notices.append(
                f"{outside} of {len(kept)} clips are in no span: the scene is too short, or the next clips are dropped "
                "or not chosen"
            )
        return notices


def _no_captions(form: CaptionForm, *, by_rules: bool) -> str:
    if not by_rules:
        return f"no chosen clip has a caption as {form}; choose another with --captions, or build with captions"
    return (
        f"the captions are made by rules, which write no {form} for these clips; "
        "build with --captioner server, review the clips, or give --captions instruction"
    )


def _file_of(trainer: Trainer, seen: SeenClip) -> str:
    """Path of a clip in the export; for the hub with a folder per film, because it allows 10,000 files per folder."""
    name = f"{seen.clip.clip_id}.mp4"
    if trainer.is_hub:
        return f"{seen.split}/{seen.clip.film_id}/{name}"
    return f"{trainer.folder}/{name}" if trainer.folder else name
