"""Prompt templates: Markdown files beside this module, each with a name and a version, rendered strictly.

    prompt = load_prompt("what")
    text = prompt.render(level=3, frames=8, example="...")

A placeholder is written `${name}`. A value without a placeholder is as much an error as a placeholder without a value.
Values are not searched for placeholders, so a character called `${level}` is rendered as is. The identity of a prompt
(name, version and hash of its text) is part of the fingerprint of every reply to it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from string import Template

_FRONT_MATTER = re.compile(
    r"---\nname: (?P<name>[a-z][a-z-]*)\nversion: (?P<version>[1-9]\d*)\n---\n(?P<text>.+)", re.S
)


@dataclass(frozen=True)
class Prompt:
    """A text with placeholders, and its version."""

    name: str
    version: int
    text: str

    @cached_property
    def identity(self) -> str:
        """Identity such as `what 1 3f2a...`; changes with the version and with any edit of the text."""
        return f"{self.name} {self.version} {hashlib.sha256(self.text.encode()).hexdigest()[:16]}"

    @cached_property
    def placeholders(self) -> frozenset[str]:
        """Names of the placeholders, for which `render` needs values."""
        return frozenset(Template(self.text).get_identifiers())

    def render(self, **values: str | int) -> str:
        """Return the text with every placeholder replaced; ValueError if values and placeholders differ."""
        missing, unknown = self.placeholders - values.keys(), values.keys() - self.placeholders
        if missing:
            raise ValueError(f"prompt {self.name}: no value for {', '.join(sorted(missing))}")
        if unknown:
            raise ValueError(f"prompt {self.name}: it has no placeholder {', '.join(sorted(unknown))}")
        return Template(self.text).substitute(values)


def parse_prompt(source: str, name: str) -> Prompt:
    """Parse a prompt file: front matter with its name and version, then the text.

    Raises:
        ValueError: the front matter is missing or names another prompt, the text is empty, or a `$` is stray.
    """
    match = _FRONT_MATTER.fullmatch(source.replace("\r\n", "\n"))
    if match is None:
        raise ValueError(f"prompt {name}: it must open with `---`, `name: ...`, `version: <number>`, `---`, then text")
    if match["name"] != name:
        raise ValueError(f"prompt {name}: its front matter calls it {match['name']}")
    text = match["text"].strip()
    if not text or not Template(text).is_valid():
        raise ValueError(f"prompt {name}: the text is empty or has a stray `$` (write `$$` for a dollar sign)")
    return Prompt(name=name, version=int(match["version"]), text=text)


@cache
def load_prompt(name: str) -> Prompt:
    """Load the prompt `<name>.md` of this package. Raises ValueError if it is missing or malformed."""
    file = resources.files("prompts") / f"{name}.md"
    try:
        source = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"prompt {name}: there is no {name}.md in the package `prompts`") from None
    return parse_prompt(source, name)
