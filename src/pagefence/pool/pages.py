"""The page pool: every page is free, leased, quarantined or retired, and a lease names everyone who can reach it.

A page goes back to the free list only when nobody is left who could still write into it or read from it for its old
owner (I2): `release` refuses while `holders` is not empty. Holders leave by proof (a receipt, a rejection, a drain,
the reaping of their process), never by a timer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import msgspec
from immutables import Map

from pagefence.pool.admitted import Admitted
from pagefence.pool.generation import is_occupied, must_retire


class PoolError(Exception):
    """Base of everything a page pool refuses."""


class OutOfPages(PoolError):
    """Fewer free pages than asked for; nothing was leased."""


class DuplicateOwner(PoolError):
    """This owner already holds a lease; one owner, one lease."""


class NoLease(PoolError):
    """This owner holds no lease (it never did, or it was released: a double free)."""


class StalePage(PoolError):
    """The page's tenancy is over: it is free, retired or let again."""


class StillReachable(PoolError):
    """Somebody could still reach these pages, so they cannot be let again (I2)."""


class ConservationBroken(PoolError):
    """The pages do not add up (I6)."""


class PageRef(msgspec.Struct, frozen=True, array_like=True):
    """One page during one tenancy."""

    index: int
    generation: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The pages of one owner, in page-table order.

    `filled` is the fill mark in tokens, counted from the first slot of the first page: slots beyond it hold nothing
    of this owner's. `holders` are the parties that could still reach the pages over a path the pool does not control.
    """

    owner: Hashable
    isolation_key: str
    pages: tuple[PageRef, ...]
    filled: int = 0
    holders: frozenset[Hashable] = frozenset()
    quarantined: bool = False


class PageCounts(msgspec.Struct, frozen=True):
    """Conservation in numbers (I6): free + leased + cached + quarantined + retired = total."""

    free: int
    leased: int
    cached: int
    quarantined: int
    retired: int
    total: int


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

    @classmethod
    def of(cls, pages: int, page_size: int) -> PagePool:
        """A pool of `pages` free pages of `page_size` tokens."""
        if pages < 1 or page_size < 1:
            raise ValueError(f"a pool needs pages and a page size, got {pages} x {page_size}")
        return cls(page_size, (0,) * pages, tuple(reversed(range(pages))))

    def fits(self, tokens: int) -> bool:
        """True when a lease for `tokens` tokens would succeed now."""
        return 1 <= self.pages_for(tokens) <= len(self.free)

    def pages_for(self, tokens: int) -> int:
        """How many pages hold `tokens` tokens."""
        return -(-tokens // self.page_size)

    @property
    def capacity(self) -> int:
        """Tokens that fit when nothing is leased."""
        return (len(self.generations) - len(self.retired)) * self.page_size

    def lease(self, admitted: Admitted, holders: frozenset[Hashable] = frozenset()) -> tuple[PagePool, Lease]:
        """Lease pages for what was admitted, all or none. Raises OutOfPages, DuplicateOwner."""
        owner = admitted.owner
        if owner in self.leases:
            raise DuplicateOwner(f"{owner} already holds a lease")
        need = self.pages_for(admitted.tokens)
        if need < 1 or need > len(self.free):
            raise OutOfPages(f"{need} pages asked for, {len(self.free)} free of {len(self.generations)}")
        taken = tuple(reversed(self.free[-need:]))
        generations = list(self.generations)
        for i in taken:
            generations[i] += 1
        lease = Lease(owner, admitted.isolation_key, tuple(PageRef(i, generations[i]) for i in taken), holders=holders)
        pool = replace(
            self, generations=tuple(generations), free=self.free[:-need], leases=self.leases.set(owner, lease)
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

    def release(self, owner: Hashable) -> PagePool:
        """Put the pages back. Raises NoLease, StillReachable while holders remain (I2)."""
        lease = self.lease_of(owner)
        if lease.holders:
            raise StillReachable(f"{owner}: still reachable by {', '.join(sorted(map(str, lease.holders)))}")
        generations, free, retired = list(self.generations), list(self.free), set(self.retired)
        for ref in reversed(lease.pages):
            self.require_live(ref)
            if must_retire(ref.generation):
                retired.add(ref.index)
                continue
            generations[ref.index] += 1
            free.append(ref.index)
        return replace(
            self,
            generations=tuple(generations),
            free=tuple(free),
            leases=self.leases.delete(owner),
            retired=frozenset(retired),
        )

    def counts(self) -> PageCounts:
        """Pages by state. `cached` stays 0 until a prefix cache exists."""
        held = sum(len(lease.pages) for lease in self.leases.values())
        quarantined = sum(len(lease.pages) for lease in self.leases.values() if lease.quarantined)
        return PageCounts(len(self.free), held - quarantined, 0, quarantined, len(self.retired), len(self.generations))

    def check(self) -> None:
        """Raise ConservationBroken unless every page is in exactly one place and agrees with its generation (I6)."""
        held = [ref for lease in self.leases.values() for ref in lease.pages]
        places = sorted([*self.free, *self.retired, *(ref.index for ref in held)])
        if places != list(range(len(self.generations))):
            raise ConservationBroken(f"pages in no place or in two: {places} of {len(self.generations)}")
        for ref in held:
            if self.generations[ref.index] != ref.generation or not is_occupied(ref.generation):
                raise ConservationBroken(f"page {ref.index} is leased in a generation that is not its own")
        for i in self.free:
            if is_occupied(self.generations[i]):
                raise ConservationBroken(f"page {i} is free and occupied")

    def _with(self, lease: Lease) -> PagePool:
        return replace(self, leases=self.leases.set(lease.owner, lease))
