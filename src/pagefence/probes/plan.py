"""What will be asked, decided before the first request: the same for the same seed, facts and budget.

Order is the point. Controls first (can this model give a sentinel back at all?); then the borders that must be
refused; then the longest legal prompts, tenant A's, which are border checks and planting at once; when all of them have
finished, tenant B reads: over the limits first (the planted pages were released last), within them after that.
"""

from __future__ import annotations

from pagefence.fleet import Limits
from pagefence.probes.boundary import shots as border
from pagefence.probes.canary import shots as canary
from pagefence.probes.latency import shots as latency
from pagefence.probes.latency.policy import ROUNDS
from pagefence.probes.shot import Maker, Plan, Shot, Wave


def make_plan(
    limits: Limits,
    seed: int,
    probes: tuple[str, ...] = (border.NAME, canary.NAME),
    fresh: bool = True,
    rounds: int = ROUNDS,
) -> Plan:
    """The whole run for these limits."""
    maker = Maker(seed)
    borders, canaries = border.NAME in probes, canary.NAME in probes
    waves: list[Wave] = []
    if canaries:
        waves.append(Wave("positive controls", canary.controls(maker, limits), limits.pool))
    longest: tuple[Shot, ...] = ()
    if borders:
        waves.append(Wave("borders over the limits", border.over(maker, limits), limits.pool))
        longest = border.within(maker, limits)
    if canaries:
        longest += canary.plants(maker, limits, sum(s.tokens for s in longest))
    waves.append(Wave("longest legal prompts (tenant A plants)", longest, limits.cover))
    if canaries:
        waves += canary.readers(maker, limits)
    if latency.NAME in probes:
        waves.append(Wave("times, one at a time", latency.shots(maker, limits, rounds), 0))
    return Plan(tuple(wave for wave in waves if wave.shots), fresh)
