"""What a fleet says about itself, each figure with the place it was read from, and nothing taken on trust.

A figure is a positive integer or it is unknown, with the reason. Missing, zero, negative, fractional, true, the
string "None", a broken body: all are unknown, and an unknown figure is never good enough for a rule (fail closed).
One figure for many nodes is a trap, so figures are kept per node, and a limit is the smallest over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ROUTER = "router"
PREFILL = "prefill"
DECODE = "decode"
SINGLE = "single"
UNKNOWN = "unknown"

_LARGEST = 2**53  # beyond this a JSON number is not exact everywhere


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a live process: its value or why it is unknown, and where it was read."""

    value: int | None
    source: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What one process says of itself. `problem` is set when it could not be asked at all."""

    role: str
    url: str
    engine: str | None
    version: str | None
    pool: Figure
    longest: Figure
    context: Figure
    page_size: Figure
    bytes_per_token: Figure
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """All that was read from a fleet before anything was asked of it."""

    url: str
    model: str | None
    advertised: Figure
    nodes: tuple[NodeFacts, ...]
    router: NodeFacts | None = None
    ready: bool | None = None
    reasons: tuple[str, ...] = ()
    guards: Mapping[str, bool] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def everyone(self) -> tuple[NodeFacts, ...]:
        return self.nodes if self.router is None else (self.router, *self.nodes)


@dataclass(frozen=True, slots=True)
class Limits:
    """The borders of a fleet, the smallest figure of all nodes in each case.

    longest    the longest prompt that every node says it accepts
    pool       the smallest pool
    context    the smallest context length; a prompt plus its new tokens must fit
    cover      the largest decode pool: as many planted tokens touch every page of it
    advertised the largest context that anyone advertises
    page       the largest page size, or 64 where nobody tells
    """

    longest: int
    pool: int
    context: int
    cover: int
    advertised: int
    pools: tuple[int, ...]
    page: int = 64


def figure(body: Mapping[str, object], names: Iterable[str], source: str) -> Figure:
    """The first of `names` that `body` has, as a positive integer, or the reason why there is none."""
    asked = list(names)
    for name in asked:
        if name in body:
            return positive(body[name], f"{source} {name}")
    return Figure(None, f"{source} {asked[0]}", "is missing")


def positive(value: object, source: str) -> Figure:
    if value is None:
        return Figure(None, source, "is null")
    if isinstance(value, bool) or not isinstance(value, int):
        return Figure(None, source, f"is not a whole number: {str(value)[:40]!r}")
    if value <= 0:
        return Figure(None, source, f"is {value}, which says nothing")
    if value > _LARGEST:
        return Figure(None, source, "is too large to be true")
    return Figure(value, source)


def unknown(source: str, problem: str) -> Figure:
    return Figure(None, source, problem)


def text(body: Mapping[str, object], name: str) -> str | None:
    value = body.get(name)
    return value[:200] if isinstance(value, str) and value else None


def node_facts(url: str, role: str | None, body: Mapping[str, object], source: str) -> NodeFacts:
    """Read one `/server_info`. A declared role that the live process contradicts becomes a problem."""
    live = live_role(body)
    problem = None
    if role in (PREFILL, DECODE) and live in (PREFILL, DECODE) and live != role:
        problem = f"was declared as {role} but says that it is {live}"
    return NodeFacts(
        role=role or live,
        url=url,
        engine=text(body, "engine"),
        version=text(body, "version"),
        pool=figure(body, ("max_total_num_tokens",), source),
        longest=figure(body, ("max_req_input_len",), source),
        context=figure(body, ("context_length",), source),
        page_size=figure(body, ("page_size",), source),
        bytes_per_token=figure(body, ("kv_bytes_per_token",), source),
        problem=problem,
    )


def live_role(body: Mapping[str, object]) -> str:
    mode = body.get("disaggregation_mode", body.get("role"))
    if mode in (PREFILL, DECODE, ROUTER):
        return str(mode)
    if "max_total_num_tokens" in body and mode in (None, "null", "none", SINGLE):
        return SINGLE
    return UNKNOWN


def unreadable_node(url: str, role: str | None, source: str, problem: str) -> NodeFacts:
    """A node that could not be asked: every figure is unknown for the same reason."""
    none = unknown(source, problem)
    return NodeFacts(role or UNKNOWN, url, None, None, none, none, none, none, none, problem)


def limits(facts: FleetFacts) -> Limits | str:
    """The borders to probe, or why they are not known."""
    pools = tuple(n.pool.value for n in facts.nodes if n.pool.value is not None)
    contexts = [n.context.value for n in facts.everyone() if n.context.value is not None]
    longest = [n.longest.value for n in facts.everyone() if n.longest.value is not None]
    if facts.advertised.value is not None:
        contexts.append(facts.advertised.value)
    if not contexts:
        return "no node and no model list tells the context length"
    if not pools:
        return "no node tells the size of its pool"
    context, pool = min(contexts), min(pools)
    decode = [n.pool.value for n in facts.nodes if n.role != PREFILL and n.pool.value is not None]
    return Limits(
        longest=min([*longest, context - 1, pool]),
        pool=pool,
        context=context,
        cover=max(decode or pools),
        advertised=max(contexts),
        pools=tuple(sorted(set(pools))),
        page=max((n.page_size.value for n in facts.nodes if n.page_size.value), default=64),
    )
