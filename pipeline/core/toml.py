"""TOML writer: settings as an editable file, with the description of every table and key as a comment above it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel


def as_toml(settings: BaseModel) -> str:
    """Return settings as commented TOML; a key without a value is commented out."""
    return "\n".join(_lines(settings, "")).strip() + "\n"


def _lines(table: BaseModel, path: str) -> Iterator[str]:
    """Lines of a table: plain keys first, then its subtables, as TOML requires."""
    if path:
        yield from ("", f"# {(type(table).__doc__ or '').partition(chr(10))[0]}", f"[{path}]")
    tables: dict[str, BaseModel] = {}
    for key, field in type(table).model_fields.items():
        value, inner = getattr(table, key), f"{path}.{key}".strip(".")
        if isinstance(value, BaseModel):
            tables[inner] = value
        elif isinstance(value, Mapping):
            tables |= {f"{inner}.{name}": each for name, each in value.items()}
        else:
            if field.description:
                yield f"# {field.description}"
            yield f"# {key} =" if value is None else f"{key} = {_value(value)}"
    for inner, each in tables.items():
        yield from _lines(each, inner)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    # JSON's escapes are TOML's too, but TOML also wants DEL escaped
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
