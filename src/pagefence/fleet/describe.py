"""Ask a fleet for its figures. Sends no prompt, needs no key on the workers, and reads each worker itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pagefence.fleet.answer import mapping
from pagefence.fleet.facts import (
    DECODE,
    PREFILL,
    ROUTER,
    Figure,
    FleetFacts,
    NodeFacts,
    node_facts,
    positive,
    text,
    unknown,
    unreadable_node,
)
from pagefence.fleet.http import Fleet, Reply

_INFO = ("/server_info", "/get_server_info")


async def describe(fleet: Fleet) -> FleetFacts:
    """Everything that the live processes say: router first, then every worker that is declared or listed."""
    router: NodeFacts | None = None
    advertised = unknown("/v1/models", "no router was given")
    reasons: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    ready: bool | None = None
    body: Mapping[str, object] = {}
    if fleet.target.router:
        url = fleet.target.router.rstrip("/")
        info, models, readiness = await asyncio.gather(
            _info(fleet, url), fleet.get(url, "/v1/models", "a"), fleet.get(url, "/readyz")
        )
        body = info.body if info.problem is None else {}
        problems = (f"{url}/server_info {info.problem}",) if info.problem is not None else _unnamed(fleet, body)
        router = _node(url, ROUTER, info)
        advertised = _advertised(models)
        fleet.model = _model(models) or text(body, "model_name")
        ready, reasons = _readiness(readiness, body)
    declared = _declared(fleet, body)
    nodes = await asyncio.gather(*(_ask(fleet, url, role) for url, role in declared))
    if router is not None and not nodes and router.pool.value is not None:
        nodes = [_node(router.url, None, info)]
        router = None
    return FleetFacts(
        url=fleet.target.router or ", ".join(url for url, _ in declared),
        model=fleet.model,
        advertised=advertised,
        nodes=tuple(nodes),
        router=router,
        ready=ready,
        reasons=reasons,
        guards={k: v for k, v in mapping(body.get("guards")).items() if isinstance(v, bool)},
        problems=problems,
    )


def _declared(fleet: Fleet, body: Mapping[str, object]) -> list[tuple[str, str | None]]:
    """Workers named on the command line win; otherwise those that the router lists."""
    target = fleet.target
    if target.prefill or target.decode:
        return [*((url, PREFILL) for url in target.prefill), *((url, DECODE) for url in target.decode)]
    listed = body.get("workers")
    found: list[tuple[str, str | None]] = []
    for worker in listed if isinstance(listed, list) else []:
        url, role = mapping(worker).get("url"), mapping(worker).get("role")
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            found.append((url, role if role in (PREFILL, DECODE) else None))
        else:
            found.append(("", role if role in (PREFILL, DECODE) else None))
    return found


def _unnamed(fleet: Fleet, body: Mapping[str, object]) -> tuple[str, ...]:
    """Workers that the router lists and nobody named, by their number: one worker may have two addresses."""
    target, listed = fleet.target, body.get("workers")
    if not (target.prefill or target.decode) or not isinstance(listed, list):
        return ()
    problems = []
    for role, named in ((PREFILL, target.prefill), (DECODE, target.decode)):
        count = sum(mapping(worker).get("role") == role for worker in listed)
        if count > len(set(named)):
            problems.append(f"the router lists {count} {role} workers, but {len(set(named))} were named")
    return tuple(problems)


async def _ask(fleet: Fleet, url: str, role: str | None) -> NodeFacts:
    if not url:
        return unreadable_node("(no address)", role, "/server_info", "is listed by the router without an address")
    return _node(url.rstrip("/"), role, await _info(fleet, url))


async def _info(fleet: Fleet, url: str) -> Reply:
    """`/server_info`, or its older name where only that one exists."""
    reply = await fleet.get(url, _INFO[0])
    return reply if reply.status != 404 else await fleet.get(url, _INFO[1])


def _node(url: str, role: str | None, info: Reply) -> NodeFacts:
    if info.problem is not None:
        return unreadable_node(url, role, "/server_info", info.problem)
    return node_facts(url, role, info.body, "/server_info")


def _first_model(models: Reply) -> Mapping[str, object]:
    data = models.body.get("data")
    return mapping(data[0]) if isinstance(data, list) and data else {}


def _advertised(models: Reply) -> Figure:
    source = "/v1/models max_model_len"
    if models.problem is not None:
        return unknown(source, models.problem)
    cards = models.body.get("data")
    said = (
        [positive(card["max_model_len"], source) for card in map(mapping, cards) if "max_model_len" in card]
        if (isinstance(cards, list))
        else []
    )
    if not said:
        return unknown(source, "is missing")
    # The boldest promise counts, and one that cannot be read is bolder than all.
    return next((f for f in said if f.value is None), max(said, key=lambda figure: figure.value or 0))


def _model(models: Reply) -> str | None:
    return text(_first_model(models), "id")


def _readiness(readiness: Reply, body: Mapping[str, object]) -> tuple[bool | None, tuple[str, ...]]:
    """Ready or not, with reasons. A fleet without `/readyz` leaves it to `/server_info`, or unknown."""
    said = body.get("reasons") if body.get("reasons") else readiness.body.get("reasons")
    reasons = tuple(str(r)[:300] for r in said) if isinstance(said, list) else ()
    # One "no" outweighs every "yes": something in front of the fleet may answer 200 to any path.
    if readiness.status == 503 or False in (body.get("ready"), readiness.body.get("ready")):
        return False, reasons
    if True in (body.get("ready"), readiness.body.get("ready")):
        return True, ()
    return None, reasons
