"""TOML: settings as an editable file with the descriptions as comments, and a reader with bounds.

Python's parser takes time and memory that grow with the square of the dots in a key, and recurses into brackets. So the
size of a file and its nesting are bounded before it is parsed.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from pipeline.core.errors import UserError, read_limited

MOST_BYTES = 1_000_000
DEEPEST = 32
"""Most levels of brackets, and most dots of a key."""
_QUOTED = re.compile(
    r'''"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)|'{3}.*?(?:'{3,5}|\Z)|"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|#[^\n]*''', re.DOTALL
)
"""Strings and comments, also without an end."""
_MANY_DOTS = re.compile(rf"(?:\.[^.=,\n\[\]{{}}]*){{{DEEPEST + 1}}}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, which may be a pipe.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: it cannot be read, is larger than `MOST_BYTES` or nested deeper than `DEEPEST`, or is not TOML.
    """
    try:
        text = read_limited(path, MOST_BYTES).decode()
        if _is_deep(text):
            raise UserError(f"{path}: nested deeper than {DEEPEST} levels, which no setting is; correct the file")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: cannot be read as TOML: {str(error)[:200]}") from error


def _is_deep(text: str) -> bool:
    bare = _QUOTED.sub("_", text)
    levels = accumulate((char in "[{") - (char in "]}") for char in bare)
    return max(levels, default=0) > DEEPEST or _MANY_DOTS.search(bare) is not None


def as_toml(settings: BaseModel) -> str:
    """Return settings as commented TOML; a key without a value is commented out."""
    return "\n".join(_lines(settings, "")).strip() + "\n"


def _lines(table: BaseModel, path: str) -> Iterator[str]:
    """Lines of a table: plain keys first, then subtables and arrays of them, as TOML requires."""
    if path:
        yield from ("", f"# {(type(table).__doc__ or '').partition(chr(10))[0]}", f"[{path}]")
    tables: dict[str, BaseModel] = {}
    arrays: list[str] = []
    for key, field in type(table).model_fields.items():
        value, inner = getattr(table, key), f"{path}.{key}".strip(".")
        if isinstance(value, BaseModel):
            tables[inner] = value
        elif kind := _listed(field.annotation):
            arrays += _blocks(value, kind, inner)
        elif isinstance(value, Mapping):
            tables |= {f"{inner}.{name}": each for name, each in value.items()}
        else:
            if field.description:
                yield f"# {field.description}"
            yield f"# {key} =" if value is None else f"{key} = {_value(value)}"
    for inner, each in tables.items():
        yield from _lines(each, inner)
    yield from arrays


def _listed(annotation: Any) -> type[BaseModel] | None:
    """Model of a tuple of models; None for another annotation."""
    kind = next(iter(get_args(annotation)), None) if get_origin(annotation) is tuple else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _blocks(values: tuple[BaseModel, ...], kind: type[BaseModel], path: str) -> Iterator[str]:
    """Lines of an array of tables; without any, one block that is commented out."""
    for value in values:
        yield from ("", f"[[{path}]]", *(line for line in _lines(value, "")))
    if not values:
        yield from ("", f"# {(kind.__doc__ or '').partition(chr(10))[0]}", f"# [[{path}]]")
        for key, field in kind.model_fields.items():
            yield from (f"# {field.description}", f"# {key} =")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    # JSON's escapes are TOML's too, but TOML also wants DEL escaped
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
