"""How large a world is and how much may go wrong in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


class Budget(NamedTuple):
    """How often each thing may still go wrong. What is not listed here is the ordinary course of things.

    `early`: a timer fires although something else could still happen; without a budget timers only fire when nothing
    else can. `overtake`: a message is delivered before an older one of its channel. `flip`: a frame is found broken.
    `doubt`: a write fails, and each page of it may land at any later time all the same.
    """

    lose: int = 0
    repeat: int = 0
    overtake: int = 0
    early: int = 0
    hang_up: int = 0
    crash: int = 0
    fail: int = 0
    flip: int = 0
    doubt: int = 0


NOTHING_GOES_WRONG = Budget()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that a client will make. Tokens 0..`prefix` of the prompt are the same in every ask with one."""

    tenant: str
    prompt: int
    new: int = 2
    prefix: int = 0
    said: bytes = b""  # what a hostile client slips in beside the prompt


@dataclass(frozen=True, slots=True)
class Bounds:
    """One world. Sizes in pages and tokens; asks are made in this order, each at any time."""

    name: str
    asks: tuple[Ask, ...]
    prefills: int = 1
    decodes: int = 1
    prefill_pages: int = 4
    decode_pages: int = 4
    page_size: int = 2
    chunk: int = 2
    rows: int = 2
    context: int = 8
    headroom: float = 1.0
    limit: int | None = None
    max_waiting: int = 2
    max_in_flight: int = 8
    quarantine_share: float = 0.5
    prefix_cache: bool = False
    budget: Budget = NOTHING_GOES_WRONG

    def prompt(self, ticket: int) -> tuple[int, ...]:
        """The token ids of an ask: no two asks share one, but for the common prefix."""
        ask = self.asks[ticket]
        own = 1_000 * (ticket + 1)
        return tuple(i + 1 if i < ask.prefix else own + i for i in range(ask.prompt))

    def names(self) -> tuple[str, ...]:
        """The workers: p1, p2, ... prefill and d1, d2, ... decode."""
        return _names(self.prefills, self.decodes)


@lru_cache
def _names(prefills: int, decodes: int) -> tuple[str, ...]:
    return (*(f"p{i + 1}" for i in range(prefills)), *(f"d{i + 1}" for i in range(decodes)))


def answer(ticket: int, index: int) -> int:
    """The token at `index` of the answer to a ticket, so that a stray one shows whose it is."""
    return 1_000_000 + ticket * 1_000 + index
