"""Which page of a reader's prompt was written by whom, as far as that shows from outside.

Nobody outside sees a page. Known is what was sent, what the fleet reported, how long the planted prompt was, and whose
words came back; how many pages really came only where the fleet counts it. The rest is inferred from how this class of
fault works (docs/concepts/isolation.md), and each stretch says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Owner(StrEnum):
    READER = "reader"
    PLANTER = "planter"
    MIXED = "mixed"
    NOBODY = "nobody"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Pages `first` to `last` (from 0, both counted) and whose tokens attention read there. `known`: not inferred."""

    first: int
    last: int
    owner: Owner
    known: bool
    why: str


@dataclass(frozen=True, slots=True)
class Read:
    """What is known of a reading request; all but `page_told` in tokens.

    sent      its prompt, as counted before it was sent
    new       new tokens that it asked for
    page      of one page; `page_told` False where no node tells it and 64 is assumed
    limit     the longest prompt that every node says it accepts
    planted   the prompt whose words came back; None when it is not known
    """

    sent: int
    new: int
    page: int
    page_told: bool
    limit: int
    planted: int | None


def page_map(read: Read) -> tuple[Stretch, ...]:
    """All pages that attention read for the request, in order, without gaps."""
    prompt = -(-read.sent // read.page)
    everything = max(prompt, -(-(read.sent + read.new) // read.page))
    return tuple(_joined(_pages(read, prompt, everything)))


def _pages(read: Read, prompt: int, everything: int) -> Iterator[Stretch]:
    if read.sent <= read.limit:
        yield Stretch(
            0, prompt - 1, Owner.MIXED, False, "within the limit: which pages were foreign does not show outside"
        )
    else:
        own = 1
        why = "the prompt was over the limit, and what is rejected goes on as a stub of one page"
        planted = 0 if read.planted is None else min(prompt, -(-read.planted // read.page))
        yield Stretch(0, own - 1, Owner.READER, False, why)
        stale = f"reserved and never written; the planted prompt had {read.planted or 0:,} tokens"
        yield Stretch(own, planted - 1, Owner.PLANTER, False, stale)
        yield Stretch(
            max(own, planted), prompt - 1, Owner.NOBODY, False, "beyond the planted prompt: older tenants, or zeros"
        )
    yield Stretch(prompt, everything - 1, Owner.ANSWER, True, "new tokens are written here")


def _joined(stretches: Iterator[Stretch]) -> Iterator[Stretch]:
    return (stretch for stretch in stretches if stretch.first <= stretch.last)


def cells(stretches: Sequence[Stretch], most: int) -> list[tuple[int, int, Stretch]]:
    """At most `most` cells of equally many pages: first page, last page, and the stretch that begins or fills each.

    A stretch is never lost in a cell of another: the cell of its first page is its own.
    """
    total = stretches[-1].last + 1
    size = max(1, -(-total // max(1, most - len(stretches))))
    found: list[tuple[int, int, Stretch]] = []
    for stretch in stretches:
        firsts = range(stretch.first, stretch.last + 1, size)
        found += [(first, min(first + size - 1, stretch.last), stretch) for first in firsts]
    return found
