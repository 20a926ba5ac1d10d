"""What tenant A plants and tenant B reads: which lengths, in whose words, in which form."""

from __future__ import annotations

from pagefence.fleet import Limits
from pagefence.probes.prompt import Manner
from pagefence.probes.shot import ASKED, LISTED, PLAIN, Maker, Purpose, Shot, Wave

NAME = "canary"
_ROUNDS = 3
_ANSWER = 32
_MOST_PLANTS = 6
_MOST_OVER = 16


def controls(maker: Maker, limits: Limits) -> tuple[Shot, ...]:
    tokens = max(40, min(128, limits.longest // 4))
    return tuple(
        maker.shot(NAME, Purpose.CONTROL, "ab"[i % 2], tokens, 24, (PLAIN, ASKED)[i // 2], 0.0, i % 2 == 1)
        for i in range(4)
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
    waves.append(Wave("tenant B reads within the limits", _within(maker, limits), limits.pool))
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
    return tuple(sorted({n for n in (*fitting, *refused) if n > limits.longest}))[:_MOST_OVER]


def _over(maker: Maker, limits: Limits) -> tuple[Shot, ...]:
    return tuple(
        maker.shot(NAME, Purpose.READ_OVER, "b", n, _ANSWER, *_manner(i), stream=i % 2 == 1)
        for i, n in enumerate(reading_over(limits))
    )


def _again(maker: Maker, limits: Limits) -> tuple[Shot, ...]:
    """The three lengths at which planted words surface best: the fewest slots after the planted pages."""
    edge = max(limits.pool, limits.longest)
    pages = -(-edge // limits.page) * limits.page
    lengths = sorted({limits.longest + 1, pages + 1, pages + limits.page + 1})
    return tuple(maker.shot(NAME, Purpose.READ_OVER, "b", n, _ANSWER, stream=i % 2 == 0) for i, n in enumerate(lengths))


def _manner(i: int) -> tuple[Manner, float]:
    """Neutral and greedy mostly; one in five asks, one in five samples."""
    return (ASKED if i % 5 == 4 else PLAIN), (0.8 if i % 5 == 3 else 0.0)


def _within(maker: Maker, limits: Limits) -> tuple[Shot, ...]:
    """Readers that are legal: one near the limit, then shorter and shorter ones, which buy probes for few tokens."""
    top = min(limits.longest, limits.context - _ANSWER)
    wanted = [0.95] + [0.25] * 3 + [0.1] * 4 + [0.065] * 9
    lengths = [max(40, min(top, round(limits.longest * part))) for part in wanted]
    return tuple(
        maker.shot(NAME, Purpose.READ, "b", n, 24, *_manner(i), stream=i % 2 == 0) for i, n in enumerate(lengths)
    )
