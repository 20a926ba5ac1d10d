"""The words of the hand-off: what router, prefill and decode say to each other, and what their drivers tell them.

Every message between workers travels in an `Envelope` that names both incarnations; a machine drops what was meant
for, or comes from, an incarnation that is over. The structs are also the wire format (MessagePack by msgspec).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pagefence.pool.pages import PageRef

Role = Literal["router", "prefill", "decode"]
FinishReason = Literal["stop", "length"]


class Room(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The identity of one request, minted by the router, used once (I9).

    `epoch` is random per router start, `counter` makes the room forgettable (all rooms under a floor are over),
    `nonce` makes it unguessable.
    """

    epoch: int
    counter: int
    nonce: str

    def __str__(self) -> str:
        return f"{self.epoch:x}-{self.counter:x}-{self.nonce}"


class WorkerRef(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One incarnation of a worker process. A restart is a new epoch."""

    name: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.name}#{self.epoch}"


class Capacity(msgspec.Struct, frozen=True):
    """What a *running* worker really has, in tokens (I8)."""

    pool_tokens: int
    page_size: int
    max_requests: int


class ErrorInfo(msgspec.Struct, frozen=True):
    """Why a request ended without an answer. `rule` and `guard` are set when a guard contained a fault."""

    status: int
    code: str
    message: str
    type: str
    param: str | None = None
    rule: str | None = None
    guard: str | None = None
    retry_after_s: int | None = None


class Logprob(msgspec.Struct, frozen=True, array_like=True):
    """How likely the model thought a token, and the likeliest `top` (id, log-probability) in its place.

    Natural logarithms, before bias and temperature. No machine looks at them: `logprobs` beside tokens has an entry for
    each of them, or none at all when the client did not ask.
    """

    value: float
    top: tuple[tuple[int, float], ...] = ()


# --- router -> decode ---------------------------------------------------------------------------------------------


class Offer(msgspec.Struct, frozen=True, tag=True):
    """Reserve room for a prompt that `prefill` will compute. `floor`: every room with a lower counter is over."""

    room: Room
    floor: int
    prefill: WorkerRef
    isolation_key: str
    prompt_tokens: int
    max_new_tokens: int
    sampling: bytes = b""


# --- router -> prefill --------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True, tag=True):
    """Compute this prompt and write its KV into the reservation's pages."""

    room: Room
    floor: int
    isolation_key: str
    token_ids: tuple[int, ...]
    reservation: Reservation
    sampling: bytes = b""


# --- router -> both, decode -> prefill ----------------------------------------------------------------------------


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop. Names both legs, because it may overtake the message that would have introduced them."""

    room: Room
    floor: int
    prefill: WorkerRef
    decode: WorkerRef


class PeerUp(msgspec.Struct, frozen=True, tag=True):
    """A worker incarnation is alive. Said by the supervisor, through the router."""

    worker: WorkerRef
    role: Role
    address: str


class Reaped(msgspec.Struct, frozen=True, tag=True):
    """A worker process is gone from the operating system: it can reach nothing any more. Said by the supervisor."""

    worker: WorkerRef


# --- decode -> router, prefill -> router --------------------------------------------------------------------------


class Reservation(msgspec.Struct, frozen=True, tag=True):
    """The pages that decode leased for the prompt, in page-table order, and who may write into them."""

    room: Room
    prefill: WorkerRef
    decode: WorkerRef
    prompt_tokens: int
    page_size: int
    layers: int
    pages: tuple[PageRef, ...]


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """The request was not admitted. From prefill it also says: no write was launched and none will be (I3)."""

    room: Room
    error: ErrorInfo


class Committed(msgspec.Struct, frozen=True, tag=True):
    """What arrived equals what was reserved; generation begins. Response headers wait for this (I3, I4)."""

    room: Room
    cached_tokens: int = 0


class Tokens(msgspec.Struct, frozen=True, tag=True):
    """Generated tokens; `index` is the position of the first of them in the answer (I10)."""

    room: Room
    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[Logprob, ...] = ()


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The answer is complete."""

    room: Room
    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request ended in an error after it was admitted."""

    room: Room
    error: ErrorInfo


class Recycle(msgspec.Struct, frozen=True, tag=True):
    """This incarnation owes a drain and is silent: kill it, reap it, start another."""

    worker: WorkerRef
    reason: str


# --- prefill -> decode --------------------------------------------------------------------------------------------


class Receipt(msgspec.Struct, frozen=True, tag=True):
    """What prefill wrote. Sent after the last write has landed, so it also proves that this room is drained.

    `cached` of the `tokens` came from prefill's prefix cache; computed + cached = tokens (I6).
    """

    room: Room
    prefill: WorkerRef
    decode: WorkerRef
    tokens: int
    layers: int
    pages: tuple[PageRef, ...]
    digests: tuple[bytes, ...]
    first_token: int
    first_logprobs: tuple[Logprob, ...] = ()
    cached: int = 0
    mac: bytes = b""


class Drained(msgspec.Struct, frozen=True, tag=True):
    """No write of this room is in flight and none will be launched by this incarnation."""

    room: Room


# --- decode -> prefill --------------------------------------------------------------------------------------------


class Ack(msgspec.Struct, frozen=True, tag=True):
    """The receipt was judged; prefill may release its source pages."""

    room: Room


# --- driver -> machine --------------------------------------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A client's request, authenticated and tokenised. `ticket` is the driver's name for it until the end."""

    ticket: int
    nonce: str
    isolation_key: str
    token_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: bytes = b""
    param: str = "prompt"


class ClientGone(msgspec.Struct, frozen=True, tag=True):
    """The client hung up, or has all it wants."""

    ticket: int


class LastOrders(msgspec.Struct, frozen=True, tag=True):
    """The operator ends the fleet: what is in flight goes on, nothing new is taken."""


class WorkerUp(msgspec.Struct, frozen=True, tag=True):
    """The supervisor saw a new incarnation become ready."""

    worker: WorkerRef
    role: Role
    capacity: Capacity
    address: str


class WorkerGone(msgspec.Struct, frozen=True, tag=True):
    """The supervisor reaped an incarnation."""

    worker: WorkerRef


class Timer(msgspec.Struct, frozen=True, tag=True):
    """A timer that this machine set has fired. A timer may resend, abort or ask for a recycle; never release (I2)."""

    room: Room
    kind: TimerKind


TimerKind = Literal["deadline", "hand-off", "resend", "drain"]


class ChunkComputed(msgspec.Struct, frozen=True, tag=True):
    """The forward pass has filled the source pages up to `computed` tokens; the last chunk brings the first token."""

    room: Room
    computed: int
    first_token: int | None = None
    first_logprobs: tuple[Logprob, ...] = ()


class Landed(msgspec.Struct, frozen=True, tag=True):
    """Writes up to `tokens` are complete in decode's memory; `digests` are those of the pages that they completed."""

    room: Room
    tokens: int
    digests: tuple[bytes, ...]


class WriteFailed(msgspec.Struct, frozen=True, tag=True):
    """The write up to `stop` was not acknowledged: any part of it may land at any time while decode's process lives."""

    room: Room
    stop: int


class ComputeFailed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not compute this request."""

    room: Room
    message: str


class PagesDigested(msgspec.Struct, frozen=True, tag=True):
    """Digests of the bytes that lie in the reserved prompt pages, read by decode itself."""

    room: Room
    digests: tuple[bytes, ...]


class Generated(msgspec.Struct, frozen=True, tag=True):
    """The decode step produced tokens for a row."""

    room: Room
    token_ids: tuple[int, ...]
    finish: FinishReason | None = None
    logprobs: tuple[Logprob, ...] = ()


class FrameBroken(msgspec.Struct, frozen=True, tag=True):
    """Before the commit or a decode step, a page's frame was not its lease's. `foreign`: it names somebody else."""

    room: Room
    page: PageRef
    position: int
    found: str
    foreign: bool


PeerMessage = (
    Offer
    | Start
    | Abort
    | PeerUp
    | Reaped
    | Reservation
    | Rejected
    | Committed
    | Tokens
    | Finished
    | Failed
    | Recycle
    | Receipt
    | Drained
    | Ack
)


class Envelope(msgspec.Struct, frozen=True, tag=True):
    """A message between incarnations. Stale on either side means dropped."""

    sender: WorkerRef
    receiver: WorkerRef
    body: PeerMessage
