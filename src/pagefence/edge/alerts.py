"""Alerts of findings, posted to a webhook beside the answers: bounded, tried again, counted; never waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import httpx

_MOST = 100  # that wait; more are dropped and counted
_TRIES, _FIRST_WAIT_S = 4, 0.5
_TIMEOUT_S = 5.0  # for each step of one try
_TRY_S = 10.0  # for one try, however slowly the answer comes
OUTCOMES = ("sent", "failed", "dropped")


def postable(url: str) -> bool:
    """Whether it is an address that can be posted to."""
    try:
        known = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        return False
    return known.scheme in ("http", "https") and bool(known.host)


class Alerts:
    """`count` is told how each ended: one of `OUTCOMES`. Nothing to start or to stop: a task runs while any waits."""

    def __init__(self, url: str, count: Callable[[str], None]) -> None:
        self._url, self._count = url, count
        self._waiting: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, body: bytes) -> None:
        """Soon; dropped when too many wait. On the event loop that serves."""
        if len(self._waiting) >= _MOST:
            self._count("dropped")
            return
        self._waiting.append(body)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
            while self._waiting:
                self._count("sent" if await self._sent(client, self._waiting.popleft()) else "failed")

    async def _sent(self, client: httpx.AsyncClient, body: bytes) -> bool:
        for number in range(_TRIES):
            if number:
                await asyncio.sleep(_FIRST_WAIT_S * 2**number)
            try:
                status = await self._status(client, body)
            except Exception:  # an address, a certificate, a reply: whatever is wrong, the next alert has its turn
                continue
            if 200 <= status < 300:
                return True
            if status < 500 and status != 429:
                return False  # it will not like it better the next time
        return False

    async def _status(self, client: httpx.AsyncClient, body: bytes) -> int:
        """Nothing of the answer but its status is read: it may have no end."""
        headers = {"content-type": "application/json"}
        async with asyncio.timeout(_TRY_S), client.stream("POST", self._url, content=body, headers=headers) as answer:
            return answer.status_code
