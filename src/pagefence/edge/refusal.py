"""How the edge says no: one type, one shape on the wire, before any byte of an answer (I3)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request goes no further. `code` for programs, `message` for people: what is wrong and what to do.

    status         4xx when the request is at fault, 429 or 503 when we are
    param          the field or header that is at fault
    retry_after_s  when asking again may help
    """

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_s: int | None = None


def body_of(refusal: Refusal) -> bytes:
    """The OpenAI-shaped error."""
    kind = _TYPES.get(refusal.status, "server_error" if refusal.status >= 500 else "invalid_request_error")
    return msgspec.json.encode(
        {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}}
    )
