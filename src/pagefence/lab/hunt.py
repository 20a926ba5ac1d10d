"""A fault in the explorer and in the simulator: is it found, for which reason, and does a guard contain it?"""

from __future__ import annotations

from collections.abc import Callable

from pagefence.lab.fault import Fault
from pagefence.sim.explorer import Progress, Result, Search, explore

ONE_CORE = Search(cores=1)


def hunt(
    fault: Fault,
    guards: str = "off",
    search: Search = ONE_CORE,
    tell: Callable[[Progress], None] | None = None,
) -> Result:
    """Search the fault's small world, breadth first: the first violation has a shortest trace. Raises UnknownGuard."""
    return explore(fault.small_world(guards), search, tell)
