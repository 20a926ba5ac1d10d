"""Work for which an event loop should not stand still: in threads, behind a queue that has an end.

A thread helps as far as the work lets go of the interpreter's lock, or is made of several pieces: then the loop waits
for the longest piece, not for all of them.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from pagefence.edge.refusal import Refusal

LARGE = 128 * 1024
"""Bytes of a body; a larger one is read beside the loop. Below, going there costs as much as reading: 0.1 ms."""
RETRY_AFTER_S = 2

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Queue:
    """What may be in it, at work and waiting; whoever makes one says where it ends.

    threads        at work at once
    waiting        pieces of work, of all tenants
    amount         bytes or characters of them together
    per_tenant     pieces of one tenant
    tenant_amount  bytes or characters of one tenant
    """

    threads: int = 1
    waiting: int = sys.maxsize
    amount: int = sys.maxsize
    per_tenant: int = sys.maxsize
    tenant_amount: int = sys.maxsize


def for_bodies(requests: int, tenant_requests: int, body_bytes: int) -> Queue:
    """As many as may be in progress, but no more bytes than seconds of reading; half of them one tenant's."""
    most = 128 * 1024 * 1024
    return Queue(1, requests, max(most, body_bytes), tenant_requests, max(most // 2, body_bytes))


class Beside:
    """Threads of one event loop. They end with the last reference, so requests in progress outlive a reload."""

    def __init__(self, queue: Queue, name: str) -> None:
        self._queue = queue
        self._pool = ThreadPoolExecutor(queue.threads, f"pagefence-{name}")
        self._lock = threading.Lock()
        self._pieces: Counter[str] = Counter()
        self._amounts: Counter[str] = Counter()

    @property
    def inside(self) -> int:
        """Pieces of work that are done or wait for it."""
        return self._pieces.total()

    async def run(self, tag: str, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Refusal:
        """What the work returns or raises, or why it is not begun. `tag`: of the tenant; `size`: counts as `amount`.

        Cancelled, it is not begun any more; what is begun is done to its end.
        """
        refusal = self._enter(tag, size)
        if refusal is not None:
            return refusal
        begun = self._pool.submit(work, *args, **kwargs)
        begun.add_done_callback(lambda _: self._leave(tag, size))
        return await asyncio.wrap_future(begun)

    def _enter(self, tag: str, size: int) -> Refusal | None:
        queue = self._queue
        with self._lock:
            if self._pieces[tag] >= queue.per_tenant or self._amounts[tag] + size > queue.tenant_amount:
                said = "Too many of your long requests wait. Try again in a moment."
                return Refusal(429, "rate_limit_exceeded", said, retry_after_s=RETRY_AFTER_S)
            if self.inside >= queue.waiting or self._amounts.total() + size > queue.amount:
                said = "Too many long requests wait. Try again in a moment."
                return Refusal(503, "overloaded", said, retry_after_s=RETRY_AFTER_S)
            self._pieces[tag] += 1
            self._amounts[tag] += size
        return None

    def _leave(self, tag: str, size: int) -> None:
        with self._lock:
            self._pieces[tag] -= 1
            self._amounts[tag] -= size
            if not self._pieces[tag]:  # no entry of a tenant that has nothing here
                del self._pieces[tag], self._amounts[tag]
