"""What a fault is: one overridden decision, and the worlds in which it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pagefence.lab import guards
from pagefence.protocol.decisions import Decisions, Guard
from pagefence.sim.bounds import Ask, Bounds, Budget
from pagefence.sim.world import Below, World

# Two tenants, two requests of two pages each, a pool that one of them fills: pages are reused at once.
SMALL = Bounds(
    "small", (Ask("a", 4), Ask("b", 4)), prefill_pages=4, decode_pages=3, context=6, budget=Budget(hang_up=1)
)


def unchanged(decisions: Decisions) -> Decisions:
    """Nothing is decided wrongly: what is broken lies below the protocol, or in the world."""
    return decisions


@dataclass(frozen=True, slots=True)
class Fault:
    """A known bug of this class.

    `override` replaces one decision or one cell of a machine's table; its docstring, or that of the rule it puts in,
    tells the mechanism. `rules`: what it breaks; any of them is its own reason. `bounds` is a small world for the
    explorer and the simulator in which the fault shows; `below` breaks what lies under the machines there. `world` is
    the same for the real engine, as settings of `pagefence serve`; `not_in_engine` says why it cannot show there, and
    `needs_hang_ups` that it shows only where clients hang up, which in a default `verify` none does.
    `outside`: guards that stand before the overridden decision and would refuse before the fault is reached; the world
    is built without them. `hidden_by`: what `--guards off` leaves out besides, because it would contain the fault.
    """

    name: str
    summary: str
    mechanism: str
    reference: str
    rules: tuple[str, ...]
    override: Callable[[Decisions], Decisions] = unchanged
    bounds: Bounds = SMALL
    below: Below | None = None
    world: Mapping[str, Any] = field(default_factory=dict)
    not_in_engine: str | None = None
    needs_hang_ups: bool = False
    outside: tuple[Guard, ...] = ()
    hidden_by: tuple[Guard, ...] = ()

    def decisions(self, spec: str) -> Decisions:
        """The product's decisions with this fault in, and the guards that `spec` leaves out. Raises UnknownGuard."""
        in_force = guards.select(spec, self.hidden_by, self.outside)
        return self.override(guards.without(Decisions(), in_force))

    def small_world(self, spec: str) -> World:
        """The explorer's world with this fault in. A rule that only says that a guard is left out is not watched.

        Raises UnknownGuard.
        """
        decisions = self.decisions(spec)
        blind = {"I8"} if "I8" not in self.rules and "readiness" not in decisions.guards else set[str]()
        world = World(self.bounds, decisions, below=self.below)
        return World(self.bounds, decisions, world.watched - blind, self.below)
