"""From bytes to a JSON object, within limits, without anything that only the server may say (I7, I9)."""

from __future__ import annotations

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from pagefence.engine.api.problems import bad_json, bad_value, forbidden_parameter, too_large

MAX_BODY_BYTES = 8 * 1024 * 1024

# What a client must never set: on stock engines these reach into another request's pages.
NEVER_SET = frozenset({
    "bootstrap_host", "bootstrap_port", "bootstrap_room", "cache_salt", "data_parallel_rank", "disaggregated_params",
    "extra_key", "kv_transfer_params", "request_id", "rid",
})  # fmt: skip
NEVER_SET_HEADER = "x-prefiller-host-port"
NEVER_SET_HEADER_PREFIX = "x-override-"


def refuse_forbidden_headers(headers: Headers) -> None:
    """Routing by header is for the machines inside (I9)."""
    for name in headers:
        if name == NEVER_SET_HEADER or name.startswith(NEVER_SET_HEADER_PREFIX):
            raise forbidden_parameter(name)


async def read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """The whole body; beyond `limit` bytes nothing more is read."""
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large(limit)
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        size += len(message.get("body", b""))
        if size > limit:
            raise too_large(limit)
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(chunks)


def parse_object(body: bytes) -> dict[str, object]:
    """One JSON object. Depth is bounded by the decoder, which says so with RecursionError."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise bad_json("The request body is nested too deeply.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad_json(f"The request body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise bad_value("The request body must be a JSON object.")
    refuse_forbidden_fields(value)
    return value


def refuse_forbidden_fields(value: dict[str, object]) -> None:
    """At any depth and in any spelling: what is nested or in capitals here may be flat or lower-case behind us."""
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for name in item:
                if name.casefold().replace("-", "_") in NEVER_SET:
                    raise forbidden_parameter(name)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(part for part in item if isinstance(part, dict | list))
