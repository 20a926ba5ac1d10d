"""What a probe judges: the plan, every answer to it, and what the fleet says about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pagefence.fleet import FleetFacts, Limits
from pagefence.fleet.counters import Window
from pagefence.probes.latency.policy import Timing
from pagefence.probes.run import Outcome
from pagefence.probes.shot import Plan


@dataclass(frozen=True, slots=True)
class Seen:
    """All outcomes of a run so far, of every probe: what one probe sends another may judge.

    found    what asking for the limits brought, where no figure told them
    windows  what the fleet's own counters said around each wave, where they were read.
    """

    plan: Plan
    outcomes: Sequence[Outcome]
    limits: Limits
    facts: FleetFacts
    found: str | None = None
    windows: Sequence[Window] = ()
    timing: Timing = field(default_factory=Timing)

    def of(self, probe: str) -> list[Outcome]:
        return [o for o in self.outcomes if o.shot.probe == probe]

    def complete(self, probe: str) -> bool:
        """Whether each shot of a probe has its outcome."""
        return len(self.of(probe)) == sum(shot.probe == probe for shot in self.plan.shots)
