"""What would be asked, without asking: the plan and its cost by the figures alone."""

from __future__ import annotations

from collections.abc import Callable

from pagefence.fleet import FleetFacts, Limits
from pagefence.fleet.facts import limits as borders
from pagefence.probes.boundary.find import hint_of
from pagefence.probes.estimate import Estimate, Pace, estimate, in_words, together
from pagefence.probes.examination import CROWDS, JUDGES, Config, Examination
from pagefence.probes.latency.shots import NAME as LATENCY
from pagefence.probes.plan import make_plan
from pagefence.probes.race.plan import plan as race_plan
from pagefence.probes.salt.sharing import Sharing
from pagefence.probes.shot import Plan

_SEARCH_LEAST, _SEARCH_PROMPTS = 16_000, 3  # for finding unknown limits: so many tokens, or so many longest prompts


def asking_of(config: Config) -> tuple[str, ...]:
    """The probes that take part in the plan.

    In `verify` the times of the others' answers are judged; only asked for itself `latency` sends prompts of its own.
    """
    return tuple(name for name in config.probes if name in JUDGES and (name != LATENCY or config.timing.asked))


def rehearse(
    examination: Examination, facts: FleetFacts, sharing: Sharing, two: bool, announce: Callable[[str], None]
) -> None:
    """Show what would be sent, wave by wave, and send nothing. The obstacle keeps the run from being clean."""
    config, found = examination.config, borders(facts)
    examination.facts = facts
    if isinstance(found, str):
        why = f"a dry run sends nothing, and the limits are unknown ({found}), so there is no plan to show"
        examination.obstacle = why
        return
    if _races(config):
        announce(race_plan(found, config.seed, config.race).cost)
    plan = examination.plan = _plan(config, found, sharing, two)
    announce(cost_of(plan, config, found))
    for wave in plan.waves:
        lengths = sorted({shot.tokens for shot in wave.shots})
        only = " (only where it answers over its limits)" if wave.unproven else ""
        announce(f"  {wave.title}: {len(wave.shots)} of {', '.join(f'{n:,}' for n in lengths)} tokens{only}")
    most = f"at most {estimate(plan).most_prompt_tokens:,} prompt tokens"
    announce(f"  a fleet that answers what it must refuse computes more: {most}")
    examination.obstacle = "a dry run sends nothing"


def expected(config: Config, facts: FleetFacts, sharing: Sharing, two: bool) -> Estimate:
    """What the prompts will cost: those of the plan, or of the search for limits that nobody tells."""
    found = borders(facts)
    if isinstance(found, str):
        most = search_budget(config, facts)
        return Estimate(0, most, 0, most)
    cost = estimate(_plan(config, found, sharing, two))
    return together(cost, race_plan(found, config.seed, config.race).estimate) if _races(config) else cost


def cost_of(plan: Plan, config: Config, limits: Limits, pace: Pace | None = None) -> str:
    """The plan in one line."""
    shares = ", ".join(f"{name} {plan.prompt_tokens_of(name):,}" for name in asking_of(config))
    return (
        f"plan: {in_words(estimate(plan, pace))} ({shares}; seed {config.seed}); "
        f"longest legal prompt {limits.longest:,}"
    )


def search_budget(config: Config, facts: FleetFacts) -> int:
    """Prompt tokens for finding limits that nobody tells."""
    return config.budget or max(_SEARCH_LEAST, _SEARCH_PROMPTS * (hint_of(facts) or 0))


def _races(config: Config) -> bool:
    return any(name in CROWDS for name in config.probes)


def _plan(config: Config, limits: Limits, sharing: Sharing, two: bool) -> Plan:
    asking = asking_of(config)
    rounds = config.timing.rounds
    return make_plan(limits, config.seed, asking, config.fresh, config.budget, two=two, sharing=sharing, rounds=rounds)
