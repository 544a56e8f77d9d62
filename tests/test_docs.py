"""Commands, options, files, links, settings and modules named in README, CONTRIBUTING and `docs/` exist.

Each check is a function from a page to its faults; the pages must have none, and each check must find the fault in a
sample that has one.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer

from flows.cli import app
from pipeline.core.config import Config, checked
from pipeline.core.errors import UserError
from tests.support.markdown_pages import Page, read_page

ROOT = Path(__file__).parents[1]
PACKAGES = ("pipeline", "flows", "prompts", "models", "training", "examples", "benchmarks")
FOLDERS = (*PACKAGES, "tests", "docs", ".github", ".ci")
MOST_README_LINES = 200
MOST_COLUMNS = 120

_PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*|\w+\.py")
_DEFINITION = re.compile(r"([\w/]+\.py):([A-Za-z_][\w.]*)")
_SETTING = re.compile(r"\[(\w+)\] (\w+)(?: = .+)?")
_VARIABLE = re.compile(r"\bANIMEGAMER_\w+")


@cache
def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


@cache
def sources() -> str:
    """Code of the project as one text."""
    paths = [ROOT / "Makefile", *(path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path != Path(__file__))


@cache
def python_files() -> set[str]:
    return {path.name for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py")}


@cache
def animegamer() -> Any:
    group: Any = typer.main.get_command(app)
    group.commands = {name: group.get_command(None, name) for name in group.commands}  # loaded, each once
    return group


def broken_links(page: Page) -> Iterator[str]:
    for target in page.links:
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        path = page.path.parent / name if name else page.path
        if not path.exists():
            yield f"link to {target}: no such file"
        elif anchor and anchor not in (page if path == page.path else read_page(path.resolve())).anchors:
            yield f"link to {target}: no such heading"


def unknown_targets(page: Page) -> Iterator[str]:
    for program, *words in page.commands:
        for word in words if program == "make" else ():
            name, is_variable, _ = word.partition("=")
            known = rf"\$\({name}\)" if is_variable else rf"^{re.escape(name)}:"
            if not re.search(known, makefile(), re.M):
                yield f"make {word}"


def unknown_commands(page: Page) -> Iterator[str]:
    for program, *words in page.commands:
        if Path(program).name == "animegamer":
            yield from wrong_usage(words)
        elif "flows.cli" in words:
            yield from wrong_usage(words[words.index("flows.cli") + 1 :])
        elif program.startswith("--"):
            groups = [animegamer(), *(each for each in animegamer().commands.values() if hasattr(each, "commands"))]
            commands = [*groups, *(command for group in groups for command in group.commands.values())]
            if not any(takes(command, program) for command in commands):
                yield f"{program}: no command has this option"


def wrong_usage(words: Sequence[str]) -> Iterator[str]:
    """Faults of `animegamer` with these words: its sub-command, options, and values where there is a choice."""
    if not words or words[0] == "--help":
        return
    name, *rest = words
    command = animegamer().commands.get(name)
    if rest and hasattr(command, "commands"):
        sub, *rest = rest
        name, command = f"{name} {sub}", command.commands.get(sub)
    if command is None:
        yield f"animegamer {name}: no such command"
        return
    if hasattr(command, "commands"):
        return  # a group by its name
    hints = get_type_hints(command.callback)
    positional = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    given = iter(rest)
    for word in given:
        if word.startswith("-"):
            parameter = takes(command, word)
            value = word if parameter is None or parameter.is_flag else next(given, "")
        else:
            parameter, value = positional[0] if positional else None, word
            positional = positional if parameter is None or parameter.nargs == -1 else positional[1:]
        if parameter is None:
            yield f"animegamer {name}: takes no {word}"
            return  # the next word may be its value
        if value not in (choices(hints[parameter.name]) or [value]):
            yield f"animegamer {name}: {parameter.name} cannot be {value}"


def choices(hint: Any) -> list[str]:
    """Values of an option or argument with a fixed choice."""
    kinds = (hint, *get_args(hint))
    enums = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum)]
    literals = [kind for kind in kinds if get_origin(kind) is Literal]
    return [str(member.value) for kind in enums for member in kind] + [
        each for kind in literals for each in get_args(kind)
    ]


def takes(command: Any, option: str) -> Any:
    """Parameter of an option of a command."""
    return next((parameter for parameter in command.params if option in parameter.opts), None)


def missing_paths(page: Page) -> Iterator[str]:
    for code in page.inline:
        if not _PATH.fullmatch(code):
            continue
        if not ((ROOT / code).exists() if "/" in code else code in python_files()):
            yield f"{code}: no such file"


def unknown_definitions(page: Page) -> Iterator[str]:
    """Functions, classes and methods, written as `folder/file.py:Class.method`, that the file does not define."""
    for file, name in (match.groups() for code in page.inline if (match := _DEFINITION.fullmatch(code))):
        path = ROOT / file
        if not path.exists() or name not in definitions(ast.parse(path.read_text(encoding="utf-8"))):
            yield f"{file} defines no {name}"


def definitions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from definitions(node, f"{prefix}{node.name}.")


def unknown_modules(page: Page) -> Iterator[str]:
    """Missing modules of `python -m`, and options of ours that their source does not name."""
    for words in page.commands:
        if "-m" in words and re.match("python|accelerate", Path(words[0]).name):
            name, *given = words[words.index("-m") + 1 :]
            source = source_of(name)
            if source is None:
                yield f"-m {name}: no such module"
            elif name.startswith(PACKAGES) and name != "flows.cli":
                yield from (f"-m {name} {word}" for word in given if word[0] == "-" and f'"{word}"' not in source)


def source_of(module: str) -> str | None:
    """Source of a module, of a package its `__main__`, without importing it; None if there is no such module."""
    try:
        spec = find_spec(module)
        if spec and spec.submodule_search_locations:
            spec = find_spec(f"{module}.__main__") or spec
    except ModuleNotFoundError:
        return None
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else None


def unknown_settings(page: Page) -> Iterator[str]:
    for code in page.inline:
        if match := _SETTING.fullmatch(code):
            section = Config.model_fields.get(match[1])
            if section is None or match[2] not in getattr(section.annotation, "model_fields", {}):
                yield f"{code}: no such setting"
    for block in (block for language, block in page.blocks if language == "toml"):
        try:
            checked(tomllib.loads(block), page.path.name)
        except (UserError, tomllib.TOMLDecodeError) as error:
            yield str(error)


def unknown_variables(page: Page) -> Iterator[str]:
    for name in _VARIABLE.findall(page.markdown):
        if not re.search(rf"\b{name}\b", sources()):
            yield f"{name}: read nowhere"


def unknown_imports(page: Page) -> Iterator[str]:
    """Missing names that Python examples import from our packages, looked up without importing torch."""
    trees = [ast.parse(block) for language, block in page.blocks if language == "python"]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            path = ROOT.joinpath(*str(node.module).split(".")).with_suffix(".py")
            defined = re.findall(r"^(?:class|def) (\w+)", path.read_text() if path.exists() else "", re.M)
            yield from (f"{alias.name}: not in {node.module}" for alias in node.names if alias.name not in defined)


def long_lines(page: Page) -> Iterator[str]:
    """Lines that a terminal would wrap; tables of the pages cannot be wrapped, those of the README are kept narrow."""
    lines = page.markdown.splitlines()
    if page.path.name == "README.md" and len(lines) > MOST_README_LINES:
        yield f"{len(lines)} lines"
    for number, line in enumerate(lines, start=1):
        if len(line) > MOST_COLUMNS and (page.path.name == "README.md" or not line.startswith("|")):
            yield f"line {number} has {len(line)} columns"


def late_commands(page: Page) -> Iterator[str]:
    """Fault of a page of `docs/` that does not open with its commands."""
    if page.path.parent == ROOT / "docs" and not re.match(r"# .+\n\n```sh\n", page.markdown):
        yield "does not open with a heading and a block of commands"


Check = Callable[[Page], Iterator[str]]
SAMPLES: list[tuple[Check, str]] = [
    (broken_links, "[a](docs/nothing.md)"),
    (broken_links, "![a](.github/images/nothing.jpg)"),
    (broken_links, "# Here\n[a](#there)"),
    (broken_links, "[a](CONTRIBUTING.md#nothing)"),
    (unknown_targets, "`make nothing`"),
    (unknown_targets, "```sh\nmake demo && make nothing   # both\n```"),
    (unknown_targets, "`make demo NOTHING=1`"),
    (unknown_commands, "`animegamer nothing`"),
    (unknown_commands, "```sh\nA=1 .venv/bin/animegamer build a.mkv \\\n    --nothing\n```"),
    (unknown_commands, "`animegamer status DIR --captioner rules`"),
    (unknown_commands, "`animegamer train nothing --data DIR`"),
    (unknown_commands, "`animegamer build FILM --until nothing`"),
    (unknown_commands, "`python -m flows.cli train shot --nothing`"),
    (unknown_commands, "`animegamer report DIR nothing`"),
    (unknown_commands, "`--nothing`"),
    (missing_paths, "`pipeline/nothing.py`"),
    (missing_paths, "`nothing.py`"),
    (unknown_definitions, "`pipeline/core/stage.py:Stage.nothing`"),
    (unknown_definitions, "`pipeline/nothing.py:Stage`"),
    (unknown_modules, "`python -m flows.nothing`"),
    (unknown_modules, "`.venv/bin/python -m nothing.at_all`"),
    (unknown_modules, "`python -m benchmarks.build --nothing`"),
    (unknown_settings, "`[run] nothing`"),
    (unknown_settings, "`[nothing] threads = 2`"),
    (unknown_settings, "```toml\n[run]\nnothing = 1\n```"),
    (unknown_settings, "```toml\n[run]\nthreads = -1\n```"),
    (unknown_variables, "`ANIMEGAMER_" + "NOTHING`"),
    (unknown_imports, "```python\nfrom models.game import Nothing\n```"),
    (unknown_imports, "```python\nfrom models.nothing import Game\n```"),
    (long_lines, "a\n" * (MOST_README_LINES + 1)),
    (long_lines, "| " + "a" * MOST_COLUMNS),
    (late_commands, "# Title\n\nFirst some words.\n\n```sh\nmake demo\n```"),
]
CHECKS = list(dict.fromkeys(check for check, _ in SAMPLES))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_names_on_the_pages_exist(check: Check) -> None:
    assert {path.name: faults for path in PAGES if (faults := list(check(read_page(path))))} == {}


@pytest.mark.parametrize(("check", "markdown"), SAMPLES)
def test_each_check_finds_a_fault(check: Check, markdown: str) -> None:
    path = ROOT / ("docs/sample.md" if check is late_commands else "README.md")
    assert len(list(check(Page(path, markdown)))) == 1


def test_the_pages_have_enough_names_to_check() -> None:
    pages = [read_page(path) for path in PAGES]
    programs = [Path(program).name for page in pages for program, *_ in page.commands]
    assert programs.count("make") > 30
    assert programs.count("animegamer") > 40
    assert sum(bool(_PATH.fullmatch(code)) for page in pages for code in page.inline) > 20
    assert sum(bool(_SETTING.fullmatch(code)) for page in pages for code in page.inline) > 15
