"""Which way the bytes go: decode offers its segment as the operator chose, prefill follows the address it is told.

A back-end is imported when it is used, so that a fleet on one host needs nothing of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagefence.engine.kv.offer import SegmentServer
from pagefence.engine.kv.offer import connect as map_segment
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import Offer, Transfer
from pagefence.engine.settings import Settings, WorkerOrders
from pagefence.protocol.messages import WorkerRef


def require(settings: Settings) -> None:
    """Raise BackendMissing unless the chosen back-end can be loaded here."""
    if settings.transfer == "mooncake":
        from pagefence.engine.kv.mooncake import require as require_mooncake

        require_mooncake()


@contextmanager
def offered(orders: WorkerOrders, segment: Segment) -> Iterator[Offer]:
    """The segment of this decode incarnation, on offer. Raises BackendMissing, OSError."""
    settings, me = orders.settings, orders.me
    offer: Offer
    if settings.transfer == "mooncake":
        from pagefence.engine.kv.mooncake import MooncakeOffer

        offer = MooncakeOffer(settings.transfer_host, segment, orders.segment_token, me)
    else:
        path = Path(orders.run_dir) / f"{me.name}.{me.epoch:x}.segment"
        offer = SegmentServer(path, segment, orders.segment_token, me.epoch)
    try:
        yield offer
    finally:
        offer.stop()


def reach(address: str, token: bytes, me: WorkerRef, owner: WorkerRef) -> Transfer:
    """Prefill's way to the segment of the decode incarnation `owner`, which lies at `address`.

    Raises BackendMissing, PeerRefused, SegmentMismatch, OSError, ValueError on an address that is none.
    """
    if "://" not in address:
        return map_segment(Path(address), token)  # the path is the owner's alone
    from pagefence.engine.kv.mooncake import connect

    return connect(address, token, me, owner)
