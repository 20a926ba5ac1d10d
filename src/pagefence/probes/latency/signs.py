"""Comparisons of times with times. The first is the control; the others are signs, and no sign is a verdict by itself:
a faster route for long prompts, or a day of better hardware, gives them too.

    growth        longer prompts take longer: without that, timing says nothing about prefill here
    isotonic      p5 of a bucket lies above p50 of the one below
    trend         p5 of a bucket did not fall to half of what it was
    change point  no length past which the median drops
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pagefence.probes.latency.buckets import Buckets
from pagefence.probes.latency.sketch import Sketch, chance_greater

ENOUGH = 5  # answers that a bucket needs before it is compared
GROWS, GROWTH_ALPHA = 1.5, 0.01
DROPS = 0.5
CHANGE_ALPHA = 0.01  # over all lengths together (Bonferroni)
_PERMUTATIONS = 4000
_STEEP = 1.3  # where the medians of neighbours are closer than this, they are mostly overhead, and p5 may lie below p50


@dataclass(frozen=True, slots=True)
class Growth:
    """The control: medians of the shortest and the longest bucket with enough answers, and the chance of that."""

    buckets: int
    ratio: float = 0.0
    chance: float = 1.0

    @property
    def holds(self) -> bool:
        return self.buckets >= 2 and self.ratio >= GROWS and self.chance <= GROWTH_ALPHA


def growth(by_bucket: Mapping[int, Sketch], last: int | None = None) -> Growth:
    """From the buckets up to `last`: what is over a limit must not spoil the control."""
    full = [b for b, s in sorted(by_bucket.items()) if s.n >= ENOUGH and (last is None or b <= last)]
    if len(full) < 2:
        return Growth(len(full))
    low, high = by_bucket[full[0]], by_bucket[full[-1]]
    return Growth(len(full), high.quantile(0.5) / low.quantile(0.5), chance_greater(high, low))


def isotonic(by_bucket: Mapping[int, Sketch], spread: Buckets) -> list[str]:
    """Neighbours of which the longer one's p5 lies below the shorter one's p50, where the length matters at all.

    It matters where the medians differ, upwards or downwards.
    """
    full = [b for b, s in sorted(by_bucket.items()) if s.n >= ENOUGH]
    found = []
    for low, high in pairwise(full):
        below, fast = by_bucket[low].quantile(0.5), by_bucket[high].quantile(0.05)
        ratio = by_bucket[high].quantile(0.5) / below
        if fast < below and not 1 / _STEEP < ratio < _STEEP:
            found.append(f"p5 at {spread.name(high)} is {fast:.3g} s, below p50 at {spread.name(low)} ({below:.3g} s)")
    return found


def p5_alarm(baseline: Sequence[float], today: Sketch) -> bool:
    """Whether today's p5 is less than half of the median of earlier ones."""
    return len(baseline) >= 2 and today.n >= 20 and today.quantile(0.05) < DROPS * median(baseline)


def trend(by_window: Mapping[int, Mapping[int, Sketch]], spread: Buckets) -> list[str]:
    """Buckets whose p5 fell to half of the median of the windows before."""
    found = []
    before: dict[int, list[float]] = {}
    for number, window in enumerate(sorted(by_window), 1):
        for bucket, sketch in sorted(by_window[window].items()):
            if sketch.n < 20:
                continue
            earlier, p5 = before.setdefault(bucket, []), sketch.quantile(0.05)
            if p5_alarm(earlier, sketch):
                found.append(f"p5 at {spread.name(bucket)} fell to {p5:.3g} s in window {number} of {len(by_window)}")
            earlier.append(p5)
    return found


@dataclass(frozen=True, slots=True)
class Change:
    """A length past which answers come faster: the bucket where it begins, medians before and after, and the chance."""

    bucket: int
    before_s: float
    after_s: float
    chance: float


def change_point(some: Mapping[int, Sequence[float]], seed: int = 0) -> Change | None:
    """The sharpest drop of the median from one bucket to the next to at most half, if chance does not explain it.

    A permutation test of mean log times on the two buckets together, one-sided, at `CHANGE_ALPHA`
    divided by the number of neighbours.
    """
    full = [bucket for bucket, times in sorted(some.items()) if len(times) >= ENOUGH]
    pairs = list(pairwise(full))
    found = []
    for low, high in pairs:
        before, after = median(some[low]), median(some[high])
        if after > DROPS * before:
            continue
        chance = permuted(some[low], some[high], seed)
        if chance <= CHANGE_ALPHA / len(pairs):
            found.append(Change(high, before, after, chance))
    return min(found, key=lambda change: change.after_s / change.before_s, default=None)


def permuted(slower: Sequence[float], faster: Sequence[float], seed: int) -> float:
    """The chance that a random split of all these times differs as much: (1 + as extreme) / (1 + permutations)."""
    pooled = [math.log(t) for t in (*slower, *faster)]
    draw = random.Random(f"permutation {seed}")
    seen = sum(pooled[: len(slower)]) - 1e-9  # the sum of one part says it all: the whole does not change
    extreme = sum(sum(draw.sample(pooled, len(slower))) >= seen for _ in range(_PERMUTATIONS))
    return (1 + extreme) / (1 + _PERMUTATIONS)
