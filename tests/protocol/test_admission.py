"""The figures that readiness and limits are judged on."""

from __future__ import annotations

from pagefence.protocol.admission import Node, Topology, not_ready
from pagefence.protocol.messages import Capacity


def topology(pool: int, headroom: float = 1.25) -> Topology:
    nodes = tuple(Node(role, role, Capacity(pool, 1, 1)) for role in ("prefill", "decode"))
    return Topology(2049, headroom, nodes)


def test_a_pool_that_covers_all_but_a_fraction_of_a_token_does_not_cover() -> None:
    assert len(not_ready(topology(2561))) == 2  # 2,049 x 1.25 = 2,561.25
    assert not_ready(topology(2562)) == ()
