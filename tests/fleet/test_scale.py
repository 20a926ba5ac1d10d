"""A large fleet is gated whole, and one silent node holds up nobody. How long it takes is `bench.gate`'s to say."""

from __future__ import annotations

import asyncio
import time

import pytest

from pagefence.fleet import Fleet, FleetFacts, Keys, Target
from pagefence.fleet.describe import describe
from pagefence.probes.gate import Policy, gate
from pagefence.verdict import decide
from tests.fleet.many import many

MORE = Policy(1.26, inside=True)
INSIDE = Policy(inside=True)  # who reads these figures stands where workers are reached


def read(urls: list[str], timeout_s: float) -> tuple[FleetFacts, float]:
    """The facts of a fleet of prefill nodes and of as many decode nodes, and the seconds that they took."""
    prefill = tuple(url for url in urls if "/decode" not in url)
    decode = tuple(url for url in urls if "/decode" in url)

    async def ask() -> FleetFacts:
        async with Fleet(Target(None, prefill, decode), Keys(), timeout_s) as fleet:
            return await describe(fleet)

    started = time.monotonic()
    return asyncio.run(ask()), time.monotonic() - started


@pytest.mark.slow
def test_a_thousand_nodes_are_gated_each_by_its_own_figures() -> None:
    with many(1000) as urls:
        facts, _ = read(urls, 120.0)
    assert sum(len(node.ranks) for node in facts.nodes) == 1000
    assert decide([gate(facts, policy=INSIDE)]).name == "CLEAN"
    assert decide([gate(facts, policy=MORE)]).name == "FAIL"
    assert len(gate(facts, policy=MORE).evidence) == 1000


def test_a_thousand_ranks_of_fewer_nodes_are_each_held_against_the_rule() -> None:
    with many(125, ranks=8) as urls:
        facts, _ = read(urls, 120.0)
    assert sum(len(node.ranks) for node in facts.nodes) == 1000
    assert decide([gate(facts, policy=INSIDE)]).name == "CLEAN"


def test_a_silent_node_costs_no_more_than_its_time_out_and_nobody_else_an_answer() -> None:
    timeout_s = 3.0
    with many(100) as urls:
        silent = urls[0].replace("/prefill", "/silent")
        facts, took = read([silent, *urls[1:]], timeout_s)
    unread = [node.url for node in facts.nodes if node.problem is not None]
    assert unread == [silent]
    assert decide([gate(facts, policy=INSIDE)]).name == "INCONCLUSIVE"
    assert took < 4 * timeout_s


@pytest.mark.slow
def test_many_silent_nodes_wait_side_by_side() -> None:
    timeout_s = 3.0
    with many(400) as urls:
        silent = [url.replace("/prefill", "/silent") for url in urls if "/prefill" in url]
        facts, took = read([*silent, *urls[200:]], timeout_s)
    assert {node.url for node in facts.nodes if node.problem is not None} == set(silent)
    # If those with a turn held it until their time-out, 200 of them would take seven times as long as one.
    assert took < 5 * timeout_s
