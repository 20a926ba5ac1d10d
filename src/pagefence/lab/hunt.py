"""A fault in the explorer and in the simulator: is it found, for which reason, and does a guard contain it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.sim.explorer import Progress, Result, Search, explore
from pagefence.sim.step import World


def hunt(
    fault: Fault,
    guards: str = "off",
    search: Search = Search(cores=1),
    tell: Callable[[Progress], None] | None = None,
) -> Result:
    """Search the fault's small world, breadth first: the first violation has a shortest trace. Raises UnknownGuard."""
    return explore(fault.small_world(guards), search, tell)


def control(fault: Fault) -> World:
    """The fault's small world without the fault, every guard in force: nothing may be found there."""
    return replace(World(fault.bounds), reduced=True)
