"""Data set of schema 1, made from a finished one by undoing what schema 2 added: columns, fields, records of stages."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.core.ingredients import fingerprint
from pipeline.core.store import Dataset, FileMark, FilmFolder, StageRecord
from pipeline.plan.film_stages import STAGE_NAMES

ADDED_COLUMNS = {
    "clips": {"overlap_seconds", "sound"},
    "looks": {"two_groups"},
    "captions": {"actor", "others", "sentence", "flags", "raw_sentence"},
}
ADDED_TO_FILM = ("transfer", "fields", "audio_tracks", "text_tracks", "chapters")


def bring_to_schema_1(root: Path) -> None:
    """Rewrite tables, records, shards and `dataset.json` in place, as the last version with schema 1 left them."""
    for folder in Dataset(root).folders():
        _rewrite(folder.path / "film.json", lambda film: [film.pop(name) for name in ADDED_TO_FILM])
        for table, columns in ADDED_COLUMNS.items():
            content = pq.read_table(folder.table_path(table))
            pq.write_table(content.drop_columns(sorted(columns)), folder.table_path(table), compression="zstd")
        _renew_records(folder)
    hashes = {path.name: _rewrite_shard(path) for path in (root / "shards").rglob("*.tar")}

    def refer(index: dict[str, Any]) -> None:
        index["schema"] = 1
        for shard in index["shards"]:
            shard |= hashes[Path(shard["name"]).name]

    _rewrite(root / "shards" / "index.json", refer)
    _rewrite(root / "dataset.json", lambda record: (record.update(schema_version=1), record.pop("clips")))


def schema_1(sample: dict[str, Any]) -> dict[str, Any]:
    """JSON of a sample as schema 1 had it."""
    old = {name: value for name, value in sample.items() if name not in ("overlap_seconds", "dialogue", "sound")}
    caption = {name: old["caption"][name] for name in ("source", "S", "MD", "EV", "MA", "SC", "ET", "ST", "characters")}
    return {**old, "schema": 1, "caption": {**caption, "reviewed": bool(sample["caption"]["reviewed"])}}


def _renew_records(folder: FilmFolder) -> None:
    """Records of the stages for the rewritten tables, each with the results of the stages before it."""
    made: dict[str, StageRecord] = {}
    for name in STAGE_NAMES:
        before = folder.stage_record(name)
        assert before
        upstream = {stage: made[stage].result for stage in before.ingredients["upstream"]}
        ingredients = {**before.ingredients, "upstream": upstream}
        files = {file: _mark(folder.path / file) for file in before.files}
        updates = {"ingredients": ingredients, "fingerprint": fingerprint(ingredients), "files": files}
        made[name] = before.model_copy(update=updates)
        folder.save_stage_record(made[name])
        _rewrite(folder.path / f"{name}.json", lambda record: record.update(schema_version=1))


def _rewrite_shard(path: Path) -> dict[str, Any]:
    """Entries of the index about the shard with samples of schema 1."""
    with tarfile.open(path) as tar:
        members = [(member, tar.extractfile(member).read()) for member in tar.getmembers()]  # type: ignore[union-attr]
    with tarfile.open(path, "w") as tar:
        for member, content in members:
            if member.name.endswith(".json"):
                content = json.dumps(schema_1(json.loads(content)), ensure_ascii=False).encode()
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    mark = _mark(path)
    return {"bytes": mark.bytes, "sha256": mark.sha256, "made_from": "of schema 1"}


def _rewrite(path: Path, change: Any) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def _mark(path: Path) -> FileMark:
    return FileMark(bytes=path.stat().st_size, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
