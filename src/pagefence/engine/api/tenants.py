"""Who is asking: API keys to tenants, tenants to isolation keys (I7). Neither leaves this module in clear."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ENV_KEYS = "PAGEFENCE_API_KEYS"
DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True, repr=False)
class Tenants:
    """Hashed keys, each with the isolation key of its tenant; `open_key` when no API key is asked for."""

    hashed: tuple[tuple[bytes, str], ...]
    open_key: str | None = None

    def isolation_key(self, api_key: bytes | None) -> str | None:
        """The isolation key of the tenant that owns `api_key`; None for a key that nobody owns.

        Every known key is compared, whatever was found: the time tells nothing about the keys.
        """
        if self.open_key is not None:
            return self.open_key
        if api_key is None:
            return None
        digest = hashlib.sha256(api_key).digest()
        found = None
        for known, isolation_key in self.hashed:
            if hmac.compare_digest(known, digest):
                found = isolation_key
        return found


def load_tenants(
    environ: Mapping[str, str],
    *,
    file: Path | None = None,
    open_access: bool = False,
    host: str = "127.0.0.1",
    secret: bytes | None = None,
) -> Tenants:
    """Tenants from PAGEFENCE_API_KEYS ("tenant=key,...") and from a file with one `tenant=key` a line.

    Without any key the server is open to all who reach it: only when asked for by name, and only on loopback.
    `secret` turns tenants into isolation keys; by default it is new with every start, as the pages are.
    """
    entries = [part for part in environ.get(ENV_KEYS, "").split(",") if part.strip()]
    if file is not None:
        entries += _lines(file.read_text(encoding="utf-8"))
    if entries and open_access:
        raise ValueError("API keys are configured: open access would ignore them")
    if entries:
        return tenants_from(entries, secret)
    if not open_access:
        raise ValueError(f"no API keys: set {ENV_KEYS}=tenant=key,... or use --open on loopback")
    if not is_loopback(host):
        raise ValueError(f"open access is for loopback only, not for {host}: configure API keys")
    return open_tenants(secret)


def open_tenants(secret: bytes | None = None) -> Tenants:
    """One tenant, no API key."""
    return Tenants((), _isolation_key(secret or secrets.token_bytes(32), DEFAULT_TENANT))


def tenants_from(entries: Iterable[str], secret: bytes | None = None) -> Tenants:
    """From `tenant=key` entries. A tenant may have several keys; a key has one tenant. Errors name neither."""
    secret = secret or secrets.token_bytes(32)
    owners: dict[bytes, str] = {}
    for number, entry in enumerate(entries, 1):
        tenant, _, key = (part.strip() for part in entry.partition("="))
        if not tenant or not key:
            raise ValueError(f"API key entry {number} is not of the form tenant=key")
        digest = hashlib.sha256(key.encode()).digest()
        if owners.setdefault(digest, tenant) != tenant:
            raise ValueError(f"API key entry {number} is the key of another tenant, too")
    return Tenants(tuple((digest, _isolation_key(secret, tenant)) for digest, tenant in owners.items()))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key of the one Authorization header; two of them are as good as none."""
    values = [value for name, value in headers if name.lower() == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, key = values[0].strip().partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" and key.strip() else None


def _isolation_key(secret: bytes, tenant: str) -> str:
    return hmac.new(secret, tenant.encode(), hashlib.sha256).hexdigest()


def _lines(text: str) -> list[str]:
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]
