"""All connections of one process: what they share, how many there may be, and the clock that ends the slow ones."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate

from pagefence.edge.front.connection import Connection
from pagefence.edge.refusal import Refusal
from pagefence.edge.wire.heads import RequestHead

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """What a client may cost.

    head_bytes          request line and headers together; more is a 431
    body_bytes          one body; more is a 413
    bodies_bytes        all bodies that are held at once; more is a 503
    connections         at once; more are told 503 and closed
    write_buffer_bytes  of one reply that its client has not read yet, before we stop reading upstream
    head_s              for a whole head
    body_s              for a whole body, and a second more for each 32 KiB of it
    idle_s              between two requests of a connection
    write_s             for a client that does not read its answer
    """

    head_bytes: int = 32 * 1024
    body_bytes: int = 32 * 1024 * 1024
    bodies_bytes: int = 512 * 1024 * 1024
    connections: int = 4096
    write_buffer_bytes: int = 256 * 1024
    head_s: float = 10.0
    body_s: float = 30.0
    idle_s: float = 75.0
    write_s: float = 60.0


class Front:
    """`handler` gets each request with its connection, which is also where the reply goes."""

    def __init__(
        self,
        handler: Callable[[RequestHead, Connection], Awaitable[None]],
        limits: FrontLimits,
        on_refused: Callable[[Refusal], None] = lambda refusal: None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.handler, self.limits, self.refused = handler, limits, on_refused
        self.draining = False
        self.date = b""
        self._held = 0
        self._all: set[Connection] = set()
        self._look()

    def __call__(self) -> Connection:
        """A protocol for a new connection, as `loop.create_server` wants it."""
        return Connection(self)

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._all)

    def take(self, connection: Connection) -> bool:
        """Count it; false when there are too many, and it has to go."""
        self._all.add(connection)
        return len(self._all) <= self.limits.connections

    def drop(self, connection: Connection) -> None:
        """It is gone."""
        self._all.discard(connection)

    def hold(self, size: int) -> bool:
        """Whether so many more bytes of bodies may be held."""
        if self._held + size > self.limits.bodies_bytes:
            return False
        self._held += size
        return True

    def release(self, size: int) -> None:
        """So many bytes of bodies are held no longer."""
        self._held -= size

    @staticmethod
    def plain_headers() -> dict[str, str]:
        """For a reply to what never became a request."""
        return {"content-type": "application/json", "x-request-id": mint()}

    async def drain(self, seconds: float) -> int:
        """Let replies in progress end, for so long; then cut them off. Returns how many were."""
        self.draining = True
        for connection in tuple(self._all):
            connection.wind_up()
        end = self.now() + seconds
        while self._all and self.now() < end:
            await asyncio.sleep(0.02)
        cut = len(self._all)
        for connection in tuple(self._all):
            connection.abort()
        while self._all and self.now() < end + 1:
            await asyncio.sleep(0.01)
        return cut

    def close(self) -> None:
        """Stop the clock."""
        with contextlib.suppress(AttributeError):
            self._timer.cancel()

    def _look(self) -> None:
        now = self.now()
        self.date = b"date: " + formatdate(time.time(), usegmt=True).encode() + b"\r\n"
        for connection in [each for each in self._all if each.due <= now or each.write_due <= now]:
            connection.expire()
        self._timer = self.loop.call_later(_LOOK_EVERY_S, self._look)


def mint() -> str:
    """A request id: ours, unguessable, used once (I9)."""
    return f"edge-{secrets.token_hex(16)}"
