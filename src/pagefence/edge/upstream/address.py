"""Where an upstream is."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from pagefence.mistakes import Usage


@dataclass(frozen=True, slots=True)
class Address:
    """One upstream. `prefix`: what stands before /v1, without a slash at its end. `authority`: for the Host header."""

    url: str
    host: str
    port: int
    tls: bool
    prefix: str
    authority: str


def parse(url: str) -> Address:
    """Raises Usage for what is no address of a server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Usage(f"{url[:80]!r} is no URL; write http://HOST:PORT") from None
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or port == 0:
        raise Usage(f"{url.rpartition('@')[2][:80]!r} is no address of an upstream; write http://HOST:PORT")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise Usage(f"{url[:80]!r} is no address of an upstream: a character that no URL has")
    tls = parts.scheme == "https"
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return Address(url.rstrip("/"), parts.hostname, port or (443 if tls else 80), tls, prefix, parts.netloc)
