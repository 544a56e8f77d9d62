"""Parsed Markdown pages: links, headings, blocks of code, inline code, and the commands in both.

page = read_page(ROOT / "README.md")
page.commands       # [["make", "demo"], [".venv/bin/animegamer", "build", "ponyo.mkv", ...], ...]
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_INLINE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.M)
_SEPARATORS = {"&&", "||", "|", ";"}


@dataclass(frozen=True)
class Page:
    """Markdown file: its code, and its text without code."""

    path: Path
    markdown: str

    @cached_property
    def blocks(self) -> list[tuple[str, str]]:
        """Language and content of the fenced blocks."""
        return _BLOCK.findall(self.markdown)

    @cached_property
    def prose(self) -> str:
        return _BLOCK.sub("", self.markdown)

    @cached_property
    def inline(self) -> list[str]:
        return _INLINE.findall(self.prose)

    @cached_property
    def links(self) -> list[str]:
        """Targets of links and pictures."""
        return _LINK.findall(_INLINE.sub("", self.prose))

    @cached_property
    def anchors(self) -> set[str]:
        """Anchors that GitHub makes of the headings."""
        headings = (heading.strip().lower() for heading in _HEADING.findall(self.prose))
        return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}

    @cached_property
    def commands(self) -> list[list[str]]:
        """Words of every command in shell blocks and inline code, without environment, redirection and comments."""
        code = [block for language, block in self.blocks if language == "sh"]
        lines = [line for block in code for line in block.replace("\\\n", " ").splitlines()]
        inline = (code for code in self.inline if "'" not in code)  # an apostrophe opens no string there
        return [command for line in [*lines, *inline] for command in simple_commands(line)]


def simple_commands(line: str) -> Iterator[list[str]]:
    """Split a line into its commands."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split = True
    command: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _SEPARATORS:
            command.append(word)
            continue
        if ">" in command:
            command = command[: command.index(">")]
        while command and re.match(r"[A-Z_]+=", command[0]):
            command = command[1:]
        if command:
            yield command
        command = []


@cache
def read_page(path: Path) -> Page:
    return Page(path, path.read_text(encoding="utf-8"))
