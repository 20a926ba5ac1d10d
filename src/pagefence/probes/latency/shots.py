"""Which lengths are asked: from short to the longest legal one for the control, and over the limits, where an answer in
a blink is what the incident looks like. One at a time, so that no answer waits for another, in a random order."""

from __future__ import annotations

from dataclasses import replace

from pagefence.fleet import Limits
from pagefence.probes.shot import Maker, Purpose, Shot

NAME = "latency"
_ANSWER = 2
_SHORTEST = 48
_LENGTHS = 6
_OVER_EACH = 2


def lengths(limits: Limits) -> tuple[int, ...]:
    """Legal ones: the longest, half of it, and so on."""
    found = {max(_SHORTEST, limits.longest >> i) for i in range(_LENGTHS)}
    return tuple(sorted(n for n in found if n <= limits.longest))


def over(limits: Limits) -> tuple[int, ...]:
    """Lengths that no pool can hold and somebody may believe in: as far over as fits, where a floor is highest."""
    edge, believed = max(limits.pool, limits.longest), limits.advertised - _ANSWER
    if believed <= edge:
        return (limits.advertised + 1,)
    return tuple(sorted({edge + 1 + (believed - edge - 1) * part // 3 for part in range(4)}))


def shots(maker: Maker, limits: Limits, rounds: int) -> tuple[Shot, ...]:
    """`rounds` of every legal length, each round in an order of its own; the ones over the limit spread among them."""
    beyond = [n for n in over(limits) for _ in range(_OVER_EACH)]
    maker.random.shuffle(beyond)
    order: list[tuple[int, Purpose]] = []
    for i in range(rounds):
        mixed = [(n, Purpose.TIME) for n in lengths(limits)]
        mixed += [(n, Purpose.OVER) for n in beyond[i::rounds]]
        maker.random.shuffle(mixed)
        order += mixed
    made = [maker.shot(NAME, why, "a", n, limits.room(n, _ANSWER), stream=True) for n, why in order]
    return tuple(replace(shot, spare=None) for shot in made)
