"""Coverage of a film, and remarks on it: spans of time kept in a clip, dropped for a named reason, or failed.

The spans tile the film from its first frame to the end given in its header, without gaps and overlaps, so their lengths
add up to its length. A remark is not a failure: a film has no clip, or the clips show little of its pictures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor
from typing import Literal

from pipeline.core.config import ClipSettings
from pipeline.core.measurements import Looks
from pipeline.core.records import Clip, Crop, Damage, Film, Scene, Verdict
from pipeline.core.store import FilmFolder
from pipeline.stages.cutting.clip_grid import HELD_SECONDS, TRIED_STEPS, span_seconds
from pipeline.stages.selection import FAILED
from pipeline.stages.stretches import Stretch
from pipeline.video.scaling import Geometry

Fate = Literal["kept", "dropped", "failed"]

SCENE_EDGE = "scene edge"
TOO_SHORT = "shorter than a clip"
BETWEEN_CLIPS = "between clips"
PASSED_OVER = "two scenes or a fade"
_WITHOUT_CLIP = (SCENE_EDGE, TOO_SHORT, BETWEEN_CLIPS, PASSED_OVER)
SHARP = ("start", "cut", "damage", "borders")
"""Beginnings of a scene, mostly without a mixed frame."""
ROUNDING = 0.002
PAST_END = "past --end"
MISSING = "missing from the file"
NOT_JUDGED = "not judged yet"
NOT_READ = "not read"
EVEN_SHARE = 0.01
"""Deviation of a film's rate from a multiple of the clips' rate that is still even, as in 24000/1001 to 8."""
LEAST_SHOWN = 2 / 3
"""Share of the picture's width or height below which the crop of the clips deserves a remark."""


@dataclass(frozen=True)
class Span:
    """Span of a film with one fate."""

    start_seconds: float
    end_seconds: float
    fate: Fate
    reason: str
    """Reason for the fate; empty if kept."""


def film_spans(
    film: Film,
    scenes: Sequence[Scene],
    damage: Sequence[Damage],
    clips: Sequence[Clip],
    verdicts: Sequence[Verdict],
    end_seconds: float | None,
    stretches: Sequence[Stretch] = (),
) -> list[Span]:
    """The spans of a film in order, tiling 0 to its duration plus its missing seconds.

    Scenes, in order, and damage tile the used part of the film, which ends at `end_seconds` if that is set. `clips` are
    all clips of the film; a clip without a verdict is not judged yet. The time between clips in a stretch to leave out
    counts as the stretch.
    """
    fates = {verdict.clip_id: _fate(verdict) for verdict in verdicts}
    used = film.used_seconds(end_seconds)
    members: dict[int, list[Clip]] = defaultdict(list)
    for clip in sorted(clips, key=lambda clip: clip.start_seconds):
        members[clip.scene].append(clip)
    margin, gap = _margin_seconds(scenes, members), _gap_seconds(members)
    spans = [Span(part.start_seconds, part.end_seconds, "failed", part.reason) for part in damage]
    for scene in scenes:
        spans += _scene_spans(scene, members[scene.scene], fates, margin, gap)
    tiles = _tiled(spans, used, slack=1 / float(film.fps))
    tiles = [part for tile in tiles for part in _with_stretches(tile, stretches)]
    tiles.append(Span(used, film.duration_seconds, "dropped", PAST_END))
    tiles.append(Span(film.duration_seconds, film.duration_seconds + film.missing_seconds, "failed", MISSING))
    return [span for span in tiles if span.end_seconds > span.start_seconds]


def _with_stretches(tile: Span, stretches: Sequence[Stretch]) -> list[Span]:
    """The parts of a span without a clip, by the stretches that hold them; any other span as it is."""
    if tile.reason not in _WITHOUT_CLIP:
        return [tile]
    ends = {time for one in stretches for time in (one.start_seconds, one.end_seconds)}
    inner = sorted(time for time in ends if tile.start_seconds < time < tile.end_seconds)
    parts = []
    for start, end in pairwise((tile.start_seconds, *inner, tile.end_seconds)):
        holding = (one.reason for one in stretches if one.start_seconds <= start and end <= one.end_seconds)
        parts.append(Span(start, end, "dropped", next(holding, tile.reason)))
    return parts


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
    """The margin at scene ends: the shortest time from a scene's start to its first clip, unless that reaches it."""
    leads = (members[scene.scene][0].start_seconds - scene.start_seconds for scene in scenes if members[scene.scene])
    return min((lead for lead in leads if lead > ROUNDING), default=0.0)


def _gap_seconds(members: Mapping[int, Sequence[Clip]]) -> float:
    """The time between clips of a scene by the settings: the shortest of all."""
    return min((gap for clips in members.values() for gap in _gaps(clips)), default=0.0)


def _gaps(clips: Sequence[Clip]) -> list[float]:
    return [max(0.0, other.start_seconds - one.end_seconds) for one, other in pairwise(clips)]


def _is_passed_over(clip: Clip, seconds: float) -> bool:
    """Report whether the time before a clip, beyond what the settings leave out, is one that it has moved on by."""
    return TRIED_STEPS / clip.fps - ROUNDING < seconds < clip.frames / clip.fps


def _scene_spans(
    scene: Scene, clips: Sequence[Clip], fates: Mapping[str, tuple[Fate, str]], margin: float, gap: float
) -> list[Span]:
    """Spans of a scene: margin and transition, clips, what they pass over, the rest that is too short, margin."""
    if not clips:
        return [Span(scene.start_seconds, scene.end_seconds, "dropped", TOO_SHORT)]
    edge = first = clips[0].start_seconds
    if scene.opened_by in SHARP and _is_passed_over(clips[0], first - scene.start_seconds - margin):
        edge = scene.start_seconds + margin
    spans = [Span(scene.start_seconds, edge, "dropped", SCENE_EDGE), Span(edge, first, "dropped", PASSED_OVER)]
    for clip in clips:
        fate, reason = fates.get(clip.clip_id, ("dropped", NOT_JUDGED))
        spans.append(Span(clip.start_seconds, clip.end_seconds, fate, reason))
    for clip, between in zip(clips, _gaps(clips), strict=False):
        regular = clip.end_seconds + (gap if _is_passed_over(clip, between - gap) else between)
        spans.append(Span(clip.end_seconds, regular, "dropped", BETWEEN_CLIPS))
        spans.append(Span(regular, clip.end_seconds + between, "dropped", PASSED_OVER))
    rest_end = max(clips[-1].end_seconds, scene.end_seconds - margin)
    spans.append(Span(clips[-1].end_seconds, rest_end, "dropped", TOO_SHORT))
    spans.append(Span(rest_end, scene.end_seconds, "dropped", SCENE_EDGE))
    return spans


def _tiled(spans: Iterable[Span], end: float, slack: float) -> list[Span]:
    """The spans in order, cut at `end`, each starting at the end of the one before; gaps above `slack` become spans.

    Scenes and the film end with a frame, so smaller gaps are rounding.
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


def film_remarks(folder: FilmFolder, settings: ClipSettings) -> list[str]:
    """Return the remarks on a film after the stage `cut`. Raises StoreError if a table cannot be read."""
    remarks = (
        why_no_clip(folder, settings),
        _cut_off(folder, settings),
        _uneven_steps(folder, settings),
        _overlays(folder),
    )
    return [remark for remark in remarks if remark]


def why_no_clip(folder: FilmFolder, settings: ClipSettings) -> str | None:
    """Return the reason that a film has no clip; None if it has one, or is not cut yet. Raises as `film_remarks`."""
    scenes = folder.read_if_made("scenes", Scene)
    if not folder.stage_record("cut") or folder.read_if_made("clips", Clip):
        return None
    if not scenes:
        return "no clip: no frame of the film could be used"
    clip_seconds = span_seconds(settings)
    longest = max(scene.end_seconds - scene.start_seconds for scene in scenes)
    if longest < clip_seconds:
        what = f"no scene is as long as a clip ({clip_seconds:.3g} s)"
    else:
        held = f"frames held longer than {HELD_SECONDS} s"
        what = f"no scene has {clip_seconds:.3g} s between its transitions and {held}"
    return f"no clip: {what}; the longest lasts {longest:.3g} s"


def _uneven_steps(folder: FilmFolder, settings: ClipSettings) -> str | None:
    film = folder.film
    frames = film.fps / settings.fps
    nearest = max(1, round(frames))
    if not folder.stage_record("cut") or film.variable_rate or abs(frames - nearest) <= EVEN_SHARE * nearest:
        return None
    steps = f"{floor(frames)} or {ceil(frames)} frames" if frames > 1 else "one frame or none"
    rates = f"{float(film.fps):.5g} frames per second are no multiple of the clips' {float(settings.fps):.5g}"
    even = (film.fps / nearest).limit_denominator(1001)
    return f'{rates}: steady motion jerks, by {steps} a step; `fps = "{even}"` in [clips] keeps it steady'


def _overlays(folder: FilmFolder) -> str | None:
    looks = folder.read_if_made("looks", Looks) if folder.stage_record("looks") else []
    counts = {
        "logo": sum(bool(row.logo_boxes) for row in looks),
        "subtitles": sum(bool(row.subtitle_lines) for row in looks),
    }
    found = " and ".join(f"{name} in {count:,}" for name, count in counts.items() if count)
    return f"{found} of {len(looks):,} clips; `logo` and `text` in [selection] drop or flag them" if found else None


def _cut_off(folder: FilmFolder, settings: ClipSettings) -> str | None:
    crops = folder.read_if_made("crop", Crop)
    if not folder.stage_record("cut") or not crops:
        return None
    geometry = Geometry.around(folder.film, crops)
    width, height = geometry.shown(settings.width, settings.height, settings.fit)
    if min(width, height) >= LEAST_SHOWN:
        return None
    kind = "vertical film: " if geometry.width * geometry.pixel_aspect < geometry.height else ""
    side = "width" if width < height else "height"
    return f'{kind}clips show {100 * min(width, height):.0f} % of its {side}; `fit = "fit"` in [clips] shows all of it'
