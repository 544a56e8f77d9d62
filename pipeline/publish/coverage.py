"""Where every second of a film went: into a kept clip, dropped for a named reason, or failed.

The spans tile the film from its first frame to the end that its header promises, without gaps and overlaps, so their
lengths add up to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from pipeline.core.records import Clip, Damage, Film, Scene, Verdict
from pipeline.stages.selection import FAILED

Fate = Literal["kept", "dropped", "failed"]

SCENE_EDGE = "scene edge"
TOO_SHORT = "shorter than a clip"
BETWEEN_CLIPS = "between clips"
PAST_END = "past --end"
MISSING = "missing from the file"
NOT_JUDGED = "not judged yet"
NOT_READ = "not read"


@dataclass(frozen=True)
class Span:
    """A stretch of film with one fate."""

    start_seconds: float
    end_seconds: float
    fate: Fate
    reason: str
    """Empty for what is kept."""


def account(
    film: Film,
    scenes: Sequence[Scene],
    damage: Sequence[Damage],
    clips: Sequence[Clip],
    verdicts: Sequence[Verdict],
    end_seconds: float | None,
) -> list[Span]:
    """The spans of a film in order; they tile 0 to its duration plus what is missing.

    Args:
        film: its length.
        scenes: in order; together with `damage` they tile the part that was used.
        damage: what could not be decoded.
        clips: all clips of the film, dropped ones too.
        verdicts: on the clips; a clip without one is not judged yet.
        end_seconds: where the use of the film ended, None if all of it was used.
    """
    fates = {verdict.clip_id: _fate(verdict) for verdict in verdicts}
    used = film.duration_seconds if end_seconds is None else min(end_seconds, film.duration_seconds)
    members: dict[int, list[Clip]] = defaultdict(list)
    for clip in clips:
        members[clip.scene].append(clip)
    margin = _margin_seconds(scenes, members)
    spans = [Span(part.start_seconds, part.end_seconds, "failed", part.reason) for part in damage]
    for scene in scenes:
        spans += _scene_spans(scene, sorted(members[scene.scene], key=lambda c: c.start_seconds), fates, margin)
    tiles = _tiled(spans, used, slack=1 / float(film.fps))
    tiles.append(Span(used, film.duration_seconds, "dropped", PAST_END))
    tiles.append(Span(film.duration_seconds, film.duration_seconds + film.missing_seconds, "failed", MISSING))
    return [span for span in tiles if span.end_seconds > span.start_seconds]


def totals(spans: Iterable[Span]) -> dict[tuple[Fate, str], float]:
    """Seconds by fate and reason."""
    seconds: dict[tuple[Fate, str], float] = defaultdict(float)
    for span in spans:
        seconds[span.fate, span.reason] += span.end_seconds - span.start_seconds
    return dict(seconds)


def _fate(verdict: Verdict) -> tuple[Fate, str]:
    if verdict.keep:
        return "kept", ""
    reason = verdict.reasons[0]
    return ("failed", reason.removeprefix(FAILED)) if reason.startswith(FAILED) else ("dropped", reason)


def _margin_seconds(scenes: Sequence[Scene], members: Mapping[int, Sequence[Clip]]) -> float:
    """The margin is the same at every scene end, so the shortest wait for a scene's first clip tells it."""
    waits = [
        min(clip.start_seconds for clip in members[scene.scene]) - scene.start_seconds
        for scene in scenes
        if members.get(scene.scene)
    ]
    return max(0.0, min(waits, default=0.0))


def _scene_spans(
    scene: Scene, clips: Sequence[Clip], fates: Mapping[str, tuple[Fate, str]], margin: float
) -> list[Span]:
    """A scene's margin and transition, its clips, the rest that is too short for one more, and its margin again."""
    if not clips:
        return [Span(scene.start_seconds, scene.end_seconds, "dropped", TOO_SHORT)]
    spans = [Span(scene.start_seconds, clips[0].start_seconds, "dropped", SCENE_EDGE)]
    for clip in clips:
        fate, reason = fates.get(clip.clip_id, ("dropped", NOT_JUDGED))
        spans.append(Span(clip.start_seconds, clip.end_seconds, fate, reason))
    gaps = [(one.end_seconds, other.start_seconds) for one, other in pairwise(clips)]
    spans += [Span(start, end, "dropped", BETWEEN_CLIPS) for start, end in gaps if end > start]
    rest_end = max(clips[-1].end_seconds, scene.end_seconds - margin)
    spans.append(Span(clips[-1].end_seconds, rest_end, "dropped", TOO_SHORT))
    spans.append(Span(rest_end, scene.end_seconds, "dropped", SCENE_EDGE))
    return spans


def _tiled(spans: Iterable[Span], end: float, slack: float) -> list[Span]:
    """The spans in order, cut at `end`, each beginning where the one before ends; a gap longer than `slack` is named.

    Scenes end where a frame ends and the film where its last one does, so times may differ by rounding and no more.
    """
    tiles: list[Span] = []
    covered = 0.0
    for span in sorted(spans, key=lambda span: (span.start_seconds, span.end_seconds)):
        stop = min(span.end_seconds, end)
        if stop <= covered:
            continue
        start = max(covered, min(span.start_seconds, end))
        if start - covered > slack:
            tiles.append(Span(covered, start, "failed", NOT_READ))
            covered = start
        tiles.append(replace(span, start_seconds=covered, end_seconds=stop))
        covered = stop
    if end - covered > slack or (not tiles and end > 0):
        tiles.append(Span(covered, end, "failed", NOT_READ))
    elif tiles:
        tiles[-1] = replace(tiles[-1], end_seconds=end)
    return tiles
