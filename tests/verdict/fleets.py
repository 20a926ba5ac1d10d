"""Fleets that exist as chances only: the real plan, fabricated answers, the real judge, the real decision.

An answer of an honest fleet holds its own words, but for slips at a stated rate. A leaking one reads other pages at the
leak rate: then the answer holds the words of a planter, where the leak surfaces, and nothing where it does not.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from pagefence.fleet import Answer, FleetFacts, Limits
from pagefence.fleet.answer import ErrorBody
from pagefence.fleet.facts import Figure
from pagefence.probes import Check, Evidence, Kind, ProbeResult
from pagefence.probes.canary.judge import judge
from pagefence.probes.canary.shots import NAME
from pagefence.probes.plan import make_plan
from pagefence.probes.prompt import Prompt
from pagefence.probes.run import Outcome
from pagefence.probes.seen import Seen
from pagefence.probes.sentinel import Sentinel
from pagefence.probes.shot import Plan, Purpose, Shot
from pagefence.verdict import Verdict, decide
from pagefence.verdict.intervals import incomplete_beta

LIMITS = Limits(longest=506, pool=640, context=512, cover=640, advertised=512, pools=(640, 640), page=16)
FACTS = FleetFacts("http://simulated", "toy", Figure(512, "simulated"), ())
TOO_LONG = Answer(400, error=ErrorBody("maximum context length is 512", code="context_length_exceeded"))

_FINE = Check("readers", "", "as it should be")
OWN, LOST, FOREIGN = "own words", "lost", "foreign words"
# What became of the shots of one purpose, first and second try: all that a judge can tell apart but for names.
Sort = tuple[Purpose, bool]  # what a shot is for, and whether it is greedy
Pattern = tuple[tuple[Sort, tuple[tuple[tuple[str, ...], int], ...]], ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """`slip`: how often an honest answer lacks its own words, each time anew."""

    slip: float = 0.0
    leak: float = 0.0
    surfacing: float = 1.0

    def says(self, shot: Shot, chance: random.Random) -> str:
        if shot.reads and chance.random() < self.leak:
            return FOREIGN if chance.random() < self.surfacing else LOST
        return LOST if chance.random() < self.slip else OWN


@cache
def the_plan() -> Plan:
    return make_plan(LIMITS, 1, (NAME,))


@cache
def asked() -> dict[Purpose, int]:
    """How many shots of each purpose that have an answer."""
    return dict(Counter(shot.purpose for shot in the_plan().expected if shot.within))


def greedy_readers() -> int:
    """How many legal readers are greedy, so that a slip of theirs is a doubt."""
    return sum(shot.purpose is Purpose.READ and shot.temperature == 0 for shot in the_plan().expected)


def verdict_of(fleet: Fleet, chance: random.Random) -> Verdict:
    """What PageFence says about one fleet of this kind."""
    return decide([result_of(fleet, chance)])


def result_of(fleet: Fleet, chance: random.Random) -> ProbeResult:
    return _judged(_happened(fleet, chance))


def _happened(fleet: Fleet, chance: random.Random) -> Pattern:
    tries: dict[Sort, Counter[tuple[str, ...]]] = {}
    for shot in the_plan().expected:
        if shot.within:
            first = fleet.says(shot, chance)
            said: tuple[str, ...] = (first,)
            if shot.recalls and first == LOST:  # over the same words a greedy model slips again
                said = (first, fleet.says(shot, chance) if shot.spare else first)
            tries.setdefault(_sort(shot), Counter())[said] += 1
    return tuple((kind, tuple(sorted(counts.items()))) for kind, counts in tries.items())


def _sort(shot: Shot) -> Sort:
    return shot.purpose, shot.temperature == 0


@cache
def _judged(pattern: Pattern) -> ProbeResult:
    """The judge's result. It does not depend on which shots of one kind it was, so each pattern is judged once."""
    left = {kind: [said for said, count in counts for _ in range(count)] for kind, counts in pattern}
    plan = replace(the_plan(), waves=tuple(wave for wave in the_plan().waves if not wave.unproven))
    planted = next(shot.sentinel for shot in plan.shots if shot.plants)
    outcomes = [
        outcome(shot, left[_sort(shot)].pop(), planted) if shot.within else Outcome(shot, prompt(shot), TOO_LONG, {})
        for shot in plan.shots
    ]
    return judge(Seen(plan, outcomes, LIMITS, FACTS))


def prompt(shot: Shot) -> Prompt:
    return Prompt("", shot.tokens, True)


def outcome(shot: Shot, said: tuple[str, ...], planted: Sentinel) -> Outcome:
    """As the runner leaves it: the last answer, and the first one where it was repeated (in other words if any)."""
    last = shot.with_spare or shot if len(said) == 2 else shot
    answers = [answer(s, what, planted) for s, what in zip((shot, last), said, strict=False)]
    if len(answers) == 1:
        return Outcome(shot, prompt(shot), answers[0], {})
    return Outcome(last, prompt(last), answers[1], {}, first=answers[0], first_prompt=prompt(shot))


def answer(shot: Shot, what: str, planted: Sentinel) -> Answer:
    text = {OWN: str(shot.sentinel), LOST: "lorem ipsum dolor", FOREIGN: str(planted)}[what]
    return Answer(200, text, "length", shot.tokens, shot.max_tokens, stream=shot.stream)


def counted(probe: Probe, chance: random.Random) -> ProbeResult:
    """What a probe brings home, by its counts alone: what kind it is makes no difference to a decision."""
    hits = draw(probe.n, probe.leak * probe.surfacing, chance)
    held = draw(probe.controls, probe.surfacing, chance)
    evidence = (Evidence(Kind.LEAK, probe.name, "c", "w", "foreign words"),) if hits else ()
    return ProbeResult(probe.name, (_FINE,), evidence, shown=probe.n, controls=(held, probe.controls))


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of `n` answers in a fleet that hits its requests at the rate `leak`."""

    name: str
    n: int
    controls: int
    surfacing: float
    leak: float = 0.0


def draw(n: int, rate: float, chance: random.Random) -> int:
    """One binomial draw."""
    return bisect_left(_distribution(n, rate), chance.random())


@lru_cache(maxsize=256)
def _distribution(n: int, rate: float) -> list[float]:
    return [1 - incomplete_beta(rate, k + 1, n - k) for k in range(n)] + [1.0]
