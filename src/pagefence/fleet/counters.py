"""What the nodes of a fleet count, read before and after something was asked, and what moved meanwhile.

A difference says something only when nobody else used the fleet meanwhile; whoever judges has to hold it against what
was sent. A node that tells nothing makes the sum of its side unknown: a part is no sum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pagefence.fleet.engines import ADAPTERS, Asked
from pagefence.fleet.engines.adapter import Counters, Holding
from pagefence.fleet.facts import DECODE, FleetFacts, NodeFacts
from pagefence.fleet.http import Fleet

METRICS = "/metrics"
_MOST_NODES = 64  # each is asked twice for each wave of a plan, and again and again after a race
_COUNTERS = {a.engine: (METRICS, a.counters) for a in ADAPTERS if a.counters is not None}
_HOLDINGS = {a.engine: (a.held_at, a.held) for a in ADAPTERS if a.held is not None}

# By node URL.
Count = Mapping[str, Counters]


@dataclass(frozen=True, slots=True)
class Window:
    """The counters before and after one wave of requests, and which requests those were.

    `entry`: nodes that take prompts (prefill, or one that does both); `exit`: decode nodes of a pair.
    """

    title: str
    requests: tuple[str, ...]
    before: Count
    after: Count
    entry: tuple[str, ...]
    exit: tuple[str, ...]

    def moved(self, nodes: Sequence[str], name: str) -> int | None:
        """By how much a counter rose over these nodes together; None where one does not tell or began anew."""
        total = 0
        for url in nodes:
            first, last = (getattr(count.get(url, Counters()), name) for count in (self.before, self.after))
            if first is None or last is None or last < first:
                return None
            total += last - first
        return total if nodes else None


def sides(facts: FleetFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(entry, exit): the addresses of the nodes that take prompts, and of those that only decode."""
    entry = tuple(node.url for node in facts.nodes if node.role != DECODE)
    return entry, tuple(node.url for node in facts.nodes if node.role == DECODE)


async def read_counters(fleet: Fleet, facts: FleetFacts) -> Count:
    """The counters of every node whose engine has any. Never raises; a node that does not answer tells nothing."""
    return await _read(fleet, facts, _COUNTERS)


async def read_holdings(fleet: Fleet, facts: FleetFacts) -> Mapping[str, Holding]:
    """What requests hold of every node whose engine tells it, by node URL. Never raises, as `read_counters`."""
    return await _read(fleet, facts, _HOLDINGS)


_T = TypeVar("_T")


async def _read(
    fleet: Fleet, facts: FleetFacts, readers: Mapping[str, tuple[str, Callable[[Asked, str], _T]]]
) -> dict[str, _T]:
    if len(facts.nodes) > _MOST_NODES:
        return {}

    async def one(node: NodeFacts) -> _T:
        path, reader = readers[str(node.engine)]
        return reader(Asked(node.url, {path: await fleet.get(node.url, path, "admin")}), node.role)

    nodes = [node for node in facts.nodes if node.engine in readers]
    told = await asyncio.gather(*map(one, nodes))
    return dict(zip((node.url for node in nodes), told, strict=True))
