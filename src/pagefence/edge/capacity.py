"""What the engines can hold at this moment: read from all of them again and again, and never older than allowed.

The limit is the smallest over every rank of every node. A node that falls silent counts with what it said last; when
that is too old, nothing is known any more, and nothing is admitted (I8). A declared limit is one limit more, and stands
alone only where nothing is told. Deciding is pure (`capacity_of`); only `Capacities` looks at clocks and networks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from pagefence.fleet import Fleet, Keys, Limits, Target
from pagefence.fleet.describe import describe
from pagefence.fleet.facts import FleetFacts, limits

logger = logging.getLogger(__name__)

_READ_S = 10.0
_SAFE = 80  # characters of a fleet's own words that are said again


@dataclass(frozen=True, slots=True)
class Room:
    """`total`: of a prompt and its new tokens; `longest`: of a prompt. `source`: who sets the limit."""

    total: int
    longest: int
    source: str

    def within(self, other: Room | None) -> Room:
        """The smaller of two limits, figure by figure."""
        if other is None:
            return self
        smaller = min((self, other), key=lambda room: (room.total, room.longest))
        return Room(min(self.total, other.total), min(self.longest, other.longest), smaller.source)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one upstream told: `room`, or why there is none (`problem`), at the moment `at` (monotonic seconds)."""

    room: Room | None
    problem: str | None
    at: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """What may be admitted now, or why nothing may.

    age_s     of the oldest figure that it rests on
    unusable  upstreams of which nothing is known: none may be asked until it tells
    """

    room: Room | None
    problem: str | None
    age_s: float
    unusable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    """`refresh_s` between two readings; `stale_s`: an older figure is none. `declared`: a limit that holds as well.

    SGLang asks its scheduler for figures, which does not answer while it computes a long prompt: a minute and more.
    """

    refresh_s: float = 5.0
    stale_s: float = 120.0
    declared: Room | None = None

    def __post_init__(self) -> None:
        if not 0 < self.refresh_s < self.stale_s:
            raise ValueError("figures have to be read more often than they become stale")


def capacity_of(told: Mapping[str, Figures], settings: CapacitySettings, now: float) -> Capacity:
    """The smallest room over the upstreams that told theirs in time.

    One of several that tells nothing is left out and named; where none is left the declared limit stands, and without
    one nothing is known. It never stands above what was told before: a pool that was small is not large by silence.
    """
    declared = settings.declared
    room, why, oldest, unusable = None, "", 0.0, set()
    for upstream, figures in told.items():
        age = now - figures.at
        if figures.room is None or age > settings.stale_s:
            if declared is None:
                unusable.add(upstream)
                why = why or figures.problem or f"nothing was told for {age:.0f} s"
                continue
            mine = declared if figures.room is None else declared.within(figures.room)
        else:
            mine, oldest = figures.room.within(declared), max(oldest, age)
        room = mine.within(room)
    if room is None:
        return Capacity(None, why or "nothing was read yet", oldest, frozenset(unusable))
    return Capacity(room, None, oldest, frozenset(unusable))


def room_of(facts: FleetFacts) -> Room | str:
    """The room of one fleet, or why it is not known: every node has to tell its pool."""
    silent = next((node for node in facts.nodes if node.problem is not None or node.pool.value is None), None)
    if silent is not None:
        what = silent.problem or f"{silent.pool.source} {silent.pool.problem}"
        if silent.problem is None and not silent.pool.source:
            return f"{silent.url}: the size of its pool{what[:_SAFE]}; capacity.limit can declare one"
        return f"{silent.url} {what[:_SAFE]}"
    found = limits(facts)
    return found if isinstance(found, str) else _room(found, facts)


def _room(found: Limits, facts: FleetFacts) -> Room:
    total = min(found.context, found.pool)
    smallest = min(facts.nodes, key=lambda node: node.pool.value or total)
    source = smallest.pool.source if found.pool <= found.context else facts.advertised.source
    return Room(total, min(found.longest, total), f"{smallest.url} {source}")


class Capacities:
    """Reads every upstream's figures, for ever. Nothing that an engine says or does ends it.

    `heard` is called with words when figures change: sizes and addresses, never a key.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        keys: Keys,
        settings: CapacitySettings,
        clock: Callable[[], float],
        heard: Callable[[str], None] = logger.warning,
        ask: Callable[[Fleet], Awaitable[FleetFacts]] = describe,
    ) -> None:
        self.settings = settings
        self._targets = dict(targets)
        self._keys = keys
        self._clock = clock
        self._heard = heard
        self._ask = ask
        never = float("-inf")
        self._told = {name: Figures(None, "nothing was read yet", never) for name in self._targets}
        self._last: dict[str, Room | str | None] = {}

    def now(self) -> Capacity:
        """What holds at this moment. Costs a microsecond: it may be asked for every request."""
        return capacity_of(self._told, self.settings, self._clock())

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self.settings.refresh_s)

    async def refresh(self) -> None:
        """Read every upstream once, beside each other. Raises nothing but its own cancellation."""
        await asyncio.gather(*(self._read(name, target) for name, target in self._targets.items()))

    async def _read(self, name: str, target: Target) -> None:
        asked = self._clock()  # what was true when we asked, not when the last answer came
        try:
            async with asyncio.timeout(_READ_S), Fleet(target, self._keys, _READ_S) as fleet:
                found = room_of(await self._ask(fleet))
        except Exception as error:  # a fleet can say anything, and whoever stops reading admits on old figures
            found = f"could not be read ({type(error).__name__})"
        before = self._told[name]
        if isinstance(found, Room):
            self._told[name] = Figures(found, None, asked)
        else:
            # What it said last holds until it is stale.
            self._told[name] = Figures(before.room, found, before.at)
        self._tell(name, found)

    def _tell(self, name: str, found: Room | str) -> None:
        last, self._last[name] = self._last.get(name), found
        if last == found:
            return
        said = found if isinstance(found, str) else f"holds {found.total} tokens, prompts of {found.longest}"
        before = f", before: {last.total}" if isinstance(last, Room) else ""
        self._heard(self._keys.redact(f"capacity of {name}: {said}{before}"))


def targets_of(urls: Sequence[str]) -> Mapping[str, Target]:
    """Upstreams that are named by nothing but their address."""
    return {url: Target(url) for url in urls}
