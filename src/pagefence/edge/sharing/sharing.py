"""Telling other processes what this one saw, and hearing what they tell: two loops, with a connection each.

They have no more to do with requests than the outbox. Redis may be away, slow, restarted, full or written by others:
that is counted and said once, and the edge goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

from pagefence.edge.sharing.batch import MOST_AGE_S, Batch, Fate, Opener, Sealer, claim_names
from pagefence.edge.sharing.box import Outbox
from pagefence.edge.sharing.keys import SharedKeys
from pagefence.edge.sharing.metrics import BATCHES, DROPPED, UP
from pagefence.edge.sharing.settings import SharedSettings
from pagefence.edge.sharing.stream import Stream, connected, why
from pagefence.edge.steps import Tells
from pagefence.edge.watching.elsewhere import Elsewhere
from pagefence.edge.watching.memory import Memory, Shared

EVERY_S = 0.01  # between two batches that are not full
_AT_ONCE = 16
_FIRST_S, _LONGEST_S = 0.1, 10.0  # between two tries to connect
_TIDY_S = 60.0
_NOT_YET = "not connected yet"


class Sharing:
    """Of one process, for all its life. Give `shared` to its memory, `elsewhere` to its response ids, and start it.

    `secret`: the edge's, equal in all processes. It is told when Redis goes away and when it is back.
    """

    def __init__(self, settings: SharedSettings, secret: bytes, tells: Tells) -> None:
        self._settings, self._tells = settings, tells
        keys = SharedKeys.of(secret)
        self._outbox = Outbox()
        self.shared = Shared(keys.grams, keys.names, self._outbox.note)
        self.elsewhere = Elsewhere(claim_names(keys.ids), self._outbox.claim)
        self._key = keys.batches
        self._users = 0
        self._memory: Memory | None = None
        self._wrong: str | None = _NOT_YET
        self._said: bool | None = None
        self._last: tuple[int, int] | None = None  # the entry of the stream that was heard last
        self._unsent: bytes | None = None
        self._dropped = self._missed = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Connected, and what was in the stream at the beginning has been heard."""
        return self._wrong is None

    def start(self, memory: Memory | None) -> None:
        """On the event loop of a worker; waits for nothing. After a reload it goes on, with the memory of now."""
        self._memory = memory
        self._users += 1
        if self._users > 1:
            return
        self._wrong, self._said = _NOT_YET, None  # a reload may have ended it before
        # Drawn in the process that uses it: two of one fork must not be one sender.
        self._sealer = Sealer(self._key)
        self._opener = Opener(self._key, self._sealer.sender)
        loop = asyncio.get_running_loop()
        come = self._come = asyncio.Event()

        def wake() -> None:
            if not come.is_set():
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(come.set)

        self._outbox.wakes(wake)
        self._tells.gauge(UP, 0.0)
        self._task = loop.create_task(self._always())

    def stop(self) -> None:
        """As often as it was started."""
        self._users -= 1
        if self._users == 0 and self._task is not None:
            self._task.cancel()
            self._tells.gauge(UP, 0.0)

    def unready(self) -> str | None:
        """Why no requests should be sent here, where the settings ask for Redis."""
        if self.up or not self._settings.required:
            return None
        return f"what other edges saw is not known: {self._wrong}"

    async def _always(self) -> None:
        """Connect, work until something breaks, say so, wait longer each time."""
        pause = _FIRST_S
        while self._users:  # a cancellation that meets an error can get lost on its way here
            began = time.monotonic()
            try:
                await self._once()
            except Exception as error:  # a reply that is none of Redis' is as good as no connection
                self._is(why(error))
            if time.monotonic() - began > _LONGEST_S:
                pause = _FIRST_S
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # not all edges at once
            pause = min(2 * pause, _LONGEST_S)

    async def _once(self) -> None:
        where = (self._settings.url, self._settings.key)
        async with connected(*where) as telling, connected(*where) as hearing:
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._tell(telling))
                    both.create_task(self._hear(hearing))
            except ExceptionGroup as group:
                raise group.exceptions[0] from None

    async def _hear(self, stream: Stream) -> None:
        now_ms = await stream.now_ms()
        if self._last is None or self._last[0] > now_ms + 1000:  # new, or Redis' clock went back
            self._last = (now_ms - int(MOST_AGE_S * 1000), 0)
        while True:
            entries = await stream.after(self._last, _AT_ONCE)
            for self._last, sealed in entries:
                self._open(sealed)
                await asyncio.sleep(0)  # between two batches requests have their turn
            if len(entries) < _AT_ONCE and self._unsent is None:
                self._is(None)

    def _open(self, sealed: bytes) -> None:
        found = self._opener.open(sealed, time.time())
        if found is Fate.OWN:
            return
        missed, self._missed = self._opener.missed - self._missed, self._opener.missed
        if missed:
            self._tells.count(BATCHES, "missed", by=missed)
        if not isinstance(found, Batch):
            self._tells.count(BATCHES, found.value)
            return
        self._tells.count(BATCHES, "heard")
        if self._memory is not None:
            for part in found.parts:
                self._memory.heard(part.words, part.tag, part.habit, time.monotonic())
        for claim in found.claims:
            self.elsewhere.heard(claim)

    async def _tell(self, stream: Stream) -> None:
        tidied = float("-inf")
        while True:
            # What was not acknowledged is sent again with its number, so it counts once.
            self._unsent = self._unsent or await self._next()
            await stream.add(self._unsent)
            self._unsent = None
            self._tells.count(BATCHES, "sent")
            if time.monotonic() - tidied > _TIDY_S:
                tidied = time.monotonic()
                await stream.tidy(MOST_AGE_S)
            if not self._outbox.full:
                await asyncio.sleep(EVERY_S)

    async def _next(self) -> bytes:
        while True:
            self._come.clear()
            self._count_dropped()
            parts, claims = self._outbox.take()
            if parts or claims:
                return self._sealer.seal(Batch(time.time(), parts, claims))
            await self._come.wait()

    def _is(self, wrong: str | None) -> None:
        """How it stands now; said when that is another thing than before."""
        self._wrong = wrong
        self._count_dropped()
        if self.up is self._said:
            return
        self._said = self.up
        self._tells.gauge(UP, float(self.up))
        self._tells.log("shared_up" if self.up else "shared_down", {"why": wrong} if wrong else {})

    def _count_dropped(self) -> None:
        new, self._dropped = self._outbox.dropped - self._dropped, self._outbox.dropped
        if new:
            self._tells.count(DROPPED, by=new)
