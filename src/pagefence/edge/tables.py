"""The tables of `edge.toml` that the steps read. docs/reference/edge-file.md says what each name means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from pagefence.mistakes import Usage

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name that is not known is an error."""


class TenantsTable(Table, frozen=True):
    file: str | None = None
    header: str | None = None
    secret_header: str = "x-pagefence-proxy-secret"
    peers: list[str] = []
    only_listed: bool = False
    open: bool = False
    shared_cache: bool = False
    upstream_keys_env: str | None = None


class PolicyTable(Table, frozen=True):
    engine: str = "other"
    forbidden_fields: str = "refuse"
    unknown_fields: str = "refuse"
    allow_fields: list[str] = []
    media: str = "refuse"
    media_hosts: list[str] = []


class ReadingTable(Table, frozen=True):
    depth: Annotated[int, msgspec.Meta(ge=4, le=256)] = 64
    objects: _Count = 50_000


class AdmissionTable(Table, frozen=True):
    on: bool = True
    model: str | None = None
    default_new_tokens: _Count = 1024
    image_tokens: _Count | None = None
    margin_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 2
    waiting: _Count = 64


class CapacityTable(Table, frozen=True):
    fleet: str | None = None
    limit: _Count | None = None
    refresh: _Seconds = 5.0
    stale: _Seconds = 120.0


T = TypeVar("T", bound=msgspec.Struct)


def table(tables: Mapping[str, Mapping[str, Any]], name: str, kind: type[T]) -> T:
    """One of them, checked. Raises Usage with the place."""
    try:
        return msgspec.convert(tables.get(name, {}), kind)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        raise Usage(f"{name}{where.rstrip('`')}: {text[:1].lower()}{text[1:]}") from None
