"""Mutants: what is changed, what is left alone, how a sample is drawn and found again in an earlier tree."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from tests.mutations.mutants import Mutant, find_counterpart, find_mutants, read_sources, sample

ROOT = Path(__file__).parents[2]


def mutants_of(body: str) -> list[Mutant]:
    return find_mutants("pipeline/x.py", f"def f(a, b):\n{textwrap.indent(textwrap.dedent(body), '    ')}")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x = a < b", {"(a >= b)", "(a <= b)"}),
        ("x = a == b", {"(a != b)"}),
        ("x = a - b", {"(a + b)"}),
        ("x = a and b", {"(a or b)"}),
        ("x = not a", {"(a)"}),
        ("x = [True, 7, 1.5]", {"False", "6", "8", "3.0"}),
        ("x = min(a, b)", {"(max)"}),
        ("x = a(b, a)", {"(a(a, b))"}),
        ("return a", {"return None"}),
        ("a.b()", {"pass"}),
        ("a.b = b", {"pass"}),
        ("raise a(b, a)", {"pass"}),
        ("if a: x = b", {"(not a)"}),
    ],
)
def test_a_statement_changes(statement: str, expected: set[str]) -> None:
    assert {mutant.after for mutant in mutants_of(statement)} == expected


@pytest.mark.parametrize(
    "statement",
    [
        '"""Over 9 times."""',
        "x: Annotated[int, 9] = a",
        "log.info(a < b)",
        'x = f"{a < b}"',
        'x = "text" + a',
        "return None",
    ],
)
def test_a_statement_is_left_alone(statement: str) -> None:
    assert mutants_of(statement) == []


def test_only_function_bodies_change() -> None:
    assert find_mutants("x.py", "LIMIT = 9\n@lru_cache(9)\ndef f(a: int = 9) -> Literal[9]: ...\n") == []


def test_a_mutant_replaces_its_bytes_alone_and_knows_the_lines_of_its_statement() -> None:
    source = 'def f(a):\n    if a(\n        "é", a < 3  # few\n    ):\n        return a\n'
    (boundary,) = (mutant for mutant in find_mutants("x.py", source) if mutant.kind == "boundary")
    assert boundary.apply(source) == source.replace("a < 3", "(a <= 3)")
    assert boundary.lines == (2, 4)


@pytest.mark.slow
def test_a_sample_is_the_same_again_valid_code_and_of_every_room() -> None:
    sources = {path: text for path, text in read_sources(ROOT).items() if path.startswith(("pipeline/", "prompts/"))}
    drawn = sample(sources, 20, seed=11)
    assert drawn == sample(sources, 20, seed=11) != sample(sources, 20, seed=12)
    for mutant in drawn:
        compile(mutant.apply(sources[mutant.path]), mutant.path, "exec")
    places = {(mutant.path, mutant.lines) for mutant in drawn}
    rooms = Counter(str(PurePosixPath(mutant.path).parent) for mutant in drawn)
    assert len(drawn) == len(places) == 20
    assert rooms["pipeline/stages"] > rooms["prompts"] >= 1
    assert rooms.keys() >= {"pipeline/core", "pipeline/video"}


def test_a_mutant_is_found_again_where_its_code_was_before_it_moved() -> None:
    here = "def spread(a, b):\n    wide = a - b\n    return wide\n\n\ndef step(a, b):\n    return clip(a - b)\n"
    earlier = {"pipeline/y.py": "def gap(p):\n    return clip(p - 1)\n", "pipeline/old.py": f"import math\n\n{here}"}
    mutant = next(mutant for mutant in find_mutants("pipeline/core/new.py", here) if mutant.kind == "arithmetic")
    found = find_counterpart(mutant, here, earlier)
    assert found is not None
    assert (found.path, found.lines, found.after) == ("pipeline/old.py", (4, 4), "(a + b)")
    assert find_counterpart(mutant, here, {"pipeline/y.py": earlier["pipeline/y.py"]}) is None
