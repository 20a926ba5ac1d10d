"""How often each thing happens in a simulated world, in events per second of virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from pagefence.sim.bounds import Ask, Bounds, Budget
from pagefence.sim.moves import Kind

# The ordinary course of things: a message takes about a millisecond, a forward pass fifty.
RATES: Mapping[Kind, float] = {
    "deliver": 1_000.0,
    "echo": 5.0,
    "land": 100.0,
    "compute": 20.0,
    "verify": 200.0,
    "generate": 40.0,
    "submit": 20.0,
    "reap": 1.0,
    "restart": 0.5,
}
# What goes wrong, at trouble 1.
MISHAPS: Mapping[Kind, float] = {
    "lose": 12.0,
    "repeat": 20.0,
    "overtake": 20.0,
    "early": 0.3,
    "hang-up": 0.4,
    "crash": 0.15,
    "compute-fails": 0.3,
    "write-fails": 2.0,
    "land-late": 2.0,
    "flip": 0.5,
}
_OFTEN = 1_000_000
UNLIMITED = Budget(*(_OFTEN,) * len(Budget()))


@dataclass(frozen=True, slots=True)
class Weather:
    """The rates of one run; `trouble` scales what goes wrong."""

    trouble: float

    def rate(self, kind: Kind) -> float:
        """Events per second of each move of this kind that is possible."""
        return RATES[kind] if kind in RATES else MISHAPS[kind] * self.trouble


def weather(random: Random) -> Weather:
    """Calm, rough or wild."""
    return Weather((0.1, 1.0, 5.0)[random.randrange(3)])


def small(random: Random) -> Bounds:
    """One or two workers of each kind, up to six requests of two tenants, pools that hold one or two of them."""
    prefix = 2 * random.randrange(2)
    asks = tuple(Ask(f"t{random.randrange(2)}", 1 + prefix + random.randrange(6), 1 + random.randrange(3), prefix)
                 for _ in range(2 + random.randrange(5)))  # fmt: skip
    pages = 6 + random.randrange(4)
    return Bounds(
        name="small",
        asks=asks,
        prefills=1 + random.randrange(2),
        decodes=1 + random.randrange(2),
        prefill_pages=pages,
        decode_pages=pages + random.randrange(4),
        context=11,
        prefix_cache=prefix > 0,
        budget=UNLIMITED,
    )


def large(random: Random) -> Bounds:
    """Ten workers of each kind and two hundred requests of eight tenants."""
    asks = tuple(Ask(f"t{random.randrange(8)}", 1 + random.randrange(24), 1 + random.randrange(4), 4)
                 for _ in range(200))  # fmt: skip
    asks = tuple(replace(ask, prefix=0) if ask.prompt <= ask.prefix else ask for ask in asks)
    return Bounds(
        name="large",
        asks=asks,
        prefills=10,
        decodes=10,
        prefill_pages=14,
        decode_pages=20,
        page_size=4,
        chunk=8,
        rows=4,
        context=32,
        max_waiting=8,
        max_in_flight=128,
        prefix_cache=True,
        budget=UNLIMITED,
    )
