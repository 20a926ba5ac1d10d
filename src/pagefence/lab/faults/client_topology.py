"""Identity: a client says where its bytes go."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import PAIR
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Reservation
from pagefence.protocol.router import Phase, RouterState, Step, reserved
from pagefence.sim.bounds import Ask


def chosen_pages(s: RouterState, m: Reservation) -> Step:
    """Fields that workers use among themselves, remote pages and peers, are taken from the body of a request.

    A client that names pages has them in place of those that decode reserved, and prefill writes into a page that is
    let to another tenant. (Here the field travels in the sampling parameters.)
    """
    _, said, named = s.requests[m.room].submit.sampling.partition(b"pages ")
    pages = tuple(PageRef(*page) for page in msgspec.json.decode(named)) if said else m.pages
    return reserved(s, msgspec.structs.replace(m, pages=pages))


FAULT = Fault(
    name="client-topology",
    summary="a client names the remote pages of its request, and is believed",
    mechanism=chosen_pages.__doc__ or "",
    reference="vllm-project/vllm #47843, #49796",
    rules=("I9", "I1"),
    override=lambda d: replace(d, cells={**d.cells, ("router", Phase.OFFERED, Reservation): chosen_pages}),
    # The second client names page 0 in its first tenancy: the first one's.
    bounds=replace(PAIR, name="named pages", asks=(Ask("a", 2), Ask("b", 2, said=b"pages [[0, 1]]"))),
    not_in_engine="its API takes no such field, so there is nothing for the router to believe",
    hidden_by=("handoff-check", "page-frames"),
)
