"""A histogram of positive times with a relative error, in little memory, that merges: the log buckets of DDSketch.

A value v lies in bucket ceil(log v / log g) with g = (1 + e) / (1 - e), whose middle is within e of everything in it.
Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019.
"""

from __future__ import annotations

import math
from collections import Counter

ERROR = 0.01
_GAMMA = (1 + ERROR) / (1 - ERROR)
_LOG = math.log(_GAMMA)
_LEAST_S, _MOST_S = 1e-6, 1e6  # what is outside is counted at the edge, so a sketch has at most 1,382 buckets


class Sketch:
    """Counts by log bucket. `least` and `most` are exact."""

    __slots__ = ("bins", "least", "most", "n")

    def __init__(self) -> None:
        self.bins: Counter[int] = Counter()
        self.n = 0
        self.least = math.inf
        self.most = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a positive value. Raises ValueError for one that is none."""
        if not value > 0 or math.isinf(value):
            raise ValueError(f"{value} is no positive time")
        self.bins[math.ceil(math.log(min(_MOST_S, max(_LEAST_S, value))) / _LOG)] += times
        self.n += times
        self.least, self.most = min(self.least, value), max(self.most, value)

    def merge(self, other: Sketch) -> None:
        """Afterwards this is what it were had it counted the other's values as well."""
        self.bins.update(other.bins)
        self.n += other.n
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    def quantile(self, q: float) -> float:
        """The value with rank floor(q (n - 1)), within a relative error of 1 %. Raises ValueError when empty."""
        if not self.n:
            raise ValueError("an empty sketch has no quantile")
        rank, seen = math.floor(q * (self.n - 1)), 0
        for index in sorted(self.bins):
            seen += self.bins[index]
            if seen > rank:
                return min(self.most, max(self.least, 2 * _GAMMA**index / (_GAMMA + 1)))
        return self.most


def chance_greater(upper: Sketch, lower: Sketch) -> float:
    """One-sided Mann-Whitney: how likely `upper` would lie this far above `lower` if both were the same.

    The normal approximation with the correction for ties; good enough from five values each.
    """
    n, m = upper.n, lower.n
    if not n or not m:
        return 1.0
    below, wins, ties = 0, 0.0, 0
    for index in sorted(upper.bins.keys() | lower.bins.keys()):
        here, there = upper.bins[index], lower.bins[index]
        wins += here * (below + there / 2)
        below += there
        ties += (here + there) ** 3 - (here + there)
    total = n + m
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    z = (wins - n * m / 2 - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2)) / 2
