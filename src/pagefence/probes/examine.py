"""Ask a fleet everything that a command wants to know: facts, gate, then one plan for the probes that send prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pagefence.files import CannotWrite, check_writable
from pagefence.fleet import Fleet, FleetFacts, Keys, Limits, Request
from pagefence.fleet.describe import describe
from pagefence.fleet.facts import limits as borders
from pagefence.probes.boundary.find import Found, find, hint_of, limits_of
from pagefence.probes.boundary.judge import judge as judge_borders
from pagefence.probes.boundary.shots import NAME as BOUNDARY
from pagefence.probes.canary.judge import judge as judge_words
from pagefence.probes.canary.shots import NAME as CANARY
from pagefence.probes.conservation.judge import NAME as CONSERVATION
from pagefence.probes.conservation.judge import judge as judge_counts
from pagefence.probes.estimate import Estimate, Pace, estimate, in_words, measure
from pagefence.probes.evidence import Evidence, Kind, ProbeResult
from pagefence.probes.gate import ActiveResults, Policy, gate, may_approve
from pagefence.probes.gate.active import ask_active
from pagefence.probes.gate.asked import FIELDS
from pagefence.probes.gate.lock import LockState, read_lock, record, write_lock
from pagefence.probes.plan import make_plan
from pagefence.probes.run import Log, Progress, execute, patiently
from pagefence.probes.salt.judge import judge as judge_sharing
from pagefence.probes.salt.sharing import KEYS_ALONE, Sharing, field_for
from pagefence.probes.salt.shots import NAME as SALT
from pagefence.probes.seen import Seen
from pagefence.probes.shot import Maker, Plan
from pagefence.probes.windows import Watcher
from pagefence.probes.words import words_for

Judge = Callable[[Seen], ProbeResult]
Consent = Callable[[Estimate], None]

# A probe that sends prompts takes part in the plan by its name and is judged by its function. The gate sends none of
# them; what it asks with `--active` is asked before.
GATE = "gate"
_SHORTEST = 64
_SEARCH_LEAST, _SEARCH_PROMPTS = 16_000, 3  # for finding unknown limits: so many tokens, or so many longest prompts
JUDGES: Mapping[str, Judge] = {
    BOUNDARY: judge_borders,
    CANARY: judge_words,
    SALT: judge_sharing,
    CONSERVATION: judge_counts,
}
PROBES = (GATE, *JUDGES)


@dataclass(frozen=True, slots=True)
class Config:
    """`budget`: prompt tokens that borders and canary may cost; None for the usual one. `dry_run`: plan, send none.
    `paced`: somebody will be asked whether the cost is right, so two prompts are spent on how long it takes."""

    probes: tuple[str, ...] = PROBES
    seed: int = 0
    declared_pd: bool = False
    fresh: bool = True
    policy: Policy = field(default_factory=Policy)
    budget: int | None = None
    dry_run: bool = False
    sharing: Sharing = KEYS_ALONE
    paced: bool = False


@dataclass(slots=True)
class Examination:
    """A run and what it has found so far. `results` may be asked at any moment, also after an interruption.

    plan       what was to be asked, also when nothing was sent
    rehearsed  there is no fleet: its figures were declared, and nothing is said about them
    """

    config: Config
    facts: FleetFacts | None = None
    limits: Limits | None = None
    found: Found | None = None
    log: Log = field(default_factory=Log)
    obstacle: str | None = None
    active: ActiveResults | None = None
    lock: LockState | None = None
    plan: Plan | None = None
    rehearsed: bool = False

    def results(self) -> tuple[ProbeResult, ...]:
        """What each probe says about what came back until now."""
        if self.facts is None:
            return ()
        found = []
        for name in self.config.probes:
            if name == GATE and not self.rehearsed:
                config = self.config
                found.append(gate(self.facts, config.declared_pd, config.policy, self.active, self.lock))
            elif self.obstacle is not None:
                found.append(_not_asked(name, self.obstacle))
            elif self.limits is not None and self.log.asked is not None:
                log, said = self.log, self.found.sentence if self.found is not None else None
                seen = Seen(self.log.asked, log.outcomes, self.limits, self.facts, said, log.windows)
                found.append(JUDGES[name](seen))
            else:
                found.append(ProbeResult(name, finished=False))
        return tuple(found)


def _not_asked(name: str, why: str) -> ProbeResult:
    what = f"not asked: {why}"
    return ProbeResult(name, evidence=(Evidence(Kind.INCONCLUSIVE, name, "asked", "", what),))


async def examine(
    fleet: Fleet,
    examination: Examination,
    progress: Progress,
    announce: Callable[[str], None],
    consent: Consent = lambda cost: None,
) -> None:
    """Run the configured probes; everything found is in `examination`. `announce` gets lines that should stay.
    `consent` is told what prompts will cost before the first of them, and what it raises ends the run.

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
    await _prompts(fleet, examination, examination.facts, progress, announce, consent)
    _approve(examination, examination.facts, fleet.keys)


async def _active(fleet: Fleet, policy: Policy, progress: Progress, announce: Callable[[str], None]) -> ActiveResults:
    edge = f", and three prompts of {policy.edge_limit:,} tokens" if policy.edge_limit is not None else ""
    announce(
        f"active checks: {len(FIELDS) + 1} one-token requests, all but one with a field that no client may set{edge}"
    )
    progress("asking what must be refused", 0, 0)
    return await ask_active(fleet, policy.edge_limit)


def _approve(examination: Examination, facts: FleetFacts, keys: Keys) -> None:
    """Write what is approved, if it may be. What came of it is in `examination.lock`, and so in the results."""
    policy, state = examination.config.policy, examination.lock
    if not policy.approve or policy.lock is None or state is None:
        return
    refused = may_approve(facts, state, examination.results())
    if refused is None and _repeats(facts, keys):
        refused = "the fleet repeats an API key among its figures, and the file is one that others read"
    if refused is None:
        try:
            write_lock(policy.lock, facts)
        except CannotWrite as error:
            refused = str(error)
    examination.lock = replace(state, written=refused is None, refused=refused)


def _repeats(facts: FleetFacts, keys: Keys) -> bool:
    """Whether what would be approved holds a key; a short one may be part of any word."""
    approved = repr([record(node) for node in facts.everyone()])
    return any(key is not None and len(key) >= 16 and key in approved for key in (keys.a, keys.b, keys.admin))


async def _prompts(
    fleet: Fleet,
    examination: Examination,
    facts: FleetFacts,
    progress: Progress,
    announce: Callable[[str], None],
    consent: Consent,
) -> None:
    """The probes that send prompts: one plan for all."""
    config = examination.config
    asking = tuple(name for name in config.probes if name in JUDGES)
    if not asking:
        return
    sharing = replace(config.sharing, field=field_for(facts, config.sharing.field))
    if config.dry_run:
        rehearse(examination, facts, asking, sharing, fleet.keys.two, announce)
        return
    consent(_expected(config, facts, asking, sharing, fleet.keys.two))
    examination.obstacle = await _obstacle(fleet, facts, asking, sharing)
    if examination.obstacle is not None:
        return
    maker = Maker(config.seed, await words_for(fleet))
    found = borders(facts)
    if isinstance(found, str):
        found = await _by_asking(fleet, examination, facts, maker, found, progress, announce)
    if not isinstance(found, str) and found.longest < _SHORTEST:
        found = f"the longest legal prompt is {found.longest} tokens, too short for a probe"
    if isinstance(found, str):
        examination.obstacle = found
        return
    examination.limits = found
    before = examination.found.shots if examination.found is not None else ()
    plan = make_plan(found, config.seed, asking, config.fresh, config.budget, maker, before, fleet.keys.two, sharing)
    examination.plan = plan
    consent(estimate(plan))
    announce(_cost_of(plan, config, found, asking, await measure(fleet) if config.paced else None))
    await execute(fleet, plan, examination.log, progress, Watcher(fleet, facts))


def _expected(config: Config, facts: FleetFacts, asking: tuple[str, ...], sharing: Sharing, two: bool) -> Estimate:
    """What the prompts will cost, by the figures alone: of the plan, or of the search for limits that nobody tells."""
    found = borders(facts)
    if isinstance(found, str):
        most = _search_budget(config, facts)
        return Estimate(0, most, 0, most)
    return estimate(make_plan(found, config.seed, asking, config.fresh, config.budget, two=two, sharing=sharing))


def _cost_of(plan: Plan, config: Config, limits: Limits, asking: tuple[str, ...], pace: Pace | None = None) -> str:
    shares = ", ".join(f"{name} {plan.prompt_tokens_of(name):,}" for name in asking)
    return (
        f"plan: {in_words(estimate(plan, pace))} ({shares}; seed {config.seed}); "
        f"longest legal prompt {limits.longest:,}"
    )


def rehearse(
    examination: Examination,
    facts: FleetFacts,
    asking: tuple[str, ...],
    sharing: Sharing,
    two: bool,
    announce: Callable[[str], None],
) -> None:
    """Show what would be sent, wave by wave, and send nothing. The obstacle keeps the run from being clean."""
    config, found = examination.config, borders(facts)
    examination.facts = facts
    if isinstance(found, str):
        why = f"a dry run sends nothing, and the limits are unknown ({found}), so there is no plan to show"
        examination.obstacle = why
        return
    plan = examination.plan = make_plan(
        found, config.seed, asking, config.fresh, config.budget, two=two, sharing=sharing
    )
    announce(_cost_of(plan, config, found, asking))
    for wave in plan.waves:
        lengths = sorted({shot.tokens for shot in wave.shots})
        only = " (only where it answers over its limits)" if wave.unproven else ""
        announce(f"  {wave.title}: {len(wave.shots)} of {', '.join(f'{n:,}' for n in lengths)} tokens{only}")
    most = f"at most {estimate(plan).most_prompt_tokens:,} prompt tokens"
    announce(f"  a fleet that answers what it must refuse computes more: {most}")
    examination.obstacle = "a dry run sends nothing"


def _search_budget(config: Config, facts: FleetFacts) -> int:
    return config.budget or max(_SEARCH_LEAST, _SEARCH_PROMPTS * (hint_of(facts) or 0))


async def _by_asking(
    fleet: Fleet,
    examination: Examination,
    facts: FleetFacts,
    maker: Maker,
    unknown: str,
    progress: Progress,
    announce: Callable[[str], None],
) -> Limits | str:
    """The limits of a fleet that tells none, found by asking; or why they stay unknown."""
    hint = hint_of(facts)
    budget = _search_budget(examination.config, facts)
    announce(
        f"the limits are unknown ({unknown}): asking for them, with at most {budget:,} prompt tokens "
        f"(advertised: {f'{hint:,}' if hint is not None else 'nothing'})"
    )
    examination.found = await find(fleet, facts, maker, budget, examination.log, progress)
    found = limits_of(examination.found, facts)
    if isinstance(found, str):
        return f"the limits are unknown ({unknown}), and asking did not find them: {found}"
    announce(examination.found.sentence)
    return found


async def _obstacle(fleet: Fleet, facts: FleetFacts, asking: tuple[str, ...], sharing: Sharing) -> str | None:
    """Why prompts cannot be sent, if they cannot: found out before a hundred requests fail one by one."""
    if fleet.target.router is None:
        return "no router URL was given, so no client's request can be sent"
    if CANARY in asking and not fleet.keys.two:
        return "the canary needs two tenants: set PAGEFENCE_KEY_A and PAGEFENCE_KEY_B to different keys"
    if SALT in asking and sharing.field is None and not fleet.keys.two:
        return (
            "the salt probe needs two tenants: set PAGEFENCE_KEY_A and PAGEFENCE_KEY_B to different keys, or name the "
            "field that tells them apart with --salt-field"
        )
    for tenant in ("a", "b") if fleet.keys.two else ("a",):
        answer = await patiently(fleet, Request("Hello", 1), tenant, 30.0)
        if not answer.answered:
            said = answer.error.message if answer.error else (answer.problem or "no message")
            reasons = f" (not ready: {'; '.join(facts.reasons)})" if facts.ready is False and facts.reasons else ""
            return f"a five-letter prompt of tenant {tenant.upper()} got HTTP {answer.status}: {said[:200]}{reasons}"
    return None
