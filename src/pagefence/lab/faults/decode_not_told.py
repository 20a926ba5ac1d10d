"""A rejection that is not one: only one of the two legs hears of it."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import INCIDENT, SHORT_PREFILL
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Send
from pagefence.protocol.messages import Rejected, Start
from pagefence.protocol.prefill import Phase, PrefillState, Step, start_arrives


def decode_is_not_told(d: Decisions, s: PrefillState, m: Start) -> Step:
    """Prefill gives a prompt up and says so to the router alone.

    Decode waits for a transfer that nobody will begin, and keeps pages and a row for it until a time-out of minutes
    ends the wait. A few of these and nobody is admitted any more.
    """
    s, effects = start_arrives(d, s, m)
    decode = m.reservation.decode
    return s, tuple(e for e in effects if not (isinstance(e, Send) and e.to == decode and isinstance(e.body, Rejected)))


FAULT = Fault(
    name="decode-not-told",
    summary="prefill gives up, decode is never told and holds its pages for minutes",
    mechanism=decode_is_not_told.__doc__ or "",
    reference="sgl-project/sglang #28651, #24522",
    rules=("I3", "I5"),
    override=lambda d: replace(d, cells={**d.cells, ("prefill", Phase.NEW, Start): decode_is_not_told}),
    bounds=SHORT_PREFILL,
    world=INCIDENT,
    not_in_engine="the router aborts both legs of what prefill rejects, so decode learns of it all the same",
    outside=("readiness", "router-limit"),
)
