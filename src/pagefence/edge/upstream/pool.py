"""Connections to one upstream: kept while they are good, the last used first, so that the others can grow old."""

from __future__ import annotations

import asyncio
import ssl

from pagefence.edge.upstream.address import Address
from pagefence.edge.upstream.failures import TooSlow, Unreachable
from pagefence.edge.upstream.link import Link


class Pool:
    """At most `most`, idle ones kept for `keep_s`: less than the upstream's own time, or it closes first."""

    def __init__(
        self, address: Address, tls: ssl.SSLContext | None, most: int, keep_s: float, connect_s: float
    ) -> None:
        self.address, self._tls, self._most = address, tls, most
        self._keep_s, self._connect_s = keep_s, connect_s
        self._loop = asyncio.get_running_loop()
        self._idle: list[Link] = []
        self._out: set[Link] = set()
        self._opening = 0
        self._closed = False

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle)

    @property
    def outstanding(self) -> int:
        """Connections that are in use or being made."""
        return len(self._out) + self._opening

    async def take(self, fresh: bool = False) -> tuple[Link, bool]:
        """A connection, and whether it was used before. Raises Unreachable or TooSlow."""
        horizon = self._loop.time() - self._keep_s
        while self._idle and not fresh:
            link = self._idle.pop()
            if link.reusable and link.used_s > horizon and link.quiet:
                link.rest()
                self._out.add(link)
                return link, True
            link.close()
        if self.outstanding >= self._most:
            raise Unreachable("all connections to the upstream are in use", busy=True)
        return await self._connect(), False

    async def _connect(self) -> Link:
        self._opening += 1
        where = self.address
        try:
            async with asyncio.timeout(self._connect_s):
                _, link = await self._loop.create_connection(
                    Link, where.host, where.port, ssl=self._tls, server_hostname=where.host if self._tls else None
                )
        except TimeoutError:
            raise TooSlow("to take a connection", self._connect_s) from None
        except ssl.SSLError as error:
            raise Unreachable(f"no TLS connection to the upstream: {error.reason or 'handshake failed'}") from None
        except OSError as error:
            raise Unreachable(f"no connection to the upstream: {error.strerror or type(error).__name__}") from None
        finally:
            self._opening -= 1
        self._out.add(link)
        return link

    def give(self, link: Link) -> None:
        """It is needed no longer: kept when another request may follow, closed otherwise."""
        self._out.discard(link)
        if link.reusable and not self._closed:
            link.used_s = self._loop.time()
            self._idle.append(link)
            return
        link.close()

    def sweep(self) -> None:
        """Close what has idled for too long, or was closed from the other side."""
        horizon = self._loop.time() - self._keep_s
        kept = [link for link in self._idle if link.reusable and link.used_s > horizon]
        for link in set(self._idle) - set(kept):
            link.close()
        self._idle = kept

    def close(self) -> None:
        """Idle ones now, those in use when they are given back."""
        self._closed = True
        for link in self._idle:
            link.close()
        self._idle = []
