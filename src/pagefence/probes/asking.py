"""The probes that send prompts: whether they can, at which limits, and one plan for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from pagefence.fleet import Fleet, FleetFacts, Limits, Request
from pagefence.fleet.facts import limits as borders
from pagefence.mistakes import Usage
from pagefence.probes.boundary.find import find, hint_of, limits_of
from pagefence.probes.canary.shots import NAME as CANARY
from pagefence.probes.estimate import Estimate, estimate, measure
from pagefence.probes.examination import CROWDS, Examination
from pagefence.probes.latency.policy import Timing
from pagefence.probes.plan import make_plan
from pagefence.probes.race.drive import RaceLog, race
from pagefence.probes.race.plan import NAME as RACE
from pagefence.probes.race.plan import plan as race_plan
from pagefence.probes.rehearsal import asking_of, cost_of, expected, rehearse, search_budget
from pagefence.probes.run import Progress, execute, patiently
from pagefence.probes.salt.sharing import Sharing, field_for
from pagefence.probes.salt.shots import NAME as SALT
from pagefence.probes.sentinel_file import untold
from pagefence.probes.shot import Maker
from pagefence.probes.windows import Watcher
from pagefence.probes.words import words_for

_SHORTEST = 64
SEEN_S = 2.0  # an edge looks once a second whether there are new words
Consent = Callable[[Estimate], None]


async def ask(
    fleet: Fleet,
    examination: Examination,
    facts: FleetFacts,
    progress: Progress,
    announce: Callable[[str], None],
    consent: Consent,
) -> None:
    """The probes that send prompts: one plan for all."""
    config = examination.config
    asking = asking_of(config)
    races = any(name in CROWDS for name in config.probes)
    if not asking and not races:
        return
    _calibrated(config.timing, facts)
    sharing = replace(config.sharing, field=field_for(facts, config.sharing.field))
    if config.dry_run:
        rehearse(examination, facts, sharing, fleet.keys.two, announce)
        return
    consent(expected(config, facts, sharing, fleet.keys.two))
    examination.obstacle = await _obstacle(fleet, facts, (*asking, *((RACE,) if races else ())), sharing)
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
    if asking:
        await _planned(fleet, examination, facts, maker, sharing, progress, announce, consent)
    if races and examination.obstacle is None:
        await _race(fleet, examination, progress, announce, consent)


async def _planned(
    fleet: Fleet,
    examination: Examination,
    facts: FleetFacts,
    maker: Maker,
    sharing: Sharing,
    progress: Progress,
    announce: Callable[[str], None],
    consent: Consent,
) -> None:
    """One plan for all but the race."""
    config, found = examination.config, examination.limits
    assert found is not None
    before = examination.found.shots if examination.found is not None else ()
    plan = make_plan(
        found,
        config.seed,
        asking_of(config),
        config.fresh,
        config.budget,
        maker,
        before,
        fleet.keys.two,
        sharing,
        config.timing.rounds,
    )
    examination.plan = plan
    consent(estimate(plan))
    cost = cost_of(plan, config, found, await measure(fleet) if config.paced else None)
    announce(f"{examination.found.sentence}; {cost}" if examination.found is not None else cost)
    examination.obstacle = untold(config.sentinels, plan.sentinels)
    if examination.obstacle is not None:
        return
    if config.sentinels is not None:
        await asyncio.sleep(SEEN_S)
    await execute(fleet, plan, examination.log, progress, Watcher(fleet, facts))


async def _race(
    fleet: Fleet, examination: Examination, progress: Progress, announce: Callable[[str], None], consent: Consent
) -> None:
    """Last, and apart from the plan of the others: a fleet that it leaves damaged would damage their answers."""
    config, facts, found = examination.config, examination.facts, examination.limits
    assert facts is not None and found is not None
    crowd = race_plan(found, config.seed, config.race)
    consent(crowd.estimate)
    announce(crowd.cost)
    examination.race = RaceLog(crowd)
    await race(fleet, facts, examination.race, examination.log, progress)


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
    config = examination.config
    budget = search_budget(config, facts)
    announce(
        f"the limits are unknown ({unknown}): asking for them, with at most {budget:,} prompt tokens "
        f"(advertised: {f'{hint:,}' if hint is not None else 'nothing'})"
    )
    examination.found = await find(fleet, facts, maker, budget, examination.log, progress, config.sentinels)
    found = limits_of(examination.found, facts)
    if isinstance(found, str):
        return f"the limits are unknown ({unknown}), and asking did not find them: {found}"
    return found


def _calibrated(timing: Timing, facts: FleetFacts) -> None:
    """Raises Usage for a calibration of another model, engine or version."""
    refused = timing.calibration.refusal(facts) if timing.calibration is not None else None
    if refused is not None:
        raise Usage(f"{refused}; take one of this fleet with `pagefence latency --calibrate FILE`")


async def _obstacle(fleet: Fleet, facts: FleetFacts, asking: tuple[str, ...], sharing: Sharing) -> str | None:
    """Why prompts cannot be sent, if they cannot: found out before a hundred requests fail one by one."""
    if fleet.target.router is None:
        return "no router URL was given, so no client's request can be sent"
    both = [name for name in asking if name in (CANARY, *CROWDS)]
    if both and not fleet.keys.two:
        return f"the {both[0]} needs two tenants: set PAGEFENCE_KEY_A and PAGEFENCE_KEY_B to different keys"
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
