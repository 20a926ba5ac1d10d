"""Read before ready: a transfer runs ahead of the forward pass."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import THREE_CHUNKS
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.messages import ChunkComputed
from pagefence.protocol.prefill import Phase, PrefillState, Step, chunk_computed
from pagefence.sim.bounds import Budget


def a_page_ahead(d: Decisions, s: PrefillState, m: ChunkComputed) -> Step:
    """The next chunk's first page is sent together with this chunk: the kernel that fills it is already queued.

    Queued is not finished. The transfer reads what the page held before, and it is not read again once it is full.
    The digest is made of the same bytes that were sent, so the receipt and what arrived agree.
    """
    last_border = (s.requests[m.room].admitted.tokens - 1) // s.pool.page_size * s.pool.page_size
    ahead = min(m.computed + s.pool.page_size, last_border)
    return chunk_computed(d, s, msgspec.structs.replace(m, computed=max(m.computed, ahead)))


FAULT = Fault(
    name="early-send",
    summary="a page is sent before the forward pass that fills it has finished",
    mechanism=a_page_ahead.__doc__ or "",
    reference="sgl-project/sglang #29316, #33970",
    rules=("I4", "I1"),
    override=lambda d: replace(d, cells={**d.cells, ("prefill", Phase.COMPUTING, ChunkComputed): a_page_ahead}),
    bounds=replace(THREE_CHUNKS, budget=Budget()),
    hidden_by=("zero-on-lease",),
)
