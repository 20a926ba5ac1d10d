"""What will be asked, decided before the first request: the same for the same seed, facts and budget.

Order is the point. Controls first (can this model give a sentinel back at all?); then the borders that must be
refused, between two signs of life; then the longest legal prompts, tenant A's, which are border checks and planting at
once; when all of them have finished, tenant B reads: over the limits first (the planted pages were released last),
within them after that.
"""

from __future__ import annotations

from pagefence.fleet import Limits
from pagefence.probes.boundary import shots as border
from pagefence.probes.canary import shots as canary
from pagefence.probes.latency import shots as latency
from pagefence.probes.latency.policy import ROUNDS
from pagefence.probes.salt import shots as salt
from pagefence.probes.salt.sharing import KEYS_ALONE, Sharing
from pagefence.probes.shot import Maker, Plan, Shot, Wave

_LEAST = 6_000
_LONGEST_PROMPTS = 5


def usual_budget(limits: Limits) -> int:
    """Prompt tokens for borders and canary together where nobody says: five of the longest prompts.

    Three ask the border and plant, one or two fill the rest of a larger pool, the others are for readers.
    """
    return max(_LEAST, _LONGEST_PROMPTS * limits.longest)


def make_plan(
    limits: Limits,
    seed: int,
    probes: tuple[str, ...] = (border.NAME, canary.NAME),
    fresh: bool = True,
    budget: int | None = None,
    maker: Maker | None = None,
    before: tuple[Shot, ...] = (),
    two: bool = True,
    sharing: Sharing = KEYS_ALONE,
    rounds: int = ROUNDS,
) -> Plan:
    """The whole run for these limits. `budget`: prompt tokens. `two`: there is a second tenant who can read.

    What a fleet that keeps its limits computes stays within the budget; only the positive controls, the signs of life
    and one planted prompt are asked whatever it is.
    """
    maker = maker or Maker(seed)
    left = usual_budget(limits) if budget is None else budget
    borders, canaries = border.NAME in probes, canary.NAME in probes
    reader = "b" if two else "a"
    waves: list[Wave] = []
    if canaries:
        waves.append(Wave("positive controls", canary.controls(maker, limits), limits.pool))
    # Prefixes are shared while nothing large has been through the pool. What that costs is outside of the budget.
    sharers = salt.waves(maker, limits, sharing, alone=not (borders or canaries)) if salt.NAME in probes else []
    longest: tuple[Shot, ...] = ()
    if borders:
        waves.append(Wave("sign of life", border.alive(maker, limits, reader), limits.pool))
        waves.append(Wave("borders over the limits", border.over(maker, limits, reader), limits.pool))
        waves.append(Wave("sign of life", border.alive(maker, limits, reader), limits.pool))
        longest = border.within(maker, limits, left - _cost(waves))
    if canaries:
        planted = sum(s.tokens for s in longest)
        longest += canary.plants(maker, limits, planted, left - _cost(waves) - planted)
    waves.append(Wave("longest legal prompts (tenant A plants)", longest, limits.cover))
    if canaries:
        waves += canary.readers(maker, limits, left - _cost(waves))
    if latency.NAME in probes:
        if budget is not None:
            rounds = max(1, min(rounds, (budget - _cost(waves)) // sum(latency.lengths(limits))))
        waves.append(Wave("times, one at a time", latency.shots(maker, limits, rounds), 0))
    controls = int(canaries)
    ordered = [*waves[:controls], *sharers, *waves[controls:]]
    return Plan(tuple(wave for wave in ordered if wave.shots), fresh, before, maker.drawn_from)


def _cost(waves: list[Wave]) -> int:
    return Plan(tuple(waves)).prompt_tokens
