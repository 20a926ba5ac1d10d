"""The steps of a real edge, from its settings: who asks, what may be asked, whether a rank can hold it, what goes on.

Everything is read and checked when an edge begins, so a mistake ends it then, and a reload keeps the old one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagefence.edge import policy as fields
from pagefence.edge import reading
from pagefence.edge.admission import AdmissionSettings, ModelBounds, bounds_of_model, reserved
from pagefence.edge.beside import Beside, for_bodies
from pagefence.edge.call import Call, Operation, Tenant
from pagefence.edge.capacity import Capacities, CapacitySettings, Room, targets_of
from pagefence.edge.counting import Counting, CountingSettings, PromptCounter
from pagefence.edge.demand import Admitted
from pagefence.edge.engine_readings import readings_of
from pagefence.edge.gates import LiveGate, OpenGate
from pagefence.edge.media import check_cost
from pagefence.edge.outgoing import DIALECTS, Credentials, Dialect, refuse_headers, upstream_body, upstream_headers
from pagefence.edge.policy_settings import Policy
from pagefence.edge.refusal import Refusal
from pagefence.edge.settings import Settings
from pagefence.edge.sharing.settings import read_shared
from pagefence.edge.shown import Tokenizing
from pagefence.edge.steps import Headers, Outgoing, Steps, Tells
from pagefence.edge.tables import AdmissionTable, CapacityTable, PolicyTable, ReadingTable, TenantsTable, table
from pagefence.edge.tenant_file import load_tenants, read_trusted_header
from pagefence.edge.tenants import Identity
from pagefence.edge.watched import Watching, book_of, plan_of
from pagefence.edge.watching import Book
from pagefence.edge.watching.settings import WatchTable
from pagefence.engine.model.tokenizer import Tokenizer
from pagefence.fleet import Target
from pagefence.fleet.fleet_file import read_fleet_file
from pagefence.fleet.keys import read_keys
from pagefence.mistakes import Usage
from pagefence.models import resolve

if TYPE_CHECKING:
    from pagefence.edge.sharing.sharing import Sharing

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


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

    def __init__(self, identity: Identity, environment: Mapping[str, str], folder: Path) -> None:
        self._identity, self._environment, self._folder = identity, environment, folder
        self._model: Model | None = None
        self._book: Book | None = None
        self._named: tuple[Tenant, ...] = ()
        self._sharing: Sharing | None = None
        self._began = False

    def steps(self, settings: Settings, tells: Tells) -> Steps:
        """Raises Usage and ModelError, before anything serves."""
        whose = table(settings.tables, "tenants", TenantsTable)
        admission = table(settings.tables, "admission", AdmissionTable)
        rules = table(settings.tables, "policy", PolicyTable)
        dialect = DIALECTS.get(rules.engine)
        if dialect is None:
            raise Usage(f"policy.engine is one of {', '.join(DIALECTS)}, not {rules.engine[:80]!r}")
        if whose.open and settings.host not in _LOOPBACK:
            raise Usage(f"open access is for a loopback address, and this edge listens on {settings.host}")
        if admission.on:
            check_cost(rules.media, admission.image_tokens)
        header = whose.header and read_trusted_header(whose.header, self._environment, whose.peers, whose.secret_header)
        tenants = load_tenants(
            self._identity,
            self._environment,
            self._path(whose.file),
            header or None,
            only_listed=whose.only_listed,
            open_access=whose.open,
        )
        self._named = tenants.named
        decided = _Decisions(
            policy=Policy(
                rules.forbidden_fields,  # type: ignore[arg-type]  # Policy checks what it is
                rules.unknown_fields,  # type: ignore[arg-type]
                frozenset(rules.allow_fields),
                rules.media,  # type: ignore[arg-type]
                frozenset(rules.media_hosts),
            ),
            limits=_limits(table(settings.tables, "reading", ReadingTable), settings),
            dialect=dialect,
            credentials=self._credentials(whose, settings),
            shared=whose.open or whose.shared_cache,
        )
        model = self._loaded(admission)
        readings = readings_of(None if rules.engine == "other" else rules.engine)
        counter = PromptCounter(model.tokenizer, model.bounds, readings)
        beside = Beside(for_bodies(settings.requests, settings.tenant_requests, settings.front.body_bytes), "read")
        gate: LiveGate | OpenGate = OpenGate(model.bounds, beside)
        if admission.on:
            gate = LiveGate(
                self._capacities(settings, tells),
                Counting(counter, CountingSettings(admission.threads, admission.waiting)),
                beside,
                AdmissionSettings(admission.default_new_tokens, admission.image_tokens, admission.margin_tokens),
            )
        watching = self._watching(settings, model.bounds, beside, tells)
        decided.tell_what_is_refused(tells)

        tokenizing = Tokenizing(model.tokenizer)

        async def tokenize(body: dict[str, Any], tag: str) -> bytes | Refusal:
            return await tokenizing.answer(body, tag, gate.room())

        async def start() -> None:
            await gate.start()
            if watching is not None:
                await watching.start()

        def stop() -> None:
            gate.stop()
            if watching is not None:
                watching.stop()

        return Steps(
            tenant=tenants.identify,
            read=decided.read,
            clean=decided.clean,
            admit=gate.admit,
            outgoing=decided.outgoing,
            watch=_unwatched if watching is None else watching.watch,
            beside=beside,
            room=gate.room,
            tokenize=tokenize,
            unready=lambda: gate.unready() or (watching.unready() if watching is not None else None),
            barred=gate.barred,
            start=start,
            stop=stop,
        )

    def named(self) -> tuple[Tenant, ...]:
        """The tenants of the file and the environment, as they were read last."""
        return self._named

    def _watching(self, settings: Settings, bounds: ModelBounds, beside: Beside, tells: Tells) -> Watching | None:
        said = table(settings.tables, "watching", WatchTable)
        sharing = self._shared(settings, tells)
        if said.sees_all and (settings.workers > 1 or sharing is not None):
            raise Usage("watching.sees_all is for one worker: each of several sees a part of the prompts only")
        if not said.on:
            return None
        book = book_of(said, self._folder, self._book, sharing)
        watching = Watching(plan_of(said, self._folder, self._environment, book, bounds), tells, beside, sharing)
        self._book = book  # only now: settings that are refused change nothing
        return watching

    def _shared(self, settings: Settings, tells: Tells) -> Sharing | None:
        """One for the life of the process: what its memory was made with cannot change."""
        said = read_shared(settings.tables.get("shared"), self._environment, self._identity)
        if said is not None and not self._began:
            from pagefence.edge.sharing.sharing import Sharing

            self._sharing = Sharing(said, self._identity.secret, tells)
        self._began = True
        return self._sharing

    def _path(self, name: str | None) -> Path | None:
        return None if name is None else self._folder / Path(name).expanduser()

    def _loaded(self, said: AdmissionTable) -> Model:
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

    def _credentials(self, whose: TenantsTable, settings: Settings) -> Credentials:
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

    def _capacities(self, settings: Settings, tells: Tells) -> Capacities:
        said = table(settings.tables, "capacity", CapacityTable)
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

        def notice(words: str) -> None:
            tells.log("capacity", {"why": words})

        return Capacities(targets, read_keys(None, self._environment), policy, time.monotonic, notice)


def _limits(said: ReadingTable, settings: Settings) -> reading.Limits:
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

    def tell_what_is_refused(self, tells: Tells) -> None:
        """Before a client finds out: no setting is wrong, and yet nobody gets an answer to these."""
        if self.shared or self.credentials.by_tenant:
            return
        mixed = [each.value for each in Operation if each != Operation.MODELS and not self.dialect.separates(each)]
        if mixed:
            why = (
                "the engine is not told whose these are, so each of them gets 503; set tenants.upstream_keys_env, or "
                "tenants.shared_cache = true where the engine's cache is off"
            )
            tells.log("tenants_not_separated", {"engine": self.dialect.name, "operations": mixed, "why": why})

    def outgoing(self, call: Call, admitted: Admitted | None, headers: Headers) -> Outgoing:
        if admitted is None:
            return Outgoing(b"", self._headers(call, headers, (b"content-type", b"content-length")))
        body = upstream_body(replace(call, body=reserved(admitted)), self.dialect)
        return Outgoing(body, self._headers(call, headers, (b"content-length",)))

    def _headers(self, call: Call, came: Headers, without: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """The balancer says how long it is."""
        made = upstream_headers(call, came, self.credentials, 0)
        return [pair for pair in made if pair[0] not in without]


async def _unwatched(admitted: Admitted) -> None:
    return None
