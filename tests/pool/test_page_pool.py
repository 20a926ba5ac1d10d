"""What the page pool promises, one statement per test."""

from __future__ import annotations

from dataclasses import replace

import pytest
from immutables import Map

from pagefence.pool.admitted import Admitted
from pagefence.pool.generation import LAST_GENERATION, is_occupied
from pagefence.pool.pages import (
    ConservationBroken,
    DuplicateOwner,
    NoLease,
    OutOfPages,
    PagePool,
    PageRef,
    StalePage,
    StillReachable,
)

PAGE = 4


def ask(owner: str, tokens: int) -> Admitted:
    return Admitted(owner, "tenant", tokens)


def test_a_pool_needs_at_least_one_page_and_one_token_per_page() -> None:
    for pages, page_size in ((0, 4), (4, 0), (-1, 4)):
        with pytest.raises(ValueError, match="a pool needs pages"):
            PagePool.of(pages, page_size)


def test_a_lease_takes_all_its_pages_or_none() -> None:
    pool = PagePool.of(3, PAGE)
    with pytest.raises(OutOfPages):
        pool.lease(ask("a", 13))
    with pytest.raises(OutOfPages):
        pool.lease(ask("a", 0))
    pool, lease = pool.lease(ask("a", 9))
    assert len(lease.pages) == 3
    assert pool.counts().free == 0


@pytest.mark.parametrize("tokens", [0, 1, 4, 5, 12, 13])
def test_fits_says_exactly_whether_a_lease_would_succeed(tokens: int) -> None:
    pool = PagePool.of(3, PAGE)
    try:
        pool.lease(ask("a", tokens))
    except OutOfPages:
        assert not pool.fits(tokens)
    else:
        assert pool.fits(tokens)


def test_one_owner_has_one_lease() -> None:
    pool, _ = PagePool.of(3, PAGE).lease(ask("a", 1))
    with pytest.raises(DuplicateOwner):
        pool.lease(ask("a", 1))


def test_the_pages_released_last_are_leased_first_in_the_same_order() -> None:
    pool, first = PagePool.of(5, PAGE).lease(ask("a", 12))
    pool, second = pool.release("a").lease(ask("b", 12))
    assert [page.index for page in second.pages] == [page.index for page in first.pages]
    assert [page.generation for page in second.pages] == [page.generation + 2 for page in first.pages]


def test_a_second_release_is_refused() -> None:
    pool, _ = PagePool.of(2, PAGE).lease(ask("a", 4))
    pool = pool.release("a")
    with pytest.raises(NoLease):
        pool.release("a")
    assert pool.counts().free == 2


def test_pages_that_somebody_can_reach_are_not_released() -> None:
    pool, _ = PagePool.of(2, PAGE).lease(ask("a", 4), frozenset({"writer", "reader"}))
    for holder in ("writer", "reader"):
        with pytest.raises(StillReachable, match=holder):
            pool.release("a")
        pool = pool.drained("a", holder)
    assert pool.release("a").counts().free == 2


def test_quarantine_waits_for_proof_and_is_counted_apart() -> None:
    pool, _ = PagePool.of(4, PAGE).lease(ask("a", 8), frozenset({"writer"}))
    pool = pool.quarantine("a")
    assert (pool.counts().leased, pool.counts().quarantined) == (0, 2)
    with pytest.raises(StillReachable):
        pool.release("a")
    pool = pool.drained("a", "writer").release("a")
    assert (pool.counts().free, pool.counts().quarantined) == (4, 0)


def test_a_holder_that_joins_later_also_keeps_the_pages() -> None:
    pool, _ = PagePool.of(2, PAGE).lease(ask("a", 4))
    with pytest.raises(StillReachable):
        pool.hold("a", frozenset({"suspect"})).release("a")


def test_a_page_is_live_only_during_its_own_tenancy() -> None:
    pool, lease = PagePool.of(1, PAGE).lease(ask("a", 4))
    (page,) = lease.pages
    pool.require_live(page)
    released = pool.release("a")
    let_again, _ = released.lease(ask("b", 4))
    for later in (released, let_again):
        with pytest.raises(StalePage):
            later.require_live(page)
    for nowhere in (PageRef(7, 1), PageRef(-1, 1), PageRef(0, 0)):
        with pytest.raises(StalePage):
            pool.require_live(nowhere)


def test_a_page_just_past_the_last_one_is_not_live() -> None:
    pool, _ = PagePool.of(2, PAGE).lease(ask("a", 8))
    with pytest.raises(StalePage):
        pool.require_live(PageRef(2, 1))


def test_a_free_page_is_live_in_no_generation_not_even_in_its_present_one() -> None:
    fresh = PagePool.of(1, PAGE)
    pool, _ = fresh.lease(ask("a", 4))
    for vacant in (fresh, pool.release("a")):
        with pytest.raises(StalePage):
            vacant.require_live(PageRef(0, vacant.generations[0]))


def test_the_fill_mark_only_grows_and_stays_within_the_pages() -> None:
    pool, _ = PagePool.of(2, PAGE).lease(ask("a", 5))
    pool = pool.fill("a", 3).fill("a", 3).fill("a", 8)
    for wrong in (7, 9):
        with pytest.raises(ValueError, match="fill mark"):
            pool.fill("a", wrong)
    assert pool.lease_of("a").filled == 8


def test_a_page_whose_generation_would_wrap_is_retired_and_its_last_tenancy_is_over() -> None:
    fresh = PagePool.of(2, PAGE)
    pool = replace(fresh, generations=(LAST_GENERATION - 1, 0))
    pool, lease = pool.lease(ask("a", 8))
    old = lease.pages[0]
    assert old == PageRef(0, LAST_GENERATION)
    pool = pool.release("a")
    pool.check()
    assert (pool.counts().free, pool.counts().retired, pool.capacity) == (1, 1, PAGE)
    with pytest.raises(StalePage):
        pool.require_live(old)
    pool, again = pool.lease(ask("b", 4))
    assert again.pages[0].index == 1
    assert is_occupied(again.pages[0].generation)


def test_the_conservation_check_sees_a_page_that_is_lost_doubled_or_free_and_occupied() -> None:
    pool, lease = PagePool.of(3, PAGE).lease(ask("a", 4))
    lost = replace(pool, free=pool.free[1:])
    doubled = replace(pool, free=(*pool.free, lease.pages[0].index))
    occupied = replace(pool, generations=(1, 1, 1))
    other_tenancy = replace(pool, leases=Map({"a": replace(lease, pages=(PageRef(lease.pages[0].index, 3),))}))
    for broken in (lost, doubled, occupied, other_tenancy):
        with pytest.raises(ConservationBroken):
            broken.check()
