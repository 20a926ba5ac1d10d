"""A rejection that is not one: the prompt is made to fit."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import INCIDENT, SHORT_PREFILL
from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool
from pagefence.protocol.admission import admit_prompt
from pagefence.protocol.messages import ErrorInfo, Start


def shorten_to_fit(start: Start, pool: PagePool) -> Admitted | ErrorInfo:
    """An over-length prompt is cut to what the pool holds, and nobody hears of it.

    Refusing would be unfriendly, so the beginning is computed and answered as if it were the whole. What decode
    reserved for the rest of the prompt is never written.
    """
    verdict = admit_prompt(start, pool)
    if isinstance(verdict, Admitted) or len(start.token_ids) <= pool.capacity:
        return verdict
    return Admitted(start.room, start.isolation_key, pool.capacity, start.token_ids[: pool.capacity])


FAULT = Fault(
    name="auto-truncate",
    summary="an over-length prompt is shortened and answered as if whole",
    mechanism=shorten_to_fit.__doc__ or "",
    reference="an option of sgl-project/sglang (allow-auto-truncate); the default of ollama/ollama",
    rules=("I6",),
    override=lambda d: replace(d, admit_prompt=shorten_to_fit),
    bounds=SHORT_PREFILL,
    world=INCIDENT,
    outside=("readiness", "router-limit"),
    hidden_by=("handoff-check", "page-frames", "zero-on-lease"),
)
