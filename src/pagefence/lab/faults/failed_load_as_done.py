"""A rejection that is not one: what failed is counted as done."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import SMALL, Fault
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.messages import ComputeFailed, Landed
from pagefence.protocol.prefill import Phase, PrefillState, Step, compute_failed, landed
from pagefence.sim.bounds import Budget


def failed_is_done(d: Decisions, s: PrefillState, m: ComputeFailed) -> Step:
    """What will bring no more bytes is taken off the list of what is awaited, whether it came or failed to come.

    When the list is empty the prompt counts as there. So a failure in the middle sends a receipt for the whole prompt,
    and decode attends over what its pages held before: the answer is made of the previous prompt.
    """
    request = s.requests[m.room]
    if request.landed < request.launched:
        return compute_failed(d, s, m)
    tokens = request.admitted.tokens
    request = replace(request, computed=tokens, launched=tokens, first_token=0)
    s = replace(s, pool=s.pool.fill(m.room, tokens), requests=s.requests.set(m.room, request))
    return landed(d, s, Landed(m.room, tokens, ()))


FAULT = Fault(
    name="failed-load-as-done",
    summary="a failed KV load counts as received: the answer is made of the previous prompt",
    mechanism=failed_is_done.__doc__ or "",
    reference="vllm-project/vllm #52234, #20063",
    rules=("I4", "I1"),
    override=lambda d: replace(d, cells={**d.cells, ("prefill", Phase.COMPUTING, ComputeFailed): failed_is_done}),
    bounds=replace(SMALL, name="a forward pass fails", budget=Budget(fail=1)),
    not_in_engine="no forward pass of a healthy engine fails, and no client can make one fail",
    hidden_by=("handoff-check", "page-frames", "zero-on-lease"),
)
