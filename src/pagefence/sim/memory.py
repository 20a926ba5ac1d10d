"""Whose bytes really lie in each page. It knows nothing of leases, as real memory knows nothing of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

from immutables import Map

from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Reservation, Room


@dataclass(frozen=True, slots=True)
class Cell:
    """What lies in one page: the frame, the tokens whose KV was written behind it, and the tenant who computed them."""

    room: Room | None = None
    generation: int = 0
    tokens: tuple[int, ...] = ()
    tenant: str = ""


BLANK = Cell()
Memory = Map[int, Cell]


@dataclass(frozen=True, slots=True)
class Write:
    """A one-sided write of prompt tokens [start, stop), launched and not yet landed.

    The bytes are read from the `source` pages when they land, which is the latest that a real transfer may read them.
    """

    reservation: Reservation
    source: tuple[PageRef, ...]
    start: int
    stop: int
    total: int

    @property
    def room(self) -> Room:
        """Whose prompt it carries."""
        return self.reservation.room

    def positions(self) -> range:
        """Places in the page table that the write touches."""
        size = self.reservation.page_size
        return range(self.start // size, -(-self.stop // size))

    @property
    def part(self) -> str:
        """The first place that it touches, as a move names it; page numbers mean nothing outside a worker."""
        return f"part {self.positions().start}"

    def by_page(self) -> tuple[Write, ...]:
        """The same write, page by page."""
        size = self.reservation.page_size
        return tuple(
            replace(self, start=max(self.start, i * size), stop=min(self.stop, (i + 1) * size))
            for i in self.positions()
        )

    def complete(self) -> range:
        """Places whose pages hold all that they will when the write has landed: those are digested."""
        size = self.reservation.page_size
        end = -(-self.stop // size) if self.stop == self.total else self.stop // size
        return range(self.start // size, end)


@lru_cache(100_000)
def digest(tokens: tuple[int, ...]) -> bytes:
    """Of the bytes in a page, not of its frame."""
    return hashlib.blake2b(repr(tokens).encode(), digest_size=8).digest()


def read(memory: Memory, ref: PageRef) -> Cell:
    """Whatever lies there, also when `ref` is stale: bytes do not know about leases."""
    return memory.get(ref.index, BLANK)


def zero(memory: Memory, pages: tuple[PageRef, ...]) -> Memory:
    """Clear bytes and frames."""
    change = memory.mutate()
    for ref in pages:
        change.pop(ref.index, None)
    return change.finish()
