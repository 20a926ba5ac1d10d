"""What each kind of reader can be expected to show, before any is asked: a table, and a schedule made of it.

The table is measured on a page-exact replica of one incident (docs/concepts/canary.md has the counts); a share of k in
n stands here as (k + 1) / (n + 2), so that nothing is held for certain or impossible. A fault may show in one form only
(streaming or not, one wording, sampled or greedy), and from a certain length on.

A reader is worth what its answer would tell about whether any of these faults is there (mutual information, in bits),
per prompt token; each answer that shows nothing makes what it could have shown less likely, so the next reader is of
another kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import log2

from pagefence.probes.prompt import ASKING, NEUTRAL


def _share(shown: int, of: int) -> float:
    return (shown + 1) / (of + 2)


# Chance to show, by fault: greedy, and sampled at temperature 0.8 where that was measured.
STALE_NEAR, STALE_NEAR_SAMPLED = _share(15, 16), _share(7, 12)  # all pages but one stale, just over the limit
FAINT_NEAR = _share(2, 9)  # the same where the model copies badly: misses say little about the next try
STALE_FAR = _share(0, 16)  # far over it: pages that nobody planted dilute the planted ones
ASKED_TAIL, NEUTRAL_TAIL = _share(16, 16), _share(0, 4)  # stale tail, or another's tokens in the batch
HALF_STALE = _share(5, 16)  # half of the pages stale: own recall is lost, nothing foreign shows
SAMPLED = STALE_NEAR_SAMPLED / STALE_NEAR  # what sampling leaves of any of them

STALE = {"stale": STALE_NEAR, "stale, faint": FAINT_NEAR}
# Faults over the limit with their weights: all stale, or the end of the prompt stale.
OVER = {"stale": 0.43, "stale, faint": 0.43, "tail, over": 0.14}

LENGTHS = (0.95, 0.5, 0.25, 0.065)  # of the longest legal prompt
# A fault within the limits shows from this part of the longest prompt on, with this weight.
FROM = ((0.0, 0.55), (0.2, 0.25), (0.4, 0.15), (0.9, 0.05))
# Wording, temperature, streaming. Not neutral and sampled at once: asked so, the embedded model lost its own words in
# 11 of 11 legal answers, against 0 of 44 when asked to repeat and 0 of 20 when greedy.
FORMS = tuple(form for form in product((NEUTRAL, ASKING), (0.0, 0.8), (False, True)) if form[:2] != (NEUTRAL, 0.8))
# A fault may be bound to one form; the guess is that two in ten are, evenly over the six.
ONLY = (
    ("stream", True),
    ("stream", False),
    ("wording", NEUTRAL),
    ("wording", ASKING),
    ("sampled", True),
    ("sampled", False),
)
_ANY_FORM = 0.8
_PRIOR = 0.5  # that there is any fault: the most that one can be unsure
_PER_REQUEST = 8  # what a request costs besides its prompt, in prompt tokens


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of reader. `length`: as a part of the longest legal prompt; `near`: just over the limit."""

    length: float
    wording: str
    temperature: float
    stream: bool
    over: bool = False
    near: bool = False

    def has(self, only: tuple[str, object]) -> bool:
        """Whether it is of this form."""
        aspect, value = only
        return {"stream": self.stream, "wording": self.wording, "sampled": self.temperature > 0}[aspect] == value


@dataclass(frozen=True, slots=True)
class Fault:
    """A hypothesis: what is wrong, in which form it shows (None: in all), from which length on."""

    kind: str
    only: tuple[str, object] | None
    start: float

    def shows(self, cell: Cell) -> float:
        """The chance that a reader of this kind shows it."""
        if cell.length < self.start or cell.over != (self.kind in OVER):
            return 0.0
        if self.only is not None and not cell.has(self.only):
            return 0.0
        if self.only == ("wording", NEUTRAL) and self.kind not in STALE:
            return SAMPLED if cell.temperature else 1.0  # what only a neutral reader can show
        greedy = _greedy(self.kind.removesuffix(", over"), cell)
        return greedy * (SAMPLED if cell.temperature else 1.0)


def _greedy(kind: str, cell: Cell) -> float:
    if kind in STALE:
        return STALE[kind] if cell.near else STALE_FAR
    if kind == "tail":
        return ASKED_TAIL if cell.wording == ASKING else NEUTRAL_TAIL
    return HALF_STALE


@cache
def faults() -> tuple[tuple[Fault, float], ...]:
    """Every hypothesis with its prior weight; together with "no fault" they sum to one."""
    forms = ((None, _ANY_FORM), *((only, (1 - _ANY_FORM) / len(ONLY)) for only in ONLY))
    kinds = [
        *((kind, 0.0, weight) for kind, weight in OVER.items()),
        *((kind, start, weight) for kind in ("tail", "half") for start, weight in FROM),
    ]
    each = _PRIOR / sum(weight for _, _, weight in kinds)
    return tuple(
        (Fault(kind, only, start), each * weight * share) for kind, start, weight in kinds for only, share in forms
    )


@cache
def _chances(cell: Cell) -> tuple[float, ...]:
    """The chance that a reader of this kind shows each fault."""
    return tuple(fault.shows(cell) for fault, _ in faults())


@dataclass(frozen=True, slots=True)
class Belief:
    """How likely each fault still is, after readers that showed nothing."""

    odds: tuple[float, ...] = tuple(weight for _, weight in faults())

    def shows(self, cell: Cell) -> float:
        return sum(odds * shows for odds, shows in zip(self.odds, _chances(cell), strict=True))

    def information(self, cell: Cell) -> float:
        """Bits about "is there any fault?" that the answer to such a reader is expected to give."""
        shows, fault = self.shows(cell), sum(self.odds)
        if not shows or not fault:
            return 0.0
        # H(answer) - H(answer | is there a fault): without a fault the answer shows nothing, for certain.
        return _entropy(shows) - fault * _entropy(min(1.0, shows / fault))

    def after(self, cell: Cell) -> Belief:
        """What is left after such a reader showed nothing."""
        nothing = 1.0 - self.shows(cell)
        left = (odds * (1.0 - shows) / nothing for odds, shows in zip(self.odds, _chances(cell), strict=True))
        return replace(self, odds=tuple(left))


def _entropy(p: float) -> float:
    return 0.0 if p <= 0 or p >= 1 else -p * log2(p) - (1 - p) * log2(1 - p)


def schedule(tokens: Callable[[Cell], int], budget: int, most: int) -> tuple[tuple[Cell, int], ...]:
    """Readers within the limits with their prompt tokens, the most telling per token first, within a budget.

    The answers are not waited for: what they would show if all were well decides about the next.
    """
    cells = [Cell(length, wording, heat, stream) for length in LENGTHS for wording, heat, stream in FORMS]
    priced = [(cell, tokens(cell)) for cell in cells]
    picked: list[tuple[Cell, int]] = []
    belief = Belief()
    while len(picked) < most:
        fitting = [(cell, cost) for cell, cost in priced if cost <= budget]
        if not fitting:
            break
        best, cost = max(fitting, key=lambda pair: belief.information(pair[0]) / (pair[1] + _PER_REQUEST))
        picked.append((best, cost))
        belief, budget = belief.after(best), budget - cost
    return tuple(picked)
