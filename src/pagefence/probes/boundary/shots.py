"""Where to ask: at every limit and just over it, in both forms. What is accepted costs compute, so those are few."""

from __future__ import annotations

from pagefence.fleet import Limits
from pagefence.probes.shot import LISTED, PLAIN, Maker, Purpose, Shot

NAME = "boundary"
_ANSWER = 2
_SHORT = 48


def borders_over(limits: Limits) -> tuple[int, ...]:
    """Lengths that must be refused: just over every limit and at it, and far beyond. Equal ones are one."""
    edges = {limits.longest + 1, limits.refused, limits.context, limits.context + 1}
    edges |= {limits.advertised, limits.advertised + 1, 2 * limits.advertised}
    edges |= {pool + d for pool in (limits.pools[0], limits.pools[-1]) for d in (0, 1)}
    least = max(limits.longest + 1, limits.refused)
    return tuple(sorted(n for n in edges if n >= least))


def over(maker: Maker, limits: Limits, tenant: str = "b") -> tuple[Shot, ...]:
    return tuple(
        maker.shot(NAME, Purpose.OVER, tenant, n, _ANSWER, stream=stream)
        for n in borders_over(limits)
        for stream in (False, True)
    )


def alive(maker: Maker, limits: Limits, tenant: str = "b") -> tuple[Shot, ...]:
    """A short prompt of the tenant who asks over the limits: without its answer silence there means nothing."""
    return (maker.shot(NAME, Purpose.ALIVE, tenant, min(_SHORT, limits.longest), _ANSWER),)


def within(maker: Maker, limits: Limits, budget: int) -> tuple[Shot, ...]:
    """The limit in both forms and one less: what is accepted costs real compute, so these three are all.

    As many of them as `budget` prompt tokens allow, the limit itself first.
    """
    wanted = ((0, False), (0, True), (1, False))
    affordable = max(0, budget) // limits.longest
    return tuple(
        maker.shot(
            NAME,
            Purpose.WITHIN,
            "a",
            limits.longest - less,
            limits.room(limits.longest - less, _ANSWER),
            LISTED if stream else PLAIN,
            stream=stream,
        )
        for less, stream in wanted[:affordable]
    )
