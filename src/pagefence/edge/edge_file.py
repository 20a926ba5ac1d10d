"""`edge.toml`: what an edge is told. It never holds a key; it names where they are.

The tables of the proxy itself are read here, those of the other steps are handed on as they stand
(`Settings.tables`). docs/reference/edge-file.md has every name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pagefence.edge.front.front import FrontLimits
from pagefence.edge.settings import PORT, Settings
from pagefence.edge.side import Cors
from pagefence.edge.upstream.address import parse
from pagefence.edge.upstream.balancer import Timeouts
from pagefence.edge.upstream.health import HealthPolicy
from pagefence.fleet.target import Tls
from pagefence.mistakes import Usage

STEPS = ("tenants", "policy", "reading", "admission", "capacity", "watching", "shared")
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_MaybeNone = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Listen(_Table, frozen=True):
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = PORT
    workers: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    connections: _Count = 4096
    metrics: bool = True


class _Timeouts(_Table, frozen=True):
    connect: _Seconds = 5.0
    first_byte: _Seconds = 300.0
    idle: _Seconds = 120.0
    total: _Seconds = 3600.0


class _Health(_Table, frozen=True):
    path: Annotated[str, msgspec.Meta(pattern=r"^/[!-~]*$")] = "/health"
    every: _MaybeNone = 5.0
    timeout: _Seconds = 2.0
    failures: _Count = 3
    out: _Seconds = 2.0
    longest: _Seconds = 60.0


class _Upstream(_Table, frozen=True):
    urls: list[str]
    ca: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    key_env: str | None = None
    connections: _Count = 1024
    keep: _Seconds = 4.0
    timeouts: _Timeouts = _Timeouts()
    health: _Health = _Health()


class _Limits(_Table, frozen=True):
    head_bytes: Annotated[int, msgspec.Meta(ge=1024, le=2**20)] = 32 * 1024
    body_bytes: _Count = 32 * 1024 * 1024
    bodies_bytes: _Count = 512 * 1024 * 1024
    answer_bytes: _Count = 64 * 1024 * 1024
    requests: _Count = 1024
    tenant_requests: _Count = 256
    head: _Seconds = 10.0
    body: _Seconds = 30.0
    idle: _Seconds = 75.0
    write: _Seconds = 60.0


class _Cors(_Table, frozen=True):
    origins: list[str] = []
    max_age: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 600


class _Drain(_Table, frozen=True):
    delay: _MaybeNone = 0.0
    seconds: _MaybeNone = 30.0


class _Log(_Table, frozen=True):
    requests: bool = True
    traces: bool = False


class _File(_Table, frozen=True):
    upstream: _Upstream
    listen: _Listen = _Listen()
    limits: _Limits = _Limits()
    cors: _Cors = _Cors()
    drain: _Drain = _Drain()
    log: _Log = _Log()
    models: list[str] = []


def read_edge_file(path: Path, environment: Mapping[str, str]) -> Settings:
    """Read and check an `edge.toml`. Raises Usage, one line with the place; quotes no secret."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Usage(f"{path} is no TOML: {error}") from None
    tables = {name: raw.pop(name) for name in STEPS if name in raw}
    wrong = next((name for name, table in tables.items() if not isinstance(table, dict)), None)
    if wrong is not None:
        raise Usage(f"{path}: {wrong} is a table; write [{wrong}]")
    try:
        file = msgspec.convert(raw, _File)
        return _settings(file, path.parent, environment, tables)
    except msgspec.ValidationError as error:
        raise Usage(f"{path}: {_plainly(str(error))}") from None
    except Usage as error:
        raise Usage(f"{path}: {error}") from None


def _settings(
    file: _File, folder: Path, environment: Mapping[str, str], tables: Mapping[str, Mapping[str, Any]]
) -> Settings:
    up, limits, listen = file.upstream, file.limits, file.listen
    return Settings(
        upstreams=tuple(parse(url) for url in up.urls),
        host=listen.host,
        port=listen.port,
        workers=listen.workers,
        front=FrontLimits(
            head_bytes=limits.head_bytes,
            body_bytes=limits.body_bytes,
            bodies_bytes=max(limits.bodies_bytes, limits.body_bytes),
            connections=listen.connections,
            head_s=limits.head,
            body_s=limits.body,
            idle_s=limits.idle,
            write_s=limits.write,
        ),
        requests=limits.requests,
        tenant_requests=limits.tenant_requests,
        answer_bytes=limits.answer_bytes,
        timeouts=Timeouts(**_with_unit(up.timeouts)),
        health=HealthPolicy(
            up.health.path, up.health.every, up.health.timeout, up.health.failures, up.health.out, up.health.longest
        ),
        upstream_connections=up.connections,
        upstream_keep_s=up.keep,
        tls=Tls(_path(up.ca, folder), _path(up.client_cert, folder), _path(up.client_key, folder)),
        authorization=upstream_key(up.key_env, environment),
        cors=Cors(tuple(file.cors.origins), file.cors.max_age),
        models=tuple(file.models),
        metrics=listen.metrics,
        traces=file.log.traces,
        log_requests=file.log.requests,
        delay_s=file.drain.delay,
        drain_s=file.drain.seconds,
        tables=tables,
    )


def upstream_key(name: str | None, environment: Mapping[str, str]) -> str | None:
    """What is sent to upstream as Authorization. Raises Usage where the variable is not there."""
    if name is None:
        return None
    key = environment.get(name)
    if not key:
        raise Usage(f"upstream.key_env names {name[:80]!r}, and the environment has no such variable")
    return f"Bearer {key}"


def _with_unit(timeouts: _Timeouts) -> dict[str, float]:
    return {f"{name}_s": value for name, value in msgspec.structs.asdict(timeouts).items()}


def _path(name: str | None, folder: Path) -> Path | None:
    return None if name is None else folder / Path(name).expanduser()


def _plainly(message: str) -> str:
    """msgspec's words with the table as the file writes it: "$.upstream.health.every" is upstream.health.every."""
    text, _, where = message.removeprefix("Object ").partition(" - at `$")
    place = where.rstrip("`").removeprefix(".") or "the top of the file"
    return f"{place}: {text[:1].lower()}{text[1:]}"
