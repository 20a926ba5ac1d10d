"""Alerts of findings, posted to a webhook beside the answers: bounded, tried again, counted; never waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import httpx

_MOST = 100  # that wait; more are dropped and counted
_TRIES, _FIRST_WAIT_S = 4, 0.5
_TIMEOUT_S = 5.0
OUTCOMES = ("sent", "failed", "dropped")


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
                answer = await client.post(self._url, content=body, headers={"content-type": "application/json"})
            except Exception:  # an address, a certificate, a reply: whatever is wrong, the next alert has its turn
                continue
            if answer.is_success:
                return True
            if answer.status_code < 500 and answer.status_code != 429:
                return False  # it will not like it better the next time
        return False
