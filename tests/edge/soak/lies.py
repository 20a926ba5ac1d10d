"""What an upstream can do instead of answering. Each lie but `early end` shows in the framing, or in broken JSON.

A lie holds nobody's words but its own request's, and where it is an answer to no request, words of nobody (`stray-`):
what is planted where no framing tells, no proxy could notice.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import cast

_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LONG_S = 20.0  # longer than any time-out of the edge that is soaked


@dataclass(slots=True)
class Wire:
    """A connection that waits for an answer. `pieces`: the right one; `content`, `events`: what is in it."""

    writer: asyncio.StreamWriter
    pieces: list[bytes]
    content: bytes
    events: list[bytes]
    rng: Random

    async def say(self, *raw: bytes) -> None:
        for each in raw:
            self.writer.write(each)
        await self.writer.drain()

    @property
    def body(self) -> bytes:
        return self.content or b"".join(self.events)

    @property
    def kind(self) -> bytes:
        return b"application/json" if self.content else b"text/event-stream"

    def sized(self, length: int, content: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (self.kind, length, content)

    def stray(self) -> bytes:
        """A whole answer that nobody asked for."""
        words = b'{"id":"stray-%d-%d"}' % (time.monotonic_ns(), self.rng.randrange(10**9))
        return _JSON + b"content-length: %d\r\n\r\n%b" % (len(words), words)

    def reading(self) -> asyncio.ReadTransport:
        return cast(asyncio.ReadTransport, self.writer.transport)

    def nobody_waits(self) -> bool:
        """Whether no request is on this connection by now; call `pause_reading` before."""
        sock = self.writer.get_extra_info("socket")
        return not select.select([sock], [], [], 0)[0]

    def cut(self, raw: bytes) -> bytes:
        return raw[: self.rng.randrange(1, max(2, len(raw)))]

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


Lie = Callable[[Wire], Awaitable[None]]
LIES: dict[str, Lie] = {}


def lie(tell: Lie) -> Lie:
    LIES[tell.__name__.replace("_", " ")] = tell
    return tell


# --- lengths that are not true ------------------------------------------------------------------------------------


@lie
async def length_too_long(wire: Wire) -> None:
    await wire.say(wire.sized(len(wire.body) + 7, wire.body))
    wire.close()


@lie
async def length_too_long_and_silence(wire: Wire) -> None:
    await wire.say(wire.sized(len(wire.body) + 7, wire.body))
    await asyncio.sleep(LONG_S)


@lie
async def length_too_short(wire: Wire) -> None:
    await wire.say(wire.sized(max(1, len(wire.body) - 9), wire.body))


@lie
async def two_lengths(wire: Wire) -> None:
    first = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: %d\r\n\r\n%b" % (len(wire.body), wire.body)
    await wire.say(first)


@lie
async def length_and_chunks(wire: Wire) -> None:
    await wire.say(_STREAM[:-2] + b"content-length: 5\r\n\r\n0\r\n\r\n")


@lie
async def no_length_and_half(wire: Wire) -> None:
    """To the end of the connection, which comes too early: as when a server of HTTP/1.0 is killed."""
    await wire.say(b"HTTP/1.0 200 OK\r\ncontent-type: %b\r\n\r\n" % wire.kind, wire.cut(wire.body))
    wire.close()


@lie
async def no_length(wire: Wire) -> None:
    """The same, and whole: no lie at all."""
    await wire.say(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n\r\n" % wire.kind, wire.body)
    wire.close()


# --- halves -------------------------------------------------------------------------------------------------------


@lie
async def half_a_head(wire: Wire) -> None:
    await wire.say(wire.cut(wire.pieces[0].partition(b"\r\n\r\n")[0]))
    wire.close()


@lie
async def nothing(wire: Wire) -> None:
    wire.close()


@lie
async def half_an_answer(wire: Wire) -> None:
    raw = b"".join(wire.pieces)
    await wire.say(wire.cut(raw[:-1]))
    wire.rng.choice((wire.close, wire.reset))()


@lie
async def half_an_answer_and_silence(wire: Wire) -> None:
    await wire.say(wire.cut(b"".join(wire.pieces)[:-1]))
    await asyncio.sleep(LONG_S)


@lie
async def half_a_chunk(wire: Wire) -> None:
    await wire.say(_STREAM, b"%x\r\n%b" % (len(wire.body) + 5, wire.cut(wire.body)))
    wire.rng.choice((wire.close, wire.reset))()


@lie
async def early_end(wire: Wire) -> None:
    """Framed well, and without the events that end a stream."""
    await wire.say(*(wire.pieces[:-3] or wire.pieces), *([b"0\r\n\r\n"] if wire.events else []))


# --- answers to nobody --------------------------------------------------------------------------------------------


@lie
async def two_answers(wire: Wire) -> None:
    await wire.say(b"".join(wire.pieces) + wire.stray())


@lie
async def an_answer_to_nobody_later(wire: Wire) -> None:
    """On an idle connection: where a request has come meanwhile, nothing would tell that it is not its answer."""
    await wire.say(*wire.pieces[:-1])
    wire.reading().pause_reading()
    await wire.say(wire.pieces[-1])
    await asyncio.sleep(wire.rng.uniform(0.0, 0.1))
    if not wire.writer.is_closing() and wire.nobody_waits():
        wire.writer.write(wire.stray())
    if not wire.writer.is_closing():
        wire.reading().resume_reading()


# --- no HTTP ------------------------------------------------------------------------------------------------------


@lie
async def garbage(wire: Wire) -> None:
    await wire.say(wire.rng.randbytes(wire.rng.randrange(1, 300)) + b"\r\n\r\n")


@lie
async def garbage_within(wire: Wire) -> None:
    await wire.say(_STREAM, b"zz\r\n" + wire.body)


@lie
async def a_longer_chunk_than_said(wire: Wire) -> None:
    await wire.say(_STREAM, b"2\r\n%b\r\n0\r\n\r\n" % wire.body)


@lie
async def bare_line_feeds(wire: Wire) -> None:
    await wire.say(b"HTTP/1.1 200 OK\ncontent-length: %d\n\n%b" % (len(wire.body), wire.body))


@lie
async def a_flood_of_interim_answers(wire: Wire) -> None:
    await wire.say(b"HTTP/1.1 100 Continue\r\n\r\n" * 100, *wire.pieces)


@lie
async def a_few_interim_answers(wire: Wire) -> None:
    """Which is allowed."""
    await wire.say(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 3, *wire.pieces)


@lie
async def another_protocol(wire: Wire) -> None:
    await wire.say(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n", wire.body)


@lie
async def huge_headers(wire: Wire) -> None:
    await wire.say(_JSON + b"x-filler: %b\r\n" % (b"f" * 1000) * 80 + b"\r\n{}")


@lie
async def many_headers(wire: Wire) -> None:
    await wire.say(_JSON + b"x-filler: f\r\n" * 150 + b"content-length: 2\r\n\r\n{}")


# --- slow ---------------------------------------------------------------------------------------------------------


@lie
async def no_answer_at_all(wire: Wire) -> None:
    await asyncio.sleep(LONG_S)


@lie
async def byte_by_byte(wire: Wire) -> None:
    raw = b"".join(wire.pieces)
    for at in range(0, 120):
        await wire.say(raw[at : at + 1])
        await asyncio.sleep(0.005)
    await wire.say(raw[120:])


@lie
async def too_slow_byte_by_byte(wire: Wire) -> None:
    for byte in b"".join(wire.pieces)[:-1]:
        await wire.say(bytes((byte,)))
        await asyncio.sleep(0.25)


@lie
async def a_stream_without_end(wire: Wire) -> None:
    await wire.say(_STREAM)
    until = time.monotonic() + LONG_S
    event = wire.events[0] if wire.events else b"data: {}\n\n"
    while time.monotonic() < until:
        await wire.say(b"%x\r\n%b\r\n" % (len(event), event))
        await asyncio.sleep(0.05)


# --- HTTP, and not this API ---------------------------------------------------------------------------------------


@lie
async def a_web_page(wire: Wire) -> None:
    await wire.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>")


@lie
async def a_redirect(wire: Wire) -> None:
    await wire.say(b"HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n")


@lie
async def compressed(wire: Wire) -> None:
    await wire.say(_JSON + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x8b\x08")


@lie
async def an_error_in_plain_text(wire: Wire) -> None:
    await wire.say(
        b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain\r\ncontent-length: 21\r\n\r\n"
        b"Internal Server Error"
    )
