"""What a machine wants done. A driver carries effects out in order; nothing else happens because of a step."""

from __future__ import annotations

from dataclasses import dataclass

from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PageRef
from pagefence.pool.slots import Handle
from pagefence.protocol.messages import (
    ErrorInfo,
    FinishReason,
    Logprob,
    PeerMessage,
    Reservation,
    Room,
    TimerKind,
    WorkerRef,
)


@dataclass(frozen=True, slots=True)
class Send:
    """Send to one incarnation."""

    to: WorkerRef
    body: PeerMessage


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Deliver Timer(room, kind) after `seconds`."""

    room: Room
    kind: TimerKind
    seconds: float


@dataclass(frozen=True, slots=True)
class Zero:
    """Clear the bytes and the frames of freshly leased pages, before anything else touches them."""

    pages: tuple[PageRef, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A message was ignored; `why` says which rule made it stale. For traces and counters."""

    what: str
    why: str


# --- prefill ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compute:
    """Enqueue the forward passes of an admitted prompt over its `pages`; write results to `reservation`.

    The first `cached` tokens lie in its pages already: whole pages, shared, to be read and never written.
    """

    admitted: Admitted
    pages: tuple[PageRef, ...]
    reservation: Reservation
    sampling: bytes
    cached: int = 0


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Launch the one-sided writes of tokens [start, stop); answer Landed when they are complete, or WriteFailed."""

    room: Room
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class StopCompute:
    """Forget the prompt: no further forward pass."""

    room: Room


# --- decode -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verify:
    """Check the frames and digest the bytes of the reserved prompt pages, off the decode step.

    Answer FrameBroken or PagesDigested.
    """

    room: Room
    pages: tuple[PageRef, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Put a committed request into its row of the decode batch and frame its generation pages.

    The row attends over `prompt_tokens` tokens in `pages` and continues with `first_token`.
    """

    room: Room
    slot: Handle
    pages: tuple[PageRef, ...]
    prompt_pages: int
    prompt_tokens: int
    max_new_tokens: int
    first_token: int
    sampling: bytes
    first_logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """Take the request out of the decode batch."""

    room: Room


# --- router -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The hand-off is committed: response headers may go out. `cached_tokens` of the prompt were not computed anew."""

    ticket: int
    room: Room
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Emit:
    """Tokens for this client and no other, in order."""

    ticket: int
    token_ids: tuple[int, ...]
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """The one good outcome of a request (I5)."""

    ticket: int
    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The one bad outcome of a request (I5): the original error. Before Begin it is the whole response (I3)."""

    ticket: int
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Restart:
    """Kill, reap and restart a worker incarnation."""

    worker: WorkerRef
    reason: str


Effect = (
    Send | SetTimer | Zero | Dropped | Compute | WriteChunk | StopCompute | Verify | Run | Stop
    | Begin | Emit | End | Refuse | Restart
)  # fmt: skip
Effects = tuple[Effect, ...]
