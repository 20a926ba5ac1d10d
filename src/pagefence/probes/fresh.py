"""What begins with a fresh nonce cannot be in anybody's cache."""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.fleet import Limits
from pagefence.probes.details import details
from pagefence.probes.evidence import Evidence, Kind
from pagefence.probes.run import Outcome

CACHE_TOLERANCE = 32  # tokens that the nonce and a shared word may match by accident


def cache_hits(probe: str, outcomes: Sequence[Outcome], limits: Limits) -> list[Evidence]:
    """Every prompt begins with a fresh nonce: pages of it cannot have been computed before."""
    found = []
    for outcome in outcomes:
        cached = outcome.answers[0].cached_tokens or 0
        if cached > CACHE_TOLERANCE:
            what = f"{cached} tokens of a prompt that begins with a fresh nonce came from a cache"
            found.append(
                Evidence(Kind.FAIL, probe, "cache", outcome.shot.id, what, "I7", details=details(outcome, limits))
            )
    return found
