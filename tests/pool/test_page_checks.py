"""The page pool's own check, one fault at a time, and what its small operations leave alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pagefence.pool.admitted import Admitted
from pagefence.pool.lease import Lease
from pagefence.pool.pages import (
    ConservationBroken,
    IsolationBroken,
    NoLease,
    PagePool,
    PageRef,
    StalePage,
    StillReachable,
)
from pagefence.pool.prefix import EMPTY, CachedPage, chain_key, same_content

PAGE = 4
TEXT = tuple(range(8))


def in_use() -> PagePool:
    """Ten pages: two cached, shared by `reader` with one page of its own; three of `owner`; the rest free."""
    pool, _ = PagePool.of(10, PAGE).lease(Admitted("earlier", "tenant", 8, TEXT))
    pool = pool.fill("earlier", 8).release("earlier", TEXT)
    pool, _ = pool.lease(Admitted("reader", "tenant", 12), shared=pool.cached_prefix("tenant", TEXT))
    pool, _ = pool.lease(Admitted("owner", "tenant", 12), frozenset({"writer"}))
    return pool


def with_lease(pool: PagePool, owner: str, **fields: Any) -> PagePool:
    return replace(pool, leases=pool.leases.set(owner, replace(pool.lease_of(owner), **fields)))


def other_generation(pool: PagePool, step: int) -> PagePool:
    """The first page of `owner` as it would be some tenancies later, for the lease and the pool alike or not."""
    first, *rest = pool.lease_of("owner").pages
    later = PageRef(first.index, first.generation + step)
    return with_lease(pool, "owner", pages=(later, *rest))


def occupied(pool: PagePool) -> PagePool:
    generations = list(pool.generations)
    generations[pool.free[0]] += 1
    return replace(pool, generations=tuple(generations))


def vacant_and_leased(pool: PagePool) -> PagePool:
    """Lease and pool agree on a generation in which nobody holds the page."""
    first = pool.lease_of("owner").pages[0]
    generations = list(pool.generations)
    generations[first.index] += 1
    return other_generation(replace(pool, generations=tuple(generations)), 1)


def test_a_pool_with_every_kind_of_page_in_use_is_sound() -> None:
    pool = in_use()
    pool.check()
    counts = pool.counts()
    assert (counts.free, counts.leased, counts.cached, counts.quarantined, counts.total) == (4, 4, 2, 0, 10)
    counts = pool.quarantine("owner").counts()
    assert (counts.leased, counts.quarantined) == (1, 3)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda pool: replace(pool, free=pool.free[1:]), "in no place or in two"),
        (lambda pool: replace(pool, free=(*pool.free, pool.free[0])), "in no place or in two"),
        (lambda pool: replace(pool, retired=frozenset({pool.free[0]})), "in no place or in two"),
        (lambda pool: other_generation(pool, 2), "held in a generation that is not its own"),
        (vacant_and_leased, "held in a generation that is not its own"),
        (occupied, "is free and occupied"),
        (lambda pool: with_lease(pool, "owner", shared=1), "is shared and not cached"),
        (lambda pool: replace(pool, cache=replace(pool.cache, order=pool.cache.order[::-1])), "evicted after"),
    ],
)
def test_every_fault_is_seen_and_named(spoil: Callable[[PagePool], PagePool], says: str) -> None:
    with pytest.raises(ConservationBroken, match=says):
        spoil(in_use()).check()


def test_a_page_shared_across_tenants_is_no_matter_of_counting() -> None:
    with pytest.raises(IsolationBroken, match="shared by reader of another isolation key"):
        with_lease(in_use(), "reader", isolation_key="another").check()


def test_a_lease_cannot_end_a_tenancy_that_is_not_its_own() -> None:
    pool = other_generation(in_use(), 2).drained("owner", "writer")
    with pytest.raises(StalePage):
        pool.release("owner")


def test_holders_come_and_go_one_by_one_and_only_for_their_owner() -> None:
    pool = in_use().hold("owner", frozenset({"suspect"})).hold("reader", frozenset({"other"}))
    assert pool.lease_of("owner").holders == {"writer", "suspect"}
    pool = pool.drained("owner", "writer").drained("owner", "nobody")
    assert pool.lease_of("owner").holders == {"suspect"}
    assert pool.lease_of("reader").holders == {"other"}
    with pytest.raises(StillReachable, match="owner: still reachable by suspect"):
        pool.release("owner")


def test_whoever_holds_no_lease_can_do_nothing_with_one() -> None:
    pool = in_use()
    nothing: list[Callable[[], object]] = [
        lambda: pool.lease_of("nobody"),
        lambda: pool.fill("nobody", 1),
        lambda: pool.hold("nobody", frozenset({"x"})),
        lambda: pool.drained("nobody", "x"),
        lambda: pool.quarantine("nobody"),
        lambda: pool.release("nobody"),
    ]
    for attempt in nothing:
        with pytest.raises(NoLease):
            attempt()


def test_a_lease_begins_filled_as_far_as_it_shares_and_in_nobodys_quarantine() -> None:
    pool = in_use()
    assert (pool.lease_of("reader").filled, pool.lease_of("owner").filled) == (8, 0)
    assert [pool.lease_of(owner).shared for owner in ("reader", "owner")] == [2, 0]
    assert not pool.lease_of("owner").quarantined


def test_a_lease_of_which_nothing_more_is_said_is_empty_and_shares_nothing() -> None:
    by_hand = Lease("x", "tenant", (PageRef(0, 1),))
    assert (by_hand.own, by_hand.filled, by_hand.quarantined) == (by_hand.pages, 0, False)


def test_a_cache_key_is_32_bytes() -> None:
    assert len(chain_key(b"", "tenant", (1,))) == 32


def test_no_more_is_evicted_than_is_needed() -> None:
    pool = PagePool.of(4, PAGE)
    pool, _ = pool.lease(Admitted("earlier", "tenant", 12, tuple(range(12))))
    pool = pool.fill("earlier", 12).release("earlier", tuple(range(12)))
    pool, _ = pool.lease(Admitted("a", "another", 8))
    assert (pool.counts().cached, pool.counts().free) == (2, 0)
    assert len(pool.cached_prefix("tenant", tuple(range(12)))) == 2
    pool.check()


@pytest.mark.parametrize(
    ("tenant", "tokens", "parent"),
    [("another", (5, 6), PageRef(0, 1)), ("tenant", (5, 7), PageRef(0, 1)), ("tenant", (5, 6), PageRef(0, 3))],
)
def test_a_page_found_by_its_key_is_believed_only_when_tenant_tokens_and_the_page_before_agree(
    tenant: str, tokens: tuple[int, ...], parent: PageRef
) -> None:
    cached = CachedPage(PageRef(1, 1), b"key", "tenant", (5, 6), 1, PageRef(0, 1))
    assert same_content(cached, "tenant", (5, 6), PageRef(0, 1))
    assert not same_content(cached, tenant, tokens, parent)


def test_a_key_that_is_taken_by_other_text_ends_the_chain_that_is_kept() -> None:
    def by_first_token(_: bytes, __: str, tokens: tuple[int, ...]) -> bytes:
        return bytes([tokens[0] % 100])

    pool = PagePool.of(8, 1)
    for owner, text in (("earlier", (1,)), ("later", (2, 101, 3))):
        pool, _ = pool.lease(Admitted(owner, "tenant", len(text), text))
        pool = pool.fill(owner, len(text)).release(owner, text, by_first_token)
    assert {page.tokens for page in pool.cache.pages.values()} == {(1,), (2,)}
    assert pool.counts().free == 6
    pool.check()


def test_what_is_kept_is_told_of_the_pages_at_hand_alone() -> None:
    first, again = (PageRef(0, 1), PageRef(1, 1)), (PageRef(2, 1), PageRef(3, 1))
    cache, kept = EMPTY.keep(first, "tenant", TEXT, PAGE, chain_key, same_content)
    assert kept == frozenset(first)
    _, kept = cache.keep(again, "tenant", TEXT, PAGE, chain_key, same_content)
    assert kept == frozenset(), "the same text lies in the pages before"


def test_an_index_that_names_a_page_twice_or_under_another_key_is_faulty() -> None:
    cache, _ = EMPTY.keep((PageRef(0, 1),), "tenant", TEXT[:4], PAGE, chain_key, same_content)
    (page,) = cache.pages.values()
    assert cache.fault() is None
    misfiled = replace(cache, pages=cache.pages.delete(page.key).set(b"other", page), order=(b"other",))
    twin = replace(page, key=b"twin")
    twice = replace(cache, pages=cache.pages.set(b"twin", twin), order=(page.key, b"twin"))
    for wrong in (misfiled, twice):
        assert wrong.fault() == "page 0 is cached twice or under another key"
