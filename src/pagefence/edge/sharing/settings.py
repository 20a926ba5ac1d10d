"""`[shared]` of edge.toml: where Redis is, under which key, and whether an edge without it may serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from pagefence.edge.tenants import Identity
from pagefence.mistakes import Usage

_SCHEMES = ("redis", "rediss", "unix")


class _Shared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    redis_env: str
    prefix: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:{}-]{1,64}$")] = "pagefence"
    required: bool = False


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """
    url       may hold a password, so it is never shown
    key       the stream that all processes of an edge write and read
    required  an edge that does not reach Redis is not ready
    """

    url: str = field(repr=False)
    key: str = "pagefence:shared"
    required: bool = False


def read_shared(
    table: Mapping[str, Any] | None, environment: Mapping[str, str], identity: Identity
) -> SharedSettings | None:
    """None where there is no such table. Raises Usage, which quotes no URL."""
    if table is None:
        return None
    try:
        said = msgspec.convert(table, _Shared)
    except msgspec.ValidationError as error:
        text, _, where = str(error).removeprefix("Object ").partition(" - at `$")
        raise Usage(f"shared{where.rstrip('`')}: {text[:1].lower()}{text[1:]}") from None
    url = environment.get(said.redis_env, "")
    if not url:
        raise Usage(f"shared.redis_env names {said.redis_env[:80]!r}, and the environment has no such variable")
    if not _is_url(url):
        raise Usage(
            f"{said.redis_env[:80]} has to hold redis://HOST:PORT/0, rediss:// for TLS or unix:///PATH, with user and "
            "password if there are any"
        )
    if identity.made_here:
        raise Usage("edges that share through Redis need one secret: set PAGEFENCE_EDGE_SECRET in all of them")
    if find_spec("redis") is None or find_spec("cryptography") is None:
        raise Usage("[shared] needs two packages more: pip install 'pagefence[edge]'")
    return SharedSettings(url, f"{said.prefix}:shared", said.required)


def _is_url(url: str) -> bool:
    """As redis-py reads it: whatever it would refuse later is refused now."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in _SCHEMES and bool(parts.path if parts.scheme == "unix" else parts.hostname)
        return whole and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
