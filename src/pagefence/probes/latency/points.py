"""What a judgement of timing is made of, and what a plot of it draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """One answer: how many prompt tokens had to be computed for it, and when its first token came.

    uncached_tokens  prompt tokens less those that came from a cache
    ttft_s           seconds to the first token (of an answer that was not streamed: to its end, which is later)
    probe            the probe that asked, or the source: `log`
    at               when it was asked, Unix seconds; 0 where nobody tells
    cached_tokens    None when nobody told how many: then a cache may explain any speed
    """

    uncached_tokens: int
    ttft_s: float
    probe: str = ""
    at: float = 0.0
    cached_tokens: int | None = 0
    name: str = ""

    @property
    def tokens(self) -> int:
        """The whole prompt."""
        return self.uncached_tokens + (self.cached_tokens or 0)


@dataclass(frozen=True, slots=True)
class Plot:
    """TTFT against uncached tokens with the floors, for a report to draw.

    points     a sample of what was seen, with every answer under a floor that was kept
    physical   the physical floor as (uncached tokens, seconds), rising; empty when it is not known
    practical  the calibrated floor in the same way, a staircase; empty without a calibration
    limits     prompt lengths that divide the plot: the longest legal prompt, pools, contexts
    """

    points: tuple[Point, ...] = ()
    physical: tuple[tuple[int, float], ...] = ()
    practical: tuple[tuple[int, float], ...] = ()
    limits: tuple[int, ...] = ()

    def as_details(self) -> Mapping[str, object]:
        """Plain lists, for a report in JSON: points as [uncached tokens, seconds, probe, at]."""
        return {
            "points": [[p.uncached_tokens, round(p.ttft_s, 6), p.probe, p.at] for p in self.points],
            "physical_floor": [list(pair) for pair in self.physical],
            "practical_floor": [list(pair) for pair in self.practical],
            "limits": list(self.limits),
        }
