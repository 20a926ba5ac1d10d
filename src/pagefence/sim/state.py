"""The state of a whole world: router, worker processes, messages on their way, timers, clients. Immutable."""

from __future__ import annotations

from dataclasses import dataclass

from immutables import Map

from pagefence.protocol.invariants import Outcomes
from pagefence.protocol.messages import Envelope, Room, Timer, WorkerRef
from pagefence.protocol.router import RouterConfig, RouterState
from pagefence.sim.bounds import Bounds, Budget
from pagefence.sim.processes import Process

_NOBODY_ASKED = Outcomes()
ROUTER = WorkerRef("router", 77)


@dataclass(frozen=True, slots=True)
class WorldState:
    """`processes` by the order of `Bounds.names`; None: reaped, not yet restarted.

    `network`: in the order of sending. A message equal to one that is on its way already is not put there twice; what
    two copies could do, `echoes` (paid from the budget) show. `minted`: which ticket a room belongs to.
    """

    router: RouterState
    processes: tuple[Process | None, ...]
    epochs: tuple[int, ...]
    budget: Budget
    network: tuple[Envelope, ...] = ()
    echoes: tuple[Envelope, ...] = ()
    timers: frozenset[tuple[WorkerRef, Timer]] = frozenset()
    submitted: int = 0
    outcomes: Outcomes = _NOBODY_ASKED
    minted: Map[Room, int] = Map()

    def process(self, name: str, bounds: Bounds) -> Process | None:
        """The living or crashed process of this name."""
        return self.processes[bounds.names().index(name)]


def empty(bounds: Bounds) -> WorldState:
    """A router alone: every worker is still to be started."""
    config = RouterConfig(
        bounds.context, bounds.headroom, bounds.limit, bounds.max_in_flight, prefix_cache=bounds.prefix_cache
    )
    count = len(bounds.names())
    return WorldState(RouterState(ROUTER, config), (None,) * count, (0,) * count, bounds.budget)


def room_of(message: object) -> Room | None:
    """The room that a message or timer is about."""
    return getattr(message, "room", None)
