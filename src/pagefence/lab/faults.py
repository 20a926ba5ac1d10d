"""The fault catalogue. A fault is a world to run in and one overridden decision; the bug stands in its docstring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pagefence.lab import guards
from pagefence.mistakes import Mistake
from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool
from pagefence.protocol.admission import admit_prompt
from pagefence.protocol.decisions import Decisions, Guard
from pagefence.protocol.messages import ErrorInfo, Start

PLACEHOLDER = (0,)


@dataclass(frozen=True, slots=True)
class Fault:
    """`world`: settings in which the fault can show. `outside`: guards that stand before the overridden decision and
    would refuse before the fault is reached; the world is built without them. `hidden_by`: what `--guards off` leaves
    out besides, because it would contain the fault."""

    name: str
    summary: str
    mechanism: str
    reference: str
    rules: tuple[str, ...]
    override: Callable[[Decisions], Decisions]
    world: Mapping[str, Any] = field(default_factory=dict)
    outside: tuple[Guard, ...] = ()
    hidden_by: tuple[Guard, ...] = ()

    def decisions(self, spec: str) -> Decisions:
        """The product's decisions with this fault in, and the guards that `spec` leaves out. Raises UnknownGuard."""
        in_force = guards.select(spec, self.hidden_by, self.outside)
        return self.override(guards.without(Decisions(), in_force))


class UnknownFault(Mistake):
    """No fault of this name; the message lists those that exist."""


def placeholder_for_rejected(start: Start, pool: PagePool) -> Admitted | ErrorInfo:
    """A rejected prompt is swapped for a one-token placeholder and goes on.

    One queue noted the error, the next one asked "finished?", and "not finished" stood for "valid". So a page is
    computed and sent for the placeholder, and decode is told that the transfer is complete.
    """
    verdict = admit_prompt(start, pool)
    if isinstance(verdict, Admitted):
        return verdict
    return Admitted(start.room, start.isolation_key, len(PLACEHOLDER), PLACEHOLDER)


INCIDENT_WORLD = {"context": 2048, "prefill_pool_tokens": 1024, "decode_pool_tokens": 4096}

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            name="stub-transfer",
            summary="a rejected prompt goes on as a one-token placeholder; decode reads every page that it reserved",
            mechanism=placeholder_for_rejected.__doc__ or "",
            reference="sgl-project/sglang #30233, #34208, #36926, #38935",
            rules=("I3", "I4", "I1"),
            override=lambda d: replace(d, admit_prompt=placeholder_for_rejected),
            world=INCIDENT_WORLD,
            outside=("readiness", "router-limit"),
            hidden_by=("handoff-check", "page-frames", "zero-on-lease"),
        ),
        Fault(
            name="pool-below-context",
            summary="the pool that memory left is smaller than the advertised context",
            mechanism="Nothing is decided wrongly here: the fleet simply came up with less memory than it advertises.",
            reference="the incident of August 2026: a pool of 681,280 tokens under a context of 1,048,576",
            rules=("I8",),
            override=lambda d: d,
            world=INCIDENT_WORLD,
            hidden_by=("readiness",),
        ),
    )
}


def find(name: str) -> Fault:
    """The fault of this name. Raises UnknownFault."""
    fault = FAULTS.get(name)
    if fault is None:
        raise UnknownFault(f"no fault {name!r}; faults are {', '.join(FAULTS)}")
    return fault
