"""The limit is the smallest live one, never an old one, and nothing that a fleet does ends its reading."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.edge.capacity import (
    Capacities,
    Capacity,
    CapacitySettings,
    Figures,
    Room,
    capacity_of,
    room_of,
    targets_of,
)
from pagefence.fleet import Fleet, FleetFacts, Keys, Target
from pagefence.fleet.declared import declared_facts
from pagefence.fleet.describe import describe
from pagefence.fleet.facts import unknown
from tests.fleet.many import CONTEXT, many
from tests.probes.toy import Toy, running

ROOM = Room(1000, 990, "node")
SETTINGS = CapacitySettings(refresh_s=1.0, stale_s=10.0)
rooms = st.builds(lambda total, less: Room(total, max(1, total - less), "x"), st.integers(1, 10**6), st.integers(0, 50))


def told(room: Room | None = ROOM, at: float = 0.0, problem: str | None = None) -> Figures:
    return Figures(room, problem, at)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.none() | rooms, st.floats(-50, 0)), max_size=4),
    st.none() | rooms,
)
def test_no_capacity_is_above_any_that_holds_or_is_declared(
    seen: dict[str, tuple[Room | None, float]], declared: Room | None
) -> None:
    settings = replace(SETTINGS, declared=declared)
    capacity = capacity_of({name: told(room, at) for name, (room, at) in seen.items()}, settings, 0.0)
    fresh = [room for room, at in seen.values() if room is not None and at >= -10]
    if capacity.room is None:
        assert capacity.problem
        assert not fresh
        return
    bounds = [*fresh, *([declared] if declared else [])]
    assert all(capacity.room.total <= room.total and capacity.room.longest <= room.longest for room in bounds)
    assert bounds


def test_a_figure_is_good_until_it_is_stale() -> None:
    assert capacity_of({"a": told(at=0.0)}, SETTINGS, 10.0) == Capacity(ROOM, None, 10.0)
    stale = capacity_of({"a": told(at=0.0)}, SETTINGS, 10.1)
    assert stale.room is None
    assert stale.problem is not None


def test_an_upstream_that_tells_nothing_is_left_out_and_named() -> None:
    capacity = capacity_of({"a": told(), "b": told(None, problem="connection refused")}, SETTINGS, 1.0)
    assert capacity.room == ROOM
    assert capacity.unusable == {"b"}
    alone = capacity_of({"b": told(None, problem="connection refused")}, SETTINGS, 1.0)
    assert alone.room is None
    assert alone.problem == "connection refused"


def test_a_declared_limit_stands_in_where_nothing_is_told_and_never_raises_one() -> None:
    low, high = (replace(SETTINGS, declared=Room(total, total - 1, "declared")) for total in (500, 5000))
    assert capacity_of({"a": told(None)}, low, 0.0).room == low.declared
    assert capacity_of({"a": told()}, low, 0.0).room == low.declared
    assert capacity_of({"a": told()}, high, 0.0).room == ROOM
    # What was small when it was last seen is not large for being silent.
    assert capacity_of({"a": told()}, high, 99.0).room == ROOM


def test_figures_have_to_be_read_more_often_than_they_age() -> None:
    with pytest.raises(ValueError, match="stale"):
        CapacitySettings(refresh_s=10.0, stale_s=10.0)


def test_a_node_without_a_pool_leaves_the_room_unknown() -> None:
    facts = declared_facts({"pool": 1000, "context": 800, "longest": 790})
    assert room_of(facts) == Room(800, 790, "(declared) declared")
    silent = replace(facts.nodes[0], url="http://second", pool=unknown("/metrics", "is 0, which says nothing"))
    both = replace(facts, nodes=(*facts.nodes, silent))
    assert room_of(both) == "http://second /metrics is 0, which says nothing"
    untold = replace(silent, pool=replace(silent.pool, source="", problem="is told by no endpoint of this engine"))
    assert room_of(replace(facts, nodes=(untold,))) == (
        "http://second: the size of its pool is told by no endpoint of this engine; capacity.limit can declare one"
    )
    broken = replace(facts, nodes=(replace(facts.nodes[0], problem="says two things"),))
    assert room_of(broken) == "(declared) says two things"


# --- over real HTTP ---------------------------------------------------------------------------------------------------


class Clock:
    """Stands until it is set."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def service(
    targets: Mapping[str, Target],
    clock: Clock,
    heard: list[str],
    ask: Callable[[Fleet], Awaitable[FleetFacts]] = describe,
) -> Capacities:
    return Capacities(targets, Keys(a="key-a-123456", admin="key-admin-98765"), SETTINGS, clock, heard.append, ask)


def test_the_smallest_pool_of_a_live_fleet_counts_and_its_change_is_told() -> None:
    heard: list[str] = []
    with running(Toy(context=512, prefill_pool=320, decode_pool=640)) as toy:
        capacities = service({"toy": Target(toy.url)}, Clock(), heard)
        assert capacities.now().room is None
        asyncio.run(capacities.refresh())
        first = capacities.now().room
        assert first is not None
        assert (first.total, first.longest) == (320, 314)
        assert "/prefill" in first.source
        asyncio.run(capacities.refresh())
        assert len(heard) == 1  # nothing changed
        toy.info = {"max_total_num_tokens": 160}
        asyncio.run(capacities.refresh())
        second = capacities.now().room
        assert second is not None
        assert second.total == 160
    assert "holds 160 tokens" in heard[-1]
    assert "before: 320" in heard[-1]


def test_a_fleet_that_falls_silent_counts_until_it_is_stale_and_comes_back() -> None:
    clock, heard = Clock(), list[str]()
    with running(Toy()) as toy:
        capacities = service({"toy": Target(toy.url, retries=0)}, clock, heard)
        asyncio.run(capacities.refresh())
        known = capacities.now().room
        assert known is not None
        toy.info = {"max_total_num_tokens": "None"}
        clock.at = 5.0
        asyncio.run(capacities.refresh())
        assert capacities.now().room == known
        clock.at = 11.0
        assert capacities.now().room is None
        assert "max_total_num_tokens" in (capacities.now().problem or "")
        toy.info = {}
        asyncio.run(capacities.refresh())
        assert capacities.now().room == known


def test_the_smaller_of_two_upstreams_counts_and_a_dead_one_is_named() -> None:
    with running(Toy(prefill_pool=320)) as small, running(Toy()) as large:
        targets = {url: replace(target, retries=0) for url, target in targets_of([small.url, large.url]).items()}
        capacities = service({**targets, "dead": Target("http://127.0.0.1:9", retries=0)}, Clock(), [])
        asyncio.run(capacities.refresh())
        capacity = capacities.now()
    assert capacity.room is not None
    assert capacity.room.total == 320
    assert capacity.unusable == {"dead"}


def test_every_rank_of_every_node_is_read() -> None:
    with many(4, ranks=8) as urls:
        prefill, decode = (tuple(url for url in urls if role in url) for role in ("/prefill", "/decode"))
        capacities = service({"many": Target(None, prefill, decode)}, Clock(), [])
        asyncio.run(capacities.refresh())
    room = capacities.now().room
    assert room is not None
    assert (room.total, room.longest) == (CONTEXT, CONTEXT - 7)


@pytest.mark.parametrize("error", [RuntimeError("key-admin-98765"), ValueError(), KeyError("x"), TimeoutError()])
def test_whatever_reading_raises_nothing_ends_and_no_key_is_told(error: Exception) -> None:
    async def fails(_: Fleet) -> FleetFacts:
        raise error

    heard: list[str] = []
    capacities = service({"http://x?key-admin-98765": Target("http://127.0.0.1:9")}, Clock(), heard, fails)
    asyncio.run(capacities.refresh())
    assert capacities.now().room is None
    assert type(error).__name__ in heard[0]
    assert "key-admin-98765" not in heard[0]


def test_it_reads_again_and_again_until_it_is_cancelled() -> None:
    asked = 0

    async def counts(_: Fleet) -> FleetFacts:
        nonlocal asked
        asked += 1
        return declared_facts({"pool": 1000, "context": 800})

    async def play() -> None:
        settings = CapacitySettings(refresh_s=0.01, stale_s=1.0)
        clock = asyncio.get_running_loop().time
        capacities = Capacities({"a": Target("http://127.0.0.1:9")}, Keys(), settings, clock, lambda _: None, counts)
        reading = asyncio.create_task(capacities.run())
        while asked < 3:
            await asyncio.sleep(0.01)
        assert capacities.now().room is not None
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading

    asyncio.run(asyncio.wait_for(play(), 5.0))
