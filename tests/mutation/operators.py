"""How one piece of syntax can be wrong: each operator takes a node and returns what could stand in its place.

Every alternative is small and plausible, as a slip of a programmer is. Text for people is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

SWAPS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
# Functions that are easily taken for one another.
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "iter"}


def alternatives(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that could stand in the place of `node`."""
    operator = OPERATORS.get(type(node))
    if operator is not None:
        yield from operator(node)


def altered(node: ast.AST, **fields: Any) -> Any:
    """A copy of the node with some fields replaced."""
    kept = {name: getattr(node, name) for name in node._fields if hasattr(node, name)}
    return ast.copy_location(type(node)(**{**kept, **fields}), node)


def negated(test: ast.expr) -> ast.expr:
    """`not test`."""
    return ast.UnaryOp(ast.Not(), test)


def is_negated_elsewhere(test: ast.expr) -> bool:
    """A single comparison and a `not` have operators of their own that turn them round."""
    simple = isinstance(test, ast.Compare) and len(test.ops) == 1
    return simple or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def is_prose(value: object) -> bool:
    """Text for people has spaces in it; codes, kinds and names have none."""
    return isinstance(value, str) and (" " in value or value == "")


def _without(items: list[Any], i: int) -> list[Any]:
    return items[:i] + items[i + 1 :]


# --- expressions --------------------------------------------------------------------------------------------------


def _compare(node: ast.Compare) -> Iterator[ast.AST]:
    for i, op in enumerate(node.ops):
        for swap in SWAPS[type(op)]:
            yield altered(node, ops=[*node.ops[:i], swap(), *node.ops[i + 1 :]])


def _boolean(node: ast.BoolOp) -> Iterator[ast.AST]:
    yield altered(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for i in range(len(node.values)):
        rest = _without(node.values, i)
        yield rest[0] if len(rest) == 1 else altered(node, values=rest)


def _binary(node: ast.BinOp) -> Iterator[ast.AST]:
    if isinstance(node.op, ast.BitOr | ast.BitAnd):
        yield from (node.left, node.right)
    elif type(node.op) in ARITHMETIC:
        yield altered(node, op=ARITHMETIC[type(node.op)]())
        yield node.left


def _unary(node: ast.UnaryOp) -> Iterator[ast.AST]:
    yield node.operand


def _constant(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
    elif isinstance(value, str) and not is_prose(value):
        yield ast.Constant(value + "?")
    elif isinstance(value, bytes):
        yield ast.Constant(value + b"?")


def _choice(node: ast.IfExp) -> Iterator[ast.AST]:
    yield from (node.body, node.orelse)


def _collection(node: Any) -> Iterator[ast.AST]:
    if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        for i in range(len(node.elts)):
            rest = _without(node.elts, i)
            if rest or not isinstance(node, ast.Set):
                yield altered(node, elts=rest)


def _call(node: ast.Call) -> Iterator[ast.AST]:
    for i in range(len(node.keywords)):
        yield altered(node, keywords=_without(node.keywords, i))
    if isinstance(node.func, ast.Name) and node.func.id in TWINS:
        yield altered(node, func=ast.Name(TWINS[node.func.id], ast.Load()))


def _slice(node: ast.Slice) -> Iterator[ast.AST]:
    for bound in ("lower", "upper"):
        if getattr(node, bound) is not None:
            yield altered(node, **{bound: None})


def _comprehension(node: ast.comprehension) -> Iterator[ast.AST]:
    for i, test in enumerate(node.ifs):
        yield altered(node, ifs=_without(node.ifs, i))
        if not is_negated_elsewhere(test):
            yield altered(node, ifs=[*node.ifs[:i], negated(test), *node.ifs[i + 1 :]])


# --- statements ---------------------------------------------------------------------------------------------------


def _removed(_: ast.AST) -> Iterator[ast.AST]:
    yield ast.Pass()


def _conditional(node: ast.If) -> Iterator[ast.AST]:
    yield ast.Pass()
    if not is_negated_elsewhere(node.test):
        yield altered(node, test=negated(node.test))


def _loop(node: ast.While) -> Iterator[ast.AST]:
    yield ast.Pass()


def _expression(node: ast.Expr) -> Iterator[ast.AST]:
    if not isinstance(node.value, ast.Constant):
        yield ast.Pass()


def _return(node: ast.Return) -> Iterator[ast.AST]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield altered(node, value=ast.Constant(None))


OPERATORS: dict[type[ast.AST], Callable[[Any], Iterator[ast.AST]]] = {
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Constant: _constant,
    ast.IfExp: _choice,
    ast.Tuple: _collection,
    ast.List: _collection,
    ast.Set: _collection,
    ast.Call: _call,
    ast.Slice: _slice,
    ast.comprehension: _comprehension,
    ast.Assign: _removed,
    ast.AugAssign: _removed,
    ast.Raise: _removed,
    ast.Continue: _removed,
    ast.Break: _removed,
    ast.Assert: _removed,
    ast.For: _removed,
    ast.While: _loop,
    ast.If: _conditional,
    ast.Expr: _expression,
    ast.Return: _return,
}
