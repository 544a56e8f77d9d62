"""Text of a data card: Markdown and YAML from untrusted names, and the licence ids and sizes of Hugging Face.

In Markdown every special character is escaped, in YAML every value is a JSON string.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

NOT_STATED = "not stated by the builder"
LICENCES = (
    "apache-2.0", "mit", "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0",
    "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0",
    "cc-by-nc-sa-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "gpl-3.0", "odbl", "pddl", "unlicense", "wtfpl",
)  # fmt: skip
"""Licence ids of Hugging Face."""
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~!$&@]|:(?=//)|(?<=www)\.)")


class Markdown(str):
    """Text that is already Markdown and is not escaped."""


def licence_id(licence: str) -> str | None:
    """The Hugging Face id of a licence (`CC BY 3.0` -> `cc-by-3.0`), or None."""
    name = re.sub(r"[\s_-]+", "-", licence.strip().lower())
    return name if name in LICENCES else None


def plain_line(text: str) -> str:
    """Free text as one line, without control characters and marks that reverse the writing direction."""
    kept = (char for char in " ".join(text.split()) if unicodedata.category(char) not in {"Cc", "Cs"})
    return "".join(char for char in kept if unicodedata.bidirectional(char) not in _BIDI_CONTROLS)


def escaped(value: Any) -> Any:
    """Escape a value of the template, as jinja2's `finalize`: text is escaped, Markdown and numbers are not."""
    if isinstance(value, str) and not isinstance(value, Markdown):
        return _MARKDOWN_SPECIAL.sub(r"\\\1", plain_line(value)).replace("\\<", "&lt;").replace("\\>", "&gt;")
    return value


def rendered_card(package: str, folder: str, template: str, values: Mapping[str, Any]) -> str:
    """Render a template of a data card, a Markdown file in a folder of a package, with every value escaped."""
    environment = Environment(
        loader=PackageLoader(package, folder),
        undefined=StrictUndefined,
        finalize=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown: `finalize` escapes its special characters
    )
    return environment.get_template(template).render(values)


def size_category(count: int) -> str:
    """The size category of a number of samples."""
    return next((name for limit, name in SIZES if count < limit), "n>1M")


def as_yaml(value: Any) -> str:
    """A value as JSON, which is valid YAML, without characters that YAML 1.1 forbids or reads as line breaks."""
    if isinstance(value, str):
        return json.dumps(plain_line(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {as_yaml(one)}" for key, one in value.items()) + "}"
    return "[" + ", ".join(map(as_yaml, value)) + "]"
