"""The worlds in which the correct protocol is explored. Each lets one kind of thing go wrong; together, everything.

All have two tenants and a pool that one request fills, so that every page is reused by the other tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pagefence.sim.bounds import Ask, Bounds, Budget

# What a green run must have seen, or it has not been where bugs live. Reached by running, never by construction.
SOMETIMES = (
    "a page was reused by another tenant",
    "an abort overtook a write",
    "an abort overtook a start",
    "a write landed in quarantine",
    "pages were in quarantine",
    "two chunks were in flight",
    "an answer was complete",
)
WHEN: Mapping[str, tuple[str, ...]] = {
    "lose": ("a message was lost",),
    "repeat": ("a message came twice",),
    "overtake": ("a message overtook another",),
    "early": ("a timer fired early",),
    "crash": ("a worker crashed",),
    "fail": ("a forward pass failed",),
    "doubt": ("a write failed", "a failed write landed all the same"),
}


@dataclass(frozen=True, slots=True)
class Scenery:
    """A world by name. `long`: minutes, so only explored when asked for by name."""

    bounds: Bounds
    about: str
    long: bool = False


_TWO = (Ask("a", 4), Ask("b", 4))
_BASE = Bounds("hang-ups", _TWO, prefill_pages=3, decode_pages=3, context=6, budget=Budget(hang_up=2))


def _of(name: str, about: str, long: bool = False, **changes: object) -> Scenery:
    return Scenery(replace(_BASE, name=name, **changes), about, long)  # type: ignore[arg-type]


_ALL = (
    _of("hang-ups", "both clients may hang up, at any moment"),
    _of("losses", "a message is lost, a client may hang up", budget=Budget(lose=1, hang_up=1)),
    _of("repeats", "a message comes twice, the second time as late as it likes", asks=(Ask("a", 4, 1), Ask("b", 2)),
        budget=Budget(repeat=1, hang_up=1)),
    _of("overtaking", "messages overtake each other twice", budget=Budget(overtake=2, hang_up=1)),
    _of("timers", "a timer fires early, a client may hang up", budget=Budget(early=1, hang_up=1)),
    _of("crashes", "a worker crashes at any moment and comes back", budget=Budget(crash=1, hang_up=1)),
    _of("failures", "a forward pass fails, a frame is found broken", budget=Budget(fail=1, flip=1, hang_up=1)),
    _of("doubts", "two writes fail, and each page of them may land all the same, as late as it likes",
        asks=(Ask("a", 3, 1), Ask("b", 2, 1)), page_size=1, prefill_pages=4, decode_pages=4, context=4,
        budget=Budget(doubt=2, hang_up=1)),
    _of("doubts-and-crashes", "a write fails and may land all the same, a worker crashes and comes back",
        asks=(Ask("a", 2, 1), Ask("b", 2, 1)), page_size=1, context=3, budget=Budget(doubt=1, crash=1)),
    _of("cache", "two requests share a prefix of one tenant's, a third has the same of another's",
        asks=(Ask("a", 5, 1, 4), Ask("b", 5, 1, 4), Ask("a", 5, 1, 4)), prefix_cache=True,
        prefill_pages=4, context=6, budget=Budget(hang_up=1)),
    _of("two-by-two", "two workers of each kind, three requests, six pages each, a client may hang up", long=True,
        asks=(Ask("a", 4), Ask("b", 4), Ask("a", 2)), prefills=2, decodes=2, prefill_pages=6, decode_pages=6,
        budget=Budget(hang_up=1)),
    _of("losses-and-repeats", "a message is lost, another comes twice, and both clients may hang up", long=True,
        asks=(Ask("a", 4, 1), Ask("b", 2)), budget=Budget(lose=1, repeat=1, hang_up=2)),
    _of("everything", "one of everything that can go wrong", long=True, asks=(Ask("a", 4), Ask("b", 2)),
        budget=Budget(*(1,) * len(Budget()))),
)  # fmt: skip
WORLDS: Mapping[str, Scenery] = {scenery.bounds.name: scenery for scenery in _ALL}


def expected(bounds: Bounds) -> tuple[str, ...]:
    """What a complete search of these bounds must have seen."""
    base = SOMETIMES if bounds.budget.hang_up else ("an answer was complete",)
    return (*base, *(seen for what, goals in WHEN.items() if getattr(bounds.budget, what) for seen in goals))
