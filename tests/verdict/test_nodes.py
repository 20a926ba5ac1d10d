"""The terminal explains a node whose figures are not all known, and only such a one."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from pagefence.fleet.facts import FleetFacts, NodeFacts, positive
from pagefence.verdict.nodes import show_nodes

ASKED = (("/v1/models", "HTTP 200"),)
KNOWN = NodeFacts("prefill", "http://p", "e", "1", pool=positive(4096, "/p"), context=positive(2048, "/c"), asked=ASKED)
NO_POOL = NodeFacts("router", "http://r", "e", "1", context=positive(2048, "/c"), asked=ASKED)


def shown(router: NodeFacts | None, *nodes: NodeFacts) -> str:
    out = io.StringIO()
    facts = FleetFacts("http://r", "m", positive(2048, "/v1/models"), nodes, router)
    show_nodes(facts, "pagefence gate http://r", Console(file=out, width=120))
    return out.getvalue()


def test_a_router_before_named_workers_needs_no_pool() -> None:
    assert "What PageFence knows" not in shown(NO_POOL, KNOWN)


def test_a_server_without_a_pool_is_explained_with_what_to_declare() -> None:
    said = shown(None, replace(NO_POOL, role="single"))
    assert "pagefence gate http://r --declare pool=N" in said
    assert 'url = "http://r": pool = N' in said
