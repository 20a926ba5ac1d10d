"""Admission as a step: on live figures, with prompts counted where it takes that; or off.

What is asked of a large call (`Call.size`) is asked beside the event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pagefence.edge.admission import (
    RETRY_AFTER_S,
    AdmissionSettings,
    ModelBounds,
    NeedsCount,
    after_count,
    decide,
    unchecked,
)
from pagefence.edge.beside import Beside
from pagefence.edge.call import Call
from pagefence.edge.capacity import Capacities, Room
from pagefence.edge.counting import Counting
from pagefence.edge.demand import Admitted
from pagefence.edge.refusal import Refusal

_SHRANK = Refusal(
    503,
    "capacity_unknown",
    "What the engines can hold became less, or unknown, while the prompt was counted. Try again in a moment.",
    retry_after_s=RETRY_AFTER_S,
)


class LiveGate:
    """Admission on live figures."""

    def __init__(self, capacities: Capacities, counting: Counting, beside: Beside, settings: AdmissionSettings) -> None:
        self._capacities, self._counting, self._beside, self._settings = capacities, counting, beside, settings
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._capacities.refresh()
        self._reading = asyncio.get_running_loop().create_task(self._capacities.run())

    def stop(self) -> None:
        """What is being counted goes on: its requests are in progress."""
        if self._reading is not None:
            self._reading.cancel()

    async def admit(self, call: Call) -> Admitted | Refusal:
        asked = call, self._capacities.now(), self._counting.counter.bounds, self._settings
        if call.size:
            verdict = await self._beside.run(call.tenant.tag, call.size, decide, *asked)
        else:
            verdict = decide(*asked)
        if not isinstance(verdict, NeedsCount):
            return verdict
        counts = await self._counting.count(verdict)
        if isinstance(counts, Refusal):
            return counts
        room = self._capacities.now().room  # counting and its queue took time
        if room is None or room.total < verdict.room.total or room.longest < verdict.room.longest:
            return _SHRANK
        return after_count(verdict, counts)

    def room(self) -> Room | None:
        return self._capacities.now().room

    def unready(self) -> str | None:
        now = self._capacities.now()
        return f"how much the engines can hold is not known: {now.problem}" if now.room is None else None

    def barred(self) -> frozenset[str]:
        return self._capacities.now().unusable


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Admission is off: whatever fits or not goes on as it is, and all that is known of it is a bound."""

    bounds: ModelBounds
    beside: Beside

    async def start(self) -> None:
        """There is nothing to read."""

    def stop(self) -> None:
        """Nor to stop."""

    async def admit(self, call: Call) -> Admitted | Refusal:
        if call.size:
            return await self.beside.run(call.tenant.tag, call.size, unchecked, call, self.bounds)
        return unchecked(call, self.bounds)

    def room(self) -> Room | None:
        return None

    def unready(self) -> str | None:
        return None

    def barred(self) -> frozenset[str]:
        return frozenset()
