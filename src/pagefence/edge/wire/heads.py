"""The head of a request or of a response: one regular expression for the whole, then what the framing says.

Two parsers that understand one message differently are what request smuggling is made of. So the grammar has no
leniency at all: CRLF only, no folded lines, no blank before a colon, one length, "chunked" or nothing, and never both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_FIELDS = rb"((?:" + _TOKEN + rb"++:[\t\x20-\x7e\x80-\xff]*+\r\n)*+)\r\n"
_REQUEST = re.compile(rb"([A-Z]{1,16}) ([!-~]++) HTTP/1\.([01])\r\n" + _FIELDS)
_RESPONSE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*+)?\r\n" + _FIELDS)
_LENGTH = re.compile(rb"[0-9]{1,15}")
# A second one of these changes what is meant; of all others the values are joined with a comma (RFC 9110, 5.2).
_ONCE = frozenset(
    (
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"content-type",
        b"content-encoding",
        b"authorization",
        b"expect",
    )
)
MOST_FIELDS: Final = 100
CHUNKED: Final = -1
UNTIL_CLOSE: Final = -2


class Malformed(ValueError):
    """Not HTTP as we read it; the message says what, and quotes nothing."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What a client wants. Names of headers are in small letters. `length`: of the body in bytes, or CHUNKED.

    fields   in their order, as they came
    headers  the same by name, several values joined
    """

    method: str
    path: str
    fields: list[tuple[bytes, bytes]]
    headers: dict[bytes, bytes]
    length: int
    keep_alive: bool
    modern: bool  # HTTP/1.1: knows chunks


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What upstream says. `length`: of the body in bytes, CHUNKED, or UNTIL_CLOSE."""

    status: int
    headers: dict[bytes, bytes]
    length: int
    keep_alive: bool


def request_head(raw: bytes) -> RequestHead:
    """From the first byte to the empty line. Raises Malformed."""
    match = _REQUEST.fullmatch(raw)
    if match is None:
        raise Malformed("the request line or a header is not HTTP/1.1 as RFC 9112 writes it")
    method, target, minor, fields = match.groups()
    pairs = _pairs(fields)
    headers = _by_name(pairs)
    modern = minor == b"1"
    if modern and b"host" not in headers:
        raise Malformed("there is no Host header")
    if not target.startswith(b"/") or b"#" in target:
        raise Malformed("the request target is no path")
    length = _length(headers, modern)
    if method != b"POST" and length not in (0, UNTIL_CLOSE):
        raise Malformed("a body in a request that is no POST")
    return RequestHead(
        method.decode("ascii"),
        target.partition(b"?")[0].decode("ascii"),
        pairs,
        headers,
        max(length, 0) if length != CHUNKED else CHUNKED,
        _keeps(headers, modern),
        modern,
    )


def response_head(raw: bytes) -> ResponseHead:
    """From the first byte to the empty line. Raises Malformed."""
    match = _RESPONSE.fullmatch(raw)
    if match is None:
        raise Malformed("its status line or a header is not HTTP/1.1 as RFC 9112 writes it")
    minor, status_digits, fields = match.groups()
    headers = _by_name(_pairs(fields))
    status, modern = int(status_digits), minor == b"1"
    length = _length(headers, modern)
    if status < 200 or status in (204, 304):
        if length > 0 or length == CHUNKED:
            raise Malformed(f"a body after status {status}, which has none")
        length = 0
    return ResponseHead(status, headers, length, _keeps(headers, modern) and length != UNTIL_CLOSE)


def _pairs(fields: bytes) -> list[tuple[bytes, bytes]]:
    lines = fields.split(b"\r\n")
    if len(lines) > MOST_FIELDS + 1:
        raise Malformed(f"more than {MOST_FIELDS} headers")
    pairs = []
    for line in lines[:-1]:
        name, _, value = line.partition(b":")
        pairs.append((name.lower(), value.strip(b" \t")))
    return pairs


def _by_name(pairs: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    headers.clear()
    for name, value in pairs:
        if name in headers and name in _ONCE:
            raise Malformed(f"two {name.decode()} headers")
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def _length(headers: dict[bytes, bytes], modern: bool) -> int:
    """What the body's framing is. Raises Malformed where two readers could differ."""
    coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length")
    if coding is not None:
        if length is not None:
            raise Malformed("both Content-Length and Transfer-Encoding")
        if not modern:
            raise Malformed("Transfer-Encoding in HTTP/1.0")
        if coding.lower() != b"chunked":
            raise Malformed("a Transfer-Encoding other than chunked")
        return CHUNKED
    if length is None:
        return UNTIL_CLOSE
    if not _LENGTH.fullmatch(length):
        raise Malformed("a Content-Length that is no number")
    return int(length)


def _keeps(headers: dict[bytes, bytes], modern: bool) -> bool:
    said = headers.get(b"connection")
    if said is None:
        return modern
    options = {option.strip(b" \t").lower() for option in said.split(b",")}
    return b"close" not in options and (modern or b"keep-alive" in options)
