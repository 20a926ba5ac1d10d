"""A rejection that is not one: the incident of August 2026."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import INCIDENT, SHORT_PREFILL
from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool
from pagefence.protocol.admission import admit_prompt
from pagefence.protocol.messages import ErrorInfo, Start


def placeholder_for_rejected(start: Start, pool: PagePool) -> Admitted | ErrorInfo:
    """A rejected prompt is swapped for a one-token placeholder and goes on.

    One queue noted the error, the next one asked "finished?", and "not finished" stood for "valid". So a page is
    computed and sent for the placeholder, and decode is told that the transfer is complete.
    """
    verdict = admit_prompt(start, pool)
    if isinstance(verdict, Admitted):
        return verdict
    return Admitted(start.room, start.isolation_key, 1, (0,))


FAULT = Fault(
    name="stub-transfer",
    summary="a rejected prompt goes on as a one-token placeholder; decode reads every page that it reserved",
    mechanism=placeholder_for_rejected.__doc__ or "",
    reference="sgl-project/sglang #30233, #34208, #36926, #38935",
    rules=("I3", "I4", "I1", "I6"),
    override=lambda d: replace(d, admit_prompt=placeholder_for_rejected),
    bounds=SHORT_PREFILL,
    world=INCIDENT,
    outside=("readiness", "router-limit"),
    hidden_by=("handoff-check", "page-frames", "zero-on-lease"),
)
