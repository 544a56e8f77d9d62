"""From finished films to a data set: verdicts over all films, shards, data card, report. Plain Python, no Prefect.

A film counts once all its stages are finished; films that failed or wait for a later stage stay out of the shards and
are shown as such in the report. Nothing is published again unless something it is made from has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flows.plan.build_plan import STAGE_NAMES
from flows.plan.consistency import refuse_to_publish
from pipeline.core.atomic import write_json
from pipeline.core.config import Config
from pipeline.core.records import Caption, Motion, Verdict
from pipeline.core.stage import Progress, is_whole
from pipeline.core.store import Dataset, DatasetRecord, FilmFolder, StoreError, fingerprint
from pipeline.pages import card, report
from pipeline.publish import shards
from pipeline.stages import selection
from pipeline.stages.motion_levels import level_values

Step = Callable[[Progress], bool]


def publish_steps(dataset: Dataset, config: Config) -> list[tuple[str, Step]]:
    """The steps of publishing, in order, each with its name; a step says whether it changed anything."""
    return [
        ("selection", lambda _: select(dataset, config)),
        ("shards", lambda progress: write_shards(dataset, config, progress)),
        ("report", lambda progress: write_pages(dataset, config, progress)),
    ]


def finished(dataset: Dataset) -> list[FilmFolder]:
    """The films with every stage done and made from what the others hold now, in the order they were added.

    A film whose last attempt failed before it changed anything is still whole, and stays published.
    """
    return [folder for folder in dataset.folders() if is_whole(folder, STAGE_NAMES)]


def select(dataset: Dataset, config: Config) -> bool:
    """Write the final verdicts of every finished film, and what follows from them for the whole data set.

    Raises:
        UserError: some films were left as other settings made them.
    """
    folders, record = finished(dataset), dataset.record
    refuse_to_publish(folders, _edges(record))
    for folder in dataset.folders():
        if folder.film_id not in {done.film_id for done in folders}:
            folder.table_path("verdicts").unlink(missing_ok=True)  # of an earlier run: it would put old clips in shards
    verdicts = selection.judge([selection.film_facts(folder) for folder in folders], config.selection)
    changed = False
    for folder in folders:
        if verdicts_of(folder) != verdicts[folder.film_id]:
            folder.write("verdicts", verdicts[folder.film_id])
            changed = True
    kept = {verdict.clip_id for rows in verdicts.values() for verdict in rows if verdict.keep}
    motion = [row for folder in folders for row in folder.read("motion", Motion)]
    news = {
        "flow_model": next((row.flow_model for row in motion), None),
        "captioner": next((row.source for folder in folders for row in folder.read("captions", Caption)), None),
        "level_values": level_values([row.scope_px for row in motion if row.clip_id in kept], _edges(record)),
    }
    if record != (selected := record.model_copy(update=news)):
        dataset.save(selected)
        changed = True
    return changed


def write_shards(dataset: Dataset, config: Config, progress: Progress) -> bool:
    """Write the shards and their index unless what is there was made from the same."""
    made_from = _made_from(dataset, config)["shards"]
    if _is_current(dataset, "shards", made_from):
        return False
    _forget(dataset, "shards")  # a kill in the middle must not leave new shards under the old note
    index = shards.write_shards(dataset, config.shards, progress)
    folder = dataset.root / "shards"
    _note(dataset, "shards", made_from, [folder / "index.json", *(folder / shard.name for shard in index.shards)])
    return True


def write_pages(dataset: Dataset, config: Config, progress: Progress) -> bool:
    """Write the data card and the report unless what is there was made from the same."""
    made_from = _made_from(dataset, config)["report"]
    if _is_current(dataset, "report", made_from):
        return False
    _forget(dataset, "report")
    pages = [card.write_card(dataset, config.card), report.write_report(dataset, progress)]
    _note(dataset, "report", made_from, pages)
    return True


def is_published(dataset: Dataset, config: Config) -> bool:
    """Whether shards and pages are what publishing now would write."""
    return all(_is_current(dataset, name, made_from) for name, made_from in _made_from(dataset, config).items())


def _made_from(dataset: Dataset, config: Config) -> dict[str, str]:
    """What shards and report would be made from now, as fingerprints."""
    contents = {
        "films": {folder.film_id: _made_of(folder) for folder in dataset.folders()},
        "record": dataset.record.model_dump(mode="json", exclude={"config", "cast_source"}),
    }
    settings = [config.selection.model_dump(mode="json"), config.shards.model_dump(mode="json")]
    made = fingerprint({"version": shards.VERSION, "settings": settings, **contents})
    versions = [card.VERSION, report.VERSION, made]
    return {
        "shards": made,
        "report": fingerprint({"versions": versions, "card": config.card.model_dump(mode="json")}),
    }


def _is_current(dataset: Dataset, name: str, made_from: str) -> bool:
    entry = _published(dataset).get(name)
    if entry is None or entry["made_from"] != made_from:
        return False
    return all(_size(dataset.root / file) == size for file, size in entry["files"].items())


def _note(dataset: Dataset, name: str, made_from: str, files: Sequence[Path]) -> None:
    sizes = {str(file.relative_to(dataset.root)): _size(file) for file in files}
    write_json(dataset.root / "published.json", {**_published(dataset), name: {"made_from": made_from, "files": sizes}})


def _forget(dataset: Dataset, name: str) -> None:
    noted = _published(dataset)
    if noted.pop(name, None):
        write_json(dataset.root / "published.json", noted)


def _published(dataset: Dataset) -> dict[str, Any]:
    path = dataset.root / "published.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # never published, or damaged: then everything is checked and written anew
        return {}
    return content


def _made_of(folder: FilmFolder) -> list[Any]:
    """What the published data depends on in a film: what every stage made, the verdicts, a failure.

    Not only what the stages are made from: a question that is asked again may be answered in other words.
    """
    records = {stage: record for stage in STAGE_NAMES if (record := folder.stage_record(stage))}
    stages = {stage: [record.fingerprint, record.result] for stage, record in records.items()}
    verdicts = [mark.sha256 for mark in folder.marks([folder.table_path("verdicts").name]).values()]
    return [stages, verdicts, folder.failure.reason if folder.failure else None]


def verdicts_of(folder: FilmFolder) -> list[Verdict] | None:
    """A film's verdicts, if publishing has left a table of them that can be read."""
    try:
        return folder.read("verdicts", Verdict)
    except StoreError:
        return None


def _edges(record: DatasetRecord) -> tuple[float, float, float, float]:
    if record.edges is None:
        raise StoreError("dataset.json names no level edges; run `animegamer build` on it first")
    return record.edges


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
