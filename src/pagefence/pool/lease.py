"""What a page pool lets: pages by reference, leases, what it refuses, and how its pages add up."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import msgspec


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


class IsolationBroken(PoolError):
    """A page is shared across isolation keys (I7)."""


class PageRef(msgspec.Struct, frozen=True, array_like=True):
    """One page during one tenancy."""

    index: int
    generation: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The pages of one owner, in page-table order.

    `filled` is the fill mark in tokens, counted from the first slot of the first page: slots beyond it hold nothing
    of this owner's. `holders` are the parties that could still reach the pages over a path the pool does not control.
    The first `shared` pages are cached ones: this owner reads them and never writes them.
    """

    owner: Hashable
    isolation_key: str
    pages: tuple[PageRef, ...]
    filled: int = 0
    holders: frozenset[Hashable] = frozenset()
    quarantined: bool = False
    shared: int = 0

    @property
    def own(self) -> tuple[PageRef, ...]:
        """The pages that nobody else holds."""
        return self.pages[self.shared :]


class PageCounts(msgspec.Struct, frozen=True):
    """Conservation in numbers (I6): free + leased + cached + quarantined + retired = total."""

    free: int
    leased: int
    cached: int
    quarantined: int
    retired: int
    total: int
