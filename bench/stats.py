"""Medians, paired ratios with their interval, and whether a target is met. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

Rounds = Mapping[int, float]
"""What one row of one engine was in each round; a round that failed is missing."""


def median(values: Sequence[float]) -> float | None:
    """The median, or None of nothing."""
    return statistics.median(values) if values else None


def quantile(values: Sequence[float], part: float) -> float | None:
    """The value below which `part` of the values lie, between neighbours in proportion; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def paired_ratio(ours: Rounds, theirs: Rounds) -> float | None:
    """The median of the ratios of rounds that both have: a slow minute of the machine slows both."""
    return median([ours[i] / theirs[i] for i in ours if theirs.get(i)])


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio and its 95 % interval."""

    ratio: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.ratio:.4f} [{self.low:.4f}, {self.high:.4f}], {self.pairs} pairs"


def ratio_interval(pairs: Sequence[tuple[float, float]]) -> Interval:
    """The geometric mean of first/second and its interval: Student's t over the logarithms. Needs two pairs."""
    logs = [math.log(first / second) for first, second in pairs]
    if len(logs) < 2:
        raise ValueError("an interval needs two pairs")
    freedom = len(logs) - 1
    t = _T95[freedom - 1] if freedom <= len(_T95) else 1.96 + 2.5 / freedom
    mean, half = statistics.fmean(logs), t * statistics.stdev(logs) / math.sqrt(len(logs))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one engine's figure, divided by the peer's."""

    row: str
    ours: str
    peer: str
    sense: Literal["at least", "at most"]
    bound: float

    def __str__(self) -> str:
        return f"{self.ours} {self.sense} {self.bound:g} x {self.peer}"

    def met(self, ratio: float | None) -> bool | None:
        """None where nothing was measured."""
        if ratio is None:
            return None
        return ratio >= self.bound if self.sense == "at least" else ratio <= self.bound


def verdict(met: bool | None) -> str:
    """In a word."""
    return {True: "met", False: "missed", None: "not measured"}[met]
