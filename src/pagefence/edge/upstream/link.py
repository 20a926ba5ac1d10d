"""One connection to an upstream: one request at a time, its answer read strictly, and no second use in doubt."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

from pagefence.edge.upstream.failures import Died, Failure, Lied, TooSlow
from pagefence.edge.wire import bodies
from pagefence.edge.wire.arrived import arrival
from pagefence.edge.wire.heads import Malformed, ResponseHead, response_head

HEAD_BYTES: Final = 64 * 1024
MOST_INTERIM = 8  # 1xx answers before the real one
_HIGH = 1024 * 1024  # of an answer that nobody has taken yet: stop reading


class Link(asyncio.Protocol):
    """`ask`, then `part` until it gives None. `reusable` is true only after an answer that was read to its end."""

    __slots__ = ("_arrived", "_body", "_buffer", "_failure", "_held", "_interim", "_loop", "_parts", "_paused",
                 "_transport", "_waiter", "asked", "head", "heard", "open", "used_s")  # fmt: skip

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.open = False
        self.asked = False
        self.used_s = 0.0
        self._waiter: asyncio.Future[bool] | None = None
        self._fresh()

    def _fresh(self) -> None:
        self.heard, self._interim, self._held, self._paused = False, 0, 0, False
        self.head: ResponseHead | None = None
        self._body: bodies.Body | None = None
        self._buffer = bytearray()
        self._parts: deque[bytes] = deque()
        self._failure: Failure | None = None

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._arrived = arrival(transport.get_extra_info("socket"))
        self.open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if isinstance(self._body, bodies.UntilClose) and error is None:
            self._body.done = True
        elif self.asked and not self.whole:
            self._failure = self._failure or Died(self.heard)
        self._wake()

    def data_received(self, data: bytes) -> None:
        if not self.asked or self.whole:
            # Bytes that belong to no request: the next one on this connection would take them for its answer.
            self.close()
            return
        self.heard = True
        try:
            if self._body is None:
                self._buffer += data
                self._look()
            else:
                self._feed(data)
        except Malformed as error:
            self._failure = Lied(f"the upstream's answer is malformed: {error}")
            self.close()
        self._wake()

    # --- reading

    def _look(self) -> None:
        while self._body is None:
            end = self._buffer.find(b"\r\n\r\n", 0, HEAD_BYTES)
            if end < 0:
                if len(self._buffer) >= HEAD_BYTES:
                    raise Malformed(f"headers of more than {HEAD_BYTES:,} bytes")
                return
            head = response_head(bytes(self._buffer[: end + 4]))
            del self._buffer[: end + 4]
            if head.status < 200:
                self._interim += 1
                if head.status == 101 or self._interim > MOST_INTERIM:
                    raise Malformed("a change of protocol" if head.status == 101 else "too many interim answers")
                continue
            self.head, self._body = head, bodies.body_of(head.length)
            rest, self._buffer = bytes(self._buffer), bytearray()
            if self._body.done:
                self._body.rest = rest
                self._ended()
            elif rest:
                self._feed(rest)

    def _feed(self, data: bytes) -> None:
        assert self._body is not None
        for part in self._body.feed(data):
            self._parts.append(part)
            self._held += len(part)
        if self._body.done:
            self._ended()
        elif self._held > _HIGH and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _ended(self) -> None:
        if self._body is not None and self._body.rest:
            self.close()  # more than was asked for: never used again

    @property
    def whole(self) -> bool:
        """Whether the answer has come to its end."""
        return self._body is not None and self._body.done

    @property
    def reusable(self) -> bool:
        """Whether another request may follow: all was read, all was sent, both sides keep it open."""
        return (
            self.open
            and self.whole
            and not self._parts
            and self.head is not None
            and self.head.keep_alive
            and not self._transport.is_closing()
            and self._transport.get_write_buffer_size() == 0
        )

    @property
    def quiet(self) -> bool:
        """Whether nothing has come that the event loop has not told of yet: an end, or an answer that nobody asked for.

        After the next request it could not be told from that one's answer. Costs a system call, half a microsecond.
        """
        return not self._arrived.poll(0)

    # --- asking

    async def ask(self, head: bytes, body: bytes, within_s: float) -> ResponseHead:
        """Send, and wait for the head of the answer. Raises Failure."""
        if not self.open or self._transport.is_closing():
            raise Died(False)
        self._fresh()
        self.asked = True
        self._transport.write(head + body if len(body) < _HIGH else head)
        if len(body) >= _HIGH:
            self._transport.write(body)
        end = self._loop.time() + within_s
        while self.head is None:
            if self._failure is not None:
                raise self._failure
            await self._wait(end, "to begin its answer", within_s)
        return self.head

    async def part(self, idle_s: float, end: float) -> bytes | None:
        """What has come since the last time, joined; None at the end of the answer. Raises Failure."""
        while not self._parts:
            if self.whole:
                return None
            if self._failure is not None:
                raise self._failure
            due = self._loop.time() + idle_s
            await self._wait(min(due, end), "between two parts" if due < end else "for the whole answer", idle_s)
        parts, self._parts, self._held = self._parts, deque(), 0
        if self._paused:
            self._paused = False
            if self.open:
                self._transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """At once. An upstream that generates for nobody sees it and stops."""
        if self.open:
            self._transport.abort()

    def rest(self) -> None:
        """Nothing is asked for now; what comes is nobody's."""
        self._fresh()
        self.asked = False

    async def _wait(self, until: float, what: str, seconds: float) -> None:
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_at(until, _resolve, waiter, False)
        try:
            if not await waiter:
                raise TooSlow(what, seconds)
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None:
            _resolve(self._waiter, True)


def _resolve(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)
