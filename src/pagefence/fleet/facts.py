"""What a fleet says about itself, each figure with the place it was read from, and nothing taken on trust.

A figure is a positive integer or it is unknown, with the reason. Missing, zero, negative, fractional, true, the
string "None", a broken body: all are unknown, and an unknown figure is never good enough for a rule (fail closed).
One figure for many nodes is a trap, so figures are kept per node, and a limit is the smallest over all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

ROUTER = "router"
PREFILL = "prefill"
DECODE = "decode"
SINGLE = "single"
UNKNOWN = "unknown"

# Work per prompt token and what the hardware can do at most. A parameter counts when a prompt token is multiplied with
# it; `attention_width` is heads x head size, left out for sparse attention; `peak_flop_per_s` is of one of `devices`.
SPEED = (
    "active_parameters",
    "layers",
    "attention_width",
    "devices",
    "peak_flop_per_s",
    "kv_bytes_per_token",
    "link_bytes_per_s",
)
MISSING = "is missing"
_LARGEST = 2**53  # beyond this a JSON number is not exact everywhere


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a live process: its value or why it is unknown, and where it was read."""

    value: int | None
    source: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Flag:
    """One switch of a live process, yes/no or a word: its value or why it is unknown, and where it was read."""

    value: str | bool | None
    source: str
    problem: str | None = None


_NOT_READ = Figure(None, "", "is told by no endpoint of this engine")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What one process says of itself. `problem` is set when it could not be asked at all.

    role        what the live process says, or as it was declared where it says nothing
    ranks       the pool of every rank; `pool` is the smallest of them, and unknown when one is unknown
    advertised  the longest prompt and answer that it promises to clients (`/v1/models`)
    flags       switches that a rule asks for, by PageFence's names: `auto_truncate`, `kv_checksum`, ...
    speed       what a floor of latency is computed from, by the names in `SPEED`; what nobody told is missing
    settings    what decides how much fits and how it is computed, for `--lock`: quantisation, parallelism, graph sizes
    workers     nodes behind it that it names: address (or "") and role (or None)
    open_api    whether its client API answers here without a key, where that was asked
    recognised  by what the engine was recognised; None when it was not
    missing     figures that no endpoint of this engine tells: what to declare
    asked       the paths that were asked, and what came of each
    """

    role: str
    url: str
    engine: str | None
    version: str | None
    pool: Figure = _NOT_READ
    longest: Figure = _NOT_READ
    context: Figure = _NOT_READ
    page_size: Figure = _NOT_READ
    bytes_per_token: Figure = _NOT_READ
    problem: str | None = None
    ranks: tuple[Figure, ...] = ()
    advertised: Figure = _NOT_READ
    model: str | None = None
    flags: Mapping[str, Flag] = field(default_factory=dict)
    speed: Mapping[str, Figure] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    workers: tuple[tuple[str, str | None], ...] = ()
    ready: bool | None = None
    reasons: tuple[str, ...] = ()
    guards: Mapping[str, bool] = field(default_factory=dict)
    open_api: bool | None = None
    recognised: str | None = None
    missing: tuple[str, ...] = ()
    asked: tuple[tuple[str, str], ...] = ()


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
    asked      they were found by asking, because no live figure tells them
    refused    the shortest length that is known to be refused, where that is not longest + 1
    """

    longest: int
    pool: int
    context: int
    cover: int
    advertised: int
    pools: tuple[int, ...]
    page: int = 64
    asked: bool = False
    refused: int = 0

    def room(self, tokens: int, wanted: int) -> int:
        """New tokens that fit after a prompt of `tokens`: at least one, at most `wanted`."""
        return max(1, min(wanted, self.context - tokens))


def figure(body: Mapping[str, object], names: Iterable[str], source: str) -> Figure:
    """The first of `names` that `body` has, as a positive integer, or the reason why there is none."""
    asked = list(names)
    for name in asked:
        if name in body:
            return positive(body[name], f"{source} {name}")
    return Figure(None, f"{source} {asked[0]}", MISSING)


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


def untold(figure: Figure) -> bool:
    """Nobody says anything, as opposed to something that cannot be believed."""
    return figure.value is None and figure.problem in (MISSING, _NOT_READ.problem)


def unknown(source: str, problem: str) -> Figure:
    return Figure(None, source, problem)


def text(body: Mapping[str, object], name: str) -> str | None:
    """A word of a fleet, in one line: what is no letter of any script could pass for a line of a report."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        return None
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in brief(value, 200))


def brief(value: object, most: int = 300) -> str:
    """As text, not too long, and still another text when the end of it differs: for what is compared later."""
    said = str(value)
    if len(said) <= most:
        return said
    return f"{said[: most - 20]}... {hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()[:16]}"


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
    return NodeFacts(role or UNKNOWN, url, None, None, none, none, none, none, none, problem, advertised=none)


def smallest(ranks: Sequence[Figure], source: str) -> Figure:
    """The pool of a node: its smallest rank, named. Unknown when no rank is known or one of them is unknown."""
    if not ranks:
        return unknown(source, MISSING)
    silent = next((rank for rank in ranks if rank.value is None), None)
    return silent or min(ranks, key=lambda rank: rank.value or 0)


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
