"""`pagefence serve` with KV between two hosts: prefill's engines live in one network namespace, decode's in the other.

    python -m tests.two_hosts serve|worker PREFILL_NAMESPACE DECODE_NAMESPACE [flags of `pagefence serve`]

Messages and HTTP stay on this host.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from pagefence.engine import prefill, worker
from pagefence.engine.command import World, serve_app
from pagefence.engine.kv import backends
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import Offer, Transfer
from pagefence.engine.settings import WorkerOrders
from pagefence.protocol.messages import WorkerRef
from pagefence.run import run
from tests.namespaces import THERE, inside


def be_worker(of_prefill: str, of_decode: str) -> int:
    """The product's worker, its engine in the namespace of its role."""
    offered, reach = backends.offered, backends.reach

    @contextlib.contextmanager
    def offered_there(orders: WorkerOrders, segment: Segment) -> Iterator[Offer]:
        with contextlib.ExitStack() as stack:
            with inside(of_decode):
                offer = stack.enter_context(offered(orders, segment))
            yield offer

    def reach_from_here(address: str, token: bytes, me: WorkerRef, owner: WorkerRef) -> Transfer:
        with inside(of_prefill):
            return reach(address, token, me, owner)

    backends.offered = offered_there
    prefill.reach = reach_from_here  # type: ignore[attr-defined]
    return worker.main()


def main(what: str, of_prefill: str, of_decode: str, *flags: str) -> int:
    """A fleet, or one of its workers."""
    if what == "worker":
        return be_worker(of_prefill, of_decode)
    world = World(worker_command=("tests.two_hosts", "worker", of_prefill, of_decode))
    return run(serve_app, [*flags, "--transfer", "mooncake", "--transfer-host", THERE], world)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
