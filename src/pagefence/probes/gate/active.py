"""The few requests of `--active`: a client that sets what it must not, and a prompt just over the edge limit."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping

from pagefence.fleet import Answer, Fleet, Request
from pagefence.probes.gate.asked import ActiveResults, EdgeAnswer, FieldAnswer
from pagefence.probes.prompt import Manner, write
from pagefence.probes.run import UNCOUNTED, ruler_for
from pagefence.probes.sentinel import Sentinel, draw

_TENANT = "a"
_REFUSAL_S = 20.0  # what is refused needs no compute; a worker that believes a room may wait for it much longer


async def ask_active(fleet: Fleet, edge_limit: int | None) -> ActiveResults:
    """Ask through the router, as an honest tenant's client. Raises nothing for what the fleet does."""
    if fleet.target.router is None:
        return ActiveResults(obstacle="no router URL was given, so no client's request can be sent")
    control = await fleet.complete(Request("Hello", 1), _TENANT, _REFUSAL_S)
    if not control.answered:
        said = control.error.message if control.error is not None else (control.problem or "no message")
        return ActiveResults(obstacle=f"a plain one-token request got HTTP {control.status}: {said[:160]}")
    values = forbidden_values()
    answers = await asyncio.gather(*(_with_field(fleet, name, value) for name, value in values.items()))
    edge = await _edge(fleet, edge_limit) if edge_limit is not None else ()
    return ActiveResults(tuple(map(FieldAnswer, values, answers)), edge)


def forbidden_values() -> Mapping[str, object]:
    """A value for each field that could do no harm if it were believed.

    The address is one that belongs to nobody (RFC 5737); room, id and salt are fresh and long, so they are nobody
    else's, nor the beginning of one.
    """
    return {
        "bootstrap_host": "192.0.2.1",
        "bootstrap_port": 9,
        "bootstrap_room": secrets.randbits(62),
        "kv_transfer_params": {"do_remote_prefill": False, "do_remote_decode": False},
        "disaggregated_params": {"request_type": "context_and_generation"},
        "rid": f"pagefence-{secrets.token_hex(16)}",
        "cache_salt": f"pagefence-{secrets.token_hex(16)}",
        "extra_key": f"pagefence-{secrets.token_hex(16)}",
        "data_parallel_rank": 0,
    }


async def _with_field(fleet: Fleet, name: str, value: object) -> Answer:
    return await fleet.complete(Request("Hello", 1, extra=((name, value),)), _TENANT, _REFUSAL_S)


async def _edge(fleet: Fleet, limit: int) -> tuple[EdgeAnswer, ...]:
    """A prompt of one token more, in both forms, and one that is just within."""
    sentinel = Sentinel("edge", _TENANT, next(draw(secrets.randbits(31))))
    nonce, manner = f"{random.SystemRandom().getrandbits(48):012x}", Manner()
    ruler = await ruler_for(fleet, _TENANT, nonce, sentinel, manner)
    found = []
    for tokens, stream in ((limit, False), (limit + 1, False), (limit + 1, True)):
        prompt = await write(ruler, nonce, sentinel, tokens, manner)
        over = tokens > limit
        if prompt is None:
            answer = Answer(None, problem=UNCOUNTED, stream=stream)
            found.append(EdgeAnswer(tokens, over, False, answer))
            continue
        answer = await fleet.complete(Request(prompt.text, 1, stream=stream), _TENANT, None if not over else 60.0)
        on_its_side = (prompt.tokens > limit) == over
        found.append(EdgeAnswer(prompt.tokens, over, prompt.counted and on_its_side, answer))
    return tuple(found)
