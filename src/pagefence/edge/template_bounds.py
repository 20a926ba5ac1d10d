"""What a chat template adds to the words of a conversation, at most, read from its own code. Pure.

A template is a program, and a few probes prove nothing about one. So its syntax tree is read: constants cost their
tokens, a field of a message costs its bytes, of two branches the dearer one counts, and what stands in the loop over
the messages counts once for each. Whatever else a template does has no cost here: it is rendered, and then measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jinja2 import nodes

ABSENT = frozenset({"tools", "documents", "functions", "custom_tools", "builtin_tools", "available_tools", "xml_tools"})
"""What a plain conversation does not come with; a template that asks for it takes the other branch."""
_KEEPS = frozenset({"trim", "string"})  # filters and methods that make a text no longer
_KEEPING_METHODS = frozenset({"strip", "lstrip", "rstrip"})


@dataclass(frozen=True, slots=True)
class TemplateBounds:
    """A plain conversation has at most `fixed + per_message * messages + times * bytes of its strings` tokens.

    writes   fields that are written for every message, whole: what they need at least, the prompt needs at least
    """

    fixed: int
    per_message: int
    times: int
    writes: frozenset[str]

    def at_most(self, messages: int, size: int) -> int:
        """Tokens of so many messages whose strings, roles included, bound to `size` tokens."""
        return self.fixed + self.per_message * messages + self.times * size


@dataclass(frozen=True, slots=True)
class _Cost:
    """Tokens, and how often each field of the messages is written.

    sure   fields that are written in any case, as they are; None where the template gives up, so nothing else counts
    """

    tokens: int = 0
    fields: tuple[tuple[str, int], ...] = ()
    sure: frozenset[str] | None = frozenset()

    def __add__(self, other: _Cost) -> _Cost:
        mine = dict(self.fields)
        for name, times in other.fields:
            mine[name] = mine.get(name, 0) + times
        sure = None if self.sure is None or other.sure is None else self.sure | other.sure
        return _Cost(self.tokens + other.tokens, tuple(mine.items()), sure)

    def dearer(self, other: _Cost) -> _Cost:
        """No less than either; sure is what both are sure of."""
        mine = dict(self.fields)
        for name, times in other.fields:
            mine[name] = max(mine.get(name, 0), times)
        sure = other.sure if self.sure is None else self.sure if other.sure is None else self.sure & other.sure
        return _Cost(max(self.tokens, other.tokens), tuple(mine.items()), sure)


class _Unbounded(Exception):
    """Something is written whose size is not known."""


def template_bounds(
    template: nodes.Template, tokens: Mapping[str, str], count: Callable[[str], int]
) -> TemplateBounds | None:
    """Read from a syntax tree, or None. `tokens`: variables with a fixed text; `count` bounds the tokens of one."""
    try:
        reader = _Reader(count, {name: _Cost(count(text)) for name, text in tokens.items()})
        outside = reader.body(template.body)
    except _Unbounded:
        return None
    times = dict((outside + reader.inside).fields)
    writes = reader.inside.sure or frozenset()
    return TemplateBounds(outside.tokens, reader.inside.tokens, max(times.values(), default=0), writes)


class _Reader:
    """Adds up what is written.

    names    variables by what writing them costs
    inside   what the loops cost for each message
    """

    def __init__(self, count: Callable[[str], int], names: Mapping[str, _Cost | None], loop: str | None = None) -> None:
        self.count = count
        self.names = dict(names)
        self.loop = loop
        self.inside = _Cost()
        self.surely = True  # no branch decides whether we are here

    def body(self, statements: Sequence[nodes.Node]) -> _Cost:
        cost = _Cost()
        for statement in statements:
            cost += self.statement(statement)
        return cost

    def statement(self, node: nodes.Node) -> _Cost:
        if isinstance(node, nodes.Output):
            cost = _Cost()
            for part in node.nodes:
                cost += self.written(part)
            return cost
        if isinstance(node, nodes.If):
            return self.branches([(node.test, node.body), *((e.test, e.body) for e in node.elif_)], node.else_)
        if isinstance(node, nodes.For):
            return self.loop_over(node)
        if isinstance(node, nodes.Assign):
            return self.assign(node)
        raise _Unbounded

    def branches(self, arms: Sequence[tuple[nodes.Node, list[nodes.Node]]], otherwise: list[nodes.Node]) -> _Cost:
        before, after = dict(self.names), dict[str, _Cost | None]()
        cost = _Cost()
        bodies = [body for test, body in arms if not self.never(test)]
        here, self.surely = self.surely, self.surely and not bodies
        for body in [*bodies, otherwise]:
            self.names = dict(before)
            cost = cost.dearer(self.body(body))
            for name, value in self.names.items():
                known = after.get(name, value)
                after[name] = None if known is None or value is None else known.dearer(value)
        self.names, self.surely = after, here
        return cost

    def loop_over(self, node: nodes.For) -> _Cost:
        over, target = node.iter, node.target
        while isinstance(over, nodes.Getitem) and isinstance(over.arg, nodes.Slice):
            over = over.node  # some of the messages, once each
        if self.loop is not None or node.recursive or not self.is_messages(over) or not isinstance(target, nodes.Name):
            raise _Unbounded
        every = over is node.iter and node.test is None and "messages" not in self.names and self.surely
        # What the loop leaves behind is forgotten, and what it finds set before it costs each message again.
        within = _Reader(self.count, {**self.names, target.name: None}, target.name)
        first = within.body(node.body)
        again = within.body(node.body)  # a variable that grows from turn to turn costs more the second time
        if again != first:
            raise _Unbounded
        if _uses(node.body, {name for name, cost in self.names.items() if cost is not None and cost.fields}):
            raise _Unbounded  # a text from outside of the loop, once for each message
        self.inside += first if every else replace(first, sure=frozenset())
        return self.body(node.else_)

    def assign(self, node: nodes.Assign) -> _Cost:
        target = node.target
        if isinstance(target, nodes.NSRef):
            return _Cost()  # what a namespace holds is never written: `written` knows no cost of it
        if not isinstance(target, nodes.Name) or target.name == self.loop:
            raise _Unbounded
        if target.name == "messages" and not self.is_messages(_unsliced(node.node)):
            raise _Unbounded
        try:
            self.names[target.name] = self.written(node.node)
        except _Unbounded:
            self.names[target.name] = None  # dear only where it is written
        return _Cost()

    def written(self, node: nodes.Node) -> _Cost:
        """What an expression costs when it is written."""
        if isinstance(node, nodes.TemplateData):
            return _Cost(self.count(node.data))
        if isinstance(node, nodes.Const):
            return _Cost(self.count("" if node.value is None else str(node.value)))
        if isinstance(node, nodes.Add):
            return self.written(node.left) + self.written(node.right)
        if isinstance(node, nodes.Concat):
            cost = _Cost()
            for part in node.nodes:
                cost += self.written(part)
            return cost
        if isinstance(node, nodes.CondExpr):
            other = self.written(node.expr2) if node.expr2 is not None else _Cost()
            return other if self.never(node.test) else self.written(node.expr1).dearer(other)
        if isinstance(node, nodes.Filter) and node.name in _KEEPS and not node.args and node.node is not None:
            return replace(self.written(node.node), sure=frozenset())
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            if node.node.attr in _KEEPING_METHODS:
                return replace(self.written(node.node.node), sure=frozenset())
            raise _Unbounded
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == "raise_exception":
            return _Cost(sure=None)
        if isinstance(node, nodes.Name):
            cost_of = self.names.get(node.name)
            if cost_of is None:
                raise _Unbounded
            return cost_of
        return self.field(node)

    def field(self, node: nodes.Node) -> _Cost:
        """`message.content`, and outside of the loop `messages[0].content`."""
        name = _field(node)
        if name is None or not isinstance(node, nodes.Getattr | nodes.Getitem):
            raise _Unbounded
        whose = node.node
        if isinstance(whose, nodes.Name) and whose.name == self.loop:
            return _Cost(0, ((name, 1),), frozenset({name}))
        one_of = isinstance(whose, nodes.Getitem) and isinstance(whose.arg, nodes.Const | nodes.Neg)
        if self.loop is None and one_of and isinstance(whose, nodes.Getitem) and self.is_messages(whose.node):
            return _Cost(0, ((name, 1),))
        raise _Unbounded

    def is_messages(self, node: nodes.Node) -> bool:
        return isinstance(node, nodes.Name) and node.name == "messages"

    def never(self, test: nodes.Node) -> bool:
        """Whether a plain conversation cannot take this branch."""
        if isinstance(test, nodes.And):
            return self.never(test.left) or self.never(test.right)
        if isinstance(test, nodes.Test) and test.name == "defined":
            return self.never(test.node)
        return isinstance(test, nodes.Name) and test.name in ABSENT and test.name not in self.names


def _field(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Getattr):
        return str(node.attr)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
        return node.arg.value
    return None


def _unsliced(node: nodes.Node) -> nodes.Node:
    return node.node if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice) else node


def _uses(body: Sequence[nodes.Node], names: set[str]) -> bool:
    return any(found.name in names for node in body for found in node.find_all(nodes.Name))
