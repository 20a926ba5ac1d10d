"""Whose request it is: an API key or a trusted proxy's word to a tenant, a tenant to its isolation key (I7)."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pagefence.edge.call import Tenant
from pagefence.edge.reading import Headers
from pagefence.edge.refusal import Refusal

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

HASH_PREFIX = "sha256:"
MAX_KEY_BYTES = 512
SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """Turns names of tenants into what may leave the edge. `made_here`: the secret is new with this start.

    With another secret every cached prefix upstream is out of reach, and edges side by side must share it.
    """

    secret: bytes
    made_here: bool = False

    def tenant(self, name: str) -> Tenant:
        """isolation_key: HMAC-SHA256 in hexadecimal. vLLM takes 128 characters, none of them @ / \\ or NUL."""
        return Tenant(name, self._keyed(b"isolation", name), self._keyed(b"tag", name)[:16])

    def _keyed(self, purpose: bytes, name: str) -> str:
        return hmac.new(self.secret, purpose + b"\0" + name.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True, repr=False)
class TrustedHeader:
    """A proxy that has authenticated the client says which tenant it is.

    name        the header with the tenant's name
    secrets     SHA-256 of what the proxy must show in `secret_header`; two of them while one is replaced
    peers       or from where its connections come. Without secrets the address alone is trusted
    """

    name: bytes
    secrets: frozenset[bytes] = frozenset()
    secret_header: bytes = b"x-pagefence-proxy-secret"
    peers: tuple[Network, ...] = ()

    def __post_init__(self) -> None:
        if not self.secrets and not self.peers:
            raise ValueError("a trusted header needs a shared secret or the addresses of the proxy")

    def trusts(self, headers: Headers, peer: str | None) -> bool:
        """Both, where both are declared."""
        return (not self.peers or _within(peer, self.peers)) and (not self.secrets or self._shown(headers))

    def _shown(self, headers: Headers) -> bool:
        shown = values(headers, self.secret_header)
        if len(shown) != 1:
            return False
        digest = hashlib.sha256(shown[0]).digest()
        # Hashes are compared, so how soon one differs tells nothing of the secret.
        return any(hmac.compare_digest(digest, secret) for secret in self.secrets)


@dataclass(frozen=True, slots=True, repr=False)
class Tenants:
    """Everybody who may ask, in one immutable value: a reload makes another and puts it in this one's place.

    Keys are looked up by a keyed hash (`pepper`, new with each table), so the time that a look-up takes tells nothing
    of the keys that are known.
    """

    identity: Identity
    by_key: Mapping[bytes, Tenant] = field(default_factory=dict)
    pepper: bytes = b""
    header: TrustedHeader | None = None
    listed: frozenset[str] | None = None
    everybody: Tenant | None = None

    @property
    def named(self) -> tuple[Tenant, ...]:
        """Those with keys, by name."""
        return tuple(sorted(set(self.by_key.values()), key=lambda tenant: tenant.name))

    def identify(self, headers: Headers, peer: str | None = None) -> Tenant | Refusal:
        """By the trusted header if there is one, else by the API key. `peer`: the address at the other end."""
        if self.header is not None:
            named = values(headers, self.header.name)
            if named:
                return self._by_header(self.header, named, headers, peer)
        if self.everybody is not None:
            return self.everybody
        key = bearer(headers)
        tenant = None if key is None else self.by_key.get(_looked_up(self.pepper, hashlib.sha256(key).digest()))
        return tenant or Refusal(401, "invalid_api_key", "Missing or incorrect API key.")

    def _by_header(
        self, header: TrustedHeader, named: list[bytes], headers: Headers, peer: str | None
    ) -> Tenant | Refusal:
        shown = header.name.decode("latin-1")
        if not header.trusts(headers, peer):
            return Refusal(403, "untrusted_header", f"The header '{shown}' is only taken from the proxy.", shown)
        name = named[0].decode("latin-1")
        if len(named) > 1 or not is_name(name):
            return Refusal(400, "invalid_header", f"The header '{shown}' names no tenant.", shown)
        if self.listed is not None and name not in self.listed:
            return Refusal(403, "unknown_tenant", "This tenant may not ask here.", shown)
        return self.identity.tenant(name)


def tenants_of(
    identity: Identity,
    hashed: Iterable[tuple[str, str]],
    header: TrustedHeader | None = None,
    listed: frozenset[str] | None = None,
) -> Tenants:
    """From (tenant, hashed key) pairs. A tenant may have several keys; a key has one tenant.

    Raises ValueError, which quotes neither keys nor hashes.
    """
    pepper = secrets.token_bytes(32)
    by_key: dict[bytes, Tenant] = {}
    known: dict[str, Tenant] = {}
    for number, (name, said) in enumerate(hashed, 1):
        digest = _DIGEST.fullmatch(said)
        if digest is None:
            raise ValueError(f"key {number} is not hashed; make it with `pagefence hash-key`")
        if not is_name(name):
            raise ValueError(f"the name of the tenant of key {number} holds more than letters, digits and . _ : @ + -")
        tenant = known.setdefault(name, identity.tenant(name))
        if by_key.setdefault(_looked_up(pepper, bytes.fromhex(digest[1])), tenant) is not tenant:
            raise ValueError(f"key {number} is the key of another tenant, too")
    if not by_key and header is None:
        raise ValueError(
            "there is neither a key nor a trusted header, so nobody could ask; "
            "`pagefence hash-key --new --tenant NAME >> tenants.toml` makes a tenant"
        )
    return Tenants(identity, by_key, pepper, header, listed)


def open_to_all(identity: Identity) -> Tenants:
    """One tenant, no key: whoever reaches the edge."""
    return Tenants(identity, everybody=identity.tenant("default"))


def is_name(name: str) -> bool:
    """Names stand in headers, files and reports of the operator."""
    return _NAME.fullmatch(name) is not None


def new_key() -> str:
    """256 random bits, so a plain hash of them cannot be guessed back."""
    return "pf-" + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """What may lie on a disk in place of the key. Raises ValueError for one that is short enough to be guessed."""
    if len(key) < 16:
        raise ValueError("a key has at least 16 characters; `pagefence hash-key --new` makes one")
    if not key.isascii() or not key.isprintable() or " " in key or len(key) > MAX_KEY_BYTES:
        raise ValueError("a key consists of printable ASCII characters without blanks")
    return HASH_PREFIX + hashlib.sha256(key.encode()).hexdigest()


def bearer(headers: Headers) -> bytes | None:
    """The key of the one Authorization header; two of them are as good as none."""
    said = values(headers, b"authorization")
    if len(said) != 1:
        return None
    scheme, _, key = said[0].partition(b" ")
    key = key.strip()
    return key if scheme.lower() == b"bearer" and 0 < len(key) <= MAX_KEY_BYTES else None


def values(headers: Headers, name: bytes) -> list[bytes]:
    return [value.strip() for raw_name, value in headers if raw_name.lower() == name]


def _looked_up(pepper: bytes, digest: bytes) -> bytes:
    return hashlib.blake2b(digest, key=pepper, digest_size=32).digest()


def _within(peer: str | None, networks: tuple[Network, ...]) -> bool:
    try:
        address = ipaddress.ip_address(peer or "")
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)
