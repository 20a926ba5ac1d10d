"""The steps of a real edge, from its settings: who asks, what may be asked, whether a rank can hold it, what goes on.

Everything is read and checked when an edge begins, so a mistake ends it then, and a reload keeps the old one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from pagefence.edge import policy as fields
from pagefence.edge import reading
from pagefence.edge.admission import (
    AdmissionSettings,
    ModelBounds,
    NeedsCount,
    after_count,
    bounds_of_model,
    decide,
    reserved,
)
from pagefence.edge.call import Admitted, Call, Operation, Tenant
from pagefence.edge.capacity import Capacities, CapacitySettings, Room, targets_of
from pagefence.edge.counting import Counting, CountingSettings, PromptCounter
from pagefence.edge.engine_readings import readings_of
from pagefence.edge.outgoing import DIALECTS, Credentials, Dialect, refuse_headers, upstream_body, upstream_headers
from pagefence.edge.policy_settings import Policy
from pagefence.edge.refusal import Refusal
from pagefence.edge.settings import Settings
from pagefence.edge.steps import Headers, Outgoing, Steps
from pagefence.edge.tenant_file import load_tenants, read_trusted_header
from pagefence.edge.tenants import Identity
from pagefence.engine.model.tokenizer import Tokenizer
from pagefence.fleet import Target
from pagefence.fleet.fleet_file import read_fleet_file
from pagefence.fleet.keys import read_keys
from pagefence.mistakes import Usage
from pagefence.models import resolve

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Tenants(_Table, frozen=True):
    file: str | None = None
    header: str | None = None
    secret_header: str = "x-pagefence-proxy-secret"
    peers: list[str] = []
    only_listed: bool = False
    open: bool = False
    shared_cache: bool = False
    upstream_keys_env: str | None = None


class _Policy(_Table, frozen=True):
    engine: str = "other"
    forbidden_fields: str = "refuse"
    unknown_fields: str = "refuse"
    allow_fields: list[str] = []
    media: str = "refuse"
    media_hosts: list[str] = []


class _Reading(_Table, frozen=True):
    depth: Annotated[int, msgspec.Meta(ge=4, le=256)] = 64
    objects: _Count = 50_000


class _Admission(_Table, frozen=True):
    model: str | None = None
    default_new_tokens: _Count = 1024
    image_tokens: _Count | None = None
    margin_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 2
    waiting: _Count = 64


class _Capacity(_Table, frozen=True):
    fleet: str | None = None
    limit: _Count | None = None
    refresh: _Seconds = 5.0
    stale: _Seconds = 30.0


T = TypeVar("T", bound=_Table)


@dataclass(frozen=True, slots=True)
class Model:
    """The tokenizer that prompts are counted with; read once, and kept over a reload that names the same one."""

    name: str
    tokenizer: Tokenizer
    bounds: ModelBounds

    @classmethod
    def load(cls, name: str) -> Model:
        """Raises ModelError for what is no model or has no tokenizer that can be read."""
        tokenizer = Tokenizer.load(resolve(name))
        return cls(name, tokenizer, bounds_of_model(tokenizer))


class Joined:
    """Makes the steps of a process. `identity` is the same in all of them, and over reloads."""

    def __init__(
        self, identity: Identity, environment: Mapping[str, str], folder: Path, notice: Callable[[str], None]
    ) -> None:
        self._identity, self._environment, self._folder, self._notice = identity, environment, folder, notice
        self._model: Model | None = None

    def steps(self, settings: Settings) -> Steps:
        """Raises Usage and ModelError, before anything serves."""
        whose = self._table(settings, "tenants", _Tenants)
        admission = self._table(settings, "admission", _Admission)
        rules = self._table(settings, "policy", _Policy)
        dialect = DIALECTS.get(rules.engine)
        if dialect is None:
            raise Usage(f"policy.engine is one of {', '.join(DIALECTS)}, not {rules.engine[:80]!r}")
        if whose.open and settings.host not in _LOOPBACK:
            raise Usage(f"open access is for a loopback address, and this edge listens on {settings.host}")
        header = whose.header and read_trusted_header(whose.header, self._environment, whose.peers, whose.secret_header)
        tenants = load_tenants(
            self._identity,
            self._environment,
            self._path(whose.file),
            header or None,
            only_listed=whose.only_listed,
            open_access=whose.open,
        )
        decided = _Decisions(
            policy=Policy(
                rules.forbidden_fields,  # type: ignore[arg-type]  # Policy checks what it is
                rules.unknown_fields,  # type: ignore[arg-type]
                frozenset(rules.allow_fields),
                rules.media,  # type: ignore[arg-type]
                frozenset(rules.media_hosts),
            ),
            limits=_limits(self._table(settings, "reading", _Reading), settings),
            dialect=dialect,
            credentials=self._credentials(whose, settings),
            shared=whose.open or whose.shared_cache,
        )
        model = self._loaded(admission)
        readings = readings_of(None if rules.engine == "other" else rules.engine)
        counter = PromptCounter(model.tokenizer, model.bounds, readings)
        counting = Counting(counter, CountingSettings(admission.threads, admission.waiting))
        gate = _Gate(
            self._capacities(settings),
            counting,
            AdmissionSettings(admission.default_new_tokens, admission.image_tokens, admission.margin_tokens),
        )
        return Steps(
            tenant=tenants.identify,
            read=decided.read,
            clean=decided.clean,
            admit=gate.admit,
            outgoing=decided.outgoing,
            watch=_unwatched,
            unready=gate.unready,
            barred=gate.barred,
            start=gate.start,
            stop=gate.stop,
        )

    def _table(self, settings: Settings, name: str, kind: type[T]) -> T:
        try:
            return msgspec.convert(settings.tables.get(name, {}), kind)
        except msgspec.ValidationError as error:
            text, _, where = str(error).partition(" - at `$")
            raise Usage(f"{name}{where.rstrip('`')}: {text[:1].lower()}{text[1:]}") from None

    def _path(self, name: str | None) -> Path | None:
        return None if name is None else self._folder / Path(name).expanduser()

    def _loaded(self, said: _Admission) -> Model:
        if said.model is None:
            raise Usage(
                "prompts are counted with the model's own tokenizer: name it with --model, or as [admission] model. "
                "A GGUF file or a folder with config.json and tokenizer.json"
            )
        beside = self._folder / Path(said.model).expanduser()
        name = str(beside) if beside.exists() else said.model  # else one that is known, or a flag's own path
        if self._model is None or self._model.name != name:
            self._model = Model.load(name)
        return self._model

    def _credentials(self, whose: _Tenants, settings: Settings) -> Credentials:
        if whose.upstream_keys_env is None:
            return Credentials()
        if settings.authorization is not None:
            raise Usage("upstream.key_env and tenants.upstream_keys_env both say which key upstream gets; keep one")
        said = self._environment.get(whose.upstream_keys_env, "")
        pairs = [entry.strip().partition("=") for entry in said.split(",") if entry.strip()]
        keys = {name.strip(): key.strip() for name, _, key in pairs}
        if not keys or not all(key and key.isascii() and key.isprintable() for key in keys.values()):
            raise Usage(f"{whose.upstream_keys_env[:80]} has to hold tenant=key pairs with commas between")
        return Credentials(by_tenant={name: key.encode() for name, key in keys.items()})

    def _capacities(self, settings: Settings) -> Capacities:
        said = self._table(settings, "capacity", _Capacity)
        declared = None if said.limit is None else Room(said.limit, said.limit, "declared as capacity.limit")
        try:
            policy = CapacitySettings(said.refresh, said.stale, declared)
        except ValueError as error:
            raise Usage(f"capacity.refresh and stale: {error}") from None
        targets: dict[str, Target] = {
            url: replace(target, tls=settings.tls)
            for url, target in targets_of([each.url for each in settings.upstreams]).items()
        }
        if said.fleet is not None:
            if len(targets) != 1:
                raise Usage("capacity.fleet describes one fleet, and there are several upstreams")
            described = read_fleet_file(self._folder / Path(said.fleet).expanduser()).target
            targets = dict.fromkeys(targets, described)
        return Capacities(targets, read_keys(None, self._environment), policy, time.monotonic, self._notice)


def _limits(said: _Reading, settings: Settings) -> reading.Limits:
    return reading.Limits(settings.front.body_bytes, said.depth, said.objects)


@dataclass(frozen=True, slots=True)
class _Decisions:
    """What needs nothing but the request itself. `shared`: tenants may meet in the engine's cache, or there is one."""

    policy: Policy
    limits: reading.Limits
    dialect: Dialect
    credentials: Credentials
    shared: bool

    def read(self, raw: bytes, headers: Headers) -> dict[str, Any] | Refusal:
        return reading.read(raw, headers, self.limits)

    def clean(
        self, operation: Operation, tenant: Tenant, request_id: str, body: dict[str, Any], headers: Headers
    ) -> Call | Refusal:
        refusal = refuse_headers(headers, self.policy)
        if refusal is not None:
            return refusal
        if not (self.shared or self.dialect.separates(operation) or tenant.name in self.credentials.by_tenant):
            why = f"Nothing keeps the tenants' caches apart for {operation} on this engine, so nothing is sent to it."
            return Refusal(503, "tenants_not_separated", why)  # I7: not known is not apart
        cleaned = fields.clean(operation, body, self.policy)
        if isinstance(cleaned, Refusal):
            return cleaned
        return Call(operation, tenant, request_id, cleaned.body, cleaned.asked.model, cleaned.asked.stream)

    def outgoing(self, call: Call, admitted: Admitted | None, headers: Headers) -> Outgoing:
        if admitted is None:
            return Outgoing(b"", self._headers(call, headers, (b"content-type", b"content-length")))
        body = upstream_body(replace(call, body=reserved(admitted)), self.dialect)
        return Outgoing(body, self._headers(call, headers, (b"content-length",)))

    def _headers(self, call: Call, came: Headers, without: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """The balancer says how long it is."""
        made = upstream_headers(call, came, self.credentials, 0)
        return [pair for pair in made if pair[0] not in without]


class _Gate:
    """Admission on live figures."""

    def __init__(self, capacities: Capacities, counting: Counting, settings: AdmissionSettings) -> None:
        self._capacities, self._counting, self._settings = capacities, counting, settings
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._capacities.refresh()
        self._reading = asyncio.get_running_loop().create_task(self._capacities.run())

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._counting.close()

    async def admit(self, call: Call) -> Admitted | Refusal:
        verdict = decide(call, self._capacities.now(), self._counting.counter.bounds, self._settings)
        if not isinstance(verdict, NeedsCount):
            return verdict
        counts = await self._counting.count(verdict)
        return counts if isinstance(counts, Refusal) else after_count(verdict, counts)

    def unready(self) -> str | None:
        now = self._capacities.now()
        return f"how much the engines can hold is not known: {now.problem}" if now.room is None else None

    def barred(self) -> frozenset[str]:
        return self._capacities.now().unusable


async def _unwatched(admitted: Admitted) -> None:
    return None
