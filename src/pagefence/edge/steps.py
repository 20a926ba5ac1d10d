"""What happens to a request, step by step, as callables: who builds a step needs to know no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pagefence.edge.beside import Beside
from pagefence.edge.call import Call, Operation, Tenant
from pagefence.edge.capacity import Room
from pagefence.edge.demand import Admitted
from pagefence.edge.refusal import Refusal

Headers = Sequence[tuple[bytes, bytes]]
"""As they came, names in small letters."""
Tokenize = Callable[[dict[str, Any], str], Awaitable[bytes | Refusal]]


class Watch(Protocol):
    """Looks at one answer while it passes. Moments are of `time.perf_counter`.

    buffered  nothing goes out before `ends` has said yes (quarantine)
    """

    @property
    def buffered(self) -> bool: ...

    def sent(self, at: float) -> None:
        """The request goes upstream now."""
        ...

    def begins(self, status: int, stream: bool, at: float) -> None:
        """The head of the answer has come."""
        ...

    def part(self, data: bytes, at: float) -> bytes | Refusal:
        """More of it has come: what may go out now, or a refusal, which cuts the answer here.

        An event that has not come to its end can be held back: no client could read it yet.
        """
        ...

    def ends(self, whole: bool, at: float) -> bytes | Refusal:
        """Nothing more comes: the answer is whole, or was cut by anybody. What was held back, or a refusal."""
        ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What upstream gets, made anew: never a byte of the client's own. `headers`: all but Host and Content-Length."""

    body: bytes
    headers: Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Tells:
    """Where steps tell what they see: a log line, more of a counter (name, labels; `by`), a gauge (name, value)."""

    log: Callable[[str, Mapping[str, object]], None] = lambda event, fields: None
    count: Callable[..., None] = lambda name, *labels, by=1.0: None
    gauge: Callable[[str, float], None] = lambda name, to: None


@dataclass(frozen=True, slots=True)
class Steps:
    """In the order in which a request goes through them.

    tenant    headers, address of the other end -> whose it is
    read      body, headers -> one JSON object
    clean     what it asks for, without what a client must not set
    admit     whether some rank can hold it
    outgoing  what upstream is sent; a listing of models has nothing to admit
    watch     who looks at the answer; asked before the request is sent
    room      what may be admitted now; None while it is not known, or where nobody looks
    tokenize  the object that `POST /tokenize` brought, tag of the tenant -> its answer
    unready   why the edge is not ready for requests, or None
    barred    URLs of upstreams that may not be asked, because nothing is known of them
    beside    where `read` and `clean` of a large body are called (threads; so they share nothing)
    start     called once on the event loop of a worker
    stop      called once at its end, and after a reload for the old steps
    """

    tenant: Callable[[Headers, str | None], Tenant | Refusal]
    read: Callable[[bytes, Headers], dict[str, Any] | Refusal]
    clean: Callable[[Operation, Tenant, str, dict[str, Any], Headers], Call | Refusal]
    admit: Callable[[Call], Awaitable[Admitted | Refusal]]
    outgoing: Callable[[Call, Admitted | None, Headers], Outgoing]
    watch: Callable[[Admitted], Awaitable[Watch | Refusal | None]]
    beside: Beside
    room: Callable[[], Room | None] = lambda: None
    tokenize: Tokenize | None = None
    unready: Callable[[], str | None] = lambda: None
    barred: Callable[[], frozenset[str]] = frozenset
    start: Callable[[], Awaitable[None]] | None = None
    stop: Callable[[], None] = lambda: None
