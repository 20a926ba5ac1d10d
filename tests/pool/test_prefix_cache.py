"""Pages kept for later prompts: found only by their own tenant, never evicted in use, each counted once (I6, I7)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagefence.pool import prefix
from pagefence.pool.admitted import Admitted
from pagefence.pool.generation import LAST_GENERATION
from pagefence.pool.lease import IsolationBroken
from pagefence.pool.pages import ConservationBroken, Lease, OutOfPages, PagePool, PageRef, StalePage
from pagefence.pool.prefix import CacheKey, PrefixCache, chain_key

PAGE = 4
TEXT = tuple(range(12))


def ask(owner: Hashable, tokens: tuple[int, ...], tenant: str = "tenant") -> Admitted:
    return Admitted(owner, tenant, len(tokens), tokens)


def lease(pool: PagePool, owner: Hashable, tokens: tuple[int, ...], tenant: str = "tenant") -> tuple[PagePool, Lease]:
    """As prefill does it: all but the last token may come from the cache."""
    return pool.lease(ask(owner, tokens, tenant), shared=pool.cached_prefix(tenant, tokens[:-1]))


def served(pool: PagePool, owner: Hashable, tokens: tuple[int, ...], tenant: str = "tenant") -> PagePool:
    """Leased, computed to the end, released."""
    pool, _ = lease(pool, owner, tokens, tenant)
    return pool.fill(owner, len(tokens)).release(owner, tokens)


# --- keys ---------------------------------------------------------------------------------------------------------

Parts = tuple[bytes, str, tuple[int, ...]]
PARTS = st.tuples(st.binary(max_size=3), st.text(max_size=3), st.lists(st.integers(0, 300), max_size=3).map(tuple))


@given(PARTS, PARTS)
def test_keys_are_equal_only_when_every_part_is(one: Parts, other: Parts) -> None:
    assert (chain_key(*one) == chain_key(*other)) == (one == other)


def test_a_key_names_everything_before_its_page() -> None:
    first, other = chain_key(prefix.ROOT, "tenant", (1, 2)), chain_key(prefix.ROOT, "tenant", (1, 3))
    assert chain_key(first, "tenant", (5,)) != chain_key(other, "tenant", (5,))


# --- sharing ------------------------------------------------------------------------------------------------------


def test_full_pages_stay_cached_and_the_rest_is_free() -> None:
    pool = served(PagePool.of(5, PAGE), "a", TEXT[:11])
    counts = pool.counts()
    assert (counts.free, counts.leased, counts.cached) == (3, 0, 2)
    pool.check()


def test_a_later_lease_shares_the_longest_chain_and_gets_the_rest_fresh() -> None:
    pool, first = lease(PagePool.of(6, PAGE), "a", TEXT)
    pool = pool.fill("a", 12).release("a", TEXT)
    pool, second = lease(pool, "b", (*TEXT[:8], 99, 99, 99))
    assert (second.shared, second.filled) == (2, 8)
    assert second.pages[:2] == first.pages[:2]
    assert set(second.own).isdisjoint(first.pages)
    counts = pool.counts()
    assert (counts.leased, counts.cached) == (1, 3)
    pool.check()


def test_the_last_token_is_never_taken_from_the_cache_when_it_is_left_out_of_the_question() -> None:
    pool = served(PagePool.of(6, PAGE), "a", TEXT)
    assert len(pool.cached_prefix("tenant", TEXT)) == 3
    assert len(pool.cached_prefix("tenant", TEXT[:-1])) == 2


def test_another_tenant_finds_nothing() -> None:
    pool = served(PagePool.of(6, PAGE), "a", TEXT)
    assert pool.cached_prefix("other", TEXT) == ()


@pytest.mark.parametrize("key", [lambda *_: b"same", lambda parent, tenant, tokens: chain_key(parent, "", tokens)])
def test_a_key_that_does_not_tell_tenants_apart_still_shares_nothing_between_them(key: CacheKey) -> None:
    pool, _ = PagePool.of(6, PAGE).lease(ask("a", TEXT))
    pool = pool.fill("a", 12).release("a", TEXT, cache_key=key)
    assert pool.counts().cached > 0
    assert pool.cached_prefix("other", TEXT, cache_key=key) == ()
    assert len(pool.cached_prefix("tenant", TEXT, cache_key=key)) == pool.counts().cached
    pool.check()


def test_a_page_is_not_found_after_another_beginning_even_under_its_key() -> None:
    def key(_: bytes, tenant: str, tokens: tuple[int, ...]) -> bytes:
        return chain_key(prefix.ROOT, tenant, tokens)

    pool, _ = PagePool.of(6, PAGE).lease(ask("a", TEXT))
    pool = pool.fill("a", 12).release("a", TEXT, cache_key=key)
    other = (7, 7, 7, 7)
    pool, _ = pool.lease(ask("b", other))
    pool = pool.fill("b", 4).release("b", other, cache_key=key)
    assert len(pool.cached_prefix("tenant", (*other, *TEXT[4:]), cache_key=key)) == 1


def test_what_is_cached_already_is_not_kept_twice() -> None:
    pool, _ = lease(PagePool.of(6, PAGE), "a", TEXT)
    pool, _ = lease(pool, "b", TEXT)
    pool = pool.fill("a", 12).fill("b", 12).release("a", TEXT).release("b", TEXT)
    assert (pool.counts().free, pool.counts().cached) == (3, 3)
    pool.check()


def test_only_what_is_said_to_be_computed_is_kept_and_no_more_than_is_filled() -> None:
    pool, _ = lease(PagePool.of(6, PAGE), "a", TEXT)
    with pytest.raises(ValueError, match="filled"):
        pool.fill("a", 5).release("a", TEXT[:6])
    pool = pool.fill("a", 7).release("a", TEXT[:7])
    assert (pool.counts().free, pool.counts().cached) == (5, 1)


# --- eviction -----------------------------------------------------------------------------------------------------


def test_pages_that_nobody_shares_make_room_and_their_generation_moves_on() -> None:
    pool, first = lease(PagePool.of(3, PAGE), "a", TEXT)
    pool = pool.fill("a", 12).release("a", TEXT)
    assert pool.fits(12)
    pool, second = lease(pool, "b", tuple(range(100, 112)))
    assert second.shared == 0
    assert {page.index for page in second.pages} == {page.index for page in first.pages}
    assert not set(second.pages) & set(first.pages)
    for page in first.pages:
        with pytest.raises(StalePage):
            pool.require_live(page)
    pool.check()


def test_the_least_recently_used_prompt_goes_first_its_end_before_its_beginning() -> None:
    old, new = TEXT[:8], tuple(range(100, 108))
    pool = served(served(PagePool.of(5, PAGE), "old", old), "new", new)
    pool, _ = lease(pool, "again", (*old, 1))
    pool = pool.release("again", old)  # used after all: now the other one is the oldest
    pool, _ = pool.lease(ask("b", tuple(range(200, 208))))
    assert [len(pool.cached_prefix("tenant", text)) for text in (old, new)] == [2, 1]
    pool.check()


def test_a_shared_page_is_not_evicted_whoever_asks() -> None:
    pool = served(PagePool.of(4, PAGE), "a", TEXT[:8])
    pool, sharing = lease(pool, "b", TEXT[:9])
    assert sharing.shared == 2
    assert not pool.fits(8)
    with pytest.raises(OutOfPages):
        pool.lease(ask("c", tuple(range(100, 108))))
    pool = pool.release("b")
    assert pool.fits(16)
    pool.check()


def test_a_prefix_does_not_make_room_for_its_own_lease() -> None:
    pool = served(PagePool.of(3, PAGE), "a", TEXT[:8])
    shared = pool.cached_prefix("tenant", TEXT[:8])
    assert pool.fits(12, shared)
    assert not pool.fits(16, shared)
    with pytest.raises(OutOfPages):
        pool.lease(ask("b", TEXT[:8]), shared=shared)  # nothing of its own to compute into


def test_a_prefix_that_was_evicted_meanwhile_is_not_leased() -> None:
    pool = served(PagePool.of(2, PAGE), "a", TEXT[:8])
    shared = pool.cached_prefix("tenant", TEXT[:4])
    pool, _ = lease(pool, "b", tuple(range(100, 108)))
    with pytest.raises(StalePage):
        pool.release("b").lease(ask("c", TEXT[:5]), shared=shared)


def test_a_page_without_a_next_generation_is_retired_and_never_cached() -> None:
    pool = replace(PagePool.of(2, PAGE), generations=(0, LAST_GENERATION - 1))
    pool = served(pool, "a", TEXT[:8])
    assert (pool.counts().cached, pool.counts().retired) == (1, 1)
    assert pool.fits(4)
    pool.check()


# --- the check bites ----------------------------------------------------------------------------------------------


def test_sharing_across_isolation_keys_is_seen_under_its_own_name() -> None:
    pool = served(PagePool.of(6, PAGE), "a", TEXT)
    pool, _ = pool.lease(ask("b", TEXT, "other"), shared=pool.cached_prefix("tenant", TEXT[:4]))
    with pytest.raises(IsolationBroken):
        pool.check()


def test_a_cached_page_that_is_free_let_or_out_of_order_breaks_conservation() -> None:
    pool = served(PagePool.of(6, PAGE), "a", TEXT)
    pool, sharing = lease(pool, "b", TEXT)
    cached = next(iter(pool.cache.pages.values()))
    broken = (
        replace(pool, free=(*pool.free, cached.page.index)),
        replace(pool, cache=pool.cache.without([cached])),
        replace(pool, leases=pool.leases.set("b", replace(sharing, shared=0))),
        replace(pool, cache=replace(pool.cache, order=pool.cache.order[::-1])),
        replace(pool, cache=replace(pool.cache, order=())),
        replace(pool, cache=PrefixCache()),
    )
    for wrong in broken:
        with pytest.raises(ConservationBroken):
            wrong.check()


# --- any sequence -------------------------------------------------------------------------------------------------

PAGES, SIZE = 6, 2
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=10).map(tuple)
KEYS: dict[str, CacheKey] = {
    "the product's": chain_key,
    "constant": lambda parent, tenant, tokens: b"",
    "no tenant": lambda parent, tenant, tokens: chain_key(parent, "", tokens),
    "no parent": lambda parent, tenant, tokens: chain_key(prefix.ROOT, tenant, tokens),
    "no tokens": lambda parent, tenant, tokens: chain_key(parent, tenant, ()),
}


class CacheUnderUse(RuleBasedStateMachine):
    """A model beside the pool: whose tokens were written into each page, told by reference."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool.of(PAGES, SIZE)
        self.key: CacheKey = chain_key
        self.prompts: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.wrote: dict[PageRef, tuple[str, tuple[int, ...]]] = {}
        self.seen: set[PageRef] = set()
        self.over: set[PageRef] = set()
        self.next_owner = 0

    @initialize(
        key=st.sampled_from(sorted(KEYS)),
        worn=st.lists(st.sampled_from([0, LAST_GENERATION - 3, LAST_GENERATION - 1]), min_size=PAGES, max_size=PAGES),
        is_worn=st.booleans(),
    )
    def a_key_good_or_bad(self, key: str, worn: list[int], is_worn: bool) -> None:
        self.key = KEYS[key]
        if is_worn:
            self.pool = replace(self.pool, generations=tuple(worn))

    @rule(tenant=st.sampled_from("ab"), prompt=PROMPTS)
    def lease(self, tenant: str, prompt: tuple[int, ...]) -> None:
        owner = self.next_owner
        self.next_owner += 1
        shared = self.pool.cached_prefix(tenant, prompt[:-1], self.key)
        if not self.pool.fits(len(prompt), shared):
            with pytest.raises(OutOfPages):
                self.pool.lease(ask(owner, prompt, tenant), shared=shared)
            return
        in_use = self.shared_pages()
        self.pool, made = self.pool.lease(ask(owner, prompt, tenant), frozenset({"w"}), shared)
        self.prompts[owner] = tenant, prompt
        assert made.pages[: made.shared] == tuple(page.page for page in shared)
        assert len(made.pages) == self.pool.pages_for(len(prompt))
        assert in_use <= {page.page for page in self.pool.cache.pages.values()}, "a shared page was evicted"
        assert not set(made.own) & self.seen, "a reference came back"

    @precondition(lambda self: self.prompts)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.prompts)))
        held, (tenant, prompt) = self.pool.lease_of(owner), self.prompts[owner]
        done = data.draw(st.integers(held.filled, len(prompt)))
        self.pool = self.pool.fill(owner, done)
        for position, ref in enumerate(held.pages[: done // SIZE]):
            if position >= held.shared:
                self.wrote[ref] = tenant, prompt[: (position + 1) * SIZE]

    @precondition(lambda self: self.prompts)
    @rule(data=st.data(), does_keep=st.booleans())
    def release(self, data: st.DataObject, does_keep: bool) -> None:
        owner = data.draw(st.sampled_from(sorted(self.prompts)))
        _, prompt = self.prompts.pop(owner)
        if data.draw(st.booleans()):
            self.pool = self.pool.quarantine(owner)
        self.pool = self.pool.drained(owner, "w")
        computed = prompt[: self.pool.lease_of(owner).filled] if does_keep else ()
        self.pool = self.pool.release(owner, computed, self.key)

    def shared_pages(self) -> set[PageRef]:
        return {ref for held in self.pool.leases.values() for ref in held.pages[: held.shared]}

    @invariant()
    def pages_are_conserved(self) -> None:
        self.pool.check()
        counts = self.pool.counts()
        assert (
            counts.free + counts.leased + counts.cached + counts.quarantined + counts.retired == counts.total == PAGES
        )
        if not self.prompts:
            assert counts.leased == counts.quarantined == 0
            assert self.pool.capacity == (counts.free + counts.cached) * SIZE
            assert not self.pool.capacity or self.pool.fits(self.pool.capacity)

    @invariant()
    def whoever_shares_a_page_would_have_written_the_same(self) -> None:
        for owner, held in self.pool.leases.items():
            tenant, prompt = self.prompts[owner]  # type: ignore[index]
            for position, ref in enumerate(held.pages[: held.shared]):
                assert self.wrote[ref] == (tenant, prompt[: (position + 1) * SIZE])

    @invariant()
    def what_is_cached_was_computed_by_its_tenant(self) -> None:
        for page in self.pool.cache.pages.values():
            tenant, text = self.wrote[page.page]
            assert (page.isolation_key, page.tokens) == (tenant, text[-SIZE:])
            assert page.position == len(text) // SIZE - 1

    @invariant()
    def a_tenancy_that_ended_never_comes_back(self) -> None:
        own = {ref for held in self.pool.leases.values() for ref in held.own}
        live = own | {page.page for page in self.pool.cache.pages.values()}
        self.over |= self.seen - live
        self.seen |= live
        assert not self.over & live
        for ref in live:
            self.pool.require_live(ref)
        for ref in self.over:
            with pytest.raises(StalePage):
                self.pool.require_live(ref)


TestCacheUnderUse = CacheUnderUse.TestCase
TestCacheUnderUse.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
