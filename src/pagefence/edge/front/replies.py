"""How a reply looks on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from pagefence.edge.refusal import Refusal

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


def head_of(status: int, headers: Mapping[str, str], date: bytes, framing: str) -> bytes:
    """Status line and headers, with the empty line. `framing`: lines of the connection's own."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    said = _REASONS.get(status, b"Unknown")
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, said, date, f"{lines}{framing}".encode("latin-1"))


def retry_after(refusal: Refusal) -> dict[str, str]:
    """The header, where asking again may help."""
    return {} if refusal.retry_after_s is None else {"retry-after": str(refusal.retry_after_s)}


def too_large(most: int) -> Refusal:
    """For a body."""
    return Refusal(413, "body_too_large", f"the body has more than {most:,} bytes (limits.body_bytes).")
