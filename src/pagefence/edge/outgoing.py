"""What goes upstream: bytes and headers made anew. Of the client's own there is nothing in them but values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pagefence.edge.call import Call, Operation, Tenant
from pagefence.edge.fields import HEADER_PREFIXES_NEVER, HEADERS_NEVER
from pagefence.edge.policy_settings import Policy
from pagefence.edge.reading import Headers
from pagefence.edge.refusal import Refusal

_GENERATE = (Operation.CHAT, Operation.COMPLETION, Operation.RESPONSE)
_TRACEPARENT = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(rb"[\x20-\x7e]{1,512}")
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine is told what only the server may say.

    salt      the field that takes the isolation key, and the operations that know it. An operation that is not among
              them cannot be kept apart by this engine (`separates`)
    ids       the field that takes a request's id, by operation; the header x-request-id goes to every engine
    stateful  answers of /v1/responses are kept unless `store` is false
    """

    name: str
    salt: str = "cache_salt"
    salted: frozenset[Operation] = frozenset(_GENERATE)
    ids: Mapping[Operation, str] = field(default_factory=dict)
    stateful: bool = True

    def separates(self, operation: Operation) -> bool:
        """Whether the engine keeps tenants' caches apart by what the edge can tell it."""
        return operation in self.salted


# From the request types of each [sources and documentation, November 2026]. An embedding of SGLang has no salt;
# TensorRT-LLM knows it for chat only and refuses unknown fields; llama-server has none; ours takes it from the API key.
VLLM = Dialect(
    "vllm", salted=frozenset({*_GENERATE, Operation.EMBEDDING}), ids=dict.fromkeys(_GENERATE[:2], "request_id")
)
SGLANG = Dialect("sglang", ids=dict.fromkeys(_GENERATE[:2], "rid"))
TENSORRT_LLM = Dialect("tensorrt-llm", salted=frozenset({Operation.CHAT}))
LLAMA_SERVER = Dialect("llama-server", salted=frozenset(), stateful=False)
PAGEFENCE = Dialect("pagefence", salted=frozenset(), stateful=False)
OTHER = Dialect("other")
DIALECTS: Mapping[str, Dialect] = {d.name: d for d in (VLLM, SGLANG, TENSORRT_LLM, LLAMA_SERVER, PAGEFENCE, OTHER)}


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """What the edge shows upstream in place of the client's key.

    key         the upstream's own, None for one that asks for none
    by_tenant   for engines that tell tenants apart by their keys: those of single tenants, by name
    """

    key: bytes | None = None
    by_tenant: Mapping[str, bytes] = field(default_factory=dict)

    def of(self, tenant: Tenant) -> bytes | None:
        return self.by_tenant.get(tenant.name, self.key)


def upstream_body(call: Call, dialect: Dialect) -> bytes:
    """The call as JSON, with the tenant's isolation key (I7) and a minted id (I9).

    Costs 2 us for 1 kB, 2 to 4 ms for 5 MB. A body that came through `reading` and `policy` can always be written.
    """
    made: dict[str, Any] = dict(call.body)
    if dialect.separates(call.operation):
        made[dialect.salt] = call.tenant.isolation_key
    if (name := dialect.ids.get(call.operation)) is not None:
        made[name] = call.request_id
    if call.operation is Operation.RESPONSE and dialect.stateful:
        made.setdefault("store", False)
    return _ENCODER.encode(made)


def upstream_headers(call: Call, came: Headers, credentials: Credentials, length: int) -> list[tuple[bytes, bytes]]:
    """All headers but `host`. Of the client's only a well-formed trace context goes on, nothing hop-by-hop ever."""
    headers = [
        (b"accept", b"text/event-stream" if call.stream else b"application/json"),
        (b"accept-encoding", b"identity"),
        (b"content-type", b"application/json"),
        (b"content-length", str(length).encode()),
        (b"x-request-id", call.request_id.encode()),
        *_trace(came),
    ]
    key = credentials.of(call.tenant)
    if key is not None:
        headers.append((b"authorization", b"Bearer " + key))
    return headers


def refuse_headers(came: Headers, policy: Policy) -> Refusal | None:
    """Headers that choose workers or pass for a router's. Nothing unlisted goes upstream in any case."""
    if policy.forbidden == "strip":
        return None
    for raw_name, _ in came:
        name = raw_name.decode("latin-1").lower().replace("_", "-")
        if name in HEADERS_NEVER or name.startswith(HEADER_PREFIXES_NEVER):
            message = f"The header '{name[:80]}' must not be sent by a client."
            return Refusal(400, "forbidden_header", message, name[:80])
    return None


def _trace(came: Headers) -> list[tuple[bytes, bytes]]:
    """W3C trace context, if there is one and it is well-formed."""
    parents = [value.strip() for name, value in came if name.lower() == b"traceparent"]
    if len(parents) != 1 or not _TRACEPARENT.fullmatch(parents[0]):
        return []
    states = [value.strip() for name, value in came if name.lower() == b"tracestate"]
    kept = [(b"tracestate", states[0])] if len(states) == 1 and _TRACESTATE.fullmatch(states[0]) else []
    return [(b"traceparent", parents[0]), *kept]
