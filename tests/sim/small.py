"""Worlds that are searched in a second or so, searches of them, and their ordinary course."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from pagefence.lab import faults
from pagefence.protocol.effects import Effect
from pagefence.protocol.messages import WorkerRef
from pagefence.sim.bounds import Ask, Budget
from pagefence.sim.explorer import Order, Result, Search, explore
from pagefence.sim.menu import ordinary
from pagefence.sim.state import WorldState
from pagefence.sim.step import apply, beginning
from pagefence.sim.world import World
from pagefence.sim.worlds import WORLDS

HANG_UPS = WORLDS["hang-ups"].bounds
_LEAST = replace(HANG_UPS, prefill_pages=2, decode_pages=2, context=4)
# 269, 982 (one write of two pages fails) and 82 states.
ONE_CRASH = replace(_LEAST, name="one crash", asks=(Ask("a", 2, 1),), budget=Budget(crash=1))
IN_DOUBT = replace(
    ONE_CRASH, name="in doubt", page_size=1, prefill_pages=3, decode_pages=3, context=3, budget=Budget(doubt=1, crash=1)
)
ALONE = replace(ONE_CRASH, name="alone", budget=Budget(hang_up=1))
# Everything at once, for random walks.
ALL = replace(WORLDS["cache"].bounds, name="all", budget=Budget(*(1,) * len(Budget())))


@cache
def searched(world: str, cores: int = 1, reduced: bool = True) -> Result:
    """A whole search, breadth first, of one of the worlds above."""
    bounds = next(bounds for bounds in (HANG_UPS, ONE_CRASH, IN_DOUBT, ALONE) if bounds.name == world)
    return explore(World(bounds, reduced=reduced), Search(cores=cores))


@cache
def hunted(fault: str, order: Order = "breadth", reduced: bool = True) -> Result:
    """A search for a fault in its own world, with the guards that would hide it left out."""
    return explore(faulty(fault, reduced), Search(order, cores=1, most_states=20_000))


def faulty(fault: str, reduced: bool = True) -> World:
    """The world of a fault."""
    return replace(faults.find(fault).small_world("off"), reduced=reduced)


def calmly(world: World) -> tuple[WorldState, list[tuple[WorkerRef, Effect]], set[str]]:
    """The ordinary course of things until rest: the last state, who did what, and what happened on the way."""
    state, effects, sometimes = beginning(world), list[tuple[WorkerRef, Effect]](), set[str]()
    while moves := ordinary(world, state):
        outcome = apply(world, state, moves[0])
        state = outcome.state
        effects += outcome.effects
        sometimes.update(outcome.sometimes)
    return state, effects, sometimes
