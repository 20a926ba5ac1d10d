"""The memory of one decode incarnation as a test sees it: whose bytes really lie in each page.

It knows nothing of leases. The world compares it with them, as the frames in real memory are compared.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Reservation, Room


@dataclass(frozen=True, slots=True)
class Cell:
    """What lies in one page: the frame, and the prompt tokens whose KV was written behind it."""

    room: Room | None = None
    generation: int = 0
    tokens: tuple[int, ...] = ()

    @property
    def digest(self) -> bytes:
        """Of the bytes, not of the frame."""
        return hashlib.blake2b(repr(self.tokens).encode(), digest_size=8).digest()


BLANK = Cell()


@dataclass(frozen=True, slots=True)
class Write:
    """A one-sided write of prompt tokens [start, stop), launched and not yet landed."""

    reservation: Reservation
    token_ids: tuple[int, ...]
    start: int
    stop: int

    def cells(self) -> tuple[tuple[PageRef, Cell], ...]:
        """The pages that the write touches, as they are once it has landed."""
        size = self.reservation.page_size
        touched = range(self.start // size, -(-self.stop // size))
        return tuple((ref, self._cell(i)) for i in touched for ref in (self.reservation.pages[i],))

    def digests(self) -> tuple[bytes, ...]:
        """Those of the pages that the write completes."""
        size, last = self.reservation.page_size, self.stop == len(self.token_ids)
        first, end = self.start // size, -(-self.stop // size) if last else self.stop // size
        return tuple(self._cell(i).digest for i in range(first, end))

    def _cell(self, position: int) -> Cell:
        size = self.reservation.page_size
        tokens = self.token_ids[position * size : min((position + 1) * size, self.stop)]
        return Cell(self.reservation.room, self.reservation.pages[position].generation, tokens)


@dataclass(slots=True)
class Memory:
    """Pages by index. `last` remembers the last room framed in a page, also after zeroing."""

    cells: dict[int, Cell] = field(default_factory=dict)
    last: dict[int, Room] = field(default_factory=dict)

    def read(self, ref: PageRef) -> Cell:
        """Whatever lies there, also when `ref` is stale: bytes do not know about leases."""
        return self.cells.get(ref.index, BLANK)

    def zero(self, pages: tuple[PageRef, ...]) -> None:
        """Clear bytes and frames."""
        for ref in pages:
            self.cells[ref.index] = BLANK

    def put(self, ref: PageRef, cell: Cell) -> None:
        """Overwrite the page, whoever has it now."""
        self.cells[ref.index] = cell
        if cell.room is not None:
            self.last[ref.index] = cell.room

    def frame(self, room: Room, pages: tuple[PageRef, ...]) -> None:
        """Frame pages that decode itself will write."""
        for ref in pages:
            self.put(ref, Cell(room, ref.generation))
