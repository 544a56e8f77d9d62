"""Ingredients of results: their fingerprints, and the comparison that finds stale results.

A result is skipped if its files are intact and its ingredients match the note stored with it. The note is deleted
before the result is made again, so that a kill in between leaves nothing that passes for the old result. Each kind of
result has its own format of note: `<stage>.json`, `published.json`, the index of the shards,
the header of a feature file.

    ResultNote(shard.made_from, {shard.name: shard.sha256}).why_stale(ingredients, hashes_of)   None: nothing to do
    ResultNotes(root / "published.json").renew("report", ingredients, write_pages)             skip, or forget and make
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipeline.core.atomic import write_json

Ingredients = Mapping[str, Any]
"""Dependencies of a result, as JSON values by name; nested names are joined with dots."""
LONGEST_CHANGE = 80
"""Characters up to which a changed ingredient is shown with its values; otherwise only its name is shown."""
_JSON = TypeAdapter(dict[str, Any])


def fingerprint(ingredients: Ingredients) -> str:
    """Return a short hash of ingredients; equal ingredients, equal fingerprint."""
    text = json.dumps(ingredients, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def changed(before: Ingredients, now: Ingredients) -> list[str]:
    """Return the names of the ingredients that differ, sorted."""
    earlier, later = _leaves(before), _leaves(now)
    return [name for name in sorted(earlier | later) if earlier.get(name) != later.get(name)]


def changes(before: Ingredients, now: Ingredients) -> str:
    """Return the ingredients that differ, with both values if they are short enough to read."""
    earlier, later = _leaves(before), _leaves(now)
    shown = {key: f"{key} ({earlier.get(key, 'none')} to {later.get(key, 'none')})" for key in changed(before, now)}
    hidden = {name for name, change in shown.items() if name.startswith("upstream.") or len(change) > LONGEST_CHANGE}
    return ", ".join(name if name in hidden else change for name, change in shown.items())


def damage(files: Mapping[str, object], marks: Callable[[Iterable[str]], Mapping[str, object]]) -> str | None:
    """Return the first missing or changed file, and their number; None if all files are unchanged.

    Args:
        files: the mark of each file by name, from the time it was made: its size, its hash, or both.
        marks: callback that returns the current marks of files, without the missing ones.
    """
    now = marks(files)
    damaged = [name for name, mark in files.items() if now.get(name) != mark]
    return f"missing or damaged: {damaged[0]} ({len(damaged)} of {len(files)} files)" if damaged else None


@dataclass(frozen=True)
class ResultNote:
    """Note of a result: its ingredients and its files at the time it was made."""

    fingerprint: str
    files: Mapping[str, object]
    """Marks of the files by name, as in `damage`."""
    ingredients: Ingredients | None = None
    """Ingredients in full; None if the note keeps only their fingerprint."""

    def why_stale(self, ingredients: Ingredients, marks: Callable[[Iterable[str]], Mapping[str, object]]) -> str | None:
        """Return the reason to make the result again; None if it is current.

        Files are checked last, because hashing them may take long.
        """
        if self.fingerprint != fingerprint(ingredients):
            return "changed" if self.ingredients is None else f"changed: {changes(self.ingredients, ingredients)}"
        return damage(self.files, marks)


def read_note(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON note; None if there is no such file. Raises ValidationError if it is damaged."""
    return _JSON.validate_json(path.read_bytes()) if path.exists() else None


@dataclass(frozen=True)
class ResultNotes:
    """Notes of several results in one JSON file: fingerprint and the sizes of the files, which are in its folder."""

    path: Path

    def why_stale(self, name: str, ingredients: Ingredients) -> str | None:
        """Return the reason to make a result again; None if it is current."""
        note = self._read().get(name)
        if note is None:
            return "not made yet"
        return ResultNote(note["made_from"], note["files"]).why_stale(ingredients, self._sizes)

    def renew(self, name: str, ingredients: Ingredients, make: Callable[[], Iterable[Path]]) -> bool:
        """Make a result unless it is current; `make` returns its files. Return False if it was current."""
        if self.why_stale(name, ingredients) is None:
            return False
        self.forget(name)
        files = [str(file.relative_to(self.path.parent)) for file in make()]
        note = {"made_from": fingerprint(ingredients), "files": self._sizes(files)}
        write_json(self.path, {**self._read(), name: note})
        return True

    def forget(self, name: str) -> None:
        """Remove the note of a result: it counts as not made until it is made again."""
        notes = self._read()
        if notes.pop(name, None):
            write_json(self.path, notes)

    def _read(self) -> dict[str, Any]:
        try:
            return read_note(self.path) or {}
        except ValidationError:
            return {}  # damaged: every result is made again

    def _sizes(self, names: Iterable[str]) -> dict[str, int]:
        paths = {name: self.path.parent / name for name in names}
        return {name: path.stat().st_size for name, path in paths.items() if path.is_file()}


def _leaves(value: Any, name: str = "") -> dict[str, str]:
    """Nested ingredients as one dict with dotted names."""
    if not isinstance(value, Mapping):
        return {name: json.dumps(value, sort_keys=True)}
    return {key: leaf for child in value for key, leaf in _leaves(value[child], f"{name}.{child}".strip(".")).items()}
