"""Mutants: small seeded changes of the product's code, each of which some test should notice.

A mutant replaces one piece of one function by another piece of valid Python. Left alone are docstrings, annotations,
texts (so logs, messages and help), what is raised, and everything outside function bodies.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath

PACKAGES = ("benchmarks", "examples", "flows", "models", "pipeline", "prompts", "training")

_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}  # fmt: skip
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
_OUTPUT = {"debug", "info", "warning", "error", "exception", "log", "print", "echo", "say"}
_IN_ANY_ORDER = {"isinstance", "issubclass", "suppress", "min", "max"}
_CONTEXT_LINES = 4
_ALIKE = 1.3


@dataclass(frozen=True)
class Mutant:
    """One change at one place."""

    path: str
    """Relative to the root of the tree."""
    lines: tuple[int, int]
    """First and last line of the statement, or of its head; a test that runs one of them runs the mutant."""
    span: tuple[int, int]
    """The bytes replaced."""
    kind: str
    change: str
    """Operators or constants, before and after; empty where the kind says it all."""
    before: str
    after: str

    def apply(self, source: str) -> str:
        """Return the mutated source of the file."""
        code = source.encode()
        return (code[: self.span[0]] + self.after.encode() + code[self.span[1] :]).decode()

    def __str__(self) -> str:
        return f"{self.path}:{self.lines[0]} {self.kind} {self.change} {self.before} => {self.after}"


def read_sources(tree: Path) -> dict[str, str]:
    """Return the product's files by relative path."""
    files = (file for package in PACKAGES for file in sorted((tree / package).rglob("*.py")))
    return {file.relative_to(tree).as_posix(): file.read_text("utf-8") for file in files}


def find_mutants(path: str, source: str) -> list[Mutant]:
    """Return all mutants of one file."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


def sample(sources: Mapping[str, str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants from all rooms: one from each, the others by lines; first a kind, then a place, no line twice."""
    lines: dict[str, int] = defaultdict(int)
    by_room: dict[str, list[Mutant]] = defaultdict(list)
    for path, source in sorted(sources.items()):
        room = str(PurePosixPath(path).parent)
        lines[room] += source.count("\n")
        by_room[room] += find_mutants(path, source)
    drawn = []
    for room, share in _shares({room: lines[room] for room in by_room if by_room[room]}, count).items():
        draw = random.Random(f"{seed} {room}")
        left = by_room[room]
        for _ in range(share):
            kind = draw.choice(sorted({mutant.kind for mutant in left}))
            drawn.append(draw.choice([mutant for mutant in left if mutant.kind == kind]))
            left = [mutant for mutant in left if (mutant.path, mutant.lines) != (drawn[-1].path, drawn[-1].lines)]
    return drawn


def find_counterpart(mutant: Mutant, source: str, earlier: Mapping[str, str]) -> Mutant | None:
    """Return the same change at the same place of an earlier tree, by its text and the lines around it; None: new."""
    around, best, best_score = _surroundings(mutant, source), None, _ALIKE
    for path, text in earlier.items():
        for other in find_mutants(path, text):
            if (other.kind, other.change) == (mutant.kind, mutant.change):
                score = _alike(other.before, mutant.before) + _alike(_surroundings(other, text), around)
                if score > best_score:
                    best, best_score = other, score
    return best


def _surroundings(mutant: Mutant, source: str) -> str:
    first, last = mutant.lines
    lines = source.split("\n")[max(first - 1 - _CONTEXT_LINES, 0) : last + _CONTEXT_LINES]
    return "\n".join(line.strip() for line in lines)


def _alike(one: str, other: str) -> float:
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() > _ALIKE - 1 else 0.0


def _shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """One each, and the others by largest remainder."""
    free = max(count - len(sizes), 0)
    exact = {room: free * size / sum(sizes.values()) for room, size in sizes.items()}
    shares = {room: 1 + int(share) for room, share in exact.items()}
    left = free + len(sizes) - sum(shares.values())
    for room in sorted(exact, key=lambda room: int(exact[room]) - exact[room])[:left]:
        shares[room] += 1
    return shares


class _Finder(ast.NodeVisitor):
    """The mutants inside the functions of a file."""

    def __init__(self, path: str, source: str) -> None:
        self.found: list[Mutant] = []
        self._path, self._source = path, source.encode()
        self._offsets = [0]
        for line in self._source.split(b"\n"):
            self._offsets.append(self._offsets[-1] + len(line) + 1)
        self._lines: tuple[int, int] | None = None

    def visit(self, node: ast.AST) -> None:
        before = self._lines
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                self._lines = (statement.lineno, statement.lineno)
                self.visit(statement)
        elif isinstance(node, ast.Module | ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    self.visit(statement)
        elif before is not None and not _is_text(node):
            self._visit_code(node)
        self._lines = before

    def _visit_code(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt | ast.match_case):
            self._lines = _head(node)
        for kind, change, target, new in _changes(node):
            self._add(kind, change, target, new)
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.visit(node.value)
        elif not isinstance(node, ast.Raise | ast.Assert):
            self.generic_visit(node)

    def _add(self, kind: str, change: str, target: ast.expr | ast.stmt, new: ast.expr | ast.stmt) -> None:
        assert self._lines is not None
        assert target.end_lineno is not None
        assert target.end_col_offset is not None
        start = self._offsets[target.lineno - 1] + target.col_offset
        end = self._offsets[target.end_lineno - 1] + target.end_col_offset
        before, after = self._source[start:end].decode(), ast.unparse(new)
        if isinstance(new, ast.expr) and not isinstance(new, ast.Constant):
            after = f"({after})"
        self.found.append(Mutant(self._path, self._lines, (start, end), kind, change, before, after))


def _head(node: ast.stmt | ast.match_case) -> tuple[int, int]:
    """Lines of a simple statement, or of a compound one before its body."""
    first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
    if body := getattr(node, "body", None):
        return first, max(first, body[0].lineno - 1)
    return first, first if isinstance(node, ast.Match) else getattr(node, "end_lineno", first)


def _is_text(node: ast.AST) -> bool:
    """Formatted strings, and statements that only print or log."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or (
            isinstance(node.value, ast.Call) and _name(node.value) in _OUTPUT
        )
    return isinstance(node, ast.JoinedStr)


_Change = tuple[str, str, ast.expr | ast.stmt, ast.expr | ast.stmt]


def _changes(node: ast.AST) -> Iterator[_Change]:
    """Kind, change, the node replaced, its replacement."""
    match node:
        case ast.Compare(left, [operator], [right]):
            for kind, table in (("comparison", _NEGATED), ("boundary", _BOUNDARY)):
                if other := table.get(type(operator)):
                    yield kind, _named(operator, other()), node, ast.Compare(left, [other()], [right])
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC and not _is_string(left, right):
            new = _ARITHMETIC[type(operator)]()
            yield "arithmetic", _named(operator, new), node, ast.BinOp(left, new, right)
        case ast.BoolOp(operator, values):
            flipped = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and/or", _named(operator, flipped), node, ast.BoolOp(flipped, values)
        case ast.UnaryOp(ast.Not(), operand):
            yield "removed not", "", node, operand
        case ast.Constant(bool() | int() | float() as value):
            for changed in _other_values(value):
                yield "constant", f"{value} to {changed}", node, ast.Constant(changed)
        case ast.Call():
            yield from _changes_of_call(node)
        case ast.If(test) | ast.While(test) | ast.IfExp(test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield "negated condition", "", test, ast.UnaryOp(ast.Not(), test)
        case ast.Return(value) if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            yield "returned value", "", node, ast.Return(ast.Constant(None))
    if _is_removable(node):
        assert isinstance(node, ast.stmt)
        yield "removed statement", type(node).__name__, node, ast.Pass()


def _changes_of_call(call: ast.Call) -> Iterator[_Change]:
    if isinstance(call.func, ast.Name) and (other := _OPPOSITE.get(call.func.id)):
        yield "min/max", f"{call.func.id} to {other}", call.func, ast.Name(other)
    match call.args:
        case [first, second, *rest] if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
            if ast.dump(first) != ast.dump(second) and _name(call) not in _IN_ANY_ORDER:
                yield "swapped arguments", "", call, ast.Call(call.func, [second, first, *rest], call.keywords)


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _is_removable(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            return True
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            return True
    return False


def _other_values(value: float) -> list[bool] | list[int] | list[float]:
    if isinstance(value, bool):
        return [not value]
    return [value + 1, value - 1] if isinstance(value, int) else [value * 2 or 1.0]


def _is_string(*operands: ast.expr) -> bool:
    return any(isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", 0), str) for node in operands)


def _named(before: ast.AST, after: ast.AST) -> str:
    return f"{type(before).__name__} to {type(after).__name__}"
