"""Steps that check nothing: for the bench, which measures what the proxy alone costs, and for its tests."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefence.edge.beside import Beside, for_bodies
from pagefence.edge.call import Call, Operation, Tenant
from pagefence.edge.demand import Admitted
from pagefence.edge.refusal import Refusal
from pagefence.edge.steps import Headers, Outgoing, Steps

_ANYBODY = Tenant("anybody", "", "-")
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def passing() -> Steps:
    """Every request passes as it is."""
    return Steps(
        lambda headers, peer: _ANYBODY,
        _read,
        _clean,
        _admit,
        _outgoing,
        _unwatched,
        Beside(for_bodies(1024, 256, 1 << 25), "read"),
    )


def _read(raw: bytes, headers: Headers) -> dict[str, Any] | Refusal:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Refusal(400, "invalid_json", "the body is no JSON object")


def _clean(operation: Operation, tenant: Tenant, request_id: str, body: dict[str, Any], headers: Headers) -> Call:
    model = body.get("model")
    return Call(
        operation, tenant, request_id, body, model if isinstance(model, str) else None, body.get("stream") is True
    )


async def _admit(call: Call) -> Admitted:
    return Admitted(call, None, 0, 0)


async def _unwatched(admitted: Admitted) -> None:
    return None


def _outgoing(call: Call, admitted: Admitted | None, headers: Headers) -> Outgoing:
    said = [(b"accept-encoding", b"identity"), (b"x-request-id", call.request_id.encode())]
    if admitted is None:
        return Outgoing(b"", said)
    return Outgoing(_encode(call.body), [(b"content-type", b"application/json"), *said])
