"""`watch.toml`: what a watch is asked to do. It never holds a key.

state = "watch.db"               # paths start at the folder of this file

[listen]
host = "127.0.0.1"               # nobody is asked for a key here: keep it among those who may read verdicts
port = 9779

[[target]]
name = "eu"
fleet = "fleet.toml"             # or: url = "http://router:8000"
keys_file = "/etc/pagefence/eu.env"  # or keys_env = "EU_KEY", for EU_KEY_A, EU_KEY_B and EU_KEY_ADMIN
modules = ["gate", "verify"]     # these two are there without being written down
inside = true
sentinels = "live.json"          # gets the words before they are planted, for an edge; also tenant_a, tenant_b
budget = { tokens = 240000, window = 3600, burst = 40000 }

[module.verify]
probes = ["gate", "boundary", "canary"]
every = 900                      # seconds; 0: only when /probe asks
jitter = 0.1
tokens = 40000                   # the most that one run may cost
deadline = 600
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from pagefence.fleet import Target
from pagefence.fleet.fleet_file import FleetFile, address, read_fleet_file
from pagefence.fleet.keys import read_keys
from pagefence.mistakes import Usage
from pagefence.probes.gate import HEADROOM, Policy
from pagefence.probes.sentinel_file import TENANTS, SentinelFile
from pagefence.watch.config import GATE, PORT, VERIFY, Module, Settings, Watched, allowance

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_SECRETS = ("api_key", "token", "secret", "password", "authorization", "bearer", "key_a", "key_b")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Listen(_Strict, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = PORT


class _Budget(_Strict, frozen=True, kw_only=True):
    tokens: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    window: float | None = None
    burst: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None


class _Target(_Strict, frozen=True, kw_only=True):
    name: str
    url: str | None = None
    fleet: str | None = None
    keys_file: str | None = None
    keys_env: Annotated[str, msgspec.Meta(pattern=r"^[A-Z_][A-Z0-9_]{0,59}$")] = "PAGEFENCE_KEY"
    modules: list[str] = msgspec.field(default_factory=lambda: [GATE.name, VERIFY.name])
    inside: bool = False
    timeout: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] | None = None
    sentinels: str | None = None
    tenant_a: str = TENANTS[0]
    tenant_b: str = TENANTS[1]
    budget: _Budget | None = None


class _Module(_Strict, frozen=True, kw_only=True):
    probes: list[str]
    every: float = 900.0
    jitter: float = 0.1
    tokens: _Tokens | None = None
    deadline: float = 600.0


class _Evidence(_Strict, frozen=True, kw_only=True):
    null_rate: Annotated[float, msgspec.Meta(gt=0, lt=0.9)] = 0.05
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.001


class _File(_Strict, frozen=True, kw_only=True):
    target: list[_Target]
    state: str = "watch.db"
    listen: _Listen = _Listen()
    module: dict[str, _Module] = msgspec.field(default_factory=dict)
    evidence: _Evidence = _Evidence()
    keep: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 200
    keep_answers: bool = False


def read_watch_file(path: Path, environment: Mapping[str, str], seed: int | None = None) -> Settings:
    """Read and check a `watch.toml` with the fleet and key files that it names. Raises Usage; quotes no secret."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Usage(f"{path} is no TOML: {error}") from None
    try:
        said = msgspec.convert(raw, _File, strict=False)
    except msgspec.ValidationError as error:
        raise Usage(f"{path}: {error}{_about_keys(str(error))}") from None
    try:
        modules = {GATE.name: GATE, VERIFY.name: VERIFY} | {n: _module(n, m) for n, m in said.module.items()}
        return Settings(
            tuple(_watched(target, modules, path.parent, environment) for target in said.target),
            path.parent / Path(said.state).expanduser(),
            said.listen.host,
            said.listen.port,
            said.keep,
            said.evidence.null_rate,
            said.evidence.alpha,
            seed,
            said.keep_answers,
        )
    except (Usage, ValueError) as error:
        raise Usage(f"{path}: {error}") from None


def _module(name: str, said: _Module) -> Module:
    prompts = any(probe != GATE.name for probe in said.probes)
    tokens = (VERIFY.tokens if prompts else 0) if said.tokens is None else said.tokens
    return Module(name, tuple(said.probes), said.every or None, said.jitter, tokens, said.deadline)


def _watched(said: _Target, modules: Mapping[str, Module], folder: Path, environment: Mapping[str, str]) -> Watched:
    if (said.url is None) == (said.fleet is None):
        raise Usage(f"target {said.name[:60]!r} needs a url or a fleet file, one of them")
    file = _fleet(said, folder)
    unknown = next((name for name in said.modules if name not in modules), None)
    if unknown is not None:
        raise Usage(f"target {said.name} names the module {unknown[:60]!r}; there are {', '.join(modules)}")
    asked = tuple(modules[name] for name in dict.fromkeys(said.modules))
    budget = said.budget
    return Watched(
        said.name,
        file.target,
        asked,
        allowance(
            asked,
            budget.tokens if budget else None,
            budget.window if budget else None,
            budget.burst if budget else None,
        ),
        read_keys(folder / said.keys_file if said.keys_file else None, environment, said.keys_env),
        said.timeout or file.timeout_s or 120.0,
        Policy(file.headroom or HEADROOM, file.edge_limit, said.inside),
        _sentinels(said, folder),
    )


def _sentinels(said: _Target, folder: Path) -> SentinelFile | None:
    if said.sentinels is None:
        return None
    return SentinelFile(folder / Path(said.sentinels).expanduser(), (said.tenant_a, said.tenant_b))


def _fleet(said: _Target, folder: Path) -> FleetFile:
    if said.fleet is not None:
        return read_fleet_file(folder / Path(said.fleet).expanduser())
    return FleetFile(Target(address(said.url or "")))


def _about_keys(message: str) -> str:
    if "unknown field" in message and any(mark in message.lower() for mark in _SECRETS):
        return " (keys are never in this file; name a file with keys_file or a variable with keys_env)"
    return ""
