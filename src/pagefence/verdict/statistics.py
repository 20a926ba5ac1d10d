"""How sure one can be. Closed forms only; each has its law in the tests."""

from __future__ import annotations

import math

CONFIDENCE = 0.95


def upper_bound(probes: int, confidence: float = CONFIDENCE) -> float:
    """The largest rate that still leaves `probes` clean probes a chance of 1 - confidence: 1 - (1 - c)^(1/n).

    The rate is the product of two: how often a request is hit, and how often a hit surfaces. With no probe the bound
    is 1: nothing is known.
    """
    if probes <= 0:
        return 1.0
    return -math.expm1(math.log1p(-confidence) / probes)


def probes_needed(rate: float, confidence: float = CONFIDENCE) -> int:
    """How many clean probes exclude `rate` at this confidence: the smallest n with (1 - rate)^n <= 1 - c."""
    if not 0 < rate <= 1:
        raise ValueError("a rate is more than 0 and at most 1")
    if rate == 1:
        return 1
    return max(1, math.ceil(math.log1p(-confidence) / math.log1p(-rate) - 1e-9))


def chance_found(rate: float, probes: int) -> float:
    """The chance that at least one of `probes` shows what shows at `rate`: 1 - (1 - rate)^n."""
    if rate >= 1:
        return 1.0 if probes > 0 else 0.0
    return -math.expm1(probes * math.log1p(-rate))
