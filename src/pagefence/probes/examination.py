"""A run and what it has found so far: which probes take part, how each judges, and what they say at any moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pagefence.fleet import FleetFacts, Limits
from pagefence.probes.boundary.find import Found
from pagefence.probes.boundary.judge import judge as judge_borders
from pagefence.probes.boundary.shots import NAME as BOUNDARY
from pagefence.probes.canary.judge import judge as judge_words
from pagefence.probes.canary.shots import NAME as CANARY
from pagefence.probes.conservation.judge import NAME as CONSERVATION
from pagefence.probes.conservation.judge import judge as judge_counts
from pagefence.probes.evidence import Evidence, Kind, ProbeResult
from pagefence.probes.gate import ActiveResults, Policy, gate
from pagefence.probes.gate.lock import LockState
from pagefence.probes.latency.judge import judge as judge_times
from pagefence.probes.latency.policy import Timing
from pagefence.probes.latency.shots import NAME as LATENCY
from pagefence.probes.race.drive import RaceLog
from pagefence.probes.race.judge import judge as judge_race
from pagefence.probes.race.plan import NAME as RACE
from pagefence.probes.race.plan import Profile
from pagefence.probes.run import Log, Outcome
from pagefence.probes.salt.judge import judge as judge_sharing
from pagefence.probes.salt.sharing import KEYS_ALONE, Sharing
from pagefence.probes.salt.shots import NAME as SALT
from pagefence.probes.seen import Seen
from pagefence.probes.sentinel_file import SentinelFile
from pagefence.probes.shot import Plan

Judge = Callable[[Seen], ProbeResult]

# A probe that sends prompts takes part in the plan by its name and is judged by its function. The gate sends none of
# them; what it asks with `--active` is asked before.
GATE = "gate"
JUDGES: Mapping[str, Judge] = {
    BOUNDARY: judge_borders,
    CANARY: judge_words,
    SALT: judge_sharing,
    CONSERVATION: judge_counts,
    LATENCY: judge_times,
}
PROBES = (GATE, *JUDGES)
# What sends prompts by a plan of its own, only when it is asked for: a race costs more than all the others.
CROWDS = (RACE,)


@dataclass(frozen=True, slots=True)
class Config:
    """`budget`: prompt tokens that borders and canary may cost; None for the usual one. `dry_run`: plan, send none.
    `paced`: somebody will be asked whether the cost is right, so two prompts are spent on how long it takes.
    `sentinels`: where the words of the plan are written down before they are sent; those of a race are not."""

    probes: tuple[str, ...] = PROBES
    seed: int = 0
    declared_pd: bool = False
    fresh: bool = True
    policy: Policy = field(default_factory=Policy)
    budget: int | None = None
    dry_run: bool = False
    sharing: Sharing = KEYS_ALONE
    timing: Timing = field(default_factory=Timing)
    paced: bool = False
    race: Profile = field(default_factory=Profile)
    sentinels: SentinelFile | None = None


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
    race: RaceLog | None = None

    @property
    def outcomes(self) -> list[Outcome]:
        """Every answer so far, of the crowd too."""
        return [*self.log.outcomes, *(self.race.outcomes if self.race is not None else ())]

    def seen(self) -> Seen | None:
        """What the probes that send prompts judge; None before the first prompt."""
        if self.facts is None or self.limits is None or self.log.asked is None:
            return None
        log, said = self.log, self.found.sentence if self.found is not None else None
        return Seen(self.log.asked, log.outcomes, self.limits, self.facts, said, log.windows, self.config.timing)

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
            elif name in CROWDS:
                found.append(self._raced())
            elif (seen := self.seen()) is not None:
                found.append(JUDGES[name](seen))
            else:
                found.append(ProbeResult(name, finished=False))
        return tuple(found)

    def _raced(self) -> ProbeResult:
        if self.race is None:
            return ProbeResult(RACE, finished=False)
        planted = self.log.asked.sentinels if self.log.asked is not None else ()
        return judge_race(self.race, planted)


def _not_asked(name: str, why: str) -> ProbeResult:
    what = f"not asked: {why}"
    return ProbeResult(name, evidence=(Evidence(Kind.INCONCLUSIVE, name, "asked", "", what),))
