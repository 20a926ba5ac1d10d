"""Ask a fleet for its figures. Sends no prompt. Each worker is read itself: a router's word is no figure."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pagefence.fleet.engines import ADAPTERS, Adapter, Asked, openai
from pagefence.fleet.engines.readings import owner
from pagefence.fleet.facts import (
    DECODE,
    PREFILL,
    ROUTER,
    SINGLE,
    SPEED,
    UNKNOWN,
    Figure,
    FleetFacts,
    NodeFacts,
    unknown,
    unreadable_node,
    untold,
)
from pagefence.fleet.fleet_file import address
from pagefence.fleet.http import Fleet, Reply
from pagefence.mistakes import Usage

# What engines call themselves in their model lists.
_OWNERS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama-server",
    "lmdeploy": "lmdeploy",
    "tensorrt_llm": "tensorrt-llm",
}
_DECLARABLE = ("pool", "context", "longest", "page_size")


async def describe(fleet: Fleet) -> FleetFacts:
    """Everything that the live processes say: router first, then every worker that is declared or listed."""
    target = fleet.target
    router: NodeFacts | None = None
    adapter: Adapter | None = None
    if target.router:
        router, adapter = await _visited(fleet, target.router.rstrip("/"), None)
        fleet.model = router.model
        fleet.token_field = adapter.token_field if adapter is not None else fleet.token_field
    asked = await asyncio.gather(*(_worker(fleet, url, role) for url, role in _workers(fleet, router)))
    nodes, problems = list(asked), _unnamed(fleet, router)
    if router is not None and not nodes and not router.problem and not router.workers and router.role != ROUTER:
        # One server, asked at its own address.
        nodes, router = [replace(router, role=SINGLE if router.role == UNKNOWN else router.role)], None
    elif router is not None:
        role = ROUTER if nodes or not router.problem else router.role
        router = replace(router, role=role, workers=tuple((_quotable(url), how) for url, how in router.workers))
        problems = (*((f"{router.url} {router.problem}",) if router.problem else ()), *problems)
    front = router or (nodes[0] if target.router and nodes else None)
    return FleetFacts(
        url=target.router or _together([node.url for node in nodes]),
        model=fleet.model,
        advertised=_promised(front, adapter, nodes),
        nodes=tuple(nodes),
        router=router,
        ready=front.ready if front is not None else None,
        reasons=front.reasons if front is not None else (),
        guards=front.guards if front is not None else {},
        problems=problems,
    )


def _together(urls: list[str]) -> str:
    """A fleet without a router, by its nodes; a name, not a list of a thousand."""
    return ", ".join(urls) if len(urls) < 5 else f"{urls[0]} and {len(urls) - 1:,} other nodes"


def _promised(front: NodeFacts | None, adapter: Adapter | None, nodes: Iterable[NodeFacts]) -> Figure:
    """What clients are promised: by the router, or where it promises nothing itself, by the boldest worker.

    A router that is known by its answers speaks for itself; one that only was declared to be something does not. A
    promise that is there and says nothing stays unknown.
    """
    if front is None:
        return unknown("/v1/models", "no router was given")
    said = [node.advertised for node in nodes if node.advertised.value is not None]
    silent = adapter is None or (adapter is openai.ADAPTER and untold(front.advertised))
    if front.advertised.value is not None or not said or not silent:
        return front.advertised
    return max(said, key=lambda figure: figure.value or 0)


async def _worker(fleet: Fleet, url: str, role: str | None) -> NodeFacts:
    if not url:
        return unreadable_node("(no address)", role, "/server_info", "is listed by the router without an address")
    try:
        url = address(url)
    except Usage:  # not quoted: it may hold a password
        return unreadable_node("(no address)", role, "/server_info", "is listed by the router, by no address to ask")
    node, _ = await _visited(fleet, url, role)
    if node.role == ROUTER and node.problem is None:
        return replace(node, problem="is listed as a worker but is a router: name the workers behind it")
    return node


async def _visited(fleet: Fleet, url: str, role: str | None) -> tuple[NodeFacts, Adapter | None]:
    """Who is there, its facts, and what was asked for them."""
    replies: dict[str, Reply] = {}
    async with fleet.visit(url) as until:
        node, adapter = await _node(fleet, url, role, until, replies)
        if node.open_api and fleet.keys.of("admin") is not None:
            # It answered to our key. Whether it answers to nobody's is another question.
            bare = await fleet.get(url, "/v1/models", None, until)
            node = replace(node, open_api=bare.serves)
    return replace(node, asked=tuple((path, _said(reply)) for path, reply in replies.items())), adapter


def _said(reply: Reply) -> str:
    return reply.problem or reply.not_json or f"HTTP {reply.status}"


async def _node(
    fleet: Fleet, url: str, role: str | None, until: float, replies: dict[str, Reply]
) -> tuple[NodeFacts, Adapter | None]:
    """Asks into `replies`. A node that does not answer is asked one thing only, so it costs one time-out."""
    for adapter in ADAPTERS:
        if adapter.sign not in replies:
            replies[adapter.sign] = await fleet.get(url, adapter.sign, "admin", until)
        reply = replies[adapter.sign]
        if reply.status is None or reply.status in (401, 403) or 300 <= reply.status < 400 or reply.status >= 500:
            return _declared(fleet, unreadable_node(url, role, adapter.sign, f"{adapter.sign} {reply.problem}")), None
        found = adapter.recognises(reply) if reply.status == 200 else None
        if found is None:
            continue
        rest = [path for path in (*adapter.asks, *adapter.also(reply)) if path not in replies]
        answers = await asyncio.gather(*(fleet.get(url, path, "admin", until) for path in rest))
        replies.update(zip(rest, answers, strict=True))
        node = _of_one_engine(adapter.read(Asked(url, replies)), replies)
        return _declared(fleet, _with_role(replace(node, recognised=found), role)), adapter
    problem = f"is no engine that PageFence knows, by its answers to {', '.join(replies)}"
    return _declared(fleet, unreadable_node(url, role, "any endpoint", problem)), None


def _of_one_engine(node: NodeFacts, replies: dict[str, Reply]) -> NodeFacts:
    """Where the model list is another engine's than the figures, two processes answer here, and only one was seen."""
    listed = owner(replies.get("/v1/models") or Reply(None, {}, "was not asked"))
    says = _OWNERS.get(listed or "", node.engine)
    if says == node.engine or node.engine not in _OWNERS.values() or node.role == ROUTER:
        return node
    problem = f"has figures of {node.engine} and a model list of {says}, so who answers there is unknown"
    return replace(node, problem=problem)


def _with_role(node: NodeFacts, role: str | None) -> NodeFacts:
    """A declared role that the live process contradicts becomes a problem."""
    if role in (PREFILL, DECODE, SINGLE) and node.role == ROUTER:
        return replace(node, role=role, problem="was named as a worker but is a router: name the workers behind it")
    if role in (PREFILL, DECODE) and node.role in (PREFILL, DECODE) and node.role != role:
        return replace(node, role=role, problem=f"was declared as {role} but says that it is {node.role}")
    if role in (PREFILL, DECODE) and node.role == SINGLE:
        return replace(node, role=role, problem=f"was declared as {role} but says that it is no part of a hand-off")
    if role == SINGLE and node.role in (PREFILL, DECODE):
        return replace(node, problem=f"was declared as a worker of its own but says that it is {node.role}")
    return replace(node, role=role or node.role)


def _declared(fleet: Fleet, node: NodeFacts) -> NodeFacts:
    """Declared figures stand in for those that no endpoint tells. One that a live figure contradicts is a problem."""
    said = {**fleet.target.declared.get("", {}), **fleet.target.declared.get(node.url, {})}
    for name in _DECLARABLE:
        if name not in said:
            continue
        live: Figure = getattr(node, name)
        if live.value is None and node.problem is None:
            figure = Figure(said[name], f"declared ({live.source or name} {live.problem})")
            stated: dict[str, Any] = {name: figure}
            if name == "context" and untold(node.advertised):
                # It promises no length of its own, so clients may send what its context holds.
                stated["advertised"] = figure
            node = replace(node, **stated)
        elif live.value is not None and live.value != said[name]:
            problem = f"{name} was declared as {said[name]:,}, but {live.source} says {live.value:,}"
            node = replace(node, problem=problem)
    return _named(fleet, _with_speed(node, said))


def _with_speed(node: NodeFacts, said: Mapping[str, int]) -> NodeFacts:
    """A declared speed wins over a told one: what an engine tells of its hardware is an upper bound."""
    declared = {name: Figure(said[name], "declared") for name in SPEED if name in said}
    return replace(node, speed={**node.speed, **declared}) if declared else node


def _named(fleet: Fleet, node: NodeFacts) -> NodeFacts:
    """A declared engine and version, for what answers as any OpenAI-compatible endpoint does or tells no version.

    An engine is known by its name in lower case: under "vLLM" no advisory would be found.
    """
    said = {**fleet.target.software.get("", {}), **fleet.target.software.get(node.url, {})}
    said |= {"engine": said["engine"].lower()} if "engine" in said else {}
    live = {"engine": None if node.engine == openai.ENGINE else node.engine, "version": node.version}
    for name, value in said.items():
        if live[name] not in (None, value):
            return replace(node, problem=f"{name} was declared as {value}, but it says {live[name]}")
    if node.problem is not None:
        return node
    if "engine" in said and node.engine == openai.ENGINE:
        node = replace(node, recognised=f"it was declared, and {node.recognised}")
    return replace(node, engine=said.get("engine", node.engine), version=said.get("version", node.version))


def _quotable(url: str) -> str:
    """An address as a report may show it: without the password that somebody wrote into it."""
    return re.sub(r"(?<=://).*@", "", url)


def _workers(fleet: Fleet, router: NodeFacts | None) -> tuple[tuple[str, str | None], ...]:
    """Workers named by the user win; otherwise those that the router lists."""
    target = fleet.target
    if target.named:
        named = ((target.prefill, PREFILL), (target.decode, DECODE), (target.workers, SINGLE))
        return tuple((url, role) for urls, role in named for url in urls)
    return router.workers if router is not None else ()


def _unnamed(fleet: Fleet, router: NodeFacts | None) -> tuple[str, ...]:
    """Workers that the router lists and nobody named, by their number: one worker may have two addresses."""
    target = fleet.target
    if router is None or not router.workers or not target.named:
        return ()
    problems = []
    for role, named in ((PREFILL, target.prefill), (DECODE, target.decode)):
        count = sum(listed == role for _, listed in router.workers)
        if count > len(set(named)):
            problems.append(f"the router lists {count} {role} workers, but {len(set(named))} were named")
    if not problems and len(router.workers) > len(set(target.named)):
        problems.append(f"the router lists {len(router.workers)} workers, but {len(set(target.named))} were named")
    return tuple(problems)
