"""What happens to a request, step by step, as callables: who builds a step needs to know no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pagefence.edge.call import Admitted, Call, Operation, Tenant
from pagefence.edge.refusal import Refusal

Headers = Sequence[tuple[bytes, bytes]]
"""As they came, names in small letters."""


class Watch(Protocol):
    """Looks at one answer while it passes. `buffered`: nothing goes out before `ends` has said yes (quarantine)."""

    @property
    def buffered(self) -> bool: ...

    def begins(self, status: int, after_s: float) -> None:
        """The head of the answer has come, so long after the request went upstream."""
        ...

    def part(self, data: bytes, after_s: float) -> Refusal | None:
        """A part of it, before it goes out; a refusal cuts the answer here."""
        ...

    def ends(self, whole: bool) -> Refusal | None:
        """Nothing more comes: the answer is whole, or was cut by anybody."""
        ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What upstream gets, made anew: never a byte or a header of the client's."""

    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Steps:
    """In the order in which a request goes through them.

    tenant    headers -> whose it is
    read      body, headers -> one JSON object
    clean     what it asks for, without what a client must not set
    admit     whether some rank can hold it
    outgoing  what upstream is sent
    watch     who looks at the answer
    unready   why the edge is not ready for requests, or None
    start     called once on the event loop of a worker
    stop      called once at its end, and after a reload for the old steps
    """

    tenant: Callable[[Headers], Tenant | Refusal]
    read: Callable[[bytes, Headers], dict[str, Any] | Refusal]
    clean: Callable[[Operation, Tenant, str, dict[str, Any], Headers], Call | Refusal]
    admit: Callable[[Call], Awaitable[Admitted | Refusal]]
    outgoing: Callable[[Admitted], Outgoing]
    watch: Callable[[Admitted], Watch | None]
    unready: Callable[[], str | None] = lambda: None
    start: Callable[[], Awaitable[None]] | None = None
    stop: Callable[[], None] = lambda: None
