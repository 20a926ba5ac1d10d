"""Worlds that several faults share: settings of the real engine, and small ones for the explorer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pagefence.lab.fault import SMALL
from pagefence.sim.bounds import Ask, Bounds, Budget

# The incident's: prefill holds half of what is advertised, decode twice as much. No prefix cache: the page that a
# placeholder gets is then one that was used a moment ago, as in a pool under load.
INCIDENT: Mapping[str, Any] = {
    "context": 2048,
    "prefill_pool_tokens": 1024,
    "decode_pool_tokens": 4096,
    "prefix_cache": False,
}
SHORT_PREFILL = replace(
    SMALL, name="short prefill", asks=(Ask("a", 4), Ask("b", 6)), prefill_pages=2, decode_pages=4, context=8
)
# Two requests that fit beside each other in every pool, a page each: both are under way at once.
PAIR = Bounds("pair", (Ask("a", 2), Ask("b", 2)), prefill_pages=2, decode_pages=2, page_size=4, context=4)
# Two tenants whose prompts begin alike; the first one's full page stays cached when the second arrives.
CACHED = Bounds(
    "cached",
    (Ask("a", 3, 2, prefix=2), Ask("b", 3, 2, prefix=2)),
    prefill_pages=3,
    decode_pages=3,
    context=5,
    prefix_cache=True,
)
# Prefill has room for both prompts and decode for one request: the second is let what the first gives back.
LATE = Bounds(
    "late writes",
    (Ask("a", 2), Ask("b", 2)),
    prefill_pages=2,
    decode_pages=2,
    context=4,
    budget=Budget(hang_up=1),
)
# Prompts of three pages: a transfer that runs ahead has somewhere to run to.
THREE_CHUNKS = replace(SMALL, name="three chunks", asks=(Ask("a", 5), Ask("b", 5)), decode_pages=4, context=7)
# The second prompt gets pages that the first, a longer one, has written.
TWO_LENGTHS = replace(
    SMALL, name="two lengths", asks=(Ask("a", 6), Ask("b", 4)), decode_pages=4, context=8, budget=Budget()
)
