"""Freed while in flight: time alone is taken for proof."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import LATE
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode import Step, drain_timer, prefill_is_drained
from pagefence.protocol.decode_state import DecodeState, Phase
from pagefence.protocol.messages import Drained, Timer
from pagefence.sim.bounds import Budget


def long_enough(d: Decisions, s: DecodeState, m: Timer) -> Step:
    """Aborted pages wait for prefill's word, and when it has not come in time they are given back without it.

    Whoever has been silent for so long, it is thought, writes no more. A slow link, a stopped process or a queue that
    is full says otherwise: the write lands later, in pages that were let again.
    """
    if m.kind != "drain" or s.requests[m.room].distrusted:
        return drain_timer(d, s, m)
    return prefill_is_drained(d, s, Drained(m.room))


FAULT = Fault(
    name="timeout-releases",
    summary="the hold on aborted pages ends on a timer, drained or not",
    mechanism=long_enough.__doc__ or "",
    reference="sgl-project/sglang #35049 (a fall-back after 30 s)",
    rules=("I2",),
    override=lambda d: replace(d, cells={**d.cells, ("decode", Phase.QUARANTINED, Timer): long_enough}),
    bounds=replace(LATE, name="a timer is early", budget=Budget(hang_up=1, early=1)),
    needs_hang_ups=True,
    hidden_by=("handoff-check", "page-frames"),
)
