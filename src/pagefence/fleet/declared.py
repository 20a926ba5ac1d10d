"""A fleet that is only declared: enough to plan what would be asked of it, with nobody there to ask."""

from __future__ import annotations

from collections.abc import Mapping

from pagefence.fleet.facts import SINGLE, Figure, FleetFacts, NodeFacts, unknown

_SOURCE = "declared"


def declared_facts(figures: Mapping[str, int]) -> FleetFacts:
    """One server with these figures (`pool`, `context`, `longest`, `page_size`); the others are unknown."""
    known = {name: Figure(value, _SOURCE) for name, value in figures.items()}
    none = unknown(_SOURCE, "was not declared")
    node = NodeFacts(
        SINGLE,
        "(declared)",
        None,
        None,
        pool=known.get("pool", none),
        longest=known.get("longest", none),
        context=known.get("context", none),
        page_size=known.get("page_size", none),
        advertised=known.get("context", none),
    )
    return FleetFacts("(declared)", None, node.advertised, (node,))
