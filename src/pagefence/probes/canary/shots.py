"""What tenant A plants and tenant B reads: which lengths, in whose words, in which form."""

from __future__ import annotations

from pagefence.fleet import Limits
from pagefence.probes.canary.prior import FORMS, Belief, Cell, schedule
from pagefence.probes.prompt import Manner
from pagefence.probes.shot import ASKED, LIST_ASKED, LISTED, PLAIN, Maker, Purpose, Shot, Wave

NAME = "canary"
_ROUNDS = 3
_ANSWER = 32
_LEGAL_ANSWER = 24
_SHORTEST = 64
MOST_READERS = 60
NEAR_PAGES = 3
_MOST_PLANTS = 6
_MOST_OVER = 16


def controls(maker: Maker, limits: Limits) -> tuple[Shot, ...]:
    """Own recall in every manner that the plan uses, one of each tenant: what this model does not copy is left out."""
    tokens = max(64, min(96, limits.longest // 4))
    return tuple(
        maker.shot(NAME, Purpose.CONTROL, tenant, tokens, _LEGAL_ANSWER, manner, 0.0, tenant == "b")
        for manner in (PLAIN, LISTED, ASKED, LIST_ASKED)
        for tenant in ("a", "b")
    )


def plants(maker: Maker, limits: Limits, planted: int, budget: int) -> tuple[Shot, ...]:
    """Enough of the longest prompts that every page of the largest decode pool is touched, within the budget."""
    shots: list[Shot] = []
    while planted < limits.cover and len(shots) < _MOST_PLANTS:
        tokens = max(40, min(limits.longest, max(limits.cover - planted, limits.longest // 2)))
        budget -= tokens
        if budget < 0 and planted:
            break
        layout = (PLAIN, LISTED)[maker.count % 2]
        shots.append(maker.shot(NAME, Purpose.PLANT, "a", tokens, limits.room(tokens, 2), layout))
        planted += tokens
    return tuple(shots)


def readers(maker: Maker, limits: Limits, budget: int) -> list[Wave]:
    """All of tenant B's. Where the fleet answers over its limits, planting and reading are repeated."""
    waves = [Wave("tenant B reads over the limits", _over(maker, limits), 0)]
    for _ in range(_ROUNDS):
        again = plants(maker, limits, limits.cover - 1, limits.longest)
        waves.append(Wave("it answers over its limits: plant again", again, 0, True))
        waves.append(Wave("it answers over its limits: read again", _again(maker, limits), 0, True))
    waves.append(Wave("tenant B reads within the limits", _within(maker, limits, budget), limits.pool))
    return waves


def reading_over(limits: Limits) -> tuple[int, ...]:
    """Lengths for readers over a limit. Most of them just over the smallest: there the fewest pages are unplanted.

    And most of those just over a page border: what lies last in memory speaks loudest, and there it is short.

    A fleet may believe in any context that one of its parts advertises, so the answer has to fit into the largest.
    """
    edge = max(limits.pool, limits.longest)
    believed = limits.advertised
    pages = -(-edge // limits.page) * limits.page
    near = [limits.longest + 1, edge + 2, edge + 14, *(pages + k * limits.page + d for k in (1, 2, 3) for d in (1, 2))]
    far = [(edge + believed) // 2, believed - _ANSWER] if edge < believed else []
    fitting = [n for n in (*near, *far) if n + _ANSWER <= believed]
    refused = [limits.context + 1, believed + 1, believed + 33]
    least = max(limits.longest + 1, limits.refused)
    return tuple(sorted({n for n in (*fitting, *refused) if n >= least}))[:_MOST_OVER]


def _over(maker: Maker, limits: Limits) -> tuple[Shot, ...]:
    """Each length once, in the form of which is known least after those before it."""
    shots, belief = [], Belief()
    for n in reading_over(limits):
        near = n <= max(limits.pool, limits.longest) + NEAR_PAGES * limits.page
        cells = [Cell(1.0, wording, heat, stream, over=True, near=near) for wording, heat, stream in FORMS]
        best = max(cells, key=belief.information)
        belief = belief.after(best)
        shots.append(_reader(maker, Purpose.READ_OVER, n, _ANSWER, best))
    return tuple(shots)


def _reader(maker: Maker, purpose: Purpose, tokens: int, answer: int, cell: Cell) -> Shot:
    manner = Manner(wording=cell.wording)
    return maker.shot(NAME, purpose, "b", tokens, answer, manner, cell.temperature, cell.stream)


def _again(maker: Maker, limits: Limits) -> tuple[Shot, ...]:
    """The three lengths at which planted words surface best: the fewest slots after the planted pages."""
    edge = max(limits.pool, limits.longest)
    pages = -(-edge // limits.page) * limits.page
    lengths = sorted({limits.longest + 1, pages + 1, pages + limits.page + 1})
    return tuple(maker.shot(NAME, Purpose.READ_OVER, "b", n, _ANSWER, stream=i % 2 == 0) for i, n in enumerate(lengths))


def _within(maker: Maker, limits: Limits, budget: int) -> tuple[Shot, ...]:
    """Readers that are legal, by what the next one would tell per prompt token, until the budget is used up."""
    top = min(limits.longest, limits.context - _ANSWER)
    picked = schedule(lambda cell: max(_SHORTEST, min(top, round(limits.longest * cell.length))), budget, MOST_READERS)
    return tuple(_reader(maker, Purpose.READ, tokens, _LEGAL_ANSWER, cell) for cell, tokens in picked)
