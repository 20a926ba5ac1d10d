"""`tenants.toml` and the environment: who may ask, with which keys. The file holds hashes, never keys.

[tenant.acme]
keys = ["sha256:..."]            # pagefence hash-key; two of them while one is replaced by the other

[tenant.globex]
keys = ["sha256:...", "sha256:..."]
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pagefence.edge.tenants import (
    HASH_PREFIX,
    SECRET_BYTES,
    Identity,
    Tenants,
    TrustedHeader,
    hash_key,
    open_to_all,
    tenants_of,
)
from pagefence.mistakes import Usage

ENV_KEYS = "PAGEFENCE_API_KEYS"
ENV_SECRET = "PAGEFENCE_EDGE_SECRET"
ENV_PROXY_SECRET = "PAGEFENCE_EDGE_PROXY_SECRET"
SECRET_HEADER = "x-pagefence-proxy-secret"
_WHERE = re.compile(r"\(at line [0-9]+, column [0-9]+\)\Z")


class _Tenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keys: list[str]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenant: dict[str, _Tenant]


def read_identity(environment: Mapping[str, str], secret_file: Path | None = None) -> Identity:
    """The secret behind isolation keys: a file, else PAGEFENCE_EDGE_SECRET, else made here. Raises Usage."""
    said, where = environment.get(ENV_SECRET, ""), ENV_SECRET
    if secret_file is not None:
        where = str(secret_file)
        try:
            said = secret_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"cannot read the secret from {secret_file}: {_why(error)}") from None
    secret = said.strip().encode()
    if not secret and secret_file is None:
        return Identity(secrets.token_bytes(SECRET_BYTES), made_here=True)
    if len(secret) < SECRET_BYTES:
        raise Usage(
            f"the secret in {where} is shorter than {SECRET_BYTES} characters; `openssl rand -hex 32` makes one"
        )
    return Identity(secret)


def read_trusted_header(
    name: str, environment: Mapping[str, str], peers: Sequence[str] = (), secret_header: str = SECRET_HEADER
) -> TrustedHeader:
    """What an authenticating proxy says, from `peers` (addresses or networks), with the secret of the environment.

    PAGEFENCE_EDGE_PROXY_SECRET holds one secret, or two with a comma between while one is replaced. Raises Usage.
    """
    shown = [part.strip() for part in environment.get(ENV_PROXY_SECRET, "").split(",") if part.strip()]
    if any(len(part) < SECRET_BYTES for part in shown):
        raise Usage(f"a secret in {ENV_PROXY_SECRET} is shorter than {SECRET_BYTES} characters")
    try:
        networks = tuple(ipaddress.ip_network(peer) for peer in peers)
    except ValueError as error:
        raise Usage(f"peers of the trusted header: {error}") from None
    digests = frozenset(hashlib.sha256(part.encode()).digest() for part in shown)
    try:
        return TrustedHeader(name.lower().encode(), digests, secret_header.lower().encode(), networks)
    except ValueError as error:
        raise Usage(f"{error}: {ENV_PROXY_SECRET} or peers") from None


def load_tenants(
    identity: Identity,
    environment: Mapping[str, str],
    file: Path | None = None,
    header: TrustedHeader | None = None,
    *,
    only_listed: bool = False,
    open_access: bool = False,
) -> Tenants:
    """A new table from the file and from PAGEFENCE_API_KEYS ("tenant=key,..."); call it again to reload. Raises Usage.

    only_listed   a trusted header may name only tenants of the file and the environment
    open_access   everybody is one tenant; whoever starts the edge sees to it that only loopback is served
    """
    pairs = [*_of_environment(environment), *(_of_file(file) if file is not None else ())]
    if open_access:
        if pairs or header is not None:
            raise Usage("keys or a trusted header are configured: open access would ignore them")
        return open_to_all(identity)
    listed = frozenset(name for name, _ in pairs) if only_listed else None
    try:
        return tenants_of(identity, pairs, header, listed)
    except ValueError as error:
        raise Usage(f"{file or ENV_KEYS}: {error}") from None


def _of_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    pairs = []
    for number, entry in enumerate((part for part in environment.get(ENV_KEYS, "").split(",") if part.strip()), 1):
        name, _, key = (part.strip() for part in entry.partition("="))
        if not name or not key:
            raise Usage(f"{ENV_KEYS}: entry {number} is not of the form tenant=key")
        try:
            pairs.append((name, key if key.startswith(HASH_PREFIX) else hash_key(key)))
        except ValueError as error:
            raise Usage(f"{ENV_KEYS}: entry {number}: {error}") from None
    return pairs


def _of_file(path: Path) -> list[tuple[str, str]]:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Usage(f"cannot read {path}: {_why(error)}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # No more than where: the error may quote a line with a key, or a tenant's name.
        where = _WHERE.search(str(error))
        raise Usage(f"{path} is no TOML{' ' + where[0] if where is not None else ''}") from None
    try:
        said = msgspec.convert(raw, _File)
    except msgspec.ValidationError as error:
        raise Usage(f"{path}: {error}") from None
    return [(name, key) for name, tenant in said.tenant.items() for key in tenant.keys]


def _why(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
