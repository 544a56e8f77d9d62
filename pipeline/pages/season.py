"""Seasons in the report: a row for each episode of a series, with bands where its time went."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pipeline.core.records import Film
from pipeline.pages.charts import clock, strip_path, time_ticks
from pipeline.pages.contact_sheet import reason_numbers
from pipeline.pages.ledger import Colours, Lane
from pipeline.pages.summary import Summary
from pipeline.publish.coverage import Fate, totals

BANDS: tuple[tuple[Fate, str], ...] = (
    ("kept", ""),
    ("dropped", "opening"),
    ("dropped", "ending"),
    ("dropped", "recap"),
    ("dropped", "preview"),
    ("dropped", "repeated"),
    ("dropped", "skipped"),
)
"""Fates that have a band; all other time stays blank."""


def seasons(summary: Summary, colours: Colours) -> list[dict[str, Any]]:
    """Return the values of each series with several episodes, in the order of their numbers."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for number, seen in enumerate(summary.films):
        if seen.film.series:
            numbers[seen.film.series].append(number)
    return [_season(summary, colours, name, films) for name, films in numbers.items() if len(films) > 1]


def _season(summary: Summary, colours: Colours, name: str, numbers: list[int]) -> dict[str, Any]:
    seconds = max(summary.films[number].film.duration_seconds for number in numbers)
    rows = [
        _row(summary, colours, number)
        for number in sorted(numbers, key=lambda number: summary.films[number].film.episode_place)
    ]
    reasons = reason_numbers(summary)
    used = {lane.colour for row in rows for lane in row["lanes"]}
    legend = [
        {
            "name": key[1] or key[0],
            "colour": colours[key],
            "link": f"#sheet?reason={reasons[key[1]]}" if key[1] in reasons else "#sheet?verdict=kept",
        }
        for key in BANDS
        if key in colours and colours[key] in used
    ]
    return {"name": name, "seconds": round(seconds, 3), "rows": rows, "legend": legend, "ticks": time_ticks(seconds)}


def _row(summary: Summary, colours: Colours, number: int) -> dict[str, Any]:
    seen = summary.films[number]
    of_film = totals(seen.spans)
    lanes = [
        Lane(
            key[1] or key[0],
            colours[key],
            clock(of_film[key]),
            strip_path(
                (span.start_seconds, span.end_seconds) for span in seen.spans if (span.fate, span.reason) == key
            ),
        )
        for key in BANDS
        if key in of_film
    ]
    said = ", ".join(f"{lane.name} {lane.time}" for lane in lanes) or "nothing kept"
    return {"film": number, "label": _label(seen.film), "name": seen.film.name, "lanes": lanes, "said": said}


def _label(film: Film) -> str:
    """Short number of an episode: `07`, or `2x07` with its season."""
    episode = "–" if film.episode is None else f"{film.episode:02d}"
    return episode if film.season is None else f"{film.season}x{episode}"
