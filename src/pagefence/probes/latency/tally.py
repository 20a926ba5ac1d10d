"""Answers counted as they come, in memory that does not grow with their number."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from pagefence.probes.latency.buckets import Buckets, buckets
from pagefence.probes.latency.calibration import Calibration
from pagefence.probes.latency.floor import Physics
from pagefence.probes.latency.points import Point
from pagefence.probes.latency.sketch import Sketch

KEPT = 100  # events under a floor that are kept one by one
SAMPLE = 1000  # points for the plot
EACH = 200  # points of each bucket for the permutation test
WINDOWS = 400
NEAR_ZERO, NEAR_SHARE = 32, 0.05


@dataclass(frozen=True, slots=True)
class Floors:
    """What an answer is held against. `physics` may be the reason why there is none.

    `longest`: the longest legal prompt, 0 where it is unknown.
    """

    physics: Physics | str
    calibration: Calibration | None = None
    limits: tuple[int, ...] = ()
    longest: int = 0

    def physical(self, uncached: int, cached: int = 0) -> float:
        return 0.0 if isinstance(self.physics, str) else self.physics.floor_s(uncached, cached)

    def practical(self, uncached: int) -> float:
        return 0.0 if self.calibration is None else self.calibration.floor_s(uncached)


@dataclass(slots=True)
class Tally:
    """`telling`: answers whose floor lies above the fastest answer of all, so that a short circuit would have shown."""

    floors: Floors
    window_s: float = 86_400.0
    spread: Buckets = field(init=False)
    seen: int = 0
    legal: int = 0
    legal_under: int = 0
    cache_unknown: int = 0
    by_bucket: dict[int, Sketch] = field(default_factory=dict)
    by_window: dict[int, dict[int, Sketch]] = field(default_factory=dict)
    some: dict[int, list[float]] = field(default_factory=dict)
    floor_seen: Sketch = field(default_factory=Sketch)
    counts: Counter[str] = field(default_factory=Counter)
    under_physical: list[Point] = field(default_factory=list)
    under_cached: list[Point] = field(default_factory=list)
    under_practical: list[Point] = field(default_factory=list)
    unexplained: list[Point] = field(default_factory=list)
    sample: list[Point] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random("latency"))

    def __post_init__(self) -> None:
        self.spread = buckets(self.floors.limits)

    def add(self, point: Point, statistics: bool = True) -> None:
        """Count one answer. `statistics` False: its time is only an upper bound, so it is held against the floors and
        takes no part in comparisons of one length with another."""
        self.seen += 1
        self._hold(point)
        if self.seen <= SAMPLE:
            self.sample.append(point)
        elif (place := self.random.randrange(self.seen)) < SAMPLE:
            self.sample[place] = point
        if not statistics:
            return
        bucket = self.spread.of(point.uncached_tokens)
        sketch = self.by_bucket.setdefault(bucket, Sketch())
        sketch.add(point.ttft_s)
        some = self.some.setdefault(bucket, [])
        if len(some) < EACH:
            some.append(point.ttft_s)
        elif (place := self.random.randrange(sketch.n)) < EACH:
            some[place] = point.ttft_s
        if point.at > 0:
            self._window(point, bucket)

    def _hold(self, point: Point) -> None:
        uncached, cached = point.uncached_tokens, point.cached_tokens
        physical = self.floors.physical(uncached, cached or 0)
        practical = self.floors.practical(uncached)
        if max(physical, practical) > 0:
            self.floor_seen.add(max(physical, practical))
        within = not self.floors.longest or point.tokens <= self.floors.longest
        self.legal += within
        self.legal_under += within and point.ttft_s < physical
        if cached is None:
            self.cache_unknown += 1
        if point.ttft_s >= max(physical, practical):
            return
        if cached is None:
            self._keep("unexplained", self.unexplained, point)
        elif point.ttft_s < physical:
            near = cached <= max(NEAR_ZERO, NEAR_SHARE * point.tokens)
            self._keep(*(("physical", self.under_physical) if near else ("cached", self.under_cached)), point)
        else:
            self._keep("practical", self.under_practical, point)

    def _keep(self, name: str, kept: list[Point], point: Point) -> None:
        self.counts[name] += 1
        if len(kept) < KEPT:
            kept.append(point)

    def _window(self, point: Point, bucket: int) -> None:
        window = int(point.at // self.window_s)
        if window not in self.by_window and len(self.by_window) >= WINDOWS:
            del self.by_window[min(self.by_window)]
        self.by_window.setdefault(window, {}).setdefault(bucket, Sketch()).add(point.ttft_s)

    @property
    def fastest_s(self) -> float:
        """What an answer costs that computes next to nothing: the fastest of all that was no finding."""
        return min((sketch.least for sketch in self.by_bucket.values()), default=0.0)

    @property
    def telling(self) -> int:
        """Answers whose floor lies above `fastest_s`."""
        floor = self.floor_seen
        return sum(n for index, n in floor.bins.items() if index > _index(self.fastest_s))


def _index(value: float) -> int:
    probe = Sketch()
    if value <= 0:
        return -(10**9)
    probe.add(value)
    return next(iter(probe.bins))
