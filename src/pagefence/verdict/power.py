"""What the silence of one probe is worth: how well it can show what it seeks, and how much that leaves possible.

A request is hit by a leak at some rate; a hit shows in the answer with some chance, its *surfacing*. A probe sees the
product only. How well a hit surfaces is known from the positive control alone: a fleet that gave its own words back k
times of k shows foreign ones as well, if that is what it reads. So a bound on the leak rate needs both, and each may be
wrong with half of 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagefence.probes.evidence import Kind, ProbeResult
from pagefence.verdict.intervals import interval
from pagefence.verdict.statistics import CONFIDENCE, chance_found, upper_bound

# The smallest round rate that the default plan finds in more than three of four runs. What is rarer wants more probes
# (`probes_needed`), and its figure would be near zero in every report.
LEAK_RATE = 0.1


@dataclass(frozen=True, slots=True)
class Claim:
    """What one probe says by finding nothing of what it seeks (`leak` below, most often) in the `n` answers that could
    have shown it.

    controls      held and asked
    surfacing     the exact 95 % interval of the share of controls that hold
    upper_bound   95 % upper bound on the rate at which an answer of this probe shows a leak; None with a leak or n = 0
    leak_bound    95 % upper bound on the rate at which a request is hit, shown or not; likewise None. 1: it is no bound
    leak_rate     a rate at which requests are hit,
    found         and the chance that these n would have shown it, with a surfacing at the lower end of its interval
    """

    probe: str
    seeks: Kind
    n: int
    controls: tuple[int, int]
    surfacing: tuple[float, float]
    upper_bound: float | None
    leak_bound: float | None
    leak_rate: float
    found: float


def claims(results: Sequence[ProbeResult], leak_rate: float = LEAK_RATE) -> tuple[Claim, ...]:
    """A claim of each probe that counts its answers: those about leaks first, and of these the weakest.

    Others (a gate, a border) look for nothing that has a rate.
    """
    return tuple(sorted((claim(result, leak_rate) for result in results if result.shown), key=_order))


def claim(result: ProbeResult, leak_rate: float = LEAK_RATE) -> Claim:
    """What this probe's silence is worth. Raises ValueError when more controls held than were asked."""
    n, (held, asked) = result.shown, result.controls
    surfacing = interval(held, asked)
    silent = n > 0 and not any(e.kind is result.seeks for e in result.evidence)
    return Claim(
        probe=result.name,
        seeks=result.seeks,
        n=n,
        controls=result.controls,
        surfacing=surfacing,
        upper_bound=upper_bound(n) if silent else None,
        leak_bound=leak_bound(n, surfacing[0]) if silent else None,
        leak_rate=leak_rate,
        found=chance_found(leak_rate * surfacing[0], n),
    )


def leak_bound(n: int, surfacing: float) -> float:
    """The 95 % upper bound on the rate of hits after `n` clean answers.

    `surfacing` is the lower end of a two-sided 95 % interval, so it is too high with a chance of at most 2.5 %; the
    rate of what shows is bounded with the other 2.5 %. At most 1, which is no bound.
    """
    visible = upper_bound(n, (1 + CONFIDENCE) / 2)
    return visible / surfacing if visible < surfacing else 1.0


def _order(claim: Claim) -> tuple[bool, float, float]:
    """Weak is what leaves the larger rate possible, then what shows less."""
    return claim.seeks is not Kind.LEAK, -(claim.leak_bound or 0.0), claim.found
