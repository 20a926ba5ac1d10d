"""Telling other processes what this one saw, and hearing what they tell: two loops, with a connection each.

They have no more to do with requests than the outbox. Redis may be away, slow, restarted, full or written by others:
that is counted and said once, and the edge goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from typing import Protocol

from pagefence.edge.metrics import OTHER, Family
from pagefence.edge.sharing.batch import MOST_AGE_S, Batch, Fate, Opener, Sealer, claim_names
from pagefence.edge.sharing.box import Outbox
from pagefence.edge.sharing.keys import SharedKeys
from pagefence.edge.sharing.settings import SharedSettings
from pagefence.edge.sharing.stream import Stream, connected, why
from pagefence.edge.watching.elsewhere import Elsewhere
from pagefence.edge.watching.memory import Memory, Shared

EVERY_S = 0.01  # between two batches that are not full
_AT_ONCE = 16
_FIRST_S, _LONGEST_S = 0.1, 10.0  # between two tries to connect
_TIDY_S = 60.0
_UP, _BATCHES, _DROPPED = (
    "pagefence_edge_shared_up",
    "pagefence_edge_shared_batches_total",
    "pagefence_edge_shared_dropped_total",
)
_FATES = ("sent", "heard", "missed", Fate.UNREADABLE.value, Fate.OLD.value, OTHER)

FAMILIES = (
    Family(_UP, "gauge", "Workers that hear and tell through Redis."),
    Family(_BATCHES, "counter", "Batches told to other edges (sent) and theirs, by what became of them.",
           (("fate", _FATES),)),
    Family(_DROPPED, "counter", "Parts of prompts and answers that waited too long for Redis and are never told."),
)  # fmt: skip


class Meter(Protocol):
    """As `edge.metrics.Row`."""

    def add(self, name: str, *values: str, by: float = 1.0) -> None: ...

    def set(self, name: str, *values: str, to: float) -> None: ...


class Sharing:
    """Of one process. Give `shared` to its memory, `elsewhere` to its response ids, and start it with that memory.

    secret  the edge's, equal in all processes
    notice  what is to be logged, an event and why: when Redis goes away and when it is back
    """

    def __init__(
        self, settings: SharedSettings, secret: bytes, meter: Meter, notice: Callable[[str, str], None]
    ) -> None:
        self._settings, self._meter, self._notice = settings, meter, notice
        keys = SharedKeys.of(secret)
        self._outbox = Outbox()
        self.shared = Shared(keys.grams, keys.names, self._outbox.note)
        self.elsewhere = Elsewhere(claim_names(keys.ids), self._outbox.claim)
        self._sealer = Sealer(keys.batches)
        self._opener = Opener(keys.batches, self._sealer.sender)
        self._memory: Memory | None = None
        self._clock: Callable[[], float] = time.monotonic
        self._wrong: str | None = "not connected yet"
        self._said: bool | None = None
        self._last: tuple[int, int] | None = None  # the entry of the stream that was heard last
        self._unsent: bytes | None = None
        self._dropped = self._missed = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Connected, and what was in the stream at the beginning has been heard."""
        return self._wrong is None

    def start(self, memory: Memory | None, clock: Callable[[], float]) -> None:
        """On the event loop of a worker; waits for nothing. `clock`: the one of `memory`, whose times are its `now`."""
        self._memory, self._clock = memory, clock
        loop = asyncio.get_running_loop()
        come = asyncio.Event()

        def wake() -> None:
            if not come.is_set():
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(come.set)

        self._come = come
        self._outbox.wakes(wake)
        self._meter.set(_UP, to=0.0)
        self._task = loop.create_task(self._always())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._meter.set(_UP, to=0.0)

    def unready(self) -> str | None:
        """Why no requests should be sent here, where the settings ask for Redis."""
        if self.up or not self._settings.required:
            return None
        return f"what other edges saw is not known: {self._wrong}"

    async def _always(self) -> None:
        """Connect, work until something breaks, say so, wait longer each time."""
        pause = _FIRST_S
        while True:
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
            self._meter.add(_BATCHES, "missed", by=missed)
        if not isinstance(found, Batch):
            self._meter.add(_BATCHES, found.value)
            return
        self._meter.add(_BATCHES, "heard")
        if self._memory is not None:
            for part in found.parts:
                self._memory.heard(part.words, part.tag, part.habit, self._clock())
        for claim in found.claims:
            self.elsewhere.heard(claim)

    async def _tell(self, stream: Stream) -> None:
        tidied = float("-inf")
        while True:
            # What was not acknowledged is sent again with its number, so it counts once.
            self._unsent = self._unsent or await self._next()
            await stream.add(self._unsent)
            self._unsent = None
            self._meter.add(_BATCHES, "sent")
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
        self._meter.set(_UP, to=float(self.up))
        self._notice("shared_up" if self.up else "shared_down", wrong or "")

    def _count_dropped(self) -> None:
        new, self._dropped = self._outbox.dropped - self._dropped, self._outbox.dropped
        if new:
            self._meter.add(_DROPPED, by=new)
