"""A rejection that is not one: two parts of the fleet go by two limits."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import SMALL, Fault
from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool
from pagefence.protocol import errors
from pagefence.protocol.admission import admit_prompt
from pagefence.protocol.messages import ErrorInfo, Start
from pagefence.sim.bounds import Ask


def admit_by_a_derived_limit(start: Start, pool: PagePool) -> Admitted | ErrorInfo:
    """One queue asks whether a prompt fits the pool, another compares it with an input limit derived from the pool.

    The derived figure is a page smaller. A prompt between the two is welcome at the door and refused inside, after
    decode has reserved for it: exactly at the length that nobody tries before a customer does.
    """
    limit, tokens = pool.capacity - pool.page_size, len(start.token_ids)
    return admit_prompt(start, pool) if tokens <= limit else errors.context_length(limit, tokens, "prompt")


FAULT = Fault(
    name="wrong-limit",
    summary="one queue checks the pool, another a smaller derived limit: a prompt within what is stated is refused",
    mechanism=admit_by_a_derived_limit.__doc__ or "",
    reference="sgl-project/sglang #30325",
    rules=("I3",),
    override=lambda d: replace(d, admit_prompt=admit_by_a_derived_limit),
    bounds=replace(SMALL, name="up to the limit", asks=(Ask("a", 4), Ask("b", 5, 1)), prefill_pages=3),
    world={"context": 2048, "prefill_pool_tokens": 2048, "decode_pool_tokens": 4096, "headroom": 1.0},
)
