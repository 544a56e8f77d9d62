"""From finished films to a data set: verdicts over all films, shards, data card, report. Plain Python, no Prefect.

A film counts once all its stages are finished; films that failed or wait for a later stage stay out of the shards and
are shown as such in the report. Nothing is published again unless something it is made from has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flows.stages import STAGE_NAMES
from pipeline import selection, shards
from pipeline.atomic import write_json
from pipeline.config import Config
from pipeline.levels import level_values
from pipeline.pages import card, report
from pipeline.records import Caption, Motion, Verdict
from pipeline.stage import Progress, is_whole
from pipeline.store import Dataset, DatasetRecord, FilmFolder, StoreError, fingerprint

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
    """Write the final verdicts of every finished film, and what follows from them for the whole data set."""
    folders = finished(dataset)
    for folder in dataset.folders():
        if folder.film_id not in {done.film_id for done in folders}:
            folder.table_path("verdicts").unlink(missing_ok=True)  # of an earlier run: it would put old clips in shards
    verdicts = selection.judge([selection.film_facts(folder) for folder in folders], config.selection)
    changed = False
    for folder in folders:
        if not folder.table_path("verdicts").exists() or folder.read("verdicts", Verdict) != verdicts[folder.film_id]:
            folder.write("verdicts", verdicts[folder.film_id])
            changed = True
    record = dataset.record
    kept = {verdict.clip_id for rows in verdicts.values() for verdict in rows if verdict.keep}
    motion = [row for folder in folders for row in folder.read("motion", Motion)]
    news = {
        "flow_model": _only("optical-flow models", {row.flow_model for row in motion}),
        "captioner": _only(
            "captioners", {row.source for folder in folders for row in folder.read("captions", Caption)}
        ),
        "level_values": level_values([row.scope_px for row in motion if row.clip_id in kept], _edges(record)),
    }
    if record != (selected := record.model_copy(update=news)):
        dataset.save(selected)
        changed = True
    return changed


def write_shards(dataset: Dataset, config: Config, progress: Progress) -> bool:
    """Write the shards and their index unless what is there was made from the same."""
    made_from = _shards_from(dataset, config)
    if _is_current(dataset, "shards", made_from):
        return False
    _forget(dataset, "shards")  # a kill in the middle must not leave new shards under the old note
    index = shards.write_shards(dataset, config.shards, progress)
    folder = dataset.root / "shards"
    _note(dataset, "shards", made_from, [folder / "index.json", *(folder / shard.name for shard in index.shards)])
    return True


def write_pages(dataset: Dataset, config: Config, progress: Progress) -> bool:
    """Write the data card and the report unless what is there was made from the same."""
    made_from = _pages_from(dataset, config)
    if _is_current(dataset, "report", made_from):
        return False
    _forget(dataset, "report")
    pages = [card.write_card(dataset, config.card), report.write_report(dataset, progress)]
    _note(dataset, "report", made_from, pages)
    return True


def is_published(dataset: Dataset, config: Config) -> bool:
    """Whether shards and pages are what publishing now would write."""
    shards_current = _is_current(dataset, "shards", _shards_from(dataset, config))
    return shards_current and _is_current(dataset, "report", _pages_from(dataset, config))


def _shards_from(dataset: Dataset, config: Config) -> str:
    settings = [config.selection.model_dump(mode="json"), config.shards.model_dump(mode="json")]
    return fingerprint({"version": shards.VERSION, "settings": settings, **_contents(dataset)})


def _pages_from(dataset: Dataset, config: Config) -> str:
    versions = [card.VERSION, report.VERSION, _shards_from(dataset, config)]
    return fingerprint({"versions": versions, "card": config.card.model_dump(mode="json"), **_contents(dataset)})


def _contents(dataset: Dataset) -> dict[str, Any]:
    record = dataset.record.model_dump(mode="json", exclude={"config", "cast_source"})
    return {"films": _films(dataset), "record": record}


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


def _films(dataset: Dataset) -> dict[str, Any]:
    """What the published data depends on, film by film: every stage's fingerprint, the verdicts, a failure."""
    films = {}
    for folder in dataset.folders():
        stages = {stage: record.fingerprint for stage in STAGE_NAMES if (record := folder.stage_record(stage))}
        verdicts = folder.read("verdicts", Verdict) if folder.table_path("verdicts").exists() else []
        failure = folder.failure.reason if folder.failure else None
        films[folder.film_id] = [stages, [verdict.model_dump(mode="json") for verdict in verdicts], failure]
    return films


def _only(what: str, names: set[str]) -> str | None:
    if len(names) > 1:
        raise StoreError(
            f"the data set holds {what} {', '.join(sorted(names))}, and one data set never mixes two; "
            "build all its films together, or give each its own --out"
        )
    return next(iter(names), None)


def _edges(record: DatasetRecord) -> tuple[float, float, float, float]:
    if record.edges is None:
        raise StoreError("dataset.json names no level edges; run `animegamer build` on it first")
    return record.edges


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
