"""A rejection that is not one: the client is told that all went well."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import INCIDENT, SHORT_PREFILL
from pagefence.protocol.effects import End, Refuse
from pagefence.protocol.messages import Rejected
from pagefence.protocol.router import Phase, RouterState, Step, rejected


def finished_normally(s: RouterState, m: Rejected) -> Step:
    """The reason why a request ended is kept in one place, and whoever ends it last writes over what was there.

    A rejection is noted, the request then leaves by the usual way out, and that notes a normal finish: HTTP 200,
    `length`, no tokens, and the error is gone.
    """
    prompt = len(s.requests[m.room].submit.token_ids)
    s, effects = rejected(s, m)
    return s, tuple(End(e.ticket, "length", prompt, 0) if isinstance(e, Refuse) else e for e in effects)


FAULT = Fault(
    name="abort-overwritten",
    summary="a pending abort is replaced by a normal finish: HTTP 200, `length`, 0 tokens",
    mechanism=finished_normally.__doc__ or "",
    reference="sgl-project/sglang #33507, #35421",
    rules=("I5",),
    override=lambda d: replace(d, cells={**d.cells, ("router", Phase.STARTED, Rejected): finished_normally}),
    bounds=SHORT_PREFILL,
    world=INCIDENT,
    outside=("readiness", "router-limit"),
)
