"""An edge between real sockets: toy upstreams that do as a test tells them, raw clients that send what they like."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from pagefence.edge.app import Edge
from pagefence.edge.front.front import Front
from pagefence.edge.logs import Log
from pagefence.edge.mark import Recorder
from pagefence.edge.metrics import Meters, families
from pagefence.edge.passing import passing
from pagefence.edge.settings import Settings
from pagefence.edge.side import Side
from pagefence.edge.steps import Steps
from pagefence.edge.upstream.address import parse
from pagefence.edge.upstream.balancer import Balancer, UpstreamPolicy
from pagefence.edge.upstream.health import HealthPolicy

CHAT = "/v1/chat/completions"
QUIET = HealthPolicy(every_s=0)
WAIT_S = 5.0
_NOWHERE = os.open(os.devnull, os.O_WRONLY)


@dataclass(slots=True)
class Asked:
    """A request as a toy got it."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()


Behave = Callable[[Asked], Awaitable[None]]


class Toy:
    """An upstream: reads requests one after the other, and behaves."""

    def __init__(self, behave: Behave) -> None:
        self.behave = behave
        self.asked: list[Asked] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *lines = head[:-4].split("\r\n")
                headers = dict(each.lower().split(": ", 1) for each in lines)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                asked = Asked(line, headers, body, number, writer)
                if not line.startswith("GET /health"):
                    self.asked.append(asked)
                behaving = asyncio.ensure_future(self.behave(asked))
                # A request is read only when the one before has its answer, so what is read now is the end.
                ending = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({behaving, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not behaving.done() or isinstance(behaving.exception(), ConnectionError):
                    asked.gone.set()
                    behaving.cancel()
                    await asyncio.gather(ending, return_exceptions=True)
                    return
                behaving.result()
                if writer.is_closing():
                    ending.cancel()
                    return
                first = await ending
                if not first:
                    return
                reader._buffer[:0] = first  # type: ignore[attr-defined]  # the first byte of the next request
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


def answers(content: bytes, kind: str = "application/json") -> Behave:
    async def behave(asked: Asked) -> None:
        await asked.say(whole(content, kind))

    return behave


def says(*raw: bytes, close: bool = False, pause_s: float = 0.0) -> Behave:
    """These bytes, as they are."""

    async def behave(asked: Asked) -> None:
        for each in raw:
            await asked.say(each)
            await asyncio.sleep(pause_s)
        if close:
            asked.writer.close()

    return behave


async def hangs(asked: Asked) -> None:
    await asyncio.sleep(60)


async def echoes(asked: Asked) -> None:
    await asked.say(whole(asked.body))


def whole(content: bytes, kind: str = "application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        kind.encode(),
        len(content),
        content,
    )


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True

    @property
    def code(self) -> object:
        return json.loads(self.body)["error"]["code"]


class Client:
    """A raw connection to the edge."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    def ask(self, body: bytes = b"{}", path: str = CHAT, method: str = "POST", **headers: str) -> None:
        self.send(request(body, path, method, **headers))

    async def reply(self) -> Reply:
        async with asyncio.timeout(WAIT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *lines = head[:-4].split("\r\n")
            headers = dict(each.lower().split(": ", 1) for each in lines)
            reply = Reply(int(line.split()[1]), headers, b"")
            if headers.get("transfer-encoding") == "chunked":
                await self._chunks(reply)
            elif reply.status not in (100, 204):
                reply.body = await self.reader.readexactly(int(headers["content-length"]))
            return reply

    async def _chunks(self, reply: Reply) -> None:
        try:
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                reply.body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        except asyncio.IncompleteReadError:
            reply.whole = False

    async def until(self, end: bytes) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.reader.readuntil(end)

    async def closed(self) -> bytes:
        """What still comes until the edge closes."""
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""

    def leave(self) -> None:
        self.writer.transport.abort()


def request(body: bytes = b"{}", path: str = CHAT, method: str = "POST", **headers: str) -> bytes:
    said = {"host": "edge", "content-type": "application/json", "content-length": str(len(body))}
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


@dataclass(slots=True)
class Scene:
    port: int
    edge: Edge
    front: Front
    toys: list[Toy]
    meters: Meters

    async def client(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def ask(self, body: bytes = b"{}", path: str = CHAT, method: str = "POST", **headers: str) -> Reply:
        client = await self.client()
        client.ask(body, path, method, **headers)
        try:
            return await client.reply()
        finally:
            client.writer.close()

    def counted(self, line: str) -> float:
        found = [each for each in self.meters.text().decode().splitlines() if each.startswith(line)]
        return float(found[0].rpartition(" ")[2]) if found else 0.0


@contextlib.asynccontextmanager
async def scene(*behaves: Behave, steps: Steps | None = None, **changed: Any) -> AsyncIterator[Scene]:
    """`changed`: settings other than by default; `tls`: an SSLContext for addresses, given as `urls`."""
    toys = [Toy(behave) for behave in behaves]
    urls = changed.pop("urls", None) or [await toy.start() for toy in toys]
    tls = changed.pop("ssl", None)
    settings = replace(Settings(tuple(parse(url) for url in urls), health=QUIET), **changed)
    meters = Meters(families(len(urls), settings.models), 1)
    row, log = meters.row(0), Log(file=_NOWHERE)
    policy = UpstreamPolicy(
        settings.timeouts, settings.health, settings.upstream_connections, settings.upstream_keep_s, tls
    )

    def notice(event: str, upstream: str, why: str) -> None:
        if event == "upstream_failed":
            row.add("pagefence_edge_upstream_failures_total", upstream, why.partition(":")[0])

    steps = steps or passing()
    balancer = Balancer(settings.upstreams, policy, notice, steps.barred)

    def unready() -> list[str]:
        return [] if balancer.well else ["no upstream is well"]

    edge = Edge(settings, steps, balancer, Recorder(row, log, True), Side(settings.cors, unready, meters.text))
    front = Front(edge.handle, settings.front, lambda refusal: row.add("pagefence_edge_refusals_total", refusal.code))
    server = await asyncio.get_running_loop().create_server(front, "127.0.0.1", 0)
    try:
        yield Scene(server.sockets[0].getsockname()[1], edge, front, toys, meters)
    finally:
        server.close()
        await front.drain(0.0)
        front.close()
        balancer.close()
        log.close()
        for toy in toys:
            await toy.stop()


def played(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, on uvloop where it is installed: what serves is what is tested."""

    @functools.wraps(test)
    def run(*args: object, **named: object) -> None:
        async def timed() -> None:
            async with asyncio.timeout(20):
                await test(*args, **named)

        try:
            import uvloop

            uvloop.run(timed())
        except ImportError:
            asyncio.run(timed())

    return run


async def soon(true: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.005)
