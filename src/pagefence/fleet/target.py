"""Which fleet is meant: its addresses, the keys to speak with, and what is declared because no endpoint tells it."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from pagefence.mistakes import Usage

_BEGINNING = 8  # so many characters of a key are recognised as its beginning


@dataclass(frozen=True, slots=True)
class Tls:
    """What to trust and who to be: files in PEM. `ca` replaces the authorities that the system trusts."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Raises Usage, which names the file, for one that cannot be read, is no PEM or asks for a pass phrase."""
        with _named("the certificate authorities", self.ca):
            context = ssl.create_default_context(cafile=str(self.ca) if self.ca else None)
        if self.certificate is not None:
            with _named("the client certificate and its key", self.certificate, self.key):
                # Without a way to get a pass phrase OpenSSL would ask for one on the terminal.
                context.load_cert_chain(str(self.certificate), str(self.key) if self.key else None, lambda: b"")
        elif self.key is not None:
            raise Usage(f"{self.key} is a client's key without its certificate: name that too (--client-cert)")
        return context


@contextlib.contextmanager
def _named(what: str, *files: Path | None) -> Iterator[None]:
    names = " and ".join(str(file) for file in files if file is not None)
    try:
        for file in files:
            if file is not None:
                file.open("rb").close()  # an error of OpenSSL does not say which of two files is missing
        yield
    except ssl.SSLError as error:
        why = error.reason or "not in PEM format, a key that does not belong to it, or one with a pass phrase"
        raise Usage(f"cannot use {what} in {names}: {why}") from None
    except OSError as error:
        raise Usage(f"cannot read {what}: {error.filename or names}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class Target:
    """Where a fleet is: the router that clients talk to, and its workers where they are declared.

    declared       figures by node URL, or for all nodes under "", for what no endpoint tells: `pool`, `context`, ...
    software       `engine` and `version` in the same way, for what answers as any OpenAI-compatible endpoint does
    workers        nodes that do prefill and decode themselves
    disaggregated  it was declared that prefill and decode are apart, so nodes of both roles have to be found
    """

    router: str | None
    prefill: tuple[str, ...] = ()
    decode: tuple[str, ...] = ()
    declared: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    software: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tls: Tls = field(default_factory=Tls)
    proxy: str | None = None
    retries: int = 1
    workers: tuple[str, ...] = ()
    disaggregated: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """Every worker that was named, whatever it does."""
        return (*self.prefill, *self.decode, *self.workers)


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
        """Keys by their names, also quoted, and where words of a fleet were cut in the middle of one.

        The longest first: the rest of one that begins like another would stay.
        """
        named = {"PAGEFENCE_KEY_A": self.a, "PAGEFENCE_KEY_B": self.b, "PAGEFENCE_KEY_ADMIN": self.admin}
        keys = sorted(((key, f"${name}") for name, key in named.items() if key), key=lambda pair: -len(pair[0]))
        for key, name in keys:
            for form in sorted({key, repr(key)[1:-1], json.dumps(key)[1:-1], quote(key, safe="")}, key=len)[::-1]:
                text = text.replace(form, name)
        for key, name in keys:
            text = _without_beginning(text, key, name)
        return text


def _without_beginning(text: str, key: str, name: str) -> str:
    """Without what is left of a key that was cut: two dozen characters of an error would be most of it."""
    if len(key) < 2 * _BEGINNING:
        return text
    start = text.find(key[:_BEGINNING])
    while start >= 0:
        end = start + _BEGINNING
        while end < len(text) and end - start < len(key) and text[end] == key[end - start]:
            end += 1
        text = text[:start] + name + text[end:]
        start = text.find(key[:_BEGINNING], start + len(name))
    return text
