"""Which fleet is meant: its addresses, the keys to speak with, and what is declared because no endpoint tells it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tls:
    """What to trust and who to be: files in PEM. `ca` replaces the authorities that the system trusts."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Raises OSError (ssl.SSLError is one) for a file that cannot be read or is no PEM."""
        context = ssl.create_default_context(cafile=str(self.ca) if self.ca else None)
        if self.certificate is not None:
            context.load_cert_chain(str(self.certificate), str(self.key) if self.key else None)
        return context


@dataclass(frozen=True, slots=True)
class Target:
    """Where a fleet is: the router that clients talk to, and its workers where they are declared.

    `declared`: figures by node URL, or for all nodes under "", for what no endpoint tells: `pool`, `context`, ...
    """

    router: str | None
    prefill: tuple[str, ...] = ()
    decode: tuple[str, ...] = ()
    declared: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tls: Tls = field(default_factory=Tls)
    proxy: str | None = None
    retries: int = 1


@dataclass(frozen=True, slots=True)
class Keys:
    """API keys: of the two tenants, and one for reading figures where that needs another. They show in no repr, report
    or log line."""

    a: str | None = field(default=None, repr=False)
    b: str | None = field(default=None, repr=False)
    admin: str | None = field(default=None, repr=False)

    def of(self, tenant: str) -> str | None:
        return {"a": self.a, "b": self.b, "admin": self.admin or self.a}.get(tenant)

    @property
    def two(self) -> bool:
        return bool(self.a) and bool(self.b) and self.a != self.b

    def redact(self, text: str) -> str:
        for name, key in (
            ("PAGEFENCE_KEY_A", self.a),
            ("PAGEFENCE_KEY_B", self.b),
            ("PAGEFENCE_KEY_ADMIN", self.admin),
        ):
            if key:
                text = text.replace(key, f"${name}")
        return text
