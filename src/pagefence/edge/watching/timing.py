"""The first token against the floor: what the hardware needs at least, or half of the fastest certified answer (I4).

The same floor and the same judgement as `pagefence latency`, for one answer.
"""

from __future__ import annotations

from pagefence.edge.watching.finding import Doubt, Kind
from pagefence.probes.latency.findings import FAR
from pagefence.probes.latency.tally import NEAR_SHARE, NEAR_ZERO, Floors

_WHAT = "the first token came sooner than so many tokens can be computed"


def known(floors: Floors | None) -> bool:
    """Whether there is anything to hold a time against."""
    return floors is not None and not (isinstance(floors.physics, str) and floors.calibration is None)


def too_fast(floors: Floors, ttft_s: float, tokens: int, cached: int | None) -> Doubt | None:
    """`tokens`: of the prompt, exactly or at least; `cached`: of them from a cache, None when nobody tells."""
    uncached = max(0, tokens - (cached or 0))
    physical, practical = floors.physical(uncached, cached or 0), floors.practical(uncached)
    floor = max(physical, practical)
    if ttft_s >= floor:
        return None
    facts = {"ttft_s": round(ttft_s, 6), "floor_s": round(floor, 6), "tokens": tokens, "cached": cached or 0}
    if cached is None:
        return Doubt(Kind.TOO_FAST, f"{_WHAT}, and nobody tells what came from a cache", False, facts)
    if ttft_s < physical:
        return Doubt(Kind.TOO_FAST, _WHAT, cached <= max(NEAR_ZERO, NEAR_SHARE * tokens), facts)
    return Doubt(Kind.TOO_FAST, f"{_WHAT} by this fleet", ttft_s * FAR <= practical, facts)
