"""Fleets for the gate, built from facts alone: a sound one of each kind, to be broken in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pagefence.fleet import Answer, ErrorBody, Figure, FleetFacts, NodeFacts
from pagefence.fleet.facts import DECODE, PREFILL, ROUTER, SINGLE, Flag
from pagefence.probes.gate.asked import FIELDS, ActiveResults, EdgeAnswer, FieldAnswer

CONTEXT, POOL, LIMIT = 2048, 2560, 1000


def figure(value: int, source: str = "/server_info field") -> Figure:
    return Figure(value, source)


def silent(source: str = "/server_info field") -> Figure:
    return Figure(None, source, "is missing")


def sglang(role: str, **other: Any) -> NodeFacts:
    """A leg of a hand-off, as an adapter would read it: two ranks, checksum on."""
    url = f"http://{role}:9000"
    ranks = tuple(figure(POOL, f"/server_info internal_states[{i}].memory_usage.token_capacity") for i in range(2))
    node = NodeFacts(
        role=role,
        url=url,
        engine="sglang",
        version="0.5.23",
        pool=ranks[0],
        ranks=ranks,
        longest=figure(CONTEXT - 6),
        context=figure(CONTEXT, "/v1/models max_model_len"),
        page_size=figure(64),
        model="m",
        flags={
            "auto_truncate": Flag(False, "/server_info allow_auto_truncate"),
            "kv_checksum": Flag(True, "/server_info disaggregation_enable_kv_checksum"),
            "kv_transfer": Flag("mooncake", "/server_info disaggregation_transfer_backend"),
        },
        settings={"kv_cache_dtype": "auto", "tp_size": "1"},
        open_api=False,
    )
    return with_pool(replace(node, **other))


def with_pool(node: NodeFacts) -> NodeFacts:
    """The pool of a node is its smallest rank, or unknown when one is."""
    unknown = next((rank for rank in node.ranks if rank.value is None), None)
    return replace(node, pool=unknown or min(node.ranks, key=lambda rank: rank.value or 0))


def with_flag(node: NodeFacts, name: str, value: str | bool | None) -> NodeFacts:
    problem = "is missing" if value is None else None
    flags: Mapping[str, Flag] = {**node.flags, name: Flag(value, f"/server_info {name}", problem)}
    return replace(node, flags=flags)


def pair(prefill: NodeFacts | None = None, decode: NodeFacts | None = None, **other: Any) -> FleetFacts:
    """A disaggregated fleet behind a router that promises what its workers hold."""
    router = NodeFacts(
        ROUTER, "http://router:8000", "pagefence", "0.1.0", context=figure(CONTEXT), advertised=figure(CONTEXT)
    )
    nodes = (prefill or sglang(PREFILL), decode or sglang(DECODE))
    facts = FleetFacts(router.url, "m", figure(CONTEXT, "/v1/models max_model_len"), nodes, router, ready=True)
    return replace(facts, **other)


def single(**other: Any) -> FleetFacts:
    """One server at its own address, that needs no role."""
    node = NodeFacts(
        role=SINGLE,
        url="http://server:8000",
        engine="vllm",
        version="0.32.0",
        pool=figure(46_464, "/metrics vllm:cache_config_info kv_cache_size_tokens"),
        context=figure(CONTEXT, "/v1/models max_model_len"),
        open_api=True,
    )
    node = replace(node, **other)
    return FleetFacts(node.url, "m", node.context if node.context.value else figure(CONTEXT), (node,))


def refusal(name: str) -> Answer:
    return Answer(400, error=ErrorBody(f"a client must not set {name}", "invalid_request_error", param=name))


TOO_LONG = ErrorBody("maximum context length is 1000 tokens", code="context_length_exceeded")


def kept(**changed: Answer) -> ActiveResults:
    """A router that keeps both: every field refused by name, the edge limit kept. `changed`: by field or edge form."""
    answers = {name: refusal(name) for name in FIELDS} | {
        "within": Answer(200, "x", "length", LIMIT, 1),
        "plain": Answer(400, error=TOO_LONG),
        "stream": Answer(400, error=TOO_LONG, stream=True),
    }
    answers |= changed
    return ActiveResults(
        tuple(FieldAnswer(name, answers[name]) for name in FIELDS),
        (
            EdgeAnswer(LIMIT, False, True, answers["within"]),
            EdgeAnswer(LIMIT + 1, True, True, answers["plain"]),
            EdgeAnswer(LIMIT + 1, True, True, answers["stream"]),
        ),
    )
