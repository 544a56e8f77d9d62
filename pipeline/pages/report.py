"""HTML report, `report.html`: one file to look at a dataset, with embedded thumbnails and relative links to clips.

`report.html.j2` renders the values collected here and escapes each of them; `report.js` draws the contact sheet from
the rows of `contact_sheet`. The page makes no network request, and its content security policy allows no other script,
so names of films cannot inject one. The same dataset gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.captions.rules import kinds_of
from pipeline.core.atomic import replacing
from pipeline.core.plain_text import counted
from pipeline.core.progress import Progress, silent
from pipeline.core.store import Dataset
from pipeline.pages.charts import clock, scene_chart, scope_chart
from pipeline.pages.contact_sheet import better_copies, character_numbers, reason_numbers, sheet_data, thumbnails
from pipeline.pages.ledger import fate_colours, film_strip, ledger, share
from pipeline.pages.season import seasons
from pipeline.pages.summary import Summary, count_reasons, level_rows, made_with, software, summarise
from pipeline.publish.similar_clips import picture_vectors

TAG_NAMES = {"S": "Subject", "MD": "Motion", "EV": "Environment", "MA": "Adverb"}
JUDGEMENTS = {
    "SC": ("Characters interact", {1: "yes", 0: "no"}),
    "ET": ("Entertainment, sport or rest", {1: "yes", 0: "no"}),
    "ST": ("Restores stamina", {1: "yes", -1: "no"}),
}
MOST_VALUES = 10
RARE_UP_TO = 2
"""Clips up to which a value is rare."""
MOST_RARE = 200
NOT_MEASURED = "not measured"


def write_report(dataset: Dataset, progress: Progress = silent, threads: int = 0) -> Path:
    """Write `report.html` of the dataset.

    Args:
        threads: threads that decode pictures; 0: as many as there are cores.

    Raises:
        StoreError: a file of the dataset cannot be read.
    """
    summary = summarise(dataset)
    threads = threads or os.cpu_count() or 1
    environment = Environment(
        loader=PackageLoader("pipeline.pages", "."),
        undefined=StrictUndefined,
        autoescape=True,
        keep_trailing_newline=True,
    )
    alike = alike_in_content(dataset, summary)
    page = environment.get_template("report.html.j2").render(
        **_assets(),
        **_values(summary),
        alike=_alike_remark(alike),
        data=sheet_data(summary, alike),
        pictures=Markup("\n".join(thumbnails(dataset, summary, threads, progress))),  # noqa: S704 - made of base64
    )
    path = dataset.root / "report.html"
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")
    return path


def _assets() -> dict[str, str]:
    """Style and script, with their hashes for the page's content security policy."""
    assets: dict[str, str] = {}
    for kind in ("css", "js"):
        text = (files("pipeline.pages") / f"report.{kind}").read_text(encoding="utf-8")
        assets[kind] = Markup(text)  # noqa: S704 - our own files
        assets[f"{kind}_hash"] = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return assets


def _values(summary: Summary) -> dict[str, Any]:
    colours = fate_colours(summary)
    kept = [seen.motion.scope_px for seen in summary.kept if seen.motion]
    others = [seen.motion.scope_px for seen in summary.clips if seen.motion and seen.fate != "kept"]
    lengths = [scene.end_seconds - scene.start_seconds for film in summary.films for scene in film.scenes]
    tables = _tag_tables(summary)
    card = summary.config.card
    made = [("Licence of the films", card.licence), ("Provenance", card.provenance), ("Contact", card.contact)]
    return {
        "title": summary.title,
        "rules": summary.made_by_rules,
        "figures": _figures(summary),
        "seasons": seasons(summary, colours),
        "films": [film_strip(film, colours) for film in summary.films],
        "ledger": ledger(summary, colours),
        "scene_chart": scene_chart(lengths),
        "scene_remark": _scene_remark(lengths),
        "scope_chart": scope_chart(kept, others, summary.record.edges or ()),
        "scope_remark": _scope_remark(summary),
        "levels": level_rows(summary),
        "caption_remark": _caption_remark(summary, tables),
        "review_remark": _review_remark(summary),
        "findings": summary.reviews.findings,
        "review_remarks": summary.reviews.remarks,
        "audit": summary.audit,
        "tag_tables": [table for table in tables if table["measured"]],
        "repeats": _repeats_remark(summary),
        "choices": _choices(summary),
        "origins": [(name, text or "not stated by the builder") for name, text in made]
        + made_with(summary)
        + [("Software", software(summary))],
    }


def _figures(summary: Summary) -> list[dict[str, str]]:
    films, clips, kept = summary.films, summary.clips, summary.kept
    fates = Counter(clip.fate for clip in clips)
    shape = summary.config.clips
    kept_seconds = sum(seen.clip.end_seconds - seen.clip.start_seconds for seen in kept)
    worst = ", ".join(f"{count:,} {reason}" for reason, count in count_reasons(clips, "dropped").most_common(2))
    counts = summary.index.counts.split if summary.index else {}
    facts = [
        ("Films", len(films), f"{clock(sum(film.film.duration_seconds for film in films))} long"),
        ("Scenes", sum(len(film.scenes) for film in films), "between two cuts"),
        ("Clips cut", len(clips), f"{shape.frames} frames at {shape.fps} per second, {shape.width}x{shape.height}"),
        ("Kept", fates["kept"], f"{share(fates['kept'], len(clips))} of the clips, {clock(kept_seconds)}"),
        ("Dropped", fates["dropped"], worst),
    ]
    if fates["failed"] or fates["pending"]:
        facts.append(("Failed", fates["failed"], f"{fates['pending']:,} not judged yet" if fates["pending"] else ""))
    if counts:
        facts.append(("Samples", sum(counts.values()), ", ".join(f"{n:,} {split}" for split, n in counts.items())))
    return [{"name": name, "value": f"{value:,}", "remark": remark} for name, value, remark in facts]


def _scene_remark(lengths: Sequence[float]) -> str:
    if not lengths:
        return "No scene yet."
    return (
        f"{counted(len(lengths), 'scene')} by length in seconds; half of them are shorter than {median(lengths):.1f} s."
    )


def _repeats_remark(summary: Summary) -> str:
    """Number of the clips that repeat another; empty without any."""
    repeats = [seen for seen in summary.clips if seen.verdict and seen.verdict.duplicate_of]
    if not repeats:
        return ""
    kept = sum(seen.fate == "kept" for seen in repeats)
    but = f"; a review keeps {kept:,} of them" if kept else ""
    better = len(better_copies(summary))
    remedy = 'To keep these, set prefer = "quality" in [selection].'
    remedy = f" Better copies among them: {better:,}. {remedy}" if better else ""
    return f"{counted(len(repeats), 'repeat')} of other clips{but}.{remedy}"


ALIKE, MOST_ALIKE = 0.99, 300
"""Cosine of the mean pictures from which on two clips are alike in content (1 - eps of NeMo Curator's semantic search
for duplicates), and the most pairs on the page."""


def alike_in_content(dataset: Dataset, summary: Summary) -> list[tuple[str, str]]:
    """Pairs of kept clips that are alike in content, by id, the most alike first; not those of one scene."""
    kept = {seen.clip.clip_id: (seen.clip.film_id, seen.clip.scene) for seen in summary.kept}
    found = [
        (one, other)
        for one, other, _ in picture_vectors(dataset).pairs(ALIKE)
        if one in kept and other in kept and kept[one] != kept[other]
    ]
    return found[:MOST_ALIKE]


def _alike_remark(pairs: Sequence[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    said = f"{counted(len(pairs), 'pair')} of kept clips whose pictures have nearly the same vectors."
    return said if len(pairs) < MOST_ALIKE else f"The first {said}"


CROWDED_SHARE = 0.6
"""Share of the kept clips above which one motion level says little."""


def _scope_remark(summary: Summary) -> str:
    edges = f"Edges of the levels: {summary.record.edges_from or 'not set yet'}."
    levels = Counter(seen.level for seen in summary.kept if seen.level)
    if not levels:
        return edges
    [(level, clips)] = levels.most_common(1)
    if clips <= CROWDED_SHARE * levels.total() or levels.total() < 5:
        return edges
    remedy = "`animegamer calibrate` fits the edges to this dataset"
    return f"{edges} Level {level} holds {share(clips, levels.total())} of the kept clips: {remedy}."


def _caption_remark(summary: Summary, tables: Sequence[Mapping[str, Any]]) -> str:
    captions = sum(1 for seen in summary.kept if seen.caption)
    if summary.record.captioner is None:
        return "No caption has been made yet."
    by = "rules, from measured facts only" if summary.made_by_rules else summary.record.captioner
    nowhere = ", ".join(table["name"].lower() for table in tables if not table["measured"])
    unmeasured = f" Measured in none of them: {nowhere}." if nowhere else ""
    return f"{counted(captions, 'kept clip')} with a caption, made by {by}.{unmeasured}"


def _review_remark(summary: Summary) -> str:
    fields, kept = summary.reviewed_fields, len(summary.kept)
    if not fields:
        return ""
    shares = ", ".join(f"{name} {share(count, kept)}" for name, count in fields.items())
    by = ", ".join(f"{name} ({counted(count, 'decision')})" for name, count in summary.reviews.reviewers.items())
    return f"Reviewed share of the kept clips, by field: {shares}. Reviewers: {by or 'not known on this machine'}."


def _tag_tables(summary: Summary) -> list[dict[str, Any]]:
    captions = [seen.caption for seen in summary.kept if seen.caption]
    tables = [
        _tag_table(tag, name, Counter(getattr(caption, tag) for caption in captions), ordered=False)
        for tag, name in TAG_NAMES.items()
    ]
    for table in tables:
        table["rare"] = _rare(Counter(getattr(caption, table["tag"]) for caption in captions))
    for tag, (name, words) in JUDGEMENTS.items():
        given = Counter(getattr(caption, tag) for caption in captions)
        counts: Counter[str | None] = Counter()
        counts.update({word: given[value] for value, word in words.items()})
        counts[None] = given[None]
        tables.append(_tag_table(tag, name, counts, ordered=True))
    people: Counter[str | None] = Counter(dict.fromkeys(summary.record.cast, 0))
    for caption in captions:
        people.update([None] if caption.characters is None else caption.characters or ["nobody of the cast"])
    links = {name: f"#sheet?character={number}" for name, number in character_numbers(summary).items()}
    doubts: Counter[str | None] = Counter(kind for caption in captions for kind in kinds_of(caption))
    return [
        _tag_table("characters", "Cast on screen", people, ordered=False, links=links),
        *tables,
        _tag_table("flags", "Doubts about captions", doubts, ordered=False),
    ]


def _tag_table(
    tag: str, name: str, counts: Counter[str | None], *, ordered: bool, links: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Counts of a tag: the most frequent values, then the sum of the others, then the clips without a value."""
    whole = sum(counts.values()) or 1
    missing = counts.pop(None, 0)
    named = [(value, count) for value, count in counts.items() if value is not None]
    if not ordered:
        named.sort(key=lambda item: (-item[1], item[0]))
    rows = [(value, count, False) for value, count in named[:MOST_VALUES]]
    if len(named) > MOST_VALUES:
        others = named[MOST_VALUES:]
        rows.append((f"{len(others):,} other values", sum(count for _, count in others), True))
    if missing:
        rows.append((NOT_MEASURED, missing, True))
    return {
        "tag": tag,
        "name": name,
        "measured": any(count for _, count in named),
        "rare": "",
        "rows": [
            {
                "name": value,
                "clips": f"{count:,}",
                "share": count / whole,
                "quiet": quiet,
                "link": (links or {}).get(value),
            }
            for value, count, quiet in rows
        ],
    }


def _rare(counts: Counter[str | None]) -> str:
    """Values with too few clips to learn them in training, the least frequent first."""
    rare = sorted((count, value) for value, count in counts.items() if value and count <= RARE_UP_TO)
    more = f", and {len(rare) - MOST_RARE:,} more" if len(rare) > MOST_RARE else ""
    return ", ".join(f"{value} ({count})" for count, value in rare[:MOST_RARE]) + more


def _choices(summary: Summary) -> list[dict[str, Any]]:
    """The drop-down filters of the contact sheet."""
    films = [(number, film.film.name) for number, film in enumerate(summary.films)] if len(summary.films) > 1 else []
    characters = [(number, name) for name, number in character_numbers(summary).items()]
    reasons = [(number, reason) for reason, number in reason_numbers(summary).items()]
    levels = [*((level, f"Level {level}") for level in range(1, 6)), ("none", "Not measured")]
    fates = [(fate, fate.capitalize()) for fate in ("kept", "dropped", "failed", "pending")]
    order = [("least", "Least motion first"), ("most", "Most motion first")]
    return [
        {"key": key, "name": name, "any": nothing, "options": options}
        for key, name, nothing, options in (
            ("film", "Film", "All films", films),
            ("level", "Motion level", "All levels", levels),
            ("character", "Character", "Anybody", characters),
            ("verdict", "Verdict", "Kept or not", fates),
            ("reason", "Reason", "Any reason", reasons),
            ("order", "Order", "As in the films", order),
        )
        if options
    ]
