"""The one-sided Kolmogorov-Smirnov test of two samples: are these times shorter than those?

Chosen over a test of ranks because it also sees a difference that only a part of the sample has, as where only some
replicas hold the cache. The chance is exact, by counting lattice paths, so small samples need no approximation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

ALPHA = 1e-4


def lead(fast: Sequence[float], slow: Sequence[float]) -> int:
    """The largest lead of `fast`'s distribution over `slow`'s, times both sizes: max of n m (F_fast - F_slow).

    A whole number, so that what is compared later is exact. Raises ValueError for an empty sample.
    """
    if not fast or not slow:
        raise ValueError("a sample without a value says nothing")
    n, m = len(fast), len(slow)
    best = ahead = 0
    steps = sorted([(x, m) for x in fast] + [(x, -n) for x in slow])
    for i, (value, step) in enumerate(steps):
        ahead += step
        if i + 1 == n + m or steps[i + 1][0] != value:  # equal values are one step
            best = max(best, ahead)
    return best


def chance(n: int, m: int, reached: int) -> float:
    """The chance that samples of n and m from one distribution show a lead of at least `reached`.

    All orders are equally likely; counted are the paths that stay below the lead. With ties it is an upper bound.
    """
    if reached <= 0:
        return 1.0
    row = [1] + [0] * m
    for i in range(n + 1):
        for j in range(m + 1):
            below = i * m - j * n < reached
            came = (row[j] if i else int(j == 0)) + (row[j - 1] if j else 0)
            row[j] = came if below else 0
    total = math.comb(n + m, n)
    return (total - row[m]) / total


def shorter(fast: Sequence[float], slow: Sequence[float]) -> float:
    """The chance of so large a lead of `fast` if both came from one distribution."""
    return chance(len(fast), len(slow), lead(fast, slow))


def samples_needed(distance: float, alpha: float = ALPHA, power: float = 0.95) -> int:
    """Values for each of two equal samples that show a true distance at `alpha` with this power.

    Asymptotic: the bound is sqrt(-ln alpha / n), and the lead at the widest place varies by at most sqrt(1 / 2n).
    Raises ValueError for a distance outside 0 to 1.
    """
    if not 0 < distance <= 1:
        raise ValueError("a distance is more than 0 and at most 1")
    return math.ceil((_widths(alpha, power) / distance) ** 2)


def shown_distance(samples: int, alpha: float = ALPHA, power: float = 0.95) -> float:
    """The other way round: the true distance that so many values of each show at `alpha` with this power; 1 at most."""
    return min(1.0, _widths(alpha, power) / math.sqrt(samples)) if samples > 0 else 1.0


def _widths(alpha: float, power: float) -> float:
    """The bound, and what chance may take from it, times the root of the number of values."""
    return math.sqrt(-math.log(alpha)) + max(0.0, NormalDist().inv_cdf(power)) * math.sqrt(0.5)
