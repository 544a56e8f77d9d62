"""Time ledger of the report: seconds of the films by fate, as a strip for each film and a table with the sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.core.dialogue import SubtitleTrack
from pipeline.core.plain_text import counted
from pipeline.core.records import Crop
from pipeline.pages.charts import clock, strip_path, time_ticks
from pipeline.pages.contact_sheet import reason_numbers
from pipeline.pages.summary import SeenFilm, Summary, treatments
from pipeline.publish.coverage import PAST_END, Fate, Span, totals

MOST_FILMS_IN_TABLE = 4
"""Largest number of films with a column each; more films share one column."""

Colours = dict[tuple[Fate, str], str]
"""CSS class of each fate and reason, in the order of the list."""


@dataclass(frozen=True)
class Lane:
    """All spans of a film with the same fate, as one SVG path."""

    name: str
    colour: str
    time: str
    path: str


def share(part: float, whole: float) -> str:
    """Percentage, as `12.3 %`; a dash if the whole is 0."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


def fate_colours(summary: Summary) -> Colours:
    """A colour class per fate: strong colours for the reasons of clips, pale colours for time outside clips."""
    seconds = totals(span for film in summary.films for span in film.spans)
    of_clips = {reason for seen in summary.clips for reason in seen.reasons if seen.fate == "dropped"}
    colours: Colours = {}
    used: Counter[str] = Counter()
    order = {"kept": 0, "dropped": 1, "failed": 3}

    def rank(key: tuple[Fate, str]) -> tuple[int, float, str]:
        return order[key[0]] + (key[0] == "dropped" and key[1] not in of_clips), -seconds[key], key[1]

    for fate, reason in sorted(seconds, key=rank):
        kind, most = ("drop", 8) if reason in of_clips else ("cut", 5)
        colours[fate, reason] = f"{kind}-{used[kind] % most}" if fate == "dropped" else fate
        used[kind] += fate == "dropped"
    return colours


def film_strip(seen: SeenFilm, colours: Colours) -> dict[str, Any]:
    """Values of a film in the report: its facts, its strip, the scenes and times along it, its failures."""
    film = seen.film
    seconds = film.duration_seconds + film.missing_seconds
    of_film = totals(seen.spans)
    used = max((span.end_seconds for span in seen.spans if span.reason != PAST_END), default=seconds)
    rate = f"{float(film.fps):.5g} frames per second{' (variable)' if film.variable_rate else ''}"
    facts = [f"{film.display_width}x{film.display_height}", rate, f"{film.codec} {film.bit_depth} bit", clock(seconds)]
    facts = [*filter(None, (film.episode_name, film.language)), *facts]
    if used < seconds:
        facts.append(f"used up to {clock(used)}")
    if any((crop.width, crop.height) != film.upright_size for crop in seen.crops):
        facts.append(f"cropped to {_crops(seen.crops)}")
    fates = Counter(clip.fate for clip in seen.clips)
    outcome = ", ".join(f"{fates[fate]:,} {fate}" for fate in ("kept", "dropped", "failed", "pending") if fates[fate])
    damage = [f"{clock(row.start_seconds)} to {clock(row.end_seconds)}: {row.reason}" for row in seen.damage]
    return {
        "name": film.name,
        "facts": " · ".join(facts),
        "seconds": round(used, 3),
        "lanes": [
            Lane(_label(key), colour, clock(of_film[key]), strip_path(_spans(seen.spans, key)))
            for key, colour in colours.items()
            if key in of_film and key[1] != PAST_END
        ],
        "scenes": len(seen.scenes),
        "scene_path": strip_path((scene.start_seconds, scene.end_seconds) for scene in seen.scenes[::2]),
        "ticks": time_ticks(used),
        "outcome": f"{counted(len(seen.clips), 'clip')} in {counted(len(seen.scenes), 'scene')}: {outcome}"
        if seen.clips
        else "no clip",
        "treatments": [*treatments(seen), *map(subtitle_remark, seen.subtitles)],
        "warnings": seen.warnings,
        "failures": [*damage, *(f"{failure.record_id}: {failure.reason}" for failure in seen.failures)],
    }


def _crops(crops: Sequence[Crop]) -> str:
    """Sizes of the crops, and from the second on the times at which they begin."""
    sizes = [f"{crop.width}x{crop.height}" for crop in crops]
    later = (f"from {clock(crop.start_seconds)} on {size}" for crop, size in zip(crops[1:], sizes[1:], strict=True))
    return ", ".join((sizes[0], *later))


def subtitle_remark(track: SubtitleTrack) -> str:
    """Facts of a subtitle track in one line: what it is, why it was chosen or not, and what was left out by rule."""
    about = ", ".join(filter(None, (track.codec.upper(), track.language or "language not stated", track.title)))
    use = f"dialogue, {counted(track.lines or 0, 'line')}" if track.chosen else "not used"
    remark = f"; {track.remark}" if track.remark else ""
    rules = ", ".join(f"{one.rule} {one.events:,}" for one in track.left_out)
    return f"Subtitles, {track.source} ({about}): {use}{remark}{f'; left out: {rules}' if rules else ''}"


def _spans(spans: Iterable[Span], key: tuple[Fate, str]) -> list[tuple[float, float]]:
    return [(span.start_seconds, span.end_seconds) for span in spans if (span.fate, span.reason) == key]


def ledger(summary: Summary, colours: Colours) -> dict[str, Any]:
    """The table of seconds by fate, per film if they are few, and the sum: the length of the films."""
    by_film = [totals(film.spans) for film in summary.films]
    columns = by_film if 1 < len(by_film) <= MOST_FILMS_IN_TABLE else []
    whole = sum(sum(column.values()) for column in by_film)
    clips = Counter(seen.reasons[0] if seen.reasons else "" for seen in summary.clips)
    numbers = reason_numbers(summary)
    rows = []
    for key, colour in colours.items():
        seconds = sum(column.get(key, 0.0) for column in by_film)
        count = clips[key[1]]
        link = f"#sheet?reason={numbers[key[1]]}" if key[1] in numbers else "#sheet?verdict=kept"
        rows.append(
            {
                "name": _label(key),
                "colour": colour,
                "films": [f"{column.get(key, 0.0):,.1f}" for column in columns],
                "seconds": f"{seconds:,.1f}",
                "share": share(seconds, whole),
                "clips": f"{count:,}" if count else "",
                "link": link if count else "",
            }
        )
    return {
        "films": [film.film.name for film in summary.films] if columns else [],
        "rows": rows,
        "sums": [f"{sum(column.values()):,.1f}" for column in columns],
        "sum": f"{whole:,.1f}",
        "clips": f"{len(summary.clips):,}",
    }


def _label(key: tuple[Fate, str]) -> str:
    fate, reason = key
    return f"{fate}: {reason}" if reason else fate
