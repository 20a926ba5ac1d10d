"""A rejection that is not one: an abort finds more than it was meant for."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import PAIR
from pagefence.protocol.decisions import ANY, Decisions
from pagefence.protocol.effects import Effects
from pagefence.protocol.messages import ClientGone
from pagefence.protocol.router import RouterState, Step, client_gone
from pagefence.sim.bounds import Budget


def aborted_by_prefix(_: Decisions, s: RouterState, m: ClientGone) -> Step:
    """An abort looks for the requests whose id begins with the one that it was given.

    Request 1's abort is also that of 10 to 19. And 0 counts as no id: it is written as the empty text, with which
    every id begins, so one client that hangs up ends the requests of all the others.
    """
    asked, effects = str(m.ticket or ""), Effects()
    for ticket in sorted(s.rooms):
        if str(ticket).startswith(asked):
            s, more = client_gone(s, ClientGone(ticket))
            effects += more
    return s, effects


FAULT = Fault(
    name="abort-matches-many",
    summary="an empty or prefix request id aborts other requests",
    mechanism=aborted_by_prefix.__doc__ or "",
    reference="sgl-project/sglang #25561",
    rules=("I9", "I5"),
    override=lambda d: replace(d, cells={**d.cells, ("router", ANY, ClientGone): aborted_by_prefix}),
    bounds=replace(PAIR, name="one of two hangs up", budget=Budget(hang_up=1)),
    needs_hang_ups=True,
)
