"""Where to ask: at every limit and just over it, in both forms. What is accepted costs compute, so those are few."""

from __future__ import annotations

from pagefence.fleet import Limits
from pagefence.probes.shot import LISTED, PLAIN, Maker, Purpose, Shot

NAME = "boundary"
_ANSWER = 2


def borders_over(limits: Limits) -> tuple[int, ...]:
    """Lengths that must be refused: just over every limit and at it, and far beyond. Equal ones are one."""
    edges = {limits.longest + 1, limits.context, limits.context + 1, limits.advertised, limits.advertised + 1}
    edges |= {pool + d for pool in (limits.pools[0], limits.pools[-1]) for d in (0, 1)}
    edges.add(2 * limits.advertised)
    return tuple(sorted(n for n in edges if n > limits.longest))


def over(maker: Maker, limits: Limits) -> tuple[Shot, ...]:
    return tuple(
        maker.shot(NAME, Purpose.OVER, "b", n, _ANSWER, stream=stream)
        for n in borders_over(limits)
        for stream in (False, True)
    )


def within(maker: Maker, limits: Limits) -> tuple[Shot, ...]:
    """The limit and one less, both forms: what is accepted costs real compute, so these four are all."""
    return tuple(
        maker.shot(
            NAME,
            Purpose.WITHIN,
            "a",
            n,
            limits.room(n, _ANSWER),
            LISTED if stream else PLAIN,
            stream=stream,
        )
        for n in (limits.longest - 1, limits.longest)
        for stream, layout in ((False, PLAIN), (True, LISTED))
    )
