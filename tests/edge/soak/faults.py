"""`python -m tests.edge.soak.faults NAME edge ...`: the edge with one thing broken, which a soak has to see."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pagefence.edge import joined, outgoing
from pagefence.edge.call import Call
from pagefence.edge.front.connection import Connection
from pagefence.edge.front.front import Front
from pagefence.edge.mark import Recorder
from pagefence.edge.outgoing import Dialect
from pagefence.edge.upstream.link import Link
from pagefence.edge.upstream.pool import Pool

FAULTS: dict[str, Callable[[], None]] = {}
_KEPT: list[Any] = []


def fault(plant: Callable[[], None]) -> Callable[[], None]:
    FAULTS[plant.__name__.replace("_", "-")] = plant
    return plant


@fault
def kept_too_early() -> None:
    """A connection goes back to the pool before its answer has ended: the next request finds another's answer on it."""

    def give(self: Pool, link: Link) -> None:
        self._out.discard(link)
        if link.open and not self._closed:
            link.used_s = self._loop.time()
            self._idle.append(link)

    def take_any(link: Link) -> bool:
        return link.open

    Pool.give = give  # type: ignore[method-assign]
    Link.reusable = property(take_any)  # type: ignore[assignment,method-assign]
    Link.close = lambda self: None  # type: ignore[method-assign]


@fault
def ends_well_always() -> None:
    """A stream that broke off gets the end of a whole one."""

    def break_off(self: Connection, last: bytes) -> None:
        self.end()
        self._closing = True
        self._transport.close()

    Connection.break_off = break_off  # type: ignore[method-assign]


@fault
def never_closed() -> None:
    """Upstream's connections that are no use any more stay open."""

    def keep(link: Link) -> None:
        _KEPT.append(link)

    setattr(Link, "close", keep)  # noqa: B010  (mypy holds an assignment against the method)


@fault
def grows() -> None:
    """Something of every request is never let go."""
    end = Recorder.end

    def growing(self: Recorder, mark: Any) -> None:
        _KEPT.append(bytearray(os.urandom(20_000)))
        end(self, mark)

    Recorder.end = growing  # type: ignore[method-assign]


@fault
def cuts_when_it_ends() -> None:
    """No time for what is in progress."""
    drain = Front.drain

    async def at_once(self: Front, seconds: float) -> int:
        return await drain(self, 0.0)

    Front.drain = at_once  # type: ignore[method-assign]


@fault
def miscounts() -> None:
    """A client's departure is not noticed by the counters."""
    drop = Front.drop

    def forgetful(self: Front, connection: Connection) -> None:
        if connection.due < float("inf"):
            drop(self, connection)

    Front.drop = forgetful  # type: ignore[method-assign]


@fault
def mixes_tenants() -> None:
    """Every tenant has the same isolation key."""
    right = outgoing.upstream_body

    def same(call: Call, dialect: Dialect) -> bytes:
        return right(replace(call, tenant=replace(call.tenant, isolation_key="0" * 64)), dialect)

    setattr(joined, "upstream_body", same)  # noqa: B010  (it is imported there)


def main() -> None:
    """Plant it, and be `pagefence`."""
    FAULTS[sys.argv.pop(1)]()
    from pagefence.__main__ import main as pagefence

    pagefence()


if __name__ == "__main__":
    main()
