"""The page pool: every page is free, leased, cached, quarantined or retired; a lease names everyone who can reach it.

A page goes back to the free list only when nobody is left who could still write into it or read from it for its old
owner (I2): `release` refuses while `holders` is not empty. Holders leave by proof (a receipt, a rejection, a drain,
the reaping of their process), never by a timer.

A released page may stay as *cached*: still in its tenancy, read-only, and shared by later leases of the same isolation
key whose prompts begin alike (`pagefence.pool.prefix`). Shared or not, it counts as cached and not as leased.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from immutables import Map

from pagefence.pool import prefix
from pagefence.pool.admitted import Admitted
from pagefence.pool.generation import is_occupied, must_retire
from pagefence.pool.lease import (
    ConservationBroken,
    DuplicateOwner,
    IsolationBroken,
    Lease,
    NoLease,
    OutOfPages,
    PageCounts,
    PageRef,
    PoolError,
    StalePage,
    StillReachable,
)
from pagefence.pool.prefix import EMPTY, CachedPage, CacheKey, PrefixCache, SameContent

# The pool's own words: they are imported from here, whichever file of the room they stand in.
__all__ = [
    "ConservationBroken",
    "DuplicateOwner",
    "IsolationBroken",
    "Lease",
    "NoLease",
    "OutOfPages",
    "PageCounts",
    "PagePool",
    "PageRef",
    "PoolError",
    "StalePage",
    "StillReachable",
]


@dataclass(frozen=True, slots=True)
class PagePool:
    """An immutable pool of fixed-size pages: every operation returns the next pool.

    The free list is a stack: the page released last is leased first. It is warm in the cache, and reuse by another
    tenant happens from the second request on, so a fault of this class shows in the first test instead of the first
    busy day.
    """

    page_size: int
    generations: tuple[int, ...]
    free: tuple[int, ...]
    leases: Map[Hashable, Lease] = Map()
    retired: frozenset[int] = frozenset()
    cache: PrefixCache = EMPTY

    @classmethod
    def of(cls, pages: int, page_size: int) -> PagePool:
        """A pool of `pages` free pages of `page_size` tokens."""
        if pages < 1 or page_size < 1:
            raise ValueError(f"a pool needs pages and a page size, got {pages} x {page_size}")
        return cls(page_size, (0,) * pages, tuple(reversed(range(pages))))

    def fits(self, tokens: int, shared: tuple[CachedPage, ...] = ()) -> bool:
        """True when a lease for `tokens` tokens that shares these pages would succeed now."""
        idle = len(self.cache.idle(self._in_use(shared)))
        return 1 <= self.pages_for(tokens) - len(shared) <= len(self.free) + idle

    def pages_for(self, tokens: int) -> int:
        """How many pages hold `tokens` tokens."""
        return -(-tokens // self.page_size)

    @property
    def capacity(self) -> int:
        """Tokens that fit when nothing is leased."""
        return (len(self.generations) - len(self.retired)) * self.page_size

    def cached_prefix(
        self,
        isolation_key: str,
        tokens: tuple[int, ...],
        cache_key: CacheKey = prefix.chain_key,
        same_content: SameContent = prefix.same_content,
    ) -> tuple[CachedPage, ...]:
        """The longest chain of cached pages that `tokens` begin with, under this isolation key (I7)."""
        return self.cache.find(isolation_key, tokens, self.page_size, cache_key, same_content)

    def lease(
        self,
        admitted: Admitted,
        holders: frozenset[Hashable] = frozenset(),
        shared: tuple[CachedPage, ...] = (),
    ) -> tuple[PagePool, Lease]:
        """Lease pages for what was admitted, all or none, at least one of them its own.

        `shared` is a `cached_prefix`: these pages come first, and the fill mark starts after them. When free pages run
        short, cached pages that nobody shares are evicted. Raises OutOfPages, DuplicateOwner, StalePage.
        """
        owner = admitted.owner
        if owner in self.leases:
            raise DuplicateOwner(f"{owner} already holds a lease")
        for cached in shared:
            if self.cache.pages.get(cached.key) != cached:
                raise StalePage(f"page {cached.page.index} is not cached any more")
        need = self.pages_for(admitted.tokens) - len(shared)
        if not self.fits(admitted.tokens, shared):
            raise OutOfPages(f"{need} pages asked for, {len(self.free)} free of {len(self.generations)}")
        pool = self._evict(need - len(self.free), shared)
        taken = tuple(reversed(pool.free[-need:]))
        generations = list(pool.generations)
        for i in taken:
            generations[i] += 1
        lease = Lease(
            owner,
            admitted.isolation_key,
            (*(cached.page for cached in shared), *(PageRef(i, generations[i]) for i in taken)),
            filled=len(shared) * self.page_size,
            holders=holders,
            shared=len(shared),
        )
        pool = replace(
            pool,
            generations=tuple(generations),
            free=pool.free[:-need],
            leases=pool.leases.set(owner, lease),
        )
        return pool, lease

    def lease_of(self, owner: Hashable) -> Lease:
        """The lease of `owner`. Raises NoLease."""
        lease = self.leases.get(owner)
        if lease is None:
            raise NoLease(f"{owner} holds no lease")
        return lease

    def require_live(self, ref: PageRef) -> None:
        """Raise StalePage unless the page is still in the tenancy that `ref` names."""
        now = self.generations[ref.index] if 0 <= ref.index < len(self.generations) else None
        if now != ref.generation or not is_occupied(ref.generation) or ref.index in self.retired:
            raise StalePage(f"page {ref.index}: generation {ref.generation} is over, now {now}")

    def fill(self, owner: Hashable, filled: int) -> PagePool:
        """Raise the fill mark of `owner` to `filled` tokens. Raises NoLease, ValueError if it shrinks or overflows."""
        lease = self.lease_of(owner)
        if not lease.filled <= filled <= len(lease.pages) * self.page_size:
            raise ValueError(f"fill mark {lease.filled} -> {filled} of {len(lease.pages) * self.page_size} tokens")
        return self._with(replace(lease, filled=filled))

    def hold(self, owner: Hashable, holders: frozenset[Hashable]) -> PagePool:
        """Add parties that could reach the pages."""
        lease = self.lease_of(owner)
        return self._with(replace(lease, holders=lease.holders | holders))

    def drained(self, owner: Hashable, holder: Hashable) -> PagePool:
        """`holder` is proven unable to reach the pages any more."""
        lease = self.lease_of(owner)
        return self._with(replace(lease, holders=lease.holders - {holder}))

    def quarantine(self, owner: Hashable) -> PagePool:
        """The owner has ended; its pages wait for their holders."""
        return self._with(replace(self.lease_of(owner), quarantined=True))

    def release(
        self,
        owner: Hashable,
        computed: tuple[int, ...] = (),
        cache_key: CacheKey = prefix.chain_key,
        same_content: SameContent = prefix.same_content,
    ) -> PagePool:
        """Put the pages back, or keep those that `computed` fills as cached: tokens whose KV really lies in them.

        Shared pages stay where they are. Raises NoLease, StillReachable while holders remain (I2), and ValueError for
        more computed tokens than the fill mark says.
        """
        lease = self.lease_of(owner)
        if lease.holders:
            raise StillReachable(f"{owner}: still reachable by {', '.join(sorted(map(str, lease.holders)))}")
        if len(computed) > lease.filled:
            raise ValueError(f"{owner}: {len(computed)} tokens to keep, {lease.filled} filled")
        cache, kept = self.cache.keep(
            lease.pages, lease.isolation_key, computed, self.page_size, cache_key, same_content
        )
        pool = replace(self, leases=self.leases.delete(owner), cache=cache)
        return pool._free(tuple(ref for ref in lease.own if ref not in kept))

    def counts(self) -> PageCounts:
        """Pages by state, each counted once: a cached page that leases share is cached."""
        held = sum(len(lease.own) for lease in self.leases.values())
        quarantined = sum(len(lease.own) for lease in self.leases.values() if lease.quarantined)
        return PageCounts(
            free=len(self.free),
            leased=held - quarantined,
            cached=len(self.cache.pages),
            quarantined=quarantined,
            retired=len(self.retired),
            total=len(self.generations),
        )

    def check(self) -> None:
        """Raise ConservationBroken unless every page is in exactly one place and agrees with its generation (I6).

        A cached page may be in leases besides; across isolation keys that raises IsolationBroken (I7).
        """
        cached = {page.page: page for page in self.cache.pages.values()}
        for lease in self.leases.values():
            for ref in lease.pages[: lease.shared]:
                if ref not in cached:
                    raise ConservationBroken(f"page {ref.index} is shared and not cached")
                if cached[ref].isolation_key != lease.isolation_key:
                    raise IsolationBroken(f"page {ref.index} is shared by {lease.owner} of another isolation key")
        held = [*(ref for lease in self.leases.values() for ref in lease.own), *cached]
        places = sorted([*self.free, *self.retired, *(ref.index for ref in held)])
        if places != list(range(len(self.generations))):
            raise ConservationBroken(f"pages in no place or in two: {places} of {len(self.generations)}")
        for ref in held:
            if self.generations[ref.index] != ref.generation or not is_occupied(ref.generation):
                raise ConservationBroken(f"page {ref.index} is held in a generation that is not its own")
        for i in self.free:
            if is_occupied(self.generations[i]):
                raise ConservationBroken(f"page {i} is free and occupied")
        fault = self.cache.fault()
        if fault:
            raise ConservationBroken(fault)

    def _in_use(self, more: tuple[CachedPage, ...]) -> frozenset[PageRef]:
        """Cached pages that a lease shares, or that one is about to."""
        shared = (ref for lease in self.leases.values() for ref in lease.pages[: lease.shared])
        return frozenset((*shared, *(cached.page for cached in more)))

    def _evict(self, count: int, keep: tuple[CachedPage, ...]) -> PagePool:
        """Free `count` cached pages that nobody shares."""
        if count <= 0:
            return self
        evicted = self.cache.idle(self._in_use(keep))[:count]
        return replace(self, cache=self.cache.without(evicted))._free(tuple(cached.page for cached in evicted))

    def _free(self, pages: tuple[PageRef, ...]) -> PagePool:
        """End the tenancy of these pages."""
        generations, free, retired = list(self.generations), list(self.free), set(self.retired)
        for ref in reversed(pages):
            self.require_live(ref)
            if must_retire(ref.generation):
                retired.add(ref.index)
                continue
            generations[ref.index] += 1
            free.append(ref.index)
        return replace(self, generations=tuple(generations), free=tuple(free), retired=frozenset(retired))

    def _with(self, lease: Lease) -> PagePool:
        return replace(self, leases=self.leases.set(lease.owner, lease))
