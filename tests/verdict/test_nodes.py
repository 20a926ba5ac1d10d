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


def test_what_is_declared_of_an_unknown_engine_includes_its_name() -> None:
    said = shown(None, replace(NO_POOL, role="single", engine="openai-compatible", version=None))
    assert "pagefence gate http://r --declare pool=N --declare engine=NAME --declare version=VERSION" in said
    assert 'url = "http://r": pool = N, engine = "NAME", version = "VERSION"' in said


def test_what_was_asked_is_grouped_by_what_came_of_it() -> None:
    asked = (("/a", "answered HTTP 404"), ("/v1/models", "HTTP 200"), ("/b", "answered HTTP 404"))
    assert "/a, /b: answered HTTP 404; /v1/models: HTTP 200" in shown(
        None, replace(NO_POOL, role="single", asked=asked)
    )


def test_a_server_that_wants_a_key_is_told_which_and_not_that_it_is_unknown() -> None:
    locked = replace(NO_POOL, engine=None, asked=(("/workers", "answered HTTP 401: it wants a key"),))
    said = shown(None, locked)
    assert "PAGEFENCE_KEY_ADMIN" in said
    assert "no engine" not in said
