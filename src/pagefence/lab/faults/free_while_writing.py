"""Freed while in flight: decode lets pages into which prefill still writes."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import LATE
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode import Step, abort
from pagefence.protocol.decode_state import DecodeState, Phase
from pagefence.protocol.messages import Abort


def released_at_once(d: Decisions, s: DecodeState, m: Abort) -> Step:
    """An abort on decode gives the pages back at once; that prefill's writes are one-sided is nobody's thought.

    Nothing on decode can stop a write that was launched. It lands after the next owner's prompt, and the next owner
    reads another tenant's text. This is the guard "drain" left out on abort, and nothing else: what still stands are
    the page frames, which name the late writer, and before the commit the digests.
    """
    return abort(replace(d, may_release=lambda lease: True), s, m)


FAULT = Fault(
    name="free-while-writing",
    summary="decode frees pages on abort while prefill's remote writes are still landing; the next owner gets them",
    mechanism=released_at_once.__doc__ or "",
    reference="sgl-project/sglang #24527, #27372, #32564, #35049",
    rules=("I2", "I1"),
    override=lambda d: replace(d, cells={**d.cells, ("decode", Phase.RESERVED, Abort): released_at_once}),
    bounds=LATE,
    needs_hang_ups=True,
    hidden_by=("handoff-check", "page-frames"),
)
