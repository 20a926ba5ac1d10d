"""Read before ready: fewer pages are sent than are waited for."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import TWO_LENGTHS
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import WriteChunk
from pagefence.protocol.messages import ChunkComputed
from pagefence.protocol.prefill import Phase, PrefillState, Step, chunk_computed


def common_prefix(d: Decisions, s: PrefillState, m: ChunkComputed) -> Step:
    """Source and destination are two lists of pages, and they are moved pair by pair until one of them ends.

    The source's list was made before its last chunk, so that chunk is not moved; there was no error either, so the
    transfer is complete. Decode attends over what its last pages held before.
    """
    s, effects = chunk_computed(d, s, m)
    if m.computed < s.requests[m.room].admitted.tokens:
        return s, effects
    nothing = s.pool.pages_for(m.computed) * s.pool.page_size
    return s, tuple(replace(e, start=nothing) if isinstance(e, WriteChunk) else e for e in effects)


FAULT = Fault(
    name="short-source",
    summary="the source has fewer pages than the destination: the common prefix is moved and called complete",
    mechanism=common_prefix.__doc__ or "",
    reference="sgl-project/sglang #38704 and its connector code",
    rules=("I4",),
    override=lambda d: replace(d, cells={**d.cells, ("prefill", Phase.COMPUTING, ChunkComputed): common_prefix}),
    bounds=TWO_LENGTHS,
    hidden_by=("handoff-check", "page-frames", "zero-on-lease"),
)
