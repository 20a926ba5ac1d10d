"""Where the operators are tried: every mutant of a source file, with a name that survives edits elsewhere.

Left out, because no behaviour hangs on it: docstrings, annotations, `__str__`, the text of errors, of `_require` and of
`Dropped`, names of enum members, assertions that only narrow a type, class headers, and the figures that a `Config`
has by default: no rule hangs on whether a timer is set to 30 or 31 seconds.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .operators import alternatives, is_prose

SOURCE = Path(__file__).parents[2] / "src" / "pagefence"
# name of what is called -> how many of its arguments come before those that are text for people.
TEXT_AFTER = {"Dropped": 0, "_require": 2, "Rule": 1, "cast": 0, "TypeVar": 0}
SKIPPED_FUNCTIONS = {"__str__", "_shown"}
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "type_ignores"}
TABLE = "TABLE"
LEFT_OUT = "left out"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change in one place. `whole` means that the module must be imported anew for it to take effect."""

    file: str
    scope: str
    change: str
    source: str
    whole: bool

    @property
    def cell(self) -> bool:
        """It is a wrong rule in a machine's table."""
        return self.scope.startswith(f"{TABLE}[")

    @property
    def function(self) -> str:
        """What a test must call to meet it, as `in_order` wants it. A cell is looked up in `Machine._room`."""
        return f"{self.file}:{'Machine._room' if self.cell else self.scope}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is called in the ledger and among the explained."""
        return self.file, self.scope, self.change


@dataclass(slots=True)
class Place:
    """Where in a tree the change is made."""

    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST

    def make(self) -> None:
        """Change the tree, for good: every mutant lives in its own process."""
        if self.index is None:
            setattr(self.parent, self.field, self.new)
        else:
            getattr(self.parent, self.field)[self.index] = self.new


class SourceFile:
    """A file of the product with all its mutants."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.path = SOURCE / file
        self.module = "pagefence." + file.removesuffix(".py").replace("/", ".")
        self.tree = ast.parse(self.path.read_text(encoding="utf-8"))
        self.places: dict[Mutant, Place] = {}
        self._seen: Counter[tuple[str, str]] = Counter()
        self._body(self.tree, "")

    def mutated(self, mutant: Mutant) -> Any:
        """The code of the module with this change in it."""
        self.places[mutant].make()
        ast.fix_missing_locations(self.tree)
        return compile(self.tree, str(self.path), "exec", dont_inherit=True)

    # --- scopes ---------------------------------------------------------------------------------------------------

    def _body(self, owner: ast.Module | ast.ClassDef, prefix: str) -> None:
        for statement in owner.body:
            if isinstance(statement, ast.ClassDef):
                named_only = any(ast.unparse(base).endswith("Enum") for base in statement.bases)
                if not named_only and not statement.name.endswith("Config"):
                    self._body(statement, f"{prefix}{statement.name}.")
            elif isinstance(statement, Function):
                if statement.name not in SKIPPED_FUNCTIONS:
                    self._function(statement, prefix + statement.name)
            elif isinstance(statement, ast.AnnAssign | ast.Assign) and statement.value is not None:
                target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
                self._declaration(statement, statement.value, prefix + ast.unparse(target))

    def _function(self, function: Function, scope: str) -> None:
        digest = _digest(function)
        for place, old in _places_in_list(function, "body"):
            self._add(scope, digest, place, old, whole=False)
        for place, old in _places_in_list(function.args, "defaults"):
            self._add(scope, digest, place, old, whole=True)

    def _declaration(self, statement: ast.AnnAssign | ast.Assign, value: ast.expr, scope: str) -> None:
        digest = _digest(statement)
        if scope == TABLE:
            for place, old, row in _cells(value):
                self._add(f"{TABLE}[{row}]", digest, place, old, whole=False)
        elif isinstance(value, ast.Constant | ast.BinOp | ast.UnaryOp | ast.Call | ast.Tuple) and not _is_union(value):
            for place, old in _places(statement, "value", None, value):
                self._add(scope, digest, place, old, whole=True)

    def _add(self, scope: str, digest: str, place: Place, old: ast.AST, *, whole: bool) -> None:
        change = _described(place, old)
        self._seen[scope, change] += 1
        count = self._seen[scope, change]
        name = change if count == 1 else f"{change} #{count}"
        self.places[Mutant(self.file, scope, name, digest, whole)] = place


# --- walking ------------------------------------------------------------------------------------------------------


def _places(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> Iterator[tuple[Place, ast.AST]]:
    """Every place at or under `node`."""
    if _is_silent(node):
        return
    for new in alternatives(node):
        yield Place(parent, field, index, new), node
    first_text = TEXT_AFTER.get(ast.unparse(node.func)) if isinstance(node, ast.Call) else None
    for name, value in ast.iter_fields(node):
        if name in SKIPPED_FIELDS or isinstance(node, ast.Raise) or (isinstance(node, ast.Assert) and name == "msg"):
            continue
        if isinstance(value, list):
            stop = first_text if name == "args" else None
            if not (name == "keywords" and first_text is not None):
                yield from _places_in_list(node, name, stop)
        elif isinstance(value, ast.AST) and not _is_pair_of_a_step(node, value):
            yield from _places(node, name, None, value)
        elif isinstance(value, ast.AST):
            yield from _places_in_list(value, "elts")


def _places_in_list(parent: ast.AST, field: str, stop: int | None = None) -> Iterator[tuple[Place, ast.AST]]:
    for i, child in enumerate(getattr(parent, field)[:stop]):
        if isinstance(child, ast.AST):
            yield from _places(parent, field, i, child)


def _is_silent(node: ast.AST) -> bool:
    """Nothing under this node is tried."""
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.Constant):
        return is_prose(node.value)
    return isinstance(node, ast.Assert) and ast.unparse(node.test).endswith(" is not None")


def _is_pair_of_a_step(node: ast.AST, value: ast.AST) -> bool:
    """`return state, effects`: half a pair is no plausible slip, it breaks wherever it is unpacked."""
    return isinstance(node, ast.Return) and isinstance(value, ast.Tuple) and len(value.elts) == 2


def _is_union(value: ast.expr) -> bool:
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr)


def _cells(table: ast.expr) -> Iterator[tuple[Place, ast.AST, str]]:
    """Every cell of a machine's table with every other rule of its column, and with none."""
    assert isinstance(table, ast.Dict)
    rows = [(ast.unparse(phase), row) for phase, row in zip(table.keys, table.values, strict=True) if phase]
    column: dict[str, dict[str, ast.expr]] = {}
    for _, row in rows:
        assert isinstance(row, ast.Dict)
        for message, rule in zip(row.keys, row.values, strict=True):
            if isinstance(rule, ast.Name) and not rule.id.isupper():
                column.setdefault(ast.unparse(message or row), {})[rule.id] = rule
    for phase, row in rows:
        assert isinstance(row, ast.Dict)
        for i, (message, rule) in enumerate(zip(row.keys, row.values, strict=True)):
            name = ast.unparse(message or row)
            acting = column.get(name, {})
            others: list[ast.expr] = [other for id_, other in acting.items() if ast.unparse(rule) != id_]
            if ast.unparse(rule) in acting:
                others.append(ast.Constant(LEFT_OUT))
            for new in others:
                yield Place(row, "values", i, new), rule, f"{phase}][{name}"


# --- names --------------------------------------------------------------------------------------------------------


def _digest(node: ast.AST) -> str:
    """Of the code alone: comments, layout and the docstring may change."""
    body = getattr(node, "body", None)
    if (
        isinstance(node, Function)
        and body
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
    ):
        node = type(node)(**{**{name: getattr(node, name, None) for name in node._fields}, "body": body[1:]})
    return hashlib.sha256(ast.dump(node).encode()).hexdigest()[:16]


def _described(place: Place, old: ast.AST) -> str:
    if isinstance(place.new, ast.Pass):
        return f"removed: {_short(old)}"
    text = f"{_short(old)} -> {_short(place.new)}"
    within = isinstance(place.parent, ast.expr | ast.keyword) and not isinstance(place.parent, ast.Dict)
    if isinstance(old, ast.expr) and within and len(ast.unparse(old)) < 20:
        text += f" in {_short(place.parent)}"
    return text


def _short(node: ast.AST) -> str:
    text = ast.unparse(node).strip().splitlines()[0]
    return text if len(text) <= 90 else text[:89] + "…"
