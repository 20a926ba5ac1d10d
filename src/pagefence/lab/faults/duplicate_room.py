"""Identity: two requests under one name."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pagefence.lab.fault import SMALL, Fault
from pagefence.protocol.decisions import ANY, Decisions
from pagefence.protocol.messages import Submit
from pagefence.protocol.router import RouterState, Step, submit
from pagefence.sim.bounds import Ask


def room_of_the_clients_choice(d: Decisions, s: RouterState, m: Submit) -> Step:
    """The room comes out of the request's body, so two requests that name the same one are one request to the fleet.

    Whatever is filed by room is filed over: the first client waits for an answer that belongs to the second, and what
    was computed for one is delivered to the other. (Here the choice travels in the sampling parameters.)
    """
    same = [room.counter for room, request in s.requests.items() if request.submit.sampling == m.sampling]
    chosen = msgspec.structs.replace(m, nonce=m.sampling.hex())
    after, effects = submit(d, replace(s, counter=min(same, default=s.counter)), chosen)
    return replace(after, counter=max(s.counter, after.counter)), effects


FAULT = Fault(
    name="duplicate-room",
    summary="two requests carry one room that their client chose",
    mechanism=room_of_the_clients_choice.__doc__ or "",
    reference="sgl-project/sglang #40125",
    rules=("I9",),
    override=lambda d: replace(d, cells={**d.cells, ("router", ANY, Submit): room_of_the_clients_choice}),
    bounds=replace(SMALL, name="chosen rooms", asks=(Ask("a", 4, said=b"mine"), Ask("b", 4, said=b"mine"))),
)
