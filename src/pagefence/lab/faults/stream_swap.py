"""Another's output: an answer goes on after its client has gone."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import PAIR
from pagefence.protocol.effects import Begin, Emit
from pagefence.protocol.messages import Tokens
from pagefence.protocol.router import Phase, RouterState, Step
from pagefence.sim.bounds import Budget


def to_the_next_of_the_channel(s: RouterState, m: Tokens) -> Step:
    """A request is cancelled while its answer is on the way, and the connection that carries it is used again.

    What was left of the answer is taken by the next user of the connection for the beginning of its own. The bytes in
    every page are right; only the last few steps of the way are wrong, behind every guard.
    """
    users = [room for room, request in s.requests.items() if request.phase is not Phase.OFFERED]
    if not users:
        return s, ()
    request = s.requests[min(users)]
    begin = () if request.phase is Phase.COMMITTED else (Begin(request.submit.ticket, m.room),)
    s = replace(s, requests=s.requests.set(min(users), replace(request, phase=Phase.COMMITTED)))
    return s, (*begin, Emit(request.submit.ticket, m.token_ids, m.logprobs))


FAULT = Fault(
    name="stream-swap",
    summary="a cancelled request's remaining answer goes to the next user of the channel",
    mechanism=to_the_next_of_the_channel.__doc__ or "",
    reference="BerriAI/litellm #35023; the redis-py incident of March 2023",
    rules=("I10",),
    override=lambda d: replace(d, cells={**d.cells, ("router", Phase.OVER, Tokens): to_the_next_of_the_channel}),
    bounds=replace(PAIR, name="cancelled beside another", prefill_pages=1, budget=Budget(hang_up=1)),
    needs_hang_ups=True,
)
