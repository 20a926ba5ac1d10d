"""Ask a fleet everything that a command wants to know: facts, gate, then one plan for the probes that send prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pagefence.files import CannotWrite, check_writable
from pagefence.fleet import Fleet, FleetFacts, Limits, Request
from pagefence.fleet.describe import describe
from pagefence.fleet.facts import limits as borders
from pagefence.probes.boundary.judge import judge as judge_borders
from pagefence.probes.boundary.shots import NAME as BOUNDARY
from pagefence.probes.canary.judge import judge as judge_words
from pagefence.probes.canary.shots import NAME as CANARY
from pagefence.probes.evidence import Evidence, Kind, ProbeResult
from pagefence.probes.gate import ActiveResults, Policy, gate, may_approve
from pagefence.probes.gate.active import ask_active
from pagefence.probes.gate.lock import LockState, read_lock, write_lock
from pagefence.probes.plan import make_plan
from pagefence.probes.race.drive import RaceLog, race
from pagefence.probes.race.judge import judge as judge_race
from pagefence.probes.race.plan import NAME as RACE
from pagefence.probes.race.plan import Profile
from pagefence.probes.race.plan import plan as race_plan
from pagefence.probes.run import Log, Outcome, Progress, execute
from pagefence.probes.seen import Seen

Judge = Callable[[Seen], ProbeResult]

# A probe that sends prompts takes part in the plan by its name and is judged by its function. The gate sends none of
# them; what it asks with `--active` is asked before.
GATE = "gate"
JUDGES: Mapping[str, Judge] = {BOUNDARY: judge_borders, CANARY: judge_words}
PROBES = (GATE, *JUDGES)
# What sends prompts by a plan of its own, only when it is asked for: a race costs more than all the others.
CROWDS = (RACE,)


@dataclass(frozen=True, slots=True)
class Config:
    probes: tuple[str, ...] = PROBES
    seed: int = 0
    declared_pd: bool = False
    fresh: bool = True
    policy: Policy = field(default_factory=Policy)
    race: Profile = field(default_factory=Profile)


@dataclass(slots=True)
class Examination:
    """A run and what it has found so far. `results` may be asked at any moment, also after an interruption."""

    config: Config
    facts: FleetFacts | None = None
    limits: Limits | None = None
    log: Log = field(default_factory=Log)
    obstacle: str | None = None
    active: ActiveResults | None = None
    lock: LockState | None = None
    race: RaceLog | None = None

    @property
    def outcomes(self) -> list[Outcome]:
        """Every answer so far, of the crowd too."""
        return [*self.log.outcomes, *(self.race.outcomes if self.race is not None else ())]

    def results(self) -> tuple[ProbeResult, ...]:
        """What each probe says about what came back until now."""
        if self.facts is None:
            return ()
        found = []
        for name in self.config.probes:
            if name == GATE:
                config = self.config
                found.append(gate(self.facts, config.declared_pd, config.policy, self.active, self.lock))
            elif self.obstacle is not None:
                found.append(_not_asked(name, self.obstacle))
            elif name in CROWDS:
                found.append(self._race())
            elif self.limits is not None and self.log.asked is not None:
                found.append(JUDGES[name](Seen(self.log.asked, self.log.outcomes, self.limits, self.facts)))
            else:
                found.append(ProbeResult(name, finished=False))
        return tuple(found)

    def _race(self) -> ProbeResult:
        if self.race is None:
            return ProbeResult(RACE, finished=False)
        planted = self.log.asked.sentinels if self.log.asked is not None else ()
        return judge_race(self.race, planted)


def _not_asked(name: str, why: str) -> ProbeResult:
    what = f"not asked: {why}"
    return ProbeResult(name, evidence=(Evidence(Kind.INCONCLUSIVE, name, "asked", "", what),))


async def examine(fleet: Fleet, examination: Examination, progress: Progress, announce: Callable[[str], None]) -> None:
    """Run the configured probes; everything found is in `examination`. `announce` gets lines that should stay.

    Raises CannotWrite before anything is asked when what is approved could not be written.
    """
    config = examination.config
    if GATE in config.probes and config.policy.lock is not None:
        if config.policy.approve:
            check_writable(config.policy.lock)
        examination.lock = read_lock(config.policy.lock)
    progress("reading the figures of every node", 0, 0)
    examination.facts = await describe(fleet)
    if GATE in config.probes and config.policy.active:
        examination.active = await _active(fleet, config.policy, progress, announce)
    await _prompts(fleet, examination, examination.facts, progress, announce)
    _approve(examination, examination.facts)


async def _active(fleet: Fleet, policy: Policy, progress: Progress, announce: Callable[[str], None]) -> ActiveResults:
    edge = f", and three prompts of {policy.edge_limit:,} tokens" if policy.edge_limit is not None else ""
    announce(f"active checks: seven one-token requests, six of them with a field that no client may set{edge}")
    progress("asking what must be refused", 0, 0)
    return await ask_active(fleet, policy.edge_limit)


def _approve(examination: Examination, facts: FleetFacts) -> None:
    """Write what is approved, if it may be. What came of it is in `examination.lock`, and so in the results."""
    policy, state = examination.config.policy, examination.lock
    if not policy.approve or policy.lock is None or state is None:
        return
    refused = may_approve(facts, state, examination.results())
    if refused is None:
        try:
            write_lock(policy.lock, facts)
        except CannotWrite as error:
            refused = str(error)
    examination.lock = replace(state, written=refused is None, refused=refused)


async def _prompts(
    fleet: Fleet,
    examination: Examination,
    facts: FleetFacts,
    progress: Progress,
    announce: Callable[[str], None],
) -> None:
    """The probes that send prompts: one plan for all."""
    config = examination.config
    asking = tuple(name for name in config.probes if name in (*JUDGES, *CROWDS))
    if not asking:
        return
    found = borders(facts)
    examination.obstacle = await _obstacle(fleet, facts, found, asking)
    if examination.obstacle is not None or isinstance(found, str):
        return
    examination.limits = found
    if set(asking) - set(CROWDS):
        plan = make_plan(found, config.seed, asking, config.fresh)
        announce(
            f"plan: {len(plan.expected)} requests, about {plan.prompt_tokens:,} prompt tokens and "
            f"{plan.new_tokens:,} new ones (seed {config.seed}); longest legal prompt {found.longest:,}"
        )
        await execute(fleet, plan, examination.log, progress)
    if RACE in asking:
        crowd = race_plan(found, config.seed, config.race)
        prompts, new = crowd.tokens
        announce(
            f"race: {len(crowd.everything):,} requests, up to {config.race.at_once} at once, at most {prompts:,} "
            f"prompt tokens and {new:,} new ones, {config.race.seconds:g} s (seed {config.seed})"
        )
        examination.race = RaceLog(crowd)
        await race(fleet, examination.race, examination.log, progress)


async def _obstacle(fleet: Fleet, facts: FleetFacts, found: Limits | str, asking: tuple[str, ...]) -> str | None:
    """Why prompts cannot be sent, if they cannot: found out before a hundred requests fail one by one."""
    if fleet.target.router is None:
        return "no router URL was given, so no client's request can be sent"
    if isinstance(found, str):
        return f"the limits are unknown ({found})"
    if found.longest < 64:
        return f"the longest legal prompt is {found.longest} tokens, too short for a probe"
    two = [name for name in asking if name in (CANARY, RACE)]
    if two and not fleet.keys.two:
        return f"the {two[0]} needs two tenants: set PAGEFENCE_KEY_A and PAGEFENCE_KEY_B to different keys"
    for tenant in ("a", "b"):
        answer = await fleet.complete(Request("Hello", 1), tenant, 30.0)
        if not answer.answered:
            said = answer.error.message if answer.error else (answer.problem or "no message")
            reasons = f" (not ready: {'; '.join(facts.reasons)})" if facts.ready is False and facts.reasons else ""
            return f"a five-letter prompt of tenant {tenant.upper()} got HTTP {answer.status}: {said[:200]}{reasons}"
    return None
