"""A stream in Redis, over one connection: add to it, read on from a place, forget what is old."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

KEPT = 2048  # entries, for processes that begin or were away
_BLOCK_MS = 1000
_TIMEOUT_S = 3.0
_FIELD = b"b"

Place = tuple[int, int]
"""The id of an entry: milliseconds of Redis' clock, and a number."""


class Stream:
    """Raises redis' own errors and OSError, and what else a reply that is none of Redis' leads to."""

    def __init__(self, client: Any, key: str) -> None:
        self._client, self._key = client, key

    async def ping(self) -> None:
        await self._do("PING")

    async def now_ms(self) -> int:
        seconds, _ = await self._do("TIME")
        return int(seconds) * 1000

    async def add(self, entry: bytes) -> None:
        await self._do("XADD", self._key, "MAXLEN", "~", KEPT, "*", _FIELD, entry)

    async def after(self, place: Place, most: int) -> list[tuple[Place, bytes]]:
        """What stands behind a place; waits for it up to a second. An entry that is none of ours is empty."""
        said = f"{place[0]}-{place[1]}"
        reply = await self._do("XREAD", "COUNT", most, "BLOCK", _BLOCK_MS, "STREAMS", self._key, said)
        return [(_place(name), (fields or {}).get(_FIELD, b"")) for name, fields in reply[0][1]] if reply else []

    async def tidy(self, age_s: float) -> None:
        """Nothing older stays, and without writers nothing at all."""
        oldest = await self.now_ms() - int(age_s * 1000)
        await self._do("XTRIM", self._key, "MINID", f"{oldest}-0")
        await self._do("EXPIRE", self._key, int(age_s))

    async def _do(self, *words: str | int | bytes) -> Any:
        # redis-py's own time-outs lose cancellations: with them half of all tasks went on (docs/decisions.md).
        async with asyncio.timeout(_TIMEOUT_S):
            return await self._client.execute_command(*words)


@contextlib.asynccontextmanager
async def connected(url: str, key: str) -> AsyncIterator[Stream]:
    """One connection, closed at the end. Nothing is tried again behind our back."""
    client: Any = redis.asyncio.Redis.from_url(
        url,
        single_connection_client=True,
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    stream = Stream(client, key)
    try:
        await stream.ping()
        yield stream
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_TIMEOUT_S):
                await client.aclose()


def why(error: BaseException) -> str:
    """What went wrong, in our words and those of the system: Redis' own may hold anything."""
    kind = type(error).__name__
    if isinstance(error, ResponseError):
        code = str(error).partition(" ")[0]
        return f"{kind} {code}" if code.isascii() and code.isupper() and len(code) < 20 else kind
    system = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    reason = getattr(system, "strerror", None)
    return f"{kind}: {reason}" if isinstance(reason, str) else kind


def _place(name: bytes) -> Place:
    milliseconds, _, number = name.partition(b"-")
    return int(milliseconds), int(number)
