"""Admission and limits: who may hold pages, and what the fleet says no to before anything is held."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool
from pagefence.protocol import errors
from pagefence.protocol.messages import Capacity, ErrorInfo, Offer, Role, Start, Submit


@dataclass(frozen=True, slots=True)
class Node:
    """A living worker as the router knows it."""

    name: str
    role: Role
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class Topology:
    """What readiness is judged on. `limit` is a declared, enforced limit below the context, if there is one."""

    context: int
    headroom: float
    nodes: tuple[Node, ...]
    limit: int | None = None

    @property
    def longest(self) -> int:
        """Tokens that one request may need, prompt and answer together."""
        return min(self.context, self.limit or self.context)


def longest_prompt(topology: Topology) -> int:
    """The longest prompt that every living worker can hold, leaving one token for the answer: what is advertised."""
    # Decode also needs a slot for what it generates.
    pools = (n.capacity.pool_tokens - (1 if n.role == "decode" else 0) for n in topology.nodes)
    return min((topology.longest - 1, *pools))


def not_ready(topology: Topology) -> tuple[str, ...]:
    """Why the fleet must not take traffic (I8); empty when it may."""
    reasons = [f"no {role} worker is alive" for role in ("prefill", "decode") if not _has(topology, role)]
    need = math.ceil(topology.longest * topology.headroom)
    reasons += [
        f"{node.name} ({node.role}): pool of {node.capacity.pool_tokens} tokens is smaller than {topology.longest} "
        f"x headroom {topology.headroom:g} = {need}"
        for node in topology.nodes
        if node.capacity.pool_tokens < need
    ]
    return tuple(reasons)


def _has(topology: Topology, role: str) -> bool:
    return any(node.role == role for node in topology.nodes)


def router_limit(submit: Submit, topology: Topology) -> ErrorInfo | None:
    """Refuse what no worker can hold, before anyone is asked."""
    prompt = len(submit.token_ids)
    longest = longest_prompt(topology)
    if prompt > longest:
        return errors.context_length(longest + 1, prompt, submit.param)
    if prompt + submit.max_new_tokens > topology.longest:
        return errors.context_length(topology.longest, prompt, submit.param, submit.max_new_tokens)
    return None


def admit_offer(offer: Offer, pool: PagePool) -> Admitted | ErrorInfo:
    """Decode's admission: prompt and answer must fit the whole pool."""
    tokens = offer.prompt_tokens + offer.max_new_tokens
    if offer.prompt_tokens < 1 or offer.max_new_tokens < 1:
        return errors.invalid("a request needs at least one prompt token and one new token", "prompt")
    if tokens > pool.capacity:
        return errors.context_length(pool.capacity, offer.prompt_tokens, "prompt", offer.max_new_tokens)
    return Admitted(offer.room, offer.isolation_key, tokens)


def admit_prompt(start: Start, pool: PagePool) -> Admitted | ErrorInfo:
    """Prefill's admission: the prompt must fit the whole pool and be the one that decode reserved for."""
    tokens = len(start.token_ids)
    if tokens != start.reservation.prompt_tokens:
        return errors.internal(f"prompt of {tokens} tokens, reservation for {start.reservation.prompt_tokens}")
    reservation = start.reservation
    if reservation.page_size != pool.page_size or len(reservation.pages) != pool.pages_for(tokens):
        return errors.internal(
            f"{len(reservation.pages)} pages of {reservation.page_size} tokens were reserved for {tokens} tokens; "
            f"prefill's pages hold {pool.page_size}"
        )
    if tokens > pool.capacity:
        return errors.context_length(pool.capacity, tokens, "prompt")
    return Admitted(start.room, start.isolation_key, tokens, start.token_ids)
