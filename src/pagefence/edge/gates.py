"""Admission as a step: on live figures, with prompts counted where it takes that; or off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pagefence.edge.admission import AdmissionSettings, ModelBounds, NeedsCount, after_count, decide, unchecked
from pagefence.edge.call import Admitted, Call
from pagefence.edge.capacity import Capacities, Room
from pagefence.edge.counting import Counting
from pagefence.edge.refusal import Refusal


class LiveGate:
    """Admission on live figures."""

    def __init__(self, capacities: Capacities, counting: Counting, settings: AdmissionSettings) -> None:
        self._capacities, self._counting, self._settings = capacities, counting, settings
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._capacities.refresh()
        self._reading = asyncio.get_running_loop().create_task(self._capacities.run())

    def stop(self) -> None:
        """What is being counted goes on: its requests are in progress."""
        if self._reading is not None:
            self._reading.cancel()

    async def admit(self, call: Call) -> Admitted | Refusal:
        verdict = decide(call, self._capacities.now(), self._counting.counter.bounds, self._settings)
        if not isinstance(verdict, NeedsCount):
            return verdict
        counts = await self._counting.count(verdict)
        return counts if isinstance(counts, Refusal) else after_count(verdict, counts)

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

    async def start(self) -> None:
        """There is nothing to read."""

    def stop(self) -> None:
        """Nor to stop."""

    async def admit(self, call: Call) -> Admitted:
        return unchecked(call, self.bounds)

    def room(self) -> Room | None:
        return None

    def unready(self) -> str | None:
        return None

    def barred(self) -> frozenset[str]:
        return frozenset()
