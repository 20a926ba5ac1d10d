"""One client's connection: a request at a time, read strictly, with limits and time-outs; gone means cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from pagefence.edge.front.replies import head_of, retry_after, too_large
from pagefence.edge.refusal import Refusal, body_of
from pagefence.edge.wire import bodies
from pagefence.edge.wire.arrived import readable
from pagefence.edge.wire.heads import CHUNKED, Malformed, RequestHead, request_head

if TYPE_CHECKING:
    from pagefence.edge.front.front import Front

SLOWEST = 32 * 1024  # bytes of a body a second, after its first `body_s`: a drip does not hold a place
_AHEAD = 64 * 1024  # what may come before its turn; who sends more is no client of this API
_LINGER_S = 2.0  # so long we still read, unheard, so that a refusal is not lost in a reset
_GRACE_S = 1.0  # for a request that is on its way when the service ends
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NEVER = float("inf")


class Connection(asyncio.Protocol):
    """Reads heads and bodies, starts the handler, writes its reply. All state of one TCP connection is here."""

    __slots__ = (
        "_ahead", "_begun", "_body", "_body_due", "_body_refusal", "_chunked", "_closing", "_discarding", "_drained",
        "_front", "_head", "_heading", "_parts", "_size", "_task", "_transport", "_waiter", "due", "gone", "write_due",
    )  # fmt: skip

    def __init__(self, front: Front) -> None:
        self._front = front
        self._ahead = bytearray()
        self._head: RequestHead | None = None
        self._body: bodies.Body | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._body_refusal: Refusal | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._body_due = _NEVER
        self._heading = True  # the time for the first head runs from the start
        self._begun = self._chunked = self._closing = self._discarding = self.gone = False
        self.due = self.write_due = _NEVER

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._front.limits.write_buffer_bytes)
        self.due = self._front.now() + self._front.limits.head_s
        if not self._front.take(self):
            self._refuse(Refusal(503, "overloaded", "too many connections; try again", retry_after_s=1))

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True
        self._front.drop(self)
        self._release()
        for waiter in (self._drained, self._waiter):
            if waiter is not None and not waiter.done():
                waiter.cancel()
        if self._task is not None:
            self._task.cancel()

    def eof_received(self) -> bool:
        return False  # half a connection is a client that left, as for nginx: connection_lost follows

    def pause_writing(self) -> None:
        self._drained = self._front.loop.create_future()
        self.write_due = self._front.now() + self._front.limits.write_s

    def resume_writing(self) -> None:
        self.write_due = _NEVER
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if self._body is not None and not self._body.done:
            self._feed(data)
            return
        self._ahead += data
        if self._task is None:
            self._look()
        elif len(self._ahead) > _AHEAD:
            self.abort()

    # --- reading

    def _look(self) -> None:
        """Is there a whole head? Then the handler starts, and the body goes on coming while it looks at the head."""
        most = self._front.limits.head_bytes
        end = self._ahead.find(b"\r\n\r\n", 0, most + 4)
        if end < 0:
            if len(self._ahead) > most:
                self._refuse(Refusal(431, "headers_too_large", f"headers of more than {most:,} bytes"))
            elif not self._heading:  # once for a head, or a drip would keep it open
                self._heading, self.due = True, self._front.now() + self._front.limits.head_s
            return
        raw = bytes(self._ahead[: end + 4])
        rest = bytes(self._ahead[end + 4 :])
        self._ahead.clear()
        try:
            head = request_head(raw)
        except Malformed as error:
            self._refuse(Refusal(400, "malformed_request", f"this is no request that is read here: {error}"))
            return
        self._head, self._body, self._size = head, bodies.body_of(head.length), 0
        self._begun, self._closing, self._body_refusal = False, not head.keep_alive or self._front.draining, None
        self.due = _NEVER
        if self._body.done:
            self._ahead += rest
        elif rest:
            self._feed(rest)
        self._task = self._front.loop.create_task(self._run(head))

    def _feed(self, data: bytes) -> None:
        body = self._body
        assert body is not None
        try:
            parts = body.feed(data)
        except Malformed as error:
            self._end_body(Refusal(400, "malformed_request", f"the body is not framed as HTTP/1.1 has it: {error}"))
            return
        came = sum(map(len, parts))
        if self._size + came > self._front.limits.body_bytes:
            self._end_body(too_large(self._front.limits.body_bytes))
            return
        if not self._front.hold(came):
            self._end_body(Refusal(503, "overloaded", "too much is being read at once; try again.", retry_after_s=1))
            return
        self._size += came
        self._parts += parts
        if body.done:
            self._ahead += body.rest
            self._end_body(None)
        elif self._waiter is not None:
            self.due = self._body_due + self._size / SLOWEST

    def _end_body(self, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._body_refusal, self._discarding = refusal, True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def body(self) -> bytes | Refusal:
        """All of it, or why not. The client is told to go on only now (Expect: 100-continue)."""
        head, body = self._head, self._body
        assert head is not None
        assert body is not None
        if head.length != CHUNKED and head.length > self._front.limits.body_bytes:
            return too_large(self._front.limits.body_bytes)
        if not body.done and self._body_refusal is None:
            if head.headers.get(b"expect", b"").lower() == b"100-continue":
                self._transport.write(_CONTINUE)
            self._waiter = self._front.loop.create_future()
            self._body_due = self._front.now() + self._front.limits.body_s
            self.due = self._body_due + self._size / SLOWEST
            await self._waiter
            self._waiter, self.due = None, _NEVER
        if self._body_refusal is not None:
            return self._body_refusal
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # --- replying

    async def _run(self, head: RequestHead) -> None:
        try:
            await self._front.handler(head, self)
        finally:
            self._release()
            self._task = None
            self._next()

    def _next(self) -> None:
        if self.gone:
            return
        whole = self._body is None or self._body.done
        self._head = self._body = None
        if self._closing or not whole:
            self._leave()
            return
        self._heading, self.due = False, self._front.now() + self._front.limits.idle_s
        if self._front.draining:
            self._transport.close()
        elif self._ahead:
            self._look()

    def send(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        """A whole reply."""
        self._closing = self._closing or self._front.draining or self._body is None or not self._body.done
        self._begun = True
        framing = "" if status == 204 else f"content-length: {len(content)}\r\n"
        head = self._start(status, headers, framing)
        quiet = self._head is not None and self._head.method == "HEAD"
        self._transport.write(head if quiet else head + content)

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """A reply in pieces begins. In HTTP/1.0 it ends with the connection."""
        self._begun = True
        self._chunked = self._head is not None and self._head.modern
        self._closing = self._closing or not self._chunked or self._front.draining
        self._transport.write(self._start(status, headers, "transfer-encoding: chunked\r\n" if self._chunked else ""))

    def write(self, data: bytes) -> None:
        """One piece; goes out at once."""
        if data:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self) -> None:
        """The reply is whole."""
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")

    def break_off(self, last: bytes) -> None:
        """After a reply that cannot be whole any more: say why, and close without the end that a whole one has."""
        self.write(b"\n\n" + last)  # an event that broke off must not swallow this one
        self._closing, self._chunked = True, False  # and `_next` closes, so that this arrives

    @property
    def full(self) -> bool:
        """Whether the client reads more slowly than we write; then wait for `drained`."""
        return self._drained is not None

    @property
    def peer(self) -> str | None:
        """The address at the other end."""
        name = self._transport.get_extra_info("peername")
        return name[0] if isinstance(name, tuple) else None

    @property
    def begun(self) -> bool:
        """Whether the head of a reply has gone out."""
        return self._begun

    async def drained(self) -> None:
        """Until the client has read enough. Who takes too long is cut off, and this task cancelled."""
        if self._drained is not None:
            await self._drained

    def abort(self) -> None:
        """Cut it off, so that nobody takes half an answer for a whole one."""
        self._transport.abort()

    def expire(self) -> None:
        """Its time has come (`due`, `write_due`): refused if it has not said enough, closed if idle, cut off if it does
        not read.
        """
        if self.write_due <= self._front.now():
            self.abort()
            return
        self.due = _NEVER
        if self._discarding and self._task is None:
            self._transport.abort()
        elif self._waiter is not None:
            self._end_body(Refusal(408, "request_timeout", "the body did not come in time"))
        elif self._task is not None:
            self.abort()
        elif self._ahead:
            self._refuse(Refusal(408, "request_timeout", "the headers did not come in time"))
        elif readable(self._transport):
            self.due = self._front.now() + _GRACE_S  # what lies in the kernel is heard first
        else:
            self._transport.close()

    def wind_up(self) -> None:
        """The service ends: close now when idle, else after the reply.

        Not over a request that lies in the kernel already. Who has just come may say what it wants.
        """
        self._closing = True
        if self._task is not None or self._discarding:
            return
        if self._heading or readable(self._transport):
            self.due = min(self.due, self._front.now() + _GRACE_S)
        else:
            self._transport.close()

    # --- how a reply looks

    def _start(self, status: int, headers: Mapping[str, str], framing: str) -> bytes:
        return head_of(
            status, headers, self._front.date, f"{framing}connection: close\r\n" if self._closing else framing
        )

    def _refuse(self, refusal: Refusal) -> None:
        """Before there is a request that could be handled: say no, and goodbye."""
        self._closing = True
        content = body_of(refusal)
        self._front.refused(refusal)
        self.send(refusal.status, {**self._front.plain_headers(), **retry_after(refusal)}, content)
        self._leave()

    def _leave(self) -> None:
        """Close so that the reply arrives: a reset, which closing over unread bytes causes, would destroy it."""
        self._discarding = True
        self._ahead.clear()
        self.due = self._front.now() + _LINGER_S
        with contextlib.suppress(OSError, RuntimeError):
            if self._transport.can_write_eof():
                self._transport.write_eof()

    def _release(self) -> None:
        self._front.release(self._size)
        self._size = 0
        self._parts = []
