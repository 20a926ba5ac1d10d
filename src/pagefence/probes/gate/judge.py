"""The deploy gate: the facts of a fleet held against every rule, closed by default.

Nothing is asked here and nothing is sent. A figure that cannot be read is INCONCLUSIVE, never fine.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

from pagefence.fleet import FleetFacts
from pagefence.probes.evidence import Check, Evidence, ProbeResult
from pagefence.probes.gate import answered, capacity, drift, engine, topology
from pagefence.probes.gate.advisories import Advisories, bundled
from pagefence.probes.gate.asked import ActiveResults
from pagefence.probes.gate.lock import LockState
from pagefence.probes.gate.policy import Policy
from pagefence.probes.gate.rule import Case, Finding, Rule

NAME = "gate"
# The order in which they are shown.
RULES: tuple[Rule, ...] = tuple(
    sorted(
        (*topology.RULES, *capacity.RULES, *engine.RULES, *answered.RULES, *drift.RULES),
        key=lambda rule: (
            "facts", "pool", "roles", "context", "advertised", "ready", "figures", "truncation", "checksum", "advisory",
            "exposed", "topology", "enforced", "drift",
        ).index(rule.id),
    )
)  # fmt: skip


def gate(
    facts: FleetFacts,
    declared_pd: bool = False,
    policy: Policy | None = None,
    active: ActiveResults | None = None,
    lock: LockState | None = None,
    advisories: Advisories | None = None,
    today: date | None = None,
) -> ProbeResult:
    """Hold the facts of a fleet against the rules.

    `active`, `lock`: what was asked and read before; None: nothing was.
    `advisories`, `today`: the bundled list and the present day where they are not given.
    """
    case = Case(
        facts,
        policy or Policy(),
        declared_pd,
        active,
        lock,
        advisories or bundled(),
        today or datetime.now(tz=UTC).date(),
    )
    found = [(rule, _one_line(finding)) for rule in RULES for finding in rule.check(case)]
    return ProbeResult(
        NAME,
        tuple(Check(rule.id, f.where, f.text, f.kind) for rule, f in found),
        tuple(evidence for rule, f in found if (evidence := _evidence(rule, f)) is not None),
    )


def _one_line(finding: Finding) -> Finding:
    """Words of a fleet must not begin a line: a job's log may take it for a command, and a person for a verdict."""
    return replace(finding, where=" ".join(finding.where.split()), text=" ".join(finding.text.split()))


def _evidence(rule: Rule, finding: Finding) -> Evidence | None:
    if finding.kind is None:
        return None
    return Evidence(
        finding.kind,
        NAME,
        rule.id,
        finding.where,
        finding.text,
        finding.rule or rule.rule,
        remedy=finding.remedy or rule.remedy,
        details={"reference": rule.references[0], **finding.details},
    )
