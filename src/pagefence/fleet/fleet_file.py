"""`fleet.toml`: a fleet written down once, for those who gate it again and again. It never holds a key.

    disaggregated = true
    headroom = 1.25                  # also: edge_limit, timeout, retries, proxy

    [router]
    url = "https://router.example"

    [[prefill]]
    url = "https://p0.example"
    pool = 680000                    # declared, for a node that does not tell; also: context, longest, page_size,
                                     # engine and version in quotes, and speed (active_parameters, ...)

    [[decode]]
    url = "https://d0.example"

    [tls]                            # paths start at the folder of this file
    ca = "ca.pem"

    [declared]                       # for every node that does not tell
    context = 262144

`[[worker]]` is a node that does prefill and decode itself, behind a router. A key that is not known is an error.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from pagefence.fleet.facts import SPEED
from pagefence.fleet.target import Target, Tls
from pagefence.mistakes import Usage

Tokens = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Word = Annotated[str, msgspec.Meta(pattern=r"^[\w.+-]{1,60}$")]
SOFTWARE = ("engine", "version")
FIGURES = ("pool", "context", "longest", "page_size", *SPEED)
MOST_RETRIES = 10
_LARGEST = 16 << 20
_SECRETS = ("key", "token", "secret", "password", "authorization", "bearer")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Declared(_Strict, frozen=True, kw_only=True):
    pool: Tokens | None = None
    context: Tokens | None = None
    longest: Tokens | None = None
    page_size: Tokens | None = None
    active_parameters: Tokens | None = None
    layers: Tokens | None = None
    attention_width: Tokens | None = None
    devices: Tokens | None = None
    peak_flop_per_s: Tokens | None = None
    kv_bytes_per_token: Tokens | None = None
    link_bytes_per_s: Tokens | None = None
    engine: Word | None = None
    version: Word | None = None

    def software(self) -> dict[str, str]:
        said = {name: getattr(self, name) for name in SOFTWARE}
        return {name: value for name, value in said.items() if value is not None}

    def figures(self) -> dict[str, int]:
        said = {name: getattr(self, name) for name in FIGURES}
        return {name: value for name, value in said.items() if value is not None}


class _Node(_Declared, frozen=True, kw_only=True):
    url: str


class _Tls(_Strict, frozen=True, kw_only=True):
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


class _File(_Strict, frozen=True, kw_only=True):
    router: _Node | None = None
    prefill: list[_Node] = msgspec.field(default_factory=list)
    decode: list[_Node] = msgspec.field(default_factory=list)
    worker: list[_Node] = msgspec.field(default_factory=list)
    disaggregated: bool | None = None
    headroom: Annotated[float, msgspec.Meta(ge=1, le=100)] | None = None
    edge_limit: Tokens | None = None
    timeout: Annotated[float, msgspec.Meta(ge=0.1)] | None = None
    retries: Annotated[int, msgspec.Meta(ge=0, le=MOST_RETRIES)] | None = None
    proxy: str | None = None
    tls: _Tls = _Tls()
    declared: _Declared = _Declared()


@dataclass(frozen=True, slots=True)
class FleetFile:
    """What a file says. None where it is silent."""

    target: Target
    headroom: float | None = None
    edge_limit: int | None = None
    timeout_s: float | None = None


def read_fleet_file(path: Path) -> FleetFile:
    """Read and check a `fleet.toml`. Raises Usage, which names file, table and key, and quotes no secret."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise Usage(f"{path} is larger than any fleet: more than {_LARGEST >> 20} MiB")
        raw = tomllib.loads(content.decode())
        _refuse_secrets(path, raw)
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # no UTF-8, no TOML, or a number of thousands of digits
        raise Usage(f"{path} is no TOML: {error}") from None
    except RecursionError:
        raise Usage(f"{path} is no fleet: its tables are nested too deep") from None
    try:
        said = msgspec.convert(raw, _File)
    except msgspec.ValidationError as error:
        raise Usage(f"{path}: {_plainly(str(error))}") from None
    for name in ("headroom", "timeout"):
        if not math.isfinite(getattr(said, name) or 0.0):
            raise Usage(f"{path}: {name} must be a finite number")
    try:
        return FleetFile(_target(said, path.parent), said.headroom, said.edge_limit, said.timeout)
    except Usage as error:
        raise Usage(f"{path}: {error}") from None


def address(text: str) -> str:
    """A URL of a fleet as it is used: without `/v1` and the slash at the end. Raises Usage for what is none."""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if "@" in text:  # before it is quoted: it may hold a password also where it is no URL
        raise Usage("a URL must hold no password; set PAGEFENCE_KEY_A and PAGEFENCE_KEY_B")
    if not sound or not text.isprintable():
        raise Usage(f"{text[:80]!r} is no URL of a fleet; write http://HOST:PORT")
    if "?" in text or "#" in text:
        raise Usage(f"{text[:80]!r} has a query: paths are asked behind the address, so write http://HOST:PORT")
    return text.rstrip("/").removesuffix("/v1")


def different(urls: tuple[str, ...]) -> None:
    """Raises Usage when one worker is named twice: it would be counted as two."""
    seen: dict[tuple[str, str, int, str], str] = {}
    for url in urls:
        first = seen.setdefault(_meant(url), url)
        if first is not url:
            both = url if url == first else f"{first} and {url}"
            raise Usage(f"one worker was named twice: {both} (every node needs an address of its own)")


def _meant(url: str) -> tuple[str, str, int, str]:
    """What two spellings of one address have in common."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    with contextlib.suppress(ValueError):
        host = str(ipaddress.ip_address("127.0.0.1" if host == "localhost" else host))
    return parts.scheme, host, parts.port or (443 if parts.scheme == "https" else 80), parts.path


def _target(said: _File, folder: Path) -> Target:
    prefill, decode, workers = (tuple(address(n.url) for n in g) for g in (said.prefill, said.decode, said.worker))
    different((*prefill, *decode, *workers))
    router = address(said.router.url) if said.router else None
    if not (router or prefill or decode or workers):
        raise Usage("names no node; write a [router] table with a url, or [[prefill]] and [[decode]]")
    if said.disaggregated is False and (prefill or decode):
        raise Usage("disaggregated = false, but it has [[prefill]] or [[decode]] tables; [[worker]] is for other nodes")
    nodes = [*([said.router] if said.router else []), *said.prefill, *said.decode, *said.worker]
    return Target(
        router,
        prefill,
        decode,
        workers=workers,
        disaggregated=bool(said.disaggregated or prefill or decode),
        declared={"": said.declared.figures()} | {address(n.url): n.figures() for n in nodes if n.figures()},
        software={"": said.declared.software()} | {address(n.url): n.software() for n in nodes if n.software()},
        tls=Tls(_file(said.tls.ca, folder), _file(said.tls.certificate, folder), _file(said.tls.key, folder)),
        proxy=_proxy(said.proxy),
        retries=1 if said.retries is None else said.retries,
    )


def _file(name: str | None, folder: Path) -> Path | None:
    if name is not None and ("-----BEGIN" in name or "\n" in name):
        raise Usage("[tls] names files in PEM format; it holds no certificate and no key itself")
    if name is None:
        return None
    if not name.isprintable():
        raise Usage(f"[tls] names no file: {name[:80]!r}")
    try:
        return folder / Path(name).expanduser()
    except RuntimeError:
        raise Usage(f"[tls] names a file of a user who is not there: {name[:80]!r}") from None


def _proxy(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        raise Usage("proxy is no URL of a proxy; write http://HOST:PORT")
    if parts.username or parts.password:
        raise Usage("proxy must hold no password; leave it out and set HTTPS_PROXY in the environment")
    return text


def _refuse_secrets(path: Path, raw: Mapping[str, object]) -> None:
    for table, name in _names(raw):
        if any(mark in name.lower() for mark in _SECRETS) and (table, name) != ("tls", "key"):
            where = f"[{table}] {name}" if table else name
            raise Usage(
                f"{path}: {where} looks like a key, and keys are never in this file; set PAGEFENCE_KEY_A, "
                "PAGEFENCE_KEY_B and PAGEFENCE_KEY_ADMIN, or name a file with --keys-file"
            )


def _names(value: object, table: str = "") -> Iterator[tuple[str, str]]:
    """Every key of a document with the path of its table."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield table, str(name)
            yield from _names(inner, f"{table}.{name}" if table else str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner, table)


def _plainly(message: str) -> str:
    """msgspec's words with the table as the file writes it: "$.prefill[0].pool" is [[prefill]] number 1, pool."""
    text, _, where = message.removeprefix("Object ").partition(" - at `$")
    where = where.rstrip("`").removeprefix(".")
    first, _, key = where.partition(".")
    listed = re.fullmatch(r"(\w+)\[(\d+)\]", first)
    if listed:
        table = f"[[{listed[1]}]] number {int(listed[2]) + 1}"
    elif first in ("router", "tls", "declared"):
        table = f"[{first}]"
    else:
        table, key = "", first
    place = ", ".join(part for part in (table, key) if part) or "the top of the file"
    return f"{place}: {text[:1].lower()}{text[1:]}"
