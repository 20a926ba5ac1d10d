"""Wrong owner of a slot: pages are given back twice and get two owners."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode import Step, generated
from pagefence.protocol.decode_state import DecodeState, Phase
from pagefence.protocol.messages import Generated


def released_twice(d: Decisions, s: DecodeState, m: Generated) -> Step:
    """The error path and the terminal path of a request both give its pages back, each sure that it is the only one.

    The free list then names a page twice, or one that was let again in between, and it gets two owners. (Here the
    generations give it away: the second lease makes the first one stale, and the pool refuses what it does next.)
    """
    pages = s.pool.lease_of(m.room).pages
    after, effects = generated(d, s, m)
    if m.room in after.requests:
        return after, effects
    # The pool's own `release` refuses the second time, so the bug has to go round it.
    pool = replace(after.pool, free=(*after.pool.free, *(ref.index for ref in reversed(pages))))
    return replace(after, pool=pool), effects


FAULT = Fault(
    name="double-free",
    summary="the error path and the terminal path both release: one page, two owners",
    mechanism=released_twice.__doc__ or "",
    reference="sgl-project/sglang #30937, #25805",
    rules=("I6", "I1"),
    override=lambda d: replace(d, cells={**d.cells, ("decode", Phase.DECODING, Generated): released_twice}),
)
