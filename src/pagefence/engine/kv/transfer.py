"""How prefill's bytes get into decode's pages: one-sided writes, decode's machine takes no part in them.

`Offer` is decode's side of a back-end, `Transfer` prefill's. The back-end here maps decode's segment into prefill's
process; how the segment gets there is the business of `offer`. `mooncake` writes the same three things in the same
order over TCP: head frame, bytes, tail frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pagefence.engine.kv.digest import page_digest
from pagefence.engine.kv.frames import write_head, write_tail
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room, WorkerRef


class TransferFailed(Exception):
    """A write did not complete. What was sent of it may still land, also after this process is reaped (I2).

    So nobody may say that it has drained: its pages stay quarantined until the writer is reaped *and* the owner has
    revoked its access.
    """


class BackendMissing(Exception):
    """What a back-end needs cannot be loaded; the message is for the operator."""


class Offer(Protocol):
    """The owner's side: a segment, on offer to writers that prove the token."""

    @property
    def address(self) -> str:
        """What a writer connects to. Good for one incarnation."""

    def revoke(self, writer: WorkerRef) -> None:
        """For a writer that was reaped: once this returns, nothing that it sent can land any more (I2)."""

    def stop(self) -> None:
        """Offer the segment to nobody any more."""


class Transfer(Protocol):
    """Prefill's way into the memory of one decode incarnation."""

    @property
    def layout(self) -> Layout:
        """The shape of the remote pool."""

    @property
    def epoch(self) -> int:
        """The incarnation that owns the remote pool. A restart of decode needs a new Transfer."""

    def write(
        self, source: Segment, source_pages: Sequence[int], target: Sequence[PageRef], room: Room
    ) -> tuple[bytes, ...]:
        """Write whole pages, in order; return when the last byte has landed and nothing is in flight any more (I2).

        Gives the digests of the *source* pages, so that whatever happens on the way shows when decode digests what
        arrived (I4). Raises ValueError and IndexError before the first byte is written, TransferFailed when it cannot
        be known what of it lands; the transfer is closed then.
        """

    def close(self) -> None:
        """Give up access to the remote pool."""


def require_fit(source: Segment, source_pages: Sequence[int], layout: Layout, target: Sequence[PageRef]) -> None:
    """Raise ValueError or IndexError unless every source page has a target page of the same shape in the pool."""
    if not source.layout.same_pages(layout):
        raise ValueError(f"pages differ in shape: source {source.layout}, target {layout}")
    if len(source_pages) != len(target):
        raise ValueError(f"{len(source_pages)} source pages for {len(target)} target pages")
    source.require_pages(source_pages)
    layout.require_pages(page.index for page in target)


@dataclass(frozen=True, slots=True)
class RemotePages:
    """A remote pool through shared memory."""

    segment: Segment
    epoch: int

    @property
    def layout(self) -> Layout:
        """The shape of the remote pool."""
        return self.segment.layout

    def write(
        self, source: Segment, source_pages: Sequence[int], target: Sequence[PageRef], room: Room
    ) -> tuple[bytes, ...]:
        """As `Transfer.write`: per page the head frame, a copy at memory speed, the tail frame."""
        require_fit(source, source_pages, self.layout, target)
        digests = []
        for here, there in zip(source_pages, target, strict=True):
            # Before the copy: it warms the cache for it, and head and tail lie closer together in time.
            digests.append(page_digest(source, here))
            write_head(self.segment, there, room)
            self.segment.payload(there.index)[:] = source.payload(here)
            write_tail(self.segment, there, room)
        return tuple(digests)

    def close(self) -> None:
        """Unmap the remote pool, once the last view of it is gone."""
        self.segment.close()
