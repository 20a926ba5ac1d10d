"""Wrong owner of a slot: a page that nobody holds and nobody can get."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode import Step, abort
from pagefence.protocol.decode_state import DecodeState, Phase
from pagefence.protocol.messages import Abort


def a_page_forgotten(d: Decisions, s: DecodeState, m: Abort) -> Step:
    """An abort gives back the pages that it knows of, and the request's newest page is not among them.

    Nobody's bytes are read by anybody, but the page is gone. With every abort the pool is smaller than it says, until
    requests that were promised to fit wait for ever.
    """
    newest = s.pool.lease_of(m.room).pages[-1].index
    after, effects = abort(d, s, m)
    free = tuple(index for index in after.pool.free if index != newest)
    return replace(after, pool=replace(after.pool, free=free)), effects


FAULT = Fault(
    name="page-leak",
    summary="an abort path forgets a page: the pool shrinks until admission starves",
    mechanism=a_page_forgotten.__doc__ or "",
    reference="sgl-project/sglang #18701, #18822",
    rules=("I6",),
    override=lambda d: replace(d, cells={**d.cells, ("decode", Phase.DECODING, Abort): a_page_forgotten}),
    needs_hang_ups=True,
)
