"""Several upstreams as one: who is asked, who is left out, who is asked how it is."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from pagefence.edge.upstream.address import Address
from pagefence.edge.upstream.failures import Died, Failure, Unreachable
from pagefence.edge.upstream.health import Health, HealthPolicy
from pagefence.edge.upstream.link import Link
from pagefence.edge.upstream.pool import Pool
from pagefence.edge.wire.heads import ResponseHead


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long an upstream may take, in seconds. `total_s`: from the request to the last byte."""

    connect_s: float = 5.0
    first_byte_s: float = 300.0
    idle_s: float = 120.0
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class UpstreamPolicy:
    """What is common to all upstreams. `keep_s`: how long an idle connection is kept; uvicorn closes after 5 s."""

    timeouts: Timeouts = field(default_factory=Timeouts)
    health: HealthPolicy = field(default_factory=HealthPolicy)
    connections: int = 1024
    keep_s: float = 4.0
    tls: ssl.SSLContext | None = None


@dataclass(slots=True, eq=False)
class Upstream:
    """One of them."""

    name: str
    address: Address
    pool: Pool
    health: Health
    turn: int = 0


Notice = Callable[[str, str, str], None]
"""What happened to whom, and why: for log and metrics."""


class Balancer:
    """Least outstanding requests first among those that are well; ties go round."""

    def __init__(
        self,
        addresses: Sequence[Address],
        policy: UpstreamPolicy,
        notice: Notice,
        barred: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`barred`: URLs of those that may not be asked now, whatever their health."""
        self.policy, self._notice, self._barred = policy, notice, barred
        self._loop = asyncio.get_running_loop()
        self._turn = 0
        timeouts = policy.timeouts
        self.upstreams = [
            Upstream(
                f"upstream-{number}",
                address,
                Pool(
                    address, policy.tls if address.tls else None, policy.connections, policy.keep_s, timeouts.connect_s
                ),
                Health(policy.health),
            )
            for number, address in enumerate(addresses)
        ]
        self._asking = self._loop.create_task(self._ask_how_they_are())

    @property
    def well(self) -> int:
        """How many may be asked now."""
        now = self._loop.time()
        return sum(upstream.health.well(now) for upstream in self.upstreams)

    def choose(self, tried: Collection[Upstream] = ()) -> Upstream | None:
        """Who is asked next; None when nobody is left."""
        now, barred = self._loop.time(), self._barred()
        able = [
            each
            for each in self.upstreams
            if each.health.well(now) and each not in tried and each.address.url not in barred
        ]
        if not able:
            return None
        chosen = able[0] if len(able) == 1 else min(able, key=lambda each: (each.pool.outstanding, each.turn))
        self._turn += 1
        chosen.turn = self._turn
        return chosen

    async def ask(self, method: str, path: str, headers: bytes, body: bytes) -> Answer:
        """Send it to somebody, and wait for the head of the answer. Raises Failure.

        Asked twice is only what the upstream cannot have begun: no connection was made, or one that had been idle
        turned out to be closed, and no byte of an answer came.
        """
        tried: list[Upstream] = []
        failure: Failure = Unreachable("no upstream is well")
        while (upstream := self.choose(tried)) is not None:
            tried.append(upstream)
            try:
                return await self._ask(upstream, method, path, headers, body)
            except Unreachable as error:
                failure = error
                if not error.busy:
                    self.failed(upstream, error)
            except Failure as error:
                self.failed(upstream, error)
                raise
        raise failure

    async def _ask(self, upstream: Upstream, method: str, path: str, headers: bytes, body: bytes) -> Answer:
        address = upstream.address
        length = b"content-length: %d\r\n" % len(body) if method == "POST" else b""
        line = f"{method} {address.prefix}{path} HTTP/1.1\r\nhost: {address.authority}\r\n"
        head = b"%b%b%b\r\n" % (line.encode("ascii"), headers, length)
        fresh = False
        while True:
            link, reused = await upstream.pool.take(fresh)
            try:
                said = await link.ask(head, body, self.policy.timeouts.first_byte_s)
                return Answer(self, upstream, link, said)
            except Died as error:
                upstream.pool.give(link)
                if not reused or error.heard:
                    raise
                fresh = True
            except BaseException:
                link.close()
                upstream.pool.give(link)
                raise

    def failed(self, upstream: Upstream, error: Failure) -> None:
        """It did not answer as it should."""
        self._notice("upstream_failed", upstream.name, f"{error.code}: {error}")
        if upstream.health.failed(self._loop.time()):
            self._notice("upstream_out", upstream.name, str(error))

    def close(self) -> None:
        """No more questions, no idle connections; what is in use ends by itself."""
        self._asking.cancel()
        for upstream in self.upstreams:
            upstream.pool.close()

    async def _ask_how_they_are(self) -> None:
        every_s = self.policy.health.every_s
        while True:
            if every_s > 0:
                await asyncio.gather(*(self._ask_how(upstream) for upstream in self.upstreams))
            for upstream in self.upstreams:
                upstream.pool.sweep()
            await asyncio.sleep(every_s or 5.0)

    async def _ask_how(self, upstream: Upstream) -> None:
        was, good = upstream.health.well(self._loop.time()), False
        try:
            async with asyncio.timeout(self.policy.health.timeout_s):
                answer = await self._ask(upstream, "GET", self.policy.health.path, b"accept: */*\r\n", b"")
                try:
                    good = answer.head.status < 300 or answer.head.status in (401, 403, 404, 405)
                    while await answer.part() is not None:
                        pass
                finally:
                    answer.close(counts=False)
        except Unreachable as error:
            good = error.busy and was
        except (Failure, TimeoutError):
            good = False
        upstream.health.answered_question(good)
        if was is not (now_well := upstream.health.well(self._loop.time())):
            self._notice("upstream_back" if now_well else "upstream_out", upstream.name, self.policy.health.path)


class Answer:
    """The answer of an upstream, part by part as it comes. `close` in any case: what was not read is cut off."""

    __slots__ = ("_balancer", "_end", "_link", "head", "upstream")

    def __init__(self, balancer: Balancer, upstream: Upstream, link: Link, head: ResponseHead) -> None:
        self._balancer, self.upstream, self._link, self.head = balancer, upstream, link, head
        timeouts = balancer.policy.timeouts
        self._end = asyncio.get_running_loop().time() + timeouts.total_s

    async def part(self) -> bytes | None:
        """The next part; None at the end. Raises Failure."""
        try:
            return await self._link.part(self._balancer.policy.timeouts.idle_s, self._end)
        except Failure as error:
            self._balancer.failed(self.upstream, error)
            raise

    def close(self, counts: bool = True) -> None:
        """Give the connection back, or cut it. `counts`: a whole answer says that the upstream is well."""
        if counts and self._link.whole:
            self.upstream.health.succeeded()
        self.upstream.pool.give(self._link)
