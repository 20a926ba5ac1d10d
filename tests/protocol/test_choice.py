"""Whom the router would pick: the least loaded, near the tenant's cache, and never by what somebody else says."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pagefence.protocol.choice import Place, least_loaded, near_its_cache
from pagefence.protocol.messages import WorkerRef

KEYS = [f"isolation key {i}" for i in range(400)]


def places(*outstanding: int, pool: int = 1_000) -> list[Place]:
    return [Place(WorkerRef(f"p{i}", 1), pool, tokens) for i, tokens in enumerate(outstanding)]


def home_of(key: str, *names: str) -> str:
    """Where a tenant's prompts go while nobody is busy."""
    found = near_its_cache([Place(WorkerRef(name, 1), 1_000, 0) for name in names], 1, key)
    assert found is not None
    return found.worker.name


some = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=5).map(
    lambda sizes: [Place(WorkerRef(f"p{i}", 1), pool, owed) for i, (pool, owed) in enumerate(sizes)]
)


def test_of_nobody_nobody_is_picked() -> None:
    assert least_loaded([], 1) is None
    assert near_its_cache([], 1, "a") is None


@given(some, st.integers(1, 30))
def test_nobody_has_less_to_do_than_who_is_picked_whatever_the_order(here: list[Place], need: int) -> None:
    def rank(place: Place) -> tuple[bool, int, WorkerRef]:
        return place.is_full(need), place.outstanding, place.worker

    best = least_loaded(here, need)
    assert best is not None
    assert all(rank(best) <= rank(other) for other in here)
    assert least_loaded(here[::-1], need) == best


def test_a_place_is_full_when_what_it_owes_and_what_is_asked_are_more_than_its_pool() -> None:
    assert not Place(WorkerRef("p", 1), 10, 6).is_full(4)
    assert Place(WorkerRef("p", 1), 10, 6).is_full(5)


@given(some, st.integers(1, 30), st.sampled_from(KEYS))
def test_home_is_never_busier_than_the_least_by_as_much_as_the_prompt(here: list[Place], need: int, key: str) -> None:
    chosen, least = near_its_cache(here, need, key), least_loaded(here, need)
    assert chosen is not None
    assert least is not None
    assert chosen == least or chosen.outstanding - least.outstanding < need
    assert least.is_full(need) or not chosen.is_full(need)
    assert near_its_cache(here[::-1], need, key) == chosen


def test_a_tenant_goes_home_until_waiting_there_costs_what_the_cache_could_save() -> None:
    key = next(key for key in KEYS if home_of(key, "p0", "p1") == "p1")
    for owed, chosen in ((0, "p1"), (9, "p1"), (10, "p0"), (500, "p0")):
        found = near_its_cache(places(0, owed), 10, key)
        assert found is not None
        assert found.worker.name == chosen, owed


def test_a_tenant_does_not_wait_for_pages_at_home_while_another_has_some() -> None:
    key = next(key for key in KEYS if home_of(key, "p0", "p1") == "p1")
    assert near_its_cache(places(0, 5, pool=14), 10, key) == places(0, 5, pool=14)[0]
    assert near_its_cache(places(5, 5, pool=14), 10, key) == places(5, 5, pool=14)[1]


def test_homes_are_spread_evenly_and_are_kept_when_a_worker_dies_or_comes_back() -> None:
    names = ("prefill-0", "prefill-1", "prefill-2")
    homes = {key: home_of(key, *names) for key in KEYS}
    assert min(Counter(homes[key] for key in KEYS)[name] for name in names) > len(KEYS) / 4
    for key, home in homes.items():
        assert home == "prefill-1" or home_of(key, "prefill-0", "prefill-2") == home
    successor = [Place(WorkerRef(name, epoch), 1_000, 0) for name, epoch in zip(names, (1, 7, 2), strict=True)]
    for key, home in homes.items():
        found = near_its_cache(successor, 1, key)
        assert found is not None
        assert found.worker.name == home
