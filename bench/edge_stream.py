"""Both ends of a stream for `bench.edge`: an upstream that drips chunks, and a client that notes when each came.

python -m bench.edge_stream PORT CHUNKS GAP_S      the upstream
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from dataclasses import dataclass

from pagefence.edge.wire.bodies import ChunkedBody

EVENT = b'data: {"id":"%08x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SIZE = len(EVENT % 0)
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of one stream: to its first chunk, and to its end."""

    first_s: float
    whole_s: float
    size: int


async def upstream(port: int, chunks: int, gap_s: float) -> None:
    """Answer every POST with a stream, every GET with 200."""

    numbers = itertools.count()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if head.startswith(b"get"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
                    continue
                await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
                writer.write(HEAD)
                chunk = b"%x\r\n%b\r\n" % (SIZE, EVENT % next(numbers))  # two answers of one id are a finding
                for number in range(chunks):
                    writer.write(chunk)
                    if gap_s and number < chunks - 1:
                        await asyncio.sleep(gap_s)
                writer.write(DONE)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 24)
    async with server:
        await server.serve_forever()


async def stream(port: int, request: bytes) -> Timed:
    """Ask once on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.perf_counter()
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head[:15]:
        raise RuntimeError(f"no stream: {head[:80]!r} {(await reader.read(300))!r}")
    body, first, size = ChunkedBody(), 0.0, 0
    while not body.done:
        data = await reader.read(1 << 16)
        if not data:
            raise RuntimeError("the stream broke off")
        first = first or time.perf_counter()
        size += sum(len(part) for part in body.feed(data))
    writer.close()
    return Timed(first - began, time.perf_counter() - began, size)


async def streams(port: int, request: bytes, at_once: int, times: int) -> list[Timed]:
    """So many beside each other, so many times."""
    found: list[Timed] = []
    for _ in range(times):
        found += await asyncio.gather(*(stream(port, request) for _ in range(at_once)))
    return found


def run(main: object) -> None:
    """On uvloop where it is installed: less of the cores for the bench itself."""
    try:
        import uvloop

        uvloop.run(main)
    except ImportError:
        asyncio.run(main)  # type: ignore[arg-type]  # a coroutine


if __name__ == "__main__":
    run(upstream(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
