"""Text files of an export about all its clips: table, trainer's configuration and start command, card for the hub.

`datasets` and the hub's viewer read a folder of videos with a `metadata.jsonl`, whose column `file_name` has the paths
of the videos. Croissant 1.0 is JSON-LD; `mlcroissant validate` checks it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.core.measurements import QUALITY
from pipeline.core.records import Film
from pipeline.publish.card_text import NOT_STATED, Markdown, as_yaml, licence_id, rendered_card, size_category
from pipeline.publish.export.clips import ExportClip
from pipeline.publish.export.plan import ExportPlan
from pipeline.publish.export.references import REFERENCES
from pipeline.publish.export.trainers import Table
from pipeline.publish.samples import SPLITS, Split

METADATA = "metadata.jsonl"
CARD = "README.md"
CROISSANT = "croissant.json"
Columns = Mapping[str, tuple[str, str]]
COLUMNS: Columns = {
    "file_name": ("sc:Text", "path of the video, relative to the table"),
    "text": ("sc:Text", "caption"),
    "clip_id": ("sc:Text", "id of the clip in the dataset"),
    "film": ("sc:Text", "name of the film"),
    "episode": ("sc:Text", "series, season and episode of the film; empty for a film of its own"),
    "language": ("sc:Text", "language of the film's speech; empty if not stated"),
    "start_seconds": ("sc:Float", "start in the film"),
    "end_seconds": ("sc:Float", "end in the film"),
    "motion_level": ("sc:Integer", "motion level, 1 to 5"),
    "motion_scope_px": ("sc:Float", "mean optical-flow magnitude, pixels per step"),
    "camera": ("sc:Text", "kind and direction of the camera's move, such as `pan left`; empty if undecided"),
    "sharpness": ("sc:Float", "sharpness of the pictures, 0 to 1"),
    "blockiness": ("sc:Float", "step at the blocks that an earlier encoder left, gray levels of 255"),
    "flags": ("sc:Text", "`text` and `logo` for clips that show them, and doubts about the caption"),
    "dialogue": ("sc:Text", "lines of the subtitles heard in the dataset's clip, each on a line after its speaker"),
    "banding": ("sc:Float", "height of the steps in soft gradients, gray levels; null without such a gradient"),
}
"""Columns of a table: type of Croissant and meaning.

`datasets` gives a column that is null throughout a split another type than the same column of the other split, and
refuses both. So no text is null, and a number that a split lacks is left out (`_columns`).
"""
_TERMS = """
    @language @vocab citeAs column conformsTo cr rai data dataType dct equivalentProperty examples extract field
    fileProperty fileObject fileSet format includes isLiveDataset jsonPath key md5 parentField path recordSet references
    regex repeated replace samplingRate sc separator source subField transform
"""
_NOT_OF_CROISSANT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "sc": "https://schema.org/",
}
_CONTEXT = {term: _NOT_OF_CROISSANT.get(term, f"cr:{term}") for term in _TERMS.split()}
"""JSON-LD context of Croissant 1.0."""


def common_files(plan: ExportPlan, clips: Sequence[ExportClip]) -> dict[str, str]:
    """Return the text files about all clips, by their path in the export: table, card, configuration, command."""
    trainer = plan.request.trainer
    texts = {table_file(plan): _table(trainer.table, plan, clips)} if trainer.table else {}
    if plan.request.references and not trainer.templates:
        texts[f"{REFERENCES}.jsonl"] = _references(clips)
    if trainer.is_hub:
        texts |= hub_files(plan, clips)
    if trainer.templates:
        texts |= configuration(plan)
    return texts


def _table(table: Table, plan: ExportPlan, clips: Sequence[ExportClip]) -> str:
    rows = [table.row(clip.file, clip.caption, plan.format.width, plan.format.height) for clip in clips]
    if table.sound_column and plan.family and plan.family.spans and plan.heard:
        rows = [row | {table.sound_column: clip.file} for row, clip in zip(rows, clips, strict=True)]
    if table.reference_column and plan.request.references:
        rows = [row | {table.reference_column: clip.reference_file} for row, clip in zip(rows, clips, strict=True)]
    if plan.request.table_kind == "json":
        return json.dumps(rows, indent=1) + "\n"
    if plan.request.table_kind == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
    return "".join(json.dumps(row) + "\n" for row in rows)


def _references(clips: Sequence[ExportClip]) -> str:
    """Table of clips and references as musubi-tuner reads it for MiniMax-H3."""
    rows = [
        {
            "video_path": clip.file,
            "caption": clip.caption,
            "references": [{"type": "image", "path": clip.reference_file}],
        }
        for clip in clips
    ]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def table_file(plan: ExportPlan) -> str:
    """Return the path of the table of clips in the export."""
    return f"metadata.{plan.request.table_kind}"


def configuration(plan: ExportPlan) -> dict[str, str]:
    """Return the configuration of the trainer and the command to start it, by their path in the export."""
    trainer = plan.request.trainer
    environment = Environment(
        loader=PackageLoader("pipeline.publish.export", f"templates/{trainer.name}"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - TOML, YAML, JSON and shell: every path passes `quoted` or `shell`
    )
    environment.filters |= {"quoted": _quoted, "shell": shlex.quote}
    return {file: environment.get_template(name).render(_values(plan)) for name, file in trainer.templates.items()}


def _quoted(text: str) -> str:
    """Return a string as JSON, TOML and YAML read it."""
    return json.dumps(text, ensure_ascii=False)


def _values(plan: ExportPlan) -> dict[str, object]:
    assert plan.family is not None
    out = plan.request.out.absolute()
    config = next((file for file in plan.request.trainer.templates.values() if Path(file).stem == "config"), "")
    names = {
        "videos": plan.request.trainer.folder,
        **{"dataset": "dataset.toml", "config": config, "training": "training.json"},
        **{"backend": "multidatabackend.json", "start": "start.sh"},
        **{"output": "training", "model": "training/lora.safetensors"},
        **{
            "cache": "cache",
            "cache_vae": "cache/vae",
            "cache_vae_references": "cache/references",
            "cache_text": "cache/text",
        },
        "table": table_file(plan) if plan.request.trainer.table else "",
    }
    paths = {key: str(out / name) for key, name in names.items()}
    side = round((plan.format.width * plan.format.height) ** 0.5)
    return {
        **paths,
        **{"folder": str(out), "clips": plan.format, "family": plan.family.name, "side": side},
        "heard": bool(plan.heard),
        "references": str(out / REFERENCES) if plan.request.references else "",
    }


def hub_files(plan: ExportPlan, clips: Sequence[ExportClip]) -> dict[str, str]:
    """Return the text files of an export for the hub, by their path in it."""
    films = {folder.film_id: folder.film for folder in plan.folders}
    rows = {
        split: [_row(films[clip.seen.clip.film_id], clip) for clip in clips if clip.seen.split == split]
        for split in SPLITS
    }
    rows = {split: each for split, each in rows.items() if each}
    columns = _columns(rows)
    tables = {
        f"{split}/{METADATA}": "".join(
            json.dumps({name: row[name] for name in columns}, ensure_ascii=False) + "\n" for row in each
        )
        for split, each in rows.items()
    }
    return {**tables, CARD: _card(plan, clips, columns), CROISSANT: _croissant(plan, tables, columns)}


def _columns(rows: Mapping[Split, Sequence[Mapping[str, Any]]]) -> Columns:
    """Return the columns that have a value in every split."""
    return {
        name: about
        for name, about in COLUMNS.items()
        if all(any(row[name] is not None for row in each) for each in rows.values())
    }


def _row(film: Film, clip: ExportClip) -> dict[str, Any]:
    seen = clip.seen
    assert seen.motion is not None  # of every kept clip
    return {
        "file_name": clip.file.partition("/")[2],
        "text": clip.caption,
        "clip_id": seen.clip.clip_id,
        "film": film.name,
        "episode": film.episode_name,
        "language": film.language or "",
        "start_seconds": seen.clip.start_seconds,
        "end_seconds": seen.clip.end_seconds,
        "motion_level": seen.level,
        "motion_scope_px": seen.motion.scope_px,
        "camera": seen.motion.camera or "",
        "flags": ", ".join(seen.flags),
        "dialogue": "\n".join(line.said for line in seen.dialogue or ()),
        **{name: getattr(seen.looks, name, None) for name in QUALITY},
    }


def _title(plan: ExportPlan) -> str:
    return plan.config.card.title or " and ".join(folder.film.name for folder in plan.folders[:3])


def _card(plan: ExportPlan, clips: Sequence[ExportClip], columns: Columns) -> str:
    card, splits = plan.config.card, Counter(str(clip.seen.split) for clip in clips)
    names = {film.film_id: film.name for film in plan.dataset.record.films}
    values = {
        "front_matter": [(Markdown(key), Markdown(as_yaml(one))) for key, one in _front_matter(plan, splits).items()],
        "title": _title(plan),
        "card": card,
        "not_stated": Markdown(f"**{NOT_STATED}**"),
        "clips": plan.format,
        "heard": bool(plan.heard),
        "seconds": f"{float(plan.format.frames / plan.format.fps):.3g}",
        "count": len(clips),
        "splits": [(split, splits[split]) for split in SPLITS if splits[split]],
        "films": sorted(Counter(names[clip.seen.clip.film_id] for clip in clips).items()),
        "captioner": plan.dataset.record.captioner,
        "reviewed": sum(clip.seen.reviewed is not None and bool(clip.seen.reviewed.fields) for clip in clips),
        "columns": [(Markdown(name), meaning) for name, (_, meaning) in columns.items()],
        "notes": Markdown(card.notes.strip()),
    }
    return rendered_card("pipeline.publish.export", "templates", "hub_card.md.j2", values)


def _front_matter(plan: ExportPlan, splits: Mapping[str, int]) -> dict[str, Any]:
    card = plan.config.card
    known = licence_id(card.licence)
    head: dict[str, Any] = {
        "pretty_name": _title(plan),
        "license": known or ("other" if card.licence else "unknown"),
        "task_categories": ["text-to-video", "image-to-video"],
        "tags": ["video", "animation"],
        "size_categories": [size_category(sum(splits.values()))],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"{split}/**"} for split in SPLITS if splits[split]],
            }
        ],
    }
    return head | ({"license_name": card.licence} if card.licence and not known else {})


def _croissant(plan: ExportPlan, tables: Mapping[str, str], columns: Columns) -> str:
    card = plan.config.card
    described: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": _title(plan),
        "description": f"Clips of animated films with captions and motion, {plan.format.frames} frames at "
        f"{plan.format.fps} a second.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "license": card.licence or NOT_STATED,
        "version": "1.0.0",
        "distribution": [
            *(_file_object(path, text) for path, text in tables.items()),
            *(_file_set(path) for path in tables),
        ],
        "recordSet": [_record_set(path, columns) for path in tables],
    }
    return json.dumps(described, indent=1, ensure_ascii=False) + "\n"


def _file_object(path: str, text: str) -> dict[str, Any]:
    split = path.partition("/")[0]
    return {
        "@type": "cr:FileObject",
        "@id": f"{split}-metadata",
        "name": f"{split}-metadata",
        "contentUrl": path,
        "encodingFormat": "application/jsonlines",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def _file_set(path: str) -> dict[str, Any]:
    """Return the set of a split's videos; mlcroissant 1.1.1 reads no records from video files, so it has no fields."""
    split = path.partition("/")[0]
    return {
        "@type": "cr:FileSet",
        "@id": f"{split}-files",
        "name": f"{split}-files",
        "encodingFormat": "video/mp4",
        "includes": f"{split}/*/*.mp4",
    }


def _record_set(path: str, columns: Columns) -> dict[str, Any]:
    split = path.partition("/")[0]
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{split}/{name}",
            "name": name,
            "description": meaning,
            "dataType": kind,
            "source": {"fileObject": {"@id": f"{split}-metadata"}, "extract": {"column": name}},
        }
        for name, (kind, meaning) in columns.items()
    ]
    return {"@type": "cr:RecordSet", "@id": split, "name": split, "field": fields}
