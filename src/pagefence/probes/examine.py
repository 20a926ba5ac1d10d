"""Ask a fleet everything that a command wants to know: facts, gate, then one plan for the probes that send prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pagefence.fleet import Fleet, FleetFacts, Limits, Request
from pagefence.fleet.describe import describe
from pagefence.fleet.facts import limits as borders
from pagefence.probes import boundary, canary
from pagefence.probes.evidence import Evidence, Kind, ProbeResult
from pagefence.probes.gate import HEADROOM, gate
from pagefence.probes.plan import Plan, make_plan
from pagefence.probes.run import Log, Outcome, Progress, execute

Judge = Callable[[Plan, list[Outcome], Limits], ProbeResult]

# A probe that sends prompts takes part in the plan by its name and is judged by its function. The gate sends none.
GATE = "gate"
JUDGES: Mapping[str, Judge] = {boundary.NAME: boundary.judge, canary.NAME: canary.judge}
PROBES = (GATE, *JUDGES)


@dataclass(frozen=True, slots=True)
class Config:
    probes: tuple[str, ...] = PROBES
    seed: int = 0
    headroom: float = HEADROOM
    declared_pd: bool = False
    fresh: bool = True


@dataclass(slots=True)
class Examination:
    """A run and what it has found so far. `results` may be asked at any moment, also after an interruption."""

    config: Config
    facts: FleetFacts | None = None
    limits: Limits | None = None
    log: Log = field(default_factory=Log)
    obstacle: str | None = None

    def results(self) -> tuple[ProbeResult, ...]:
        """What each probe says about what came back until now."""
        if self.facts is None:
            return ()
        found = []
        for name in self.config.probes:
            if name == GATE:
                found.append(gate(self.facts, self.config.headroom, self.config.declared_pd))
            elif self.obstacle is not None:
                found.append(_not_asked(name, self.obstacle))
            elif self.limits is not None and self.log.asked is not None:
                found.append(JUDGES[name](self.log.asked, self.log.outcomes, self.limits))
            else:
                found.append(ProbeResult(name, finished=False))
        return tuple(found)


def _not_asked(name: str, why: str) -> ProbeResult:
    what = f"not asked: {why}"
    return ProbeResult(name, evidence=(Evidence(Kind.INCONCLUSIVE, name, "asked", "", what),))


async def examine(fleet: Fleet, examination: Examination, progress: Progress, announce: Callable[[str], None]) -> None:
    """Run the configured probes; everything found is in `examination`. `announce` gets lines that should stay."""
    config = examination.config
    progress("reading the figures of every node", 0, 0)
    facts = await describe(fleet)
    examination.facts = facts
    asking = tuple(name for name in config.probes if name in JUDGES)
    if not asking:
        return
    found = borders(facts)
    examination.obstacle = await _obstacle(fleet, facts, found, asking)
    if examination.obstacle is not None or isinstance(found, str):
        return
    examination.limits = found
    plan = make_plan(found, config.seed, asking, config.fresh)
    announce(
        f"plan: {len(plan.expected)} requests, about {plan.prompt_tokens:,} prompt tokens and "
        f"{plan.new_tokens:,} new ones (seed {config.seed}); longest legal prompt {found.longest:,}"
    )
    await execute(fleet, plan, examination.log, progress)


async def _obstacle(fleet: Fleet, facts: FleetFacts, found: Limits | str, asking: tuple[str, ...]) -> str | None:
    """Why prompts cannot be sent, if they cannot: found out before a hundred requests fail one by one."""
    if fleet.target.router is None:
        return "no router URL was given, so no client's request can be sent"
    if isinstance(found, str):
        return f"the limits are unknown ({found})"
    if found.longest < 64:
        return f"the longest legal prompt is {found.longest} tokens, too short for a probe"
    if canary.NAME in asking and not fleet.keys.two:
        return "the canary needs two tenants: set PAGEFENCE_KEY_A and PAGEFENCE_KEY_B to different keys"
    for tenant in ("a", "b"):
        answer = await fleet.complete(Request("Hello", 1), tenant, 30.0)
        if not answer.answered:
            said = answer.error.message if answer.error else (answer.problem or "no message")
            reasons = f" (not ready: {'; '.join(facts.reasons)})" if facts.ready is False and facts.reasons else ""
            return f"a five-letter prompt of tenant {tenant.upper()} got HTTP {answer.status}: {said[:200]}{reasons}"
    return None
