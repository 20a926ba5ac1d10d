"""Freed while in flight: prefill lets pages that a transfer still reads."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import LATE
from pagefence.protocol import prefill
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.messages import Abort
from pagefence.protocol.prefill import Phase, PrefillState, Step


def flight_is_forgotten(d: Decisions, s: PrefillState, m: Abort) -> Step:
    """An abort ends the forward passes, and with them, it is thought, everything that the request was doing.

    A transfer that was launched goes on reading its source, whose pages are given back; decode is told that nothing is
    in flight. The next prompt computes into them, and the transfer carries its keys and values under this one's name.
    """
    request = s.requests[m.room]
    forgotten = replace(request, landed=request.launched)
    return prefill.abort_computing(d, replace(s, requests=s.requests.set(m.room, forgotten)), m)


FAULT = Fault(
    name="source-freed",
    summary="prefill frees its pages while a transfer still reads them",
    mechanism=flight_is_forgotten.__doc__ or "",
    reference="sgl-project/sglang #38961, vllm-project/vllm #21570, ai-dynamo/dynamo #826",
    rules=("I1",),
    override=lambda d: replace(d, cells={**d.cells, ("prefill", Phase.COMPUTING, Abort): flight_is_forgotten}),
    bounds=LATE,
    not_in_engine="its writes are synchronous: prefill looks at an abort only when none is in flight",
    hidden_by=("handoff-check", "page-frames"),
)
