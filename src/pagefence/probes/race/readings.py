"""What requests hold while nothing is asked, read before the crowd and after everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagefence.fleet import Fleet, FleetFacts
from pagefence.fleet.counters import read_holdings
from pagefence.fleet.engines.adapter import Holding

LET_GO_S = 10.0  # so long a fleet may take to let go of what its last requests held
_PAUSE_S = 0.5
_LEAST = 4  # readings, however slow a fleet is to tell
_TINY = 1e-9  # shares of a pool are told as floating-point numbers


@dataclass(frozen=True, slots=True)
class Reading:
    """What each node told, by its address, at one moment (seconds of our clock)."""

    at: float
    held: Mapping[str, Holding]


@dataclass(frozen=True, slots=True)
class Growth:
    """What one node holds more than before."""

    url: str
    before: float
    now: Holding


async def read_before(fleet: Fleet, facts: FleetFacts, before: list[Reading]) -> None:
    """Twice, as what the last request held may be let go a moment after its answer."""
    before.append(await _read(fleet, facts))
    if least(before):
        await asyncio.sleep(_PAUSE_S)
        before.append(await _read(fleet, facts))


async def read_after(fleet: Fleet, facts: FleetFacts, before: Sequence[Reading], after: list[Reading]) -> None:
    """Again and again while a node holds more than before, for as long as a fleet may take to let go."""
    if not least(before):
        return
    after.append(await _read(fleet, facts))
    while growths(before, after[-1]) and not waited_out(after):
        await asyncio.sleep(_PAUSE_S)
        after.append(await _read(fleet, facts))


def least(before: Sequence[Reading]) -> Mapping[str, float]:
    """The least that each node held before, of those that tell."""
    found: dict[str, float] = {}
    for reading in before:
        for url, held in reading.held.items():
            if held.amount is not None:
                found[url] = min(held.amount, found.get(url, held.amount))
    return found


def waited_out(after: Sequence[Reading]) -> bool:
    """Whether these readings span the time in which a fleet lets go, and are enough to see whether something moves."""
    return len(after) >= _LEAST and after[-1].at - after[0].at >= LET_GO_S


def growths(before: Sequence[Reading], reading: Reading) -> list[Growth]:
    """Nodes that hold more than before."""
    told = ((url, was, reading.held.get(url, Holding())) for url, was in least(before).items())
    return [Growth(url, was, now) for url, was, now in told if now.amount is not None and now.amount > was + _TINY]


async def _read(fleet: Fleet, facts: FleetFacts) -> Reading:
    held = await read_holdings(fleet, facts)
    return Reading(time.monotonic(), held)
