"""Leaving guards out by name. The product has no such switch: a world of the lab is built without them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pagefence.mistakes import Mistake
from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool
from pagefence.protocol.decisions import GUARDS, Decisions, Guard
from pagefence.protocol.messages import Offer, Start


def _anyone(request: Offer | Start, pool: PagePool) -> Admitted:
    """Admission left out: whoever asks may hold pages, and waits for ever for more than there are."""
    if isinstance(request, Offer):
        tokens = request.prompt_tokens + request.max_new_tokens
        return Admitted(request.room, request.isolation_key, tokens)
    return Admitted(request.room, request.isolation_key, len(request.token_ids), request.token_ids)


WITHOUT: Mapping[Guard, Callable[[Decisions], Decisions]] = {
    "readiness": lambda d: replace(d, not_ready=lambda topology: ()),
    # Without it the fleet also advertises what it was configured for, as the incident's did.
    "router-limit": lambda d: replace(
        d,
        router_limit=lambda submit, topology: None,
        longest_prompt=lambda topology: topology.longest - 1,
    ),
    "admission": lambda d: replace(d, admit_offer=_anyone, admit_prompt=_anyone),
    "handoff-check": lambda d: replace(
        d,
        check_receipt=lambda reservation, receipt, key: None,
        check_digests=lambda receipt, digests: None,
    ),
    "page-frames": lambda d: replace(d, check_frames=False),
    "zero-on-lease": lambda d: replace(d, zero_on_lease=False),
    "drain": lambda d: replace(d, may_release=lambda lease: True),
}


# A list of no guard at all. `off` leaves out only those that would hide the fault.
NONE = "none"


class UnknownGuard(Mistake):
    """No guard of this name can be left out; the message lists those that can."""


def select(spec: str, hide: Iterable[Guard], outside: Iterable[Guard]) -> tuple[Guard, ...]:
    """Which guards are in force for `--guards SPEC`.

    `on`: all but those `outside` the fault's world. `off`: also without those that would `hide` the fault.
    `none`: no guard. A list: exactly these names; or, written `no-NAME,...`, all but these. Raises UnknownGuard.
    """
    world = tuple(guard for guard in GUARDS if guard not in set(outside))
    if spec == "on":
        return world
    if spec == "off":
        return tuple(guard for guard in world if guard not in set(hide))
    if spec == NONE:
        return ()
    names = [name.strip() for name in spec.split(",") if name.strip()]
    if names and all(name.startswith("no-") for name in names):
        left_out = {_known(name.removeprefix("no-")) for name in names}
        return tuple(guard for guard in world if guard not in left_out)
    if not names:
        raise UnknownGuard("--guards needs on, off or a list of names")
    chosen = {_known(name) for name in names}
    return tuple(guard for guard in GUARDS if guard in chosen)


def without(decisions: Decisions, in_force: Iterable[Guard]) -> Decisions:
    """The decisions with every other guard left out."""
    kept = tuple(in_force)
    for guard, leave_out in WITHOUT.items():
        if guard not in kept:
            decisions = leave_out(decisions)
    return replace(decisions, guards=kept)


def _known(name: str) -> Guard:
    for guard in WITHOUT:
        if guard == name:
            return guard
    raise UnknownGuard(f"no guard {name!r}; guards are {', '.join(WITHOUT)} (or on, off; no-NAME leaves one out)")
