"""Docstrings of the product: each opens with a noun or a verb, and modules say what they are.

A docstring that opens with a question word answers a question that nobody has asked yet, and no search finds it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("pipeline", "flows", "prompts", "models", "training", "examples", "benchmarks")
QUESTION = re.compile(r"(What|Who|Whose|Whom|Whoever|How|Where|Whether|When|Which|Why)\b")


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, those under attributes too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def questions(source: str) -> list[int]:
    """Lines of the docstrings that open with a question word."""
    return [line for line, text in strings(source) if QUESTION.match(text)]


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_open_with_a_noun_or_a_verb(package: str) -> None:
    found = {str(path): lines for path in sorted(Path(package).rglob("*.py")) if (lines := questions(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        '"""What a stage is."""',
        'class A:\n    """Who runs."""',
        'def f():\n    """Whether."""',
        'x = 1\n"""How many."""',
    ],
)
def test_a_question_is_found(source: str) -> None:
    assert questions(source)
