"""What goes upstream is made anew: the tenant's salt, a minted id, headers from a short list."""

from __future__ import annotations

import json
import re

import pytest

from pagefence.edge.call import Call, Operation
from pagefence.edge.fields import HEADER_PREFIXES_NEVER, HEADERS_NEVER
from pagefence.edge.front.front import mint
from pagefence.edge.outgoing import (
    DIALECTS,
    LLAMA_SERVER,
    PAGEFENCE,
    SGLANG,
    TENSORRT_LLM,
    VLLM,
    Credentials,
    Dialect,
    refuse_headers,
    upstream_body,
    upstream_headers,
)
from pagefence.edge.policy_settings import Policy
from pagefence.edge.tenants import Identity

TENANT = Identity(b"s" * 32).tenant("acme")
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def call(operation: Operation = Operation.CHAT, stream: bool = False) -> Call:
    return Call(operation, TENANT, "pf-1", {"messages": [], "user": "ü"}, "m", stream)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("operation", [op for op in Operation if op is not Operation.MODELS])
def test_the_salt_is_the_tenants_wherever_the_engine_takes_one(dialect: Dialect, operation: Operation) -> None:
    made = json.loads(upstream_body(call(operation), dialect))
    assert made.get("cache_salt") == (TENANT.isolation_key if dialect.separates(operation) else None)


@pytest.mark.parametrize(
    ("dialect", "operation", "added"),
    [
        (SGLANG, Operation.CHAT, {"cache_salt", "rid"}),
        (SGLANG, Operation.RESPONSE, {"cache_salt", "store"}),
        (SGLANG, Operation.EMBEDDING, set()),
        (VLLM, Operation.COMPLETION, {"cache_salt", "request_id"}),
        (VLLM, Operation.EMBEDDING, {"cache_salt"}),
        (TENSORRT_LLM, Operation.CHAT, {"cache_salt"}),
        (TENSORRT_LLM, Operation.COMPLETION, set()),
        (LLAMA_SERVER, Operation.CHAT, set()),
        (PAGEFENCE, Operation.CHAT, set()),
    ],
)
def test_each_engine_is_told_what_it_knows(dialect: Dialect, operation: Operation, added: set[str]) -> None:
    assert set(json.loads(upstream_body(call(operation), dialect))) == {"messages", "user"} | added


def test_no_answer_is_kept_upstream_without_the_operators_word() -> None:
    assert json.loads(upstream_body(call(Operation.RESPONSE), VLLM))["store"] is False
    allowed = Call(Operation.RESPONSE, TENANT, "pf-1", {"input": "hi", "store": True}, None, False)
    assert json.loads(upstream_body(allowed, VLLM))["store"] is True


def test_a_body_from_elsewhere_cannot_bring_a_salt_or_an_id() -> None:
    sneaked = Call(Operation.CHAT, TENANT, "pf-1", {"cache_salt": "b", "request_id": "x"}, None, False)
    made = json.loads(upstream_body(sneaked, VLLM))
    assert (made["cache_salt"], made["request_id"]) == (TENANT.isolation_key, "pf-1")


def test_minted_ids_are_not_guessed_and_no_ones_prefix() -> None:
    ids = {mint() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"edge-[0-9a-f]{32}", minted) for minted in ids)


def test_of_the_clients_headers_only_a_trace_goes_on() -> None:
    came = [
        (b"Host", b"edge"),
        (b"Authorization", b"Bearer client-key-of-the-tenant"),
        (b"X-Request-Id", b"chosen"),
        (b"Connection", b"keep-alive, x-secret"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Content-Length", b"99"),
        (b"Accept-Encoding", b"br"),
        (b"Cookie", b"a=b"),
        (b"X-Forwarded-For", b"1.2.3.4"),
        (b"X-Data-Parallel-Rank", b"3"),
        (b"Traceparent", TRACE),
        (b"tracestate", b"a=1,b=2"),
    ]
    assert dict(upstream_headers(call(stream=True), came, Credentials(b"upstream-key"), 7)) == {
        b"accept": b"text/event-stream",
        b"accept-encoding": b"identity",
        b"content-type": b"application/json",
        b"content-length": b"7",
        b"x-request-id": b"pf-1",
        b"traceparent": TRACE,
        b"tracestate": b"a=1,b=2",
        b"authorization": b"Bearer upstream-key",
    }


@pytest.mark.parametrize(
    "came",
    [
        [(b"traceparent", TRACE), (b"traceparent", TRACE)],
        [(b"traceparent", TRACE.upper())],
        [(b"traceparent", b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01")],
        [(b"traceparent", TRACE + b"-x")],
        [(b"traceparent", TRACE + b"\r\nx-override-rid: 1")],
        [(b"tracestate", b"a=1")],
    ],
)
def test_a_trace_that_is_not_well_formed_ends_here(came: list[tuple[bytes, bytes]]) -> None:
    names = {name for name, _ in upstream_headers(call(), came, Credentials(), 0)}
    assert not names & {b"traceparent", b"tracestate", b"authorization"}


def test_an_engine_that_tells_tenants_by_keys_gets_the_tenants_own() -> None:
    credentials = Credentials(b"shared", {"acme": b"of-acme"})
    assert dict(upstream_headers(call(), [], credentials, 0))[b"authorization"] == b"Bearer of-acme"
    assert "of-acme" not in repr(credentials)


HOSTILE = sorted([*HEADERS_NEVER, *(prefix + "x" for prefix in HEADER_PREFIXES_NEVER)])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_header_of_a_router_is_refused_in_every_case(name: str) -> None:
    for spelled in (name, name.title(), name.upper(), name.replace("-", "_")):
        refusal = refuse_headers([(spelled.encode(), b"1")], Policy())
        assert refusal is not None
        assert (refusal.status, refusal.code, refusal.param) == (400, "forbidden_header", name)
    assert refuse_headers([(name.encode(), b"1")], Policy(forbidden="strip")) is None


def test_headers_of_ordinary_clients_are_no_reason_to_refuse() -> None:
    ordinary = ["host", "user-agent", "accept", "x-request-id", "x-stainless-lang", "openai-organization", "origin"]
    assert refuse_headers([(name.encode(), b"1") for name in ordinary], Policy()) is None
