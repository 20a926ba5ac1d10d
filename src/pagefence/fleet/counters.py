"""What the nodes of a fleet count, read before and after something was asked, and what moved meanwhile.

A difference says something only when nobody else used the fleet meanwhile; whoever judges has to hold it against what
was sent. A node that tells nothing makes the sum of its side unknown: a part is no sum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagefence.fleet.engines import ADAPTERS, Asked
from pagefence.fleet.engines.adapter import Counters
from pagefence.fleet.facts import DECODE, FleetFacts, NodeFacts
from pagefence.fleet.http import Fleet

METRICS = "/metrics"
_MOST_NODES = 64  # each is asked twice for each wave of a plan
_READERS = {a.engine: a.counters for a in ADAPTERS if a.counters is not None}

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
    nodes = [node for node in facts.nodes if node.engine in _READERS]
    if len(facts.nodes) > _MOST_NODES:
        return {}
    told = await asyncio.gather(*(_read(fleet, node) for node in nodes))
    return dict(zip((node.url for node in nodes), told, strict=True))


async def _read(fleet: Fleet, node: NodeFacts) -> Counters:
    reply = await fleet.get(node.url, METRICS, "admin")
    return _READERS[str(node.engine)](Asked(node.url, {METRICS: reply}), node.role)
