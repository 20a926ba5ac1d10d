"""Freed while in flight: pages are given up while the cache still stores them."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import SMALL, Fault
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.messages import Abort
from pagefence.protocol.prefill import Phase, PrefillState, Step, abort_computing
from pagefence.sim.bounds import Ask


def stored_as_if_whole(d: Decisions, s: PrefillState, m: Abort) -> Step:
    """A prompt's pages go into the prefix cache by a store that was queued for all of them when it was admitted.

    When the prompt is preempted the store goes on: under this prompt's key it files pages that were never computed,
    with what an earlier prompt left in them. The next prompt that begins alike attends over them.
    """
    request = s.requests[m.room]
    tokens = request.admitted.tokens
    stored = s.requests.set(m.room, replace(request, computed=tokens))
    return abort_computing(d, replace(s, pool=s.pool.fill(m.room, tokens), requests=stored), m)


FAULT = Fault(
    name="preempt-while-storing",
    summary="preemption frees pages that an asynchronous store still reads: wrong bytes under a right key",
    mechanism=stored_as_if_whole.__doc__ or "",
    reference="vllm-project/vllm #52360",
    rules=("I1", "I7"),
    override=lambda d: replace(d, cells={**d.cells, ("prefill", Phase.COMPUTING, Abort): stored_as_if_whole}),
    bounds=replace(SMALL, name="a prefix is asked for again", asks=(Ask("a", 3, 2, prefix=2),) * 2, prefix_cache=True),
    needs_hang_ups=True,
    hidden_by=("zero-on-lease",),
)
