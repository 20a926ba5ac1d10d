"""Hundreds of clients in one event loop. Each asks again and again, in a manner that it draws; none trusts a reply."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from tests.edge.soak.asker import Asker, Gone, Reply, written
from tests.edge.soak.judge import Expected, Seen, judge
from tests.edge.soak.words import PATHS, Wish, body_of

TENANTS = {name: f"{name}-key-0123456789abcdef" for name in ("acme", "globex", "initech", "umbrella", "hooli")}
_OVER = " and" * 9000  # more tokens than the limit of the edge that is soaked
_TRICKLE_S = 0.004


@dataclass(slots=True)
class Crowd:
    """What the clients share, and what all of them saw."""

    port: int
    seen: list[Seen] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    salts: dict[str, set[str]] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def note(self, seen: Seen) -> None:
        """Hold it against what others saw: ids are used once (I9), a salt belongs to one tenant (I7)."""
        self.counts[seen.kind] += 1
        self.counts[f"{seen.manner}: {seen.kind}"] += 1
        if seen.kind in ("wrong", "hang"):
            self.broken.append(f"{seen.kind}, {seen.manner}: {seen.why}")
        if seen.kind == "refused":
            self.counts[f"{seen.status} {seen.why}"] += 1
        if seen.request_id:
            if seen.request_id in self.ids:
                self.broken.append(f"a request id came twice: {seen.request_id}")
            self.ids.add(seen.request_id)
        if seen.salt:
            self.salts.setdefault(seen.tenant, set()).add(seen.salt)
        if seen.status:
            self.statuses[seen.status] += 1


class Client:
    """One of them, with at most one connection."""

    def __init__(self, crowd: Crowd, rng: Random, patient: bool = True, honest: bool = False) -> None:
        """`patient`: some of its manners take seconds. `honest`: it asks upstream for no lies."""
        self._crowd, self._rng, self._patient, self._honest = crowd, rng, patient, honest
        self._tenant = rng.choice(sorted(TENANTS))
        self._asker: Asker | None = None

    async def run(self) -> None:
        """Until the crowd stops."""
        rng, known = self._rng, (each for each in MANNERS if self._patient or each not in _TAKE_SECONDS)
        manners = [manner for manner in known for _ in range(MANNERS[manner])]
        while not self._crowd.stop.is_set():
            manner = rng.choice(manners)
            try:
                await manner(self)
            except TimeoutError:
                came = self._asker.came if self._asker else 0
                self._crowd.note(Seen(manner.__name__, "hang", f"{came} bytes came on its connection"))
                self.leave()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._crowd.stop.wait(), rng.uniform(0.0, 0.2))
        self.leave()

    # --- manners

    async def asks(self) -> None:
        """As most do: one request on a kept connection."""
        await self._one("asks", self._wish())

    async def lists_models(self) -> None:
        asker = await self._connection()
        asker.ask(None, "/v1/models", TENANTS[self._tenant], "GET")
        with contextlib.suppress(Gone):
            reply = await asker.reply()
            well = reply.whole and (reply.status != 200 or b'"toy"' in reply.body)
            name = reply.headers.get("x-request-id", "")
            self._crowd.note(
                Seen("lists_models", "whole" if well else "wrong", "", reply.status, self._tenant, "", name)
            )
            self._keep(reply)
            return
        self.leave()

    async def leaves_before(self) -> None:
        """Hangs up before the answer begins: what comes then is nobody's."""
        await self._ask(self._wish(), "leaves_before")
        await asyncio.sleep(self._rng.random() * 0.02)
        self._left("leaves_before")

    async def leaves_within(self) -> None:
        asker = await self._connection()
        await self._ask(self._wish(parts=20, pause_ms=20), "leaves_within", stream=True)
        with contextlib.suppress(TimeoutError, Gone):
            enough = self._rng.randrange(200, 3000)

            async def until() -> None:
                if asker.came > enough:
                    raise Gone

            asker.pace = until
            await asker.reply()
        self._left("leaves_within")

    async def closes_its_half(self) -> None:
        asker = await self._ask(self._wish(), "closes_its_half")
        with contextlib.suppress(OSError, RuntimeError):
            asker.writer.write_eof()
        await asyncio.sleep(0.02)
        self._left("closes_its_half")

    async def reads_slowly(self) -> None:
        """Some hundred kilobytes, a little at a time; and gets all of it."""
        self.leave()
        asker = self._asker = await Asker.connected(self._crowd.port, slow=True)
        asker.pace = lambda: asyncio.sleep(_TRICKLE_S)
        await self._one("reads_slowly", self._wish(parts=20, pad=15_000), stream=True)
        self.leave()

    async def stalls(self) -> None:
        """Reads nothing of some megabytes: the edge must not wait for ever, and what came is no whole answer."""
        self.leave()
        asker = self._asker = await Asker.connected(self._crowd.port, slow=True)
        expected = await self._asked(self._wish(parts=100, pad=80_000), "stalls", stream=True)
        await asyncio.sleep(4.0)
        try:
            seen = judge(expected, await asker.reply())
        except Gone:
            seen = Seen("stalls", "cut")
        self._crowd.note(seen)
        self.leave()

    async def pipelines(self) -> None:
        """Several requests at once; the answers come in their order, or the connection ends."""
        asker = await self._connection()
        wishes = [self._wish() for _ in range(self._rng.randint(2, 5))]
        used, before = asker.used, "none"
        asked = [await self._asked(wish, "pipelines") for wish in wishes]
        for number, expected in enumerate(asked):
            try:
                reply = await asker.reply()
            except Gone:
                # After an answer that did not say that it is the last, the next one has to come.
                waited = (time.monotonic_ns() - expected.asked_ns) / 1e9
                why = f"number {number} of {len(asked)}, {waited:.2f} s after, the reply before: {before}"
                self._crowd.note(Seen("pipelines", "gone" if used and not number else "wrong", why))
                self.leave()
                break
            before = f"{reply.raw_head!r} {len(reply.body)}"
            self._crowd.note(judge(expected, reply))
            if not self._keep(reply):
                break

    async def speaks_1_0(self) -> None:
        """An answer that ends with its connection: whether it was whole only its last event tells."""
        self.leave()
        await self._one("speaks_1_0", self._wish(), minor=0)
        self.leave()

    async def expects(self) -> None:
        """Sends its body only when told to go on."""
        self.leave()
        asker, wish = await self._connection(), self._wish()
        kind, stream = self._form()
        raw = written(body_of(kind, wish, stream), PATHS[kind], TENANTS[self._tenant], expect="100-continue")
        head, _, body = raw.partition(b"\r\n\r\n")
        expected = Expected(wish, kind, stream, "expects", self._tenant)
        asker.writer.write(head + b"\r\n\r\n")
        told = await asyncio.wait_for(asker.reader.read(25), 30)
        if told != b"HTTP/1.1 100 Continue\r\n\r\n":
            self._crowd.note(Seen("expects", "wrong", f"was not told to go on: {told!r}"))
            self.leave()
            return
        asker.writer.write(body)
        await self._hear(expected, asker)

    async def drips(self) -> None:
        """Its request comes in small pieces."""
        self.leave()
        asker, wish = await self._connection(), self._wish()
        kind, stream = self._form()
        raw = written(body_of(kind, wish, stream), PATHS[kind], TENANTS[self._tenant])
        for at in range(0, len(raw), 40):
            asker.writer.write(raw[at : at + 40])
            await asyncio.sleep(0.003)
        await self._hear(Expected(wish, kind, stream, "drips", self._tenant), asker)

    async def stops_in_its_body(self) -> None:
        """Half a request and silence."""
        self.leave()
        asker, wish = await self._connection(), self._wish()
        asker.writer.write(written(body_of("chat", wish, False), PATHS["chat"], TENANTS[self._tenant])[:-10])
        await self._hear(Expected(wish, "chat", False, "stops_in_its_body", self._tenant, 408), asker)
        self.leave()

    async def asks_too_much(self) -> None:
        wish = self._wish()
        body = {**body_of("chat", wish, self._rng.random() < 0.5)}
        body["messages"] = [{"role": "user", "content": wish.text + _OVER}]
        await self._refused(body, wish, 400, "context_length_exceeded")

    async def asks_what_it_must_not(self) -> None:
        wish = self._wish()
        await self._refused({**body_of("chat", wish, False), "bootstrap_room": 1}, wish, 400, "forbidden_parameter")

    async def has_no_key(self) -> None:
        wish = self._wish()
        await self._refused(body_of("chat", wish, False), wish, 401, "invalid_api_key", key="nobody-nobody-nobody")

    async def is_unreadable(self) -> None:
        wish = self._wish()
        await self._refused(b'{"model": "toy", "model": "toy"}', wish, 400, "invalid_json")

    # --- what they are made of

    def _wish(self, parts: int = 0, pad: int = 0, pause_ms: int = 0) -> Wish:
        rng = self._rng
        if not parts:
            parts, pad, pause_ms = rng.randint(1, 8), rng.choice((0, 0, 0, 500)), rng.choice((0, 0, 5, 30))
        return Wish.made(rng, parts, pad, pause_ms, self._honest)

    def _form(self) -> tuple[str, bool]:
        return self._rng.choice(sorted(PATHS)), self._rng.random() < 0.5

    async def _connection(self) -> Asker:
        if self._asker is None:
            self._asker = await Asker.connected(self._crowd.port)
        return self._asker

    async def _ask(self, wish: Wish, manner: str, stream: bool | None = None) -> Asker:
        await self._asked(wish, manner, stream)
        return await self._connection()

    async def _asked(self, wish: Wish, manner: str, stream: bool | None = None, minor: int = 1) -> Expected:
        kind, drawn = self._form()
        streams = drawn if stream is None else stream
        expected = Expected(wish, kind, streams, manner, self._tenant)
        asker = await self._connection()
        asker.ask(body_of(kind, wish, streams), PATHS[kind], TENANTS[self._tenant], minor=minor)
        return expected

    async def _one(self, manner: str, wish: Wish, stream: bool | None = None, minor: int = 1) -> None:
        asker = await self._connection()
        await self._hear(await self._asked(wish, manner, stream, minor), asker)

    async def _refused(
        self, body: object, wish: Wish, status: int, code: str | None = None, key: str | None = None
    ) -> None:
        asker = await self._connection()
        expected = Expected(wish, "chat", False, "refused", self._tenant, status, code)
        asker.ask(body, PATHS["chat"], key or TENANTS[self._tenant])
        await self._hear(expected, asker)

    async def _hear(self, expected: Expected, asker: Asker) -> None:
        used = asker.used
        try:
            reply = await asker.reply()
        except Gone:
            # A kept connection may be closed while a request is on its way; a new one has to be answered.
            waited = (time.monotonic_ns() - expected.asked_ns) / 1e9
            why = f"never answered, {waited:.2f} s after, {asker.came} bytes came"
            self._crowd.note(Seen(expected.manner, "gone" if used else "wrong", why))
            self.leave()
            return
        seen = judge(expected, reply)
        if seen.kind == "cut":
            seen = Seen(seen.manner, "wrong", f"cut off: {reply.body[-200:]!r}")
        self._crowd.note(seen)
        self._keep(reply)

    def _keep(self, reply: Reply) -> bool:
        """Whether another request may follow on this connection."""
        if reply.whole and reply.headers.get("connection") != "close" and self._rng.random() > 0.02:
            return True
        self.leave()
        return False

    def _left(self, manner: str) -> None:
        self._crowd.note(Seen(manner, "left"))
        self.leave()

    def leave(self) -> None:
        """Hang up."""
        if self._asker is not None:
            self._asker.leave()
            self._asker = None


MANNERS: dict[Callable[[Client], Awaitable[None]], int] = {
    Client.asks: 40,
    Client.pipelines: 8,
    Client.leaves_before: 12,
    Client.leaves_within: 5,
    Client.closes_its_half: 2,
    Client.reads_slowly: 3,
    Client.stalls: 1,
    Client.speaks_1_0: 3,
    Client.expects: 3,
    Client.drips: 3,
    Client.stops_in_its_body: 1,
    Client.lists_models: 2,
    Client.asks_too_much: 2,
    Client.asks_what_it_must_not: 2,
    Client.has_no_key: 1,
    Client.is_unreadable: 1,
}
_TAKE_SECONDS = (Client.reads_slowly, Client.stalls, Client.stops_in_its_body)
