"""The three places where a cache hit can show, each read for itself: usage, the fleet's own counters, and time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pagefence.fleet.counters import Window
from pagefence.probes.fresh import CACHE_TOLERANCE
from pagefence.probes.run import Outcome
from pagefence.probes.salt.ks import ALPHA, shorter
from pagefence.probes.salt.shots import Arm
from pagefence.probes.seen import Seen
from pagefence.probes.traffic import traffic

_FEWEST_TIMES = 20


def of(outcomes: Sequence[Outcome], arm: Arm) -> list[Outcome]:
    """The answered ones of an arm."""
    return [o for o in outcomes if o.shot.arm == arm and o.answer.answered]


def is_hit(outcome: Outcome) -> bool | None:
    """By its usage; None where the answer does not tell."""
    cached = outcome.answer.cached_tokens
    return None if cached is None else cached > CACHE_TOLERANCE


@dataclass(frozen=True, slots=True)
class Usage:
    """What usage says of an arm: hits, and how many answers told."""

    hits: tuple[Outcome, ...]
    told: int
    answered: int


def usage(outcomes: Sequence[Outcome], arm: Arm) -> Usage:
    mine = of(outcomes, arm)
    return Usage(tuple(o for o in mine if is_hit(o)), sum(is_hit(o) is not None for o in mine), len(mine))


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens that the fleet's counters say were found in a cache during an arm's wave, or why that says nothing.

    `whole`: tokens in the full pages of one of its prompts, which is what a hit brings.
    """

    arm: Arm
    answers: int
    tokens: int | None
    doubt: str | None
    whole: int = 0

    @property
    def hit(self) -> bool:
        return self.tokens is not None and self.tokens > CACHE_TOLERANCE * self.answers

    @property
    def hits(self) -> int:
        """The fewest answers that so many tokens can have come from."""
        if not self.hit:
            return 0
        over = (self.tokens or 0) - CACHE_TOLERANCE * self.answers
        return min(self.answers, math.ceil(over / max(1, self.whole - CACHE_TOLERANCE)))


def counted(seen: Seen, arm: Arm) -> Counted:
    """The window of an arm's wave."""
    names = {shot.id for shot in seen.plan.shots if shot.arm == arm}
    window = next((w for w in seen.windows if set(w.requests) & names), None)
    if window is None:
        return Counted(arm, 0, None, "no counter was read")
    about = traffic(window, seen.outcomes)
    tokens = _cached(window)
    if about.doubt is None and tokens is None:
        return Counted(arm, about.answered, None, "no counter of every node tells what came from a cache")
    page = seen.limits.page
    whole = max((o.prompt.tokens // page * page for o in about.outcomes), default=0)
    return Counted(arm, about.answered, None if about.doubt else tokens, about.doubt, whole)


def _cached(window: Window) -> int | None:
    """Every node has to tell; a decode node may have a cache of its own."""
    return window.moved((*window.entry, *window.exit), "cached") if window.entry else None


@dataclass(frozen=True, slots=True)
class Timed:
    """Whether hits can be told from misses by their time (`control`), and whether the other key's can (`other`).

    Both are the chance of such times if nothing had been shared. `doubt`: why there is no figure.
    """

    samples: tuple[int, int, int]
    control: float = 1.0
    other: float = 1.0
    doubt: str | None = None

    @property
    def shows(self) -> bool:
        return self.doubt is None and self.control <= ALPHA

    @property
    def shared(self) -> bool:
        return self.shows and self.other <= ALPHA


def timed(outcomes: Sequence[Outcome]) -> Timed | None:
    """The measurement of time; None where none was planned. Only prompts of equal length are compared."""
    mine = [o for o in outcomes if o.shot.arm in (Arm.HIT, Arm.CROSS, Arm.FRESH)]
    if not mine:
        return None
    lengths = {o.prompt.tokens for o in mine if o.answer.answered}
    hit, cross, fresh = (
        [o.answer.ttft_s for o in of(mine, arm) if o.answer.ttft_s is not None]
        for arm in (Arm.HIT, Arm.CROSS, Arm.FRESH)
    )
    sizes = (len(hit), len(cross), len(fresh))
    if len(lengths) > 1:
        return Timed(sizes, doubt=f"the prompts are of {len(lengths)} different lengths")
    if min(sizes) < _FEWEST_TIMES:
        return Timed(sizes, doubt=f"only {min(sizes)} times were measured")
    return Timed(sizes, shorter(hit, fresh), shorter(cross, fresh))
