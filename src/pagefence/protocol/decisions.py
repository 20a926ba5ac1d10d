"""Every decision that keeps tenants apart, in one place: the seams that the lab replaces, one at a time.

The product runs `Decisions()` as it stands. The guards are named here, so that reports and the lab use one list.
What is no guard but a step of a machine is a cell of that machine's table; `cells` puts another rule in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pagefence.pool import prefix
from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import Lease, PagePool
from pagefence.protocol import admission, handoff
from pagefence.protocol.messages import ErrorInfo, Offer, Receipt, Reservation, Start, Submit

Guard = Literal[
    "readiness", "router-limit", "admission", "handoff-check", "page-frames", "zero-on-lease", "drain"
]  # fmt: skip
GUARDS: tuple[Guard, ...] = get_args(Guard)

# A step of a machine, or why it drops the message.
Rule = Callable[..., Any] | str
# The phases of a machine -> the types of its messages -> the rule.
Table = Mapping[Any, Mapping[type, Rule]]

# (machine, phase of the room or ANY, type of the message) -> the rule that runs instead of the table's.
Cell = tuple[str, str, type]
Cells = Mapping[Cell, Callable[..., Any]]
ANY = "*"


def rule_in(cells: Cells, table: Table, machine: str, phase: str, kind: type) -> Rule:
    """What a message of this kind meets in this phase: the rule that `cells` puts there, or else the table's."""
    return cells.get((machine, phase, kind)) or table[phase].get(kind, "not in the table")


def nobody_can_reach(lease: Lease) -> bool:
    """The drain guard (I2): pages are let again only when no holder is left."""
    return not lease.holders


@dataclass(frozen=True, slots=True)
class Decisions:
    """One field per decision; `guards` names those in force, for reports."""

    not_ready: Callable[[admission.Topology], tuple[str, ...]] = admission.not_ready
    router_limit: Callable[[Submit, admission.Topology], ErrorInfo | None] = admission.router_limit
    longest_prompt: Callable[[admission.Topology], int] = admission.longest_prompt
    admit_offer: Callable[[Offer, PagePool], Admitted | ErrorInfo] = admission.admit_offer
    admit_prompt: Callable[[Start, PagePool], Admitted | ErrorInfo] = admission.admit_prompt
    check_receipt: Callable[[Reservation, Receipt, bytes], handoff.Mismatch | None] = handoff.check_receipt
    check_digests: Callable[[Receipt, tuple[bytes, ...]], handoff.Mismatch | None] = handoff.check_digests
    may_release: Callable[[Lease], bool] = nobody_can_reach
    cache_key: prefix.CacheKey = prefix.chain_key
    same_content: prefix.SameContent = prefix.same_content
    zero_on_lease: bool = True
    check_frames: bool = True
    guards: tuple[Guard, ...] = GUARDS
    cells: Cells = field(default_factory=dict)
