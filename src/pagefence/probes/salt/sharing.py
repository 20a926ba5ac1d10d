"""How the tenants of the salt probe are told apart, and whether time is measured too."""

from __future__ import annotations

from dataclasses import dataclass

from pagefence.fleet import FleetFacts

NONE = "none"
CACHE_SALT = "cache_salt"
# Engines that know no tenants and keep prefixes apart by a field of the request.
_SALTED = ("vllm", "sglang")


@dataclass(frozen=True, slots=True)
class Sharing:
    """`field`: of the request's body, set to a value of its own for each tenant; None: API keys alone tell them apart.

    `timing`: also measure the time to the first token, which costs hundreds of requests.
    """

    field: str | None = None
    timing: bool = False


KEYS_ALONE = Sharing()


def field_for(facts: FleetFacts, asked: str | None) -> str | None:
    """The field to send. Asked directly, vLLM and SGLang get the one that whoever stands in front of them must set."""
    if asked is not None:
        return None if asked == NONE else asked
    front = facts.router or (facts.nodes[0] if len(facts.nodes) == 1 else None)
    return CACHE_SALT if front is not None and front.engine in _SALTED else None
