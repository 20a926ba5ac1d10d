"""A client that reads replies by itself, byte by byte if it must, and says whether the framing was whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

HANG_S = 40.0  # without a byte: many times what the edge that is soaked allows for all of it
LONGEST_S = 240.0  # of a reply whose reader is the slow one


class Gone(Exception):
    """The connection ended without a byte of a reply."""


@dataclass(slots=True)
class Reply:
    """`status` 0: not even a head. `whole`: as the framing has it; of one that only its close ends nobody can tell."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    raw_head: bytes = b""
    body: bytes = b""
    whole: bool = False
    until_close: bool = False


class Asker:
    """One connection. `bite`: how much it reads at a time; `pace`: what it does in between."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bite: int) -> None:
        self.reader, self.writer, self.bite = reader, writer, bite
        self.pace: Callable[[], Awaitable[None]] | None = None
        self.came = 0
        self.used = False
        self.buffered = bytearray()

    @classmethod
    async def connected(cls, port: int, slow: bool = False) -> Asker:
        """`slow`: with hardly any buffer, so that the other side feels it."""
        sock = socket.socket()
        if slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        return cls(*await asyncio.open_connection(sock=sock, limit=16_384 if slow else 2**16), 4096 if slow else 2**16)

    def ask(self, body: object, path: str, key: str, method: str = "POST", minor: int = 1, **more: str) -> None:
        self.writer.write(written(body, path, key, method, minor, **more))

    def leave(self) -> None:
        self.writer.transport.abort()

    async def reply(self) -> Reply:
        """The next one; 100 Continue is passed over. Raises Gone, and TimeoutError where nothing ends."""
        async with asyncio.timeout(LONGEST_S):
            with contextlib.suppress(ConnectionError):
                while True:
                    reply = await self._reply()
                    if reply.status != 100:
                        self.used = True
                        return reply
            raise Gone

    async def _reply(self) -> Reply:
        reply = Reply()
        while (end := self.buffered.find(b"\r\n\r\n")) < 0:
            if not await self.more():
                if not self.buffered:
                    raise Gone
                reply.raw_head = bytes(self.buffered)
                return reply
        reply.raw_head = self._take(end + 4)
        line, *lines = reply.raw_head[:-4].decode("latin-1").split("\r\n")
        reply.headers = dict(each.lower().split(": ", 1) for each in lines)
        reply.status = int(line.split(" ")[1])
        if reply.status in (100, 204):
            reply.whole = True
        elif reply.headers.get("transfer-encoding") == "chunked":
            await self._chunks(reply)
        elif "content-length" in reply.headers:
            await self._exactly(reply, int(reply.headers["content-length"]))
        else:
            while await self.more():
                pass
            reply.body, reply.until_close = self._take(len(self.buffered)), True
        return reply

    async def _exactly(self, reply: Reply, length: int) -> None:
        while len(self.buffered) < length and await self.more():
            pass
        reply.body += self._take(min(length, len(self.buffered)))
        reply.whole = len(reply.body) == length

    async def _chunks(self, reply: Reply) -> None:
        while True:
            while (end := self.buffered.find(b"\r\n")) < 0:
                if not await self.more():
                    return
            size = int(self._take(end + 2), 16)
            while len(self.buffered) < size + 2:
                if not await self.more():
                    reply.body += self._take(min(size, len(self.buffered)))
                    return
            reply.body += self._take(size)
            if self._take(2) != b"\r\n":
                raise AssertionError("a chunk of the edge is longer than it says")
            if size == 0:
                reply.whole = True
                return

    def _take(self, size: int) -> bytes:
        taken = bytes(self.buffered[:size])
        del self.buffered[:size]
        return taken

    async def more(self) -> bool:
        """Read on; false at the end."""
        if self.pace is not None:
            await self.pace()
        try:
            async with asyncio.timeout(HANG_S):
                data = await self.reader.read(self.bite)
        except ConnectionError:
            return False
        self.came += len(data)
        self.buffered += data
        return bool(data)


def written(body: object, path: str, key: str, method: str = "POST", minor: int = 1, **more: str) -> bytes:
    """A request as bytes. `body`: JSON, or bytes as they are."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    said = {"host": "edge", "authorization": f"Bearer {key}"}
    said |= {"content-type": "application/json", "content-length": str(len(raw))} if method == "POST" else {}
    said |= more
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    return f"{method} {path} HTTP/1.{minor}\r\n{lines}\r\n".encode("latin-1") + raw
