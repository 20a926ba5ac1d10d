"""The fleet's own counters around each wave, and whether a difference can be put down to the requests of that wave."""

from __future__ import annotations

import asyncio

from pagefence.fleet import Fleet, FleetFacts
from pagefence.fleet.counters import Count, Window, read_counters, sides
from pagefence.probes.shot import Wave

_TRIES, _PAUSE_S = 5, 0.2  # an engine may count a request a moment after its last token


class Watcher:
    """Reads counters before and after a wave. The end of one wave is the beginning of the next."""

    def __init__(self, fleet: Fleet, facts: FleetFacts) -> None:
        self.fleet, self.facts = fleet, facts
        self.entry, self.exit = sides(facts)
        self._last: Count | None = None

    async def begin(self) -> None:
        """Call before the first request."""
        if self._last is None:
            self._last = await read_counters(self.fleet, self.facts)

    async def end(self, wave: Wave, answered: int) -> Window:
        """Call after the last answer. Waits a little while fewer requests are counted than were answered."""
        before = self._last or {}
        names = tuple(shot.id for shot in wave.shots)
        for left in range(_TRIES, 0, -1):
            after = await read_counters(self.fleet, self.facts)
            window = Window(wave.title, names, before, after, self.entry, self.exit)
            if left == 1 or all(_finished(window, side) >= answered for side in (self.entry, self.exit)):
                break
            await asyncio.sleep(_PAUSE_S)
        self._last = after
        return window

    def forget(self) -> None:
        """Something is asked that is not counted."""
        self._last = None


def _finished(window: Window, side: tuple[str, ...]) -> float:
    moved = window.moved(side, "requests")
    return float("inf") if moved is None else moved
