"""Wrong owner of a slot: the first token of an answer is somebody else's."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import PAIR
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode import Step, pages_digested
from pagefence.protocol.decode_state import DecodeState, Phase
from pagefence.protocol.effects import Run
from pagefence.protocol.messages import PagesDigested


def first_token_of_the_newest(d: Decisions, s: DecodeState, m: PagesDigested) -> Step:
    """First tokens arrive in a row of metadata that is let again while its old owner still has to read it.

    The pages are the request's own and pass every check; only the token that generation goes on from is the one that
    the row holds by now: that of the request which was delivered last. No guard compares it again at that point.
    """
    receipts = {room: request.receipt for room, request in s.requests.items() if request.receipt}
    newest = receipts[max(receipts)]
    after, effects = pages_digested(d, s, m)
    return after, tuple(replace(e, first_token=newest.first_token) if isinstance(e, Run) else e for e in effects)


FAULT = Fault(
    name="metadata-race",
    summary="a metadata row is reused while its old owner still reads it: another request's first token",
    mechanism=first_token_of_the_newest.__doc__ or "",
    reference="sgl-project/sglang #17259, #22716",
    rules=("I1", "I10"),
    override=lambda d: replace(
        d, cells={**d.cells, ("decode", Phase.VERIFYING, PagesDigested): first_token_of_the_newest}
    ),
    bounds=PAIR,
)
