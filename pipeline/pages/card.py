"""Data card, `README.md`: contents of the dataset, method, loading instructions, licence and provenance.

Hugging Face reads its YAML front matter, so that `load_dataset(folder)` finds the splits. Facts that only the builder
knows (licence, provenance) come from the configuration; empty ones are marked as not stated. The same dataset gives the
same bytes. Names of films and characters are untrusted text: Markdown escapes every special character, and YAML holds
every value as a JSON string.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.captions.rules import kinds_of
from pipeline.core.atomic import replacing
from pipeline.core.config import CardSettings
from pipeline.core.plain_text import counted
from pipeline.core.store import Dataset
from pipeline.pages.charts import clock
from pipeline.pages.ledger import share
from pipeline.pages.summary import (
    SeenFilm,
    Summary,
    count_reasons,
    level_rows,
    made_with,
    software,
    summarise,
    treatments,
)
from pipeline.publish.card_text import NOT_STATED, Markdown, as_yaml, licence_id, rendered_card, size_category
from pipeline.publish.samples import hub_features


def write_card(dataset: Dataset, card: CardSettings) -> Path:
    """Write `README.md` of the dataset; `card` holds the builder's own text. Raises StoreError."""
    text = rendered_card("pipeline.pages", ".", "card.md.j2", _values(summarise(dataset), card))
    path = dataset.root / "README.md"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def _values(summary: Summary, card: CardSettings) -> dict[str, Any]:
    clips, kept = summary.clips, summary.kept
    dropped = count_reasons(clips, "dropped")
    fates = Counter(clip.fate for clip in clips)
    return {
        "front_matter": [(Markdown(key), Markdown(as_yaml(one))) for key, one in _front_matter(summary, card).items()],
        "title": card.title or summary.title,
        "rules": summary.made_by_rules,
        "card": card,
        "notes": Markdown(card.notes.strip()),
        "not_stated": Markdown(f"**{NOT_STATED}**"),
        "counts": {
            "films": len(summary.films),
            "scenes": sum(len(film.scenes) for film in summary.films),
            "clips": len(clips),
            **{fate: fates[fate] for fate in ("kept", "failed", "pending")},
        },
        "clip_seconds": f"{float(summary.config.clips.frames / summary.config.clips.fps):g}",
        "clips": summary.config.clips,
        "motion": summary.config.motion,
        "kept_time": clock(sum(seen.clip.end_seconds - seen.clip.start_seconds for seen in kept)),
        "film_time": clock(sum(film.film.duration_seconds for film in summary.films)),
        "films": [_film_row(film) for film in summary.films],
        "treated": [(seen.film.name, text) for seen in summary.films for text in treatments(seen)],
        "dropped": sorted(dropped.items(), key=lambda item: (-item[1], item[0])),
        "dropped_twice": sum(dropped.values()) > fates["dropped"],
        "split_by_film": summary.config.shards.split == "film",
        "splits": list(summary.index.counts.split.items()) if summary.index else [],
        "levels": level_rows(summary),
        "flow_model": summary.record.flow_model or "(none yet)",
        "edges_from": summary.record.edges_from or "not set yet",
        "cast": _cast_counts(summary),
        "reviewed": [(name, many, share(many, len(kept))) for name, many in summary.reviewed_fields.items()],
        "reviewed_samples": sum(1 for clip in kept if clip.reviewed),
        "reviewers": list(summary.reviews.reviewers.items()),
        "findings": (*summary.reviews.findings, *summary.reviews.remarks),
        "audit": summary.audit,
        "flagged": sorted(Counter(flag for clip in kept if clip.verdict for flag in clip.verdict.flags).items()),
        "doubts": sorted(Counter(kind for clip in kept if clip.caption for kind in kinds_of(clip.caption)).items()),
        "stages": made_with(summary),
        "software": software(summary),
        "limits": _limits(summary),
        "heard": _heard(summary),
    }


def _front_matter(summary: Summary, card: CardSettings) -> dict[str, Any]:
    """Front matter for Hugging Face, which fails on splits without a shard, so these are not listed."""
    known = licence_id(card.licence)
    counts = summary.index.counts.split if summary.index else {}
    files = [{"split": split, "path": f"shards/{split}/*.tar"} for split, samples in counts.items() if samples]
    head: dict[str, Any] = {
        "pretty_name": card.title or summary.title,
        "license": known or ("other" if card.licence else "unknown"),
        "task_categories": ["text-to-video", "image-to-video"],
        "tags": ["video", "animation", "webdataset", "rule-captions" if summary.made_by_rules else "captions"],
        "size_categories": [size_category(len(summary.kept))],
    }
    if card.licence and not known:
        head["license_name"] = card.licence
    if files:
        head["configs"] = [{"config_name": "default", "data_files": files}]
        head["dataset_info"] = {"config_name": "default", "features": hub_features()}
    return head


def _film_row(seen: SeenFilm) -> dict[str, Any]:
    return {
        "name": seen.film.name,
        "episode": seen.film.episode_name,
        "length": clock(seen.film.duration_seconds),
        "picture": f"{seen.film.display_width}x{seen.film.display_height}",
        "fps": f"{float(seen.film.fps):.5g}",
        "scenes": len(seen.scenes),
        "clips": len(seen.clips),
        "kept": sum(clip.fate == "kept" for clip in seen.clips),
    }


def _cast_counts(summary: Summary) -> list[tuple[str, int]]:
    """Number of samples with each character on screen: the cast sheet's characters first, then names by reviewers."""
    seen = Counter(name for clip in summary.kept if clip.caption for name in clip.caption.characters or ())
    return [(name, seen[name]) for name in dict.fromkeys([*summary.record.cast, *sorted(seen)])]


_DUPLICATES = {
    True: "Near-duplicates are found by perceptual hashes: repeated shots with another crop or colour may remain.",
    False: "Near-duplicates were not searched for: repeated shots remain, perhaps in both splits.",
}


def _heard(summary: Summary) -> int:
    """Number of samples with sound."""
    return sum(clip.sound is not None for clip in summary.kept) if summary.record.keeps_sound else 0


def _sound_limit(summary: Summary) -> str:
    if not (heard := _heard(summary)):
        return "Clips have no sound."
    return f"{heard:,} of {counted(len(summary.kept), 'clip')} have sound: AAC, 48 kHz, stereo."


def _limits(summary: Summary) -> list[str]:
    limits = [
        "Scene changes are found by detectors, not by people: a few clips may hold a missed cut.",
        "The motion level says how much moves, not what: a camera pan counts as motion (`camera` tells).",
        _DUPLICATES[summary.config.selection.near_duplicates],
        _sound_limit(summary),
    ]
    if summary.made_by_rules:
        which = "captions that no reviewer completed" if summary.reviewed_fields else "captions"
        limits.insert(0, f"The {which} are made by rules: they name no subject, place or character.")
    elif summary.record.captioner is not None:
        limits.insert(0, f"The captions are answers of {summary.record.captioner}, which makes mistakes.")
    limits += [
        f"{film.film.name} is as an earlier build left it, because the last one failed: {film.last_failure.reason}"
        for film in summary.films
        if film.last_failure
    ]
    if summary.index and summary.index.split_remark:
        limits.append(f"{summary.index.split_remark[0].upper()}{summary.index.split_remark[1:]}.")
    if any(film.warnings for film in summary.films):
        limits.append("Some films came with warnings of the probe, the crop or the last build; report.html lists them.")
    return limits
