"""What a rule of the gate is: data for its reader and a pure function that looks at one case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

from pagefence.fleet import Figure, FleetFacts, NodeFacts
from pagefence.fleet.facts import DECODE, PREFILL
from pagefence.probes.evidence import Kind
from pagefence.probes.gate.advisories import Advisories
from pagefence.probes.gate.asked import ActiveResults
from pagefence.probes.gate.lock import LockState
from pagefence.probes.gate.policy import Policy


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that is known when the gate judges. A rule reads it and nothing else: no clock, no file, no socket.

    `active` and `lock` are None when nobody asked or read; `today` is what the age of the advisories is counted to.
    """

    facts: FleetFacts
    policy: Policy
    declared_pd: bool
    active: ActiveResults | None
    lock: LockState | None
    advisories: Advisories
    today: date

    @property
    def disaggregated(self) -> bool:
        """A prefill/decode fleet, by declaration or by what its nodes say."""
        return self.declared_pd or any(node.role in (PREFILL, DECODE) for node in self.facts.nodes)

    @property
    def readable(self) -> tuple[NodeFacts, ...]:
        """The nodes that could be asked; the others are said once, by `pool`."""
        return tuple(node for node in self.facts.nodes if node.problem is None)

    @property
    def router_silent(self) -> bool:
        """The router could not be asked. `facts` has said so: what follows from it is no finding of its own."""
        return bool(self.facts.problems) and self.facts.router is not None and self.facts.router.problem is not None


@dataclass(frozen=True, slots=True)
class Finding:
    """One row, and evidence when `kind` is set. `remedy` and `rule` stand in for the rule's own where set."""

    where: str
    text: str
    kind: Kind | None = None
    remedy: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    id          the check's name in reports
    requires    what has to be so, in one sentence
    why         what goes wrong otherwise
    remedy      what to do
    rule        the rule of PageFence that it keeps, I1..I10
    references  public threads and pages, the first one shown with a finding
    active      needs requests, so it judges only what `--active` has asked
    """

    id: str
    requires: str
    why: str
    remedy: str
    rule: str
    references: tuple[str, ...]
    check: Callable[[Case], Iterable[Finding]]
    active: bool = False


def known(figure: Figure) -> int | None:
    """The value of a figure that can be relied on. One that comes with a problem ("at least", stale) is not known."""
    return figure.value if figure.problem is None else None


def unknown(figure: Figure) -> str:
    """Where it was looked for, and why it says nothing."""
    said = "" if figure.value is None else f"says {figure.value:,}, but "
    return f"{figure.source} {said}{figure.problem}".strip()


def label(node: NodeFacts) -> str:
    return f"{node.role} {node.url}"


def several(nodes: Iterable[NodeFacts]) -> str:
    """Names of nodes, three at most."""
    names = [label(node) for node in nodes]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
