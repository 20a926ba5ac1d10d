"""The prefill leg: admit or reject before anything moves, compute, write, prove it with a receipt, drain when told to.

`TABLE` is the whole machine: what each message does in each phase of a room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from immutables import Map

from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool
from pagefence.pool.prefix import CachedPage
from pagefence.protocol import errors
from pagefence.protocol.decisions import Decisions, rule_in
from pagefence.protocol.effects import Compute, Dropped, Effects, Send, SetTimer, StopCompute, WriteChunk, Zero
from pagefence.protocol.handoff import seal
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import (
    Abort,
    Ack,
    ChunkComputed,
    ComputeFailed,
    Drained,
    Envelope,
    ErrorInfo,
    Failed,
    Landed,
    Logprob,
    PeerMessage,
    PeerUp,
    Reaped,
    Receipt,
    Rejected,
    Room,
    Start,
    Timer,
    WorkerRef,
    WriteFailed,
)


class Phase(StrEnum):
    """Where a room stands on prefill. NEW and OVER rooms hold nothing."""

    NEW = "new"
    WAITING = "waiting"
    COMPUTING = "computing"
    SENT = "sent"
    DRAINING = "draining"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class PrefillConfig:
    """Fixed for one incarnation. Times in seconds."""

    layers: int
    mac_key: bytes
    max_waiting: int = 64
    resend_s: float = 2.0
    prefix_cache: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """One room that holds something, or waits to. `launched` and `landed` count tokens written to decode.

    `in_doubt`, when not 0: a write failed, and of the tokens from `landed` to this mark nobody knows what has landed or
    will. What is answered after it counts as in doubt as well, so `landed` never reaches `launched` again.
    `computed` counts from the first token, the `cached` ones included: they were computed for an earlier request.
    """

    start: Start
    admitted: Admitted
    phase: Phase = Phase.WAITING
    cached: int = 0
    computed: int = 0
    launched: int = 0
    landed: int = 0
    in_doubt: int = 0
    digests: tuple[bytes, ...] = ()
    first_token: int | None = None
    first_logprobs: tuple[Logprob, ...] = ()
    receipt: Receipt | None = None
    failed: bool = False

    @property
    def decode(self) -> WorkerRef:
        """The incarnation whose pages this room writes into."""
        return self.start.reservation.decode

    @property
    def in_flight(self) -> bool:
        """A write was launched of which the driver has not yet said what became of it."""
        return max(self.landed, self.in_doubt) < self.launched


@dataclass(frozen=True, slots=True)
class PrefillState:
    """All rooms of one prefill incarnation and its source pages."""

    members: Membership
    config: PrefillConfig
    pool: PagePool
    requests: Map[Room, Request] = Map()
    waiting: tuple[Room, ...] = ()

    def phase(self, room: Room) -> Phase:
        """The phase of any room, known or not."""
        request = self.requests.get(room)
        if request is not None:
            return request.phase
        return Phase.OVER if self.members.is_over(room) else Phase.NEW


RoomMessage = Start | Abort | Ack | ChunkComputed | Landed | WriteFailed | ComputeFailed | Timer
Input = Envelope | ChunkComputed | Landed | WriteFailed | ComputeFailed | Timer
Step = tuple[PrefillState, Effects]


@dataclass(frozen=True, slots=True)
class Machine:
    """The prefill machine, bound to its decisions."""

    decisions: Decisions = field(default_factory=Decisions)

    def step(self, state: PrefillState, message: Input) -> Step:
        """One message in, the next state and what to do out. Pure."""
        if not isinstance(message, Envelope):
            return self._room(state, message)
        stale = state.members.refuses(message)
        if stale:
            return state, (Dropped(type(message.body).__name__, stale),)
        return self._peer(state, message.body)

    def _peer(self, state: PrefillState, body: PeerMessage) -> Step:
        if isinstance(body, PeerUp):
            return replace(state, members=state.members.up(body.worker)), ()
        if isinstance(body, Reaped):
            return _reaped(self.decisions, state, body.worker)
        if isinstance(body, Start | Abort):
            state = replace(state, members=state.members.raise_floor(body.floor))
        if isinstance(body, Start | Abort | Ack):
            return self._room(state, body)
        return state, (Dropped(type(body).__name__, "prefill does not take this message"),)

    def _room(self, state: PrefillState, message: RoomMessage) -> Step:
        phase = state.phase(message.room)
        rule: Rule = rule_in(self.decisions.cells, TABLE, "prefill", phase, type(message))
        if isinstance(rule, str):
            return state, (Dropped(type(message).__name__, rule),)
        return rule(self.decisions, state, message)


# --- arrival ------------------------------------------------------------------------------------------------------


def start_arrives(d: Decisions, s: PrefillState, m: Start) -> Step:
    """admit or reject, before anything is held or moved"""
    decode = m.reservation.decode
    if m.reservation.prefill != s.members.me or not s.members.is_alive(decode):
        return _reject(s, m, errors.unavailable(f"decode worker {decode} is gone", "worker_lost"))
    admitted = d.admit_prompt(m, s.pool)
    if isinstance(admitted, ErrorInfo):
        return _reject(s, m, admitted)
    if len(s.waiting) >= s.config.max_waiting:
        return _reject(s, m, errors.overloaded(f"{len(s.waiting)} prompts are waiting for pages"))
    s = _put(s, m.room, Request(m, admitted))
    return admit_waiting(d, replace(s, waiting=(*s.waiting, m.room)))


def admit_waiting(d: Decisions, s: PrefillState) -> Step:
    """Lease for the rooms at the head of the queue, in order, all pages at once, while pages last."""
    effects: Effects = ()
    while s.waiting:
        room = s.waiting[0]
        request = s.requests[room]
        admitted, start = request.admitted, request.start
        shared = _cached_prefix(d, s, admitted)
        if not s.pool.fits(admitted.tokens, shared):
            break
        pool, lease = s.pool.lease(admitted, frozenset({request.decode}), shared)
        # `launched` stays at 0: cached pages are written to decode like all others, and digested like all others.
        request = replace(request, phase=Phase.COMPUTING, cached=lease.filled, computed=lease.filled)
        s = _put(replace(s, pool=pool, waiting=s.waiting[1:]), room, request)
        effects += (
            Zero(lease.own),
            Compute(admitted, lease.pages, start.reservation, start.sampling, lease.filled),
        )
    return s, effects


def _cached_prefix(d: Decisions, s: PrefillState, admitted: Admitted) -> tuple[CachedPage, ...]:
    """The last token is always computed: the first new token has to come from a forward pass."""
    if not s.config.prefix_cache:
        return ()
    return s.pool.cached_prefix(admitted.isolation_key, admitted.token_ids[:-1], d.cache_key, d.same_content)


def start_is_late(_: Decisions, s: PrefillState, m: Start) -> Step:
    """an abort overtook it: nothing was written and nothing will be"""
    return s, (Send(m.reservation.decode, Drained(m.room)),)


def _reject(s: PrefillState, m: Start, error: ErrorInfo) -> Step:
    """Both legs learn of it; to decode it is also the proof that no write was launched (I3)."""
    rejected = Rejected(m.room, error)
    s = replace(s, members=s.members.end(m.room))
    return s, (Send(s.members.router, rejected), Send(m.reservation.decode, rejected))


# --- compute, write, prove ----------------------------------------------------------------------------------------


def chunk_computed(_: Decisions, s: PrefillState, m: ChunkComputed) -> Step:
    """launch the writes of what the forward pass has just filled"""
    request = s.requests[m.room]
    if not request.computed < m.computed <= request.admitted.tokens:
        return s, (Dropped("ChunkComputed", f"computed {request.computed} -> {m.computed} of what was admitted"),)
    write = WriteChunk(m.room, request.launched, m.computed)
    request = replace(request, computed=m.computed, launched=m.computed)
    request = replace(request, first_token=m.first_token, first_logprobs=m.first_logprobs)
    return _put(replace(s, pool=s.pool.fill(m.room, m.computed)), m.room, request), (write,)


def landed(_: Decisions, s: PrefillState, m: Landed) -> Step:
    """count what has landed; when all has, send the receipt"""
    request = s.requests[m.room]
    request = replace(request, landed=m.tokens, digests=request.digests + m.digests)
    if request.landed < request.admitted.tokens or request.first_token is None:
        return _put(s, m.room, request), ()
    reservation = request.start.reservation
    receipt = Receipt(
        room=m.room,
        prefill=s.members.me,
        decode=request.decode,
        tokens=request.admitted.tokens,
        layers=s.config.layers,
        pages=reservation.pages[: s.pool.pages_for(request.admitted.tokens)],
        digests=request.digests,
        first_token=request.first_token,
        first_logprobs=request.first_logprobs,
        cached=request.cached,
    )
    receipt = seal(s.config.mac_key, receipt)
    s = _put(s, m.room, replace(request, phase=Phase.SENT, receipt=receipt))
    return s, (Send(request.decode, receipt), SetTimer(m.room, "resend", s.config.resend_s))


def resend_timer(_: Decisions, s: PrefillState, m: Timer) -> Step:
    """no Ack yet: say it again"""
    request = s.requests[m.room]
    if m.kind != "resend" or request.receipt is None:
        return s, ()
    return s, (Send(request.decode, request.receipt), SetTimer(m.room, "resend", s.config.resend_s))


def acknowledged(d: Decisions, s: PrefillState, m: Ack) -> Step:
    """decode has judged the receipt: release the source pages, the full ones into the prefix cache"""
    return _release(d, s, m.room, s.requests[m.room].decode)


# --- the ways out -------------------------------------------------------------------------------------------------


def tombstone(_: Decisions, s: PrefillState, m: Abort) -> Step:
    """an abort that overtook its start: remember it; nothing was written and nothing will be"""
    return replace(s, members=s.members.end(m.room)), (Send(m.decode, Drained(m.room)),)


def drained_already(_: Decisions, s: PrefillState, m: Abort) -> Step:
    """say again that nothing is in flight"""
    return s, (Send(m.decode, Drained(m.room)),)


def abort_waiting(_: Decisions, s: PrefillState, m: Abort) -> Step:
    """leave the queue; nothing is held"""
    s = _forget(replace(s, waiting=tuple(room for room in s.waiting if room != m.room)), m.room)
    return s, (Send(m.decode, Drained(m.room)),)


def abort_computing(d: Decisions, s: PrefillState, m: Abort) -> Step:
    """launch nothing more; drained when what is in flight has landed"""
    return _stop(d, s, m.room)


def abort_sent(d: Decisions, s: PrefillState, m: Abort) -> Step:
    """everything has landed: release, drained"""
    decode = s.requests[m.room].decode
    s, effects = _release(d, s, m.room, decode)
    return s, (Send(decode, Drained(m.room)), *effects)


def compute_failed(d: Decisions, s: PrefillState, m: ComputeFailed) -> Step:
    """tell the router; stop and drain; nothing of it is cached"""
    s, effects = _stop(d, _put(s, m.room, replace(s.requests[m.room], failed=True)), m.room)
    return s, (Send(s.members.router, Failed(m.room, errors.internal(m.message))), *effects)


def write_failed(d: Decisions, s: PrefillState, m: WriteFailed) -> Step:
    """tell the router; stop; neither drained nor released before decode is reaped, for the write may still land"""
    s, effects = _stop(d, _put(s, m.room, replace(s.requests[m.room], in_doubt=m.stop)), m.room)
    return s, (Send(s.members.router, Failed(m.room, errors.internal("prefill could not write to decode"))), *effects)


def landed_draining(d: Decisions, s: PrefillState, m: Landed) -> Step:
    """when the last write in flight has landed: release, drained; after a failed write, only once decode is reaped"""
    request = s.requests[m.room]
    request = replace(request, in_doubt=m.tokens) if request.in_doubt else replace(request, landed=m.tokens)
    return _settle_when_over(d, _put(s, m.room, request), m.room)


def write_failed_draining(d: Decisions, s: PrefillState, m: WriteFailed) -> Step:
    """neither drained nor released before decode is reaped, for the write may still land"""
    request = replace(s.requests[m.room], in_doubt=m.stop)
    return _settle_when_over(d, _put(s, m.room, request), m.room)


def _settle_when_over(d: Decisions, s: PrefillState, room: Room) -> Step:
    """I2: a write in flight is over when it has landed, one in doubt only with the process that it was aimed at."""
    request = s.requests[room]
    if request.in_flight or (request.in_doubt and request.decode not in s.members.reaped):
        return s, ()
    return _settle(d, s, room)


def _stop(d: Decisions, s: PrefillState, room: Room) -> Step:
    request = replace(s.requests[room], phase=Phase.DRAINING)
    s = _put(s, room, request)
    if request.landed < request.launched:
        return s, (StopCompute(room),)
    s, effects = _settle(d, s, room)
    return s, (StopCompute(room), *effects)


def _settle(d: Decisions, s: PrefillState, room: Room) -> Step:
    decode = s.requests[room].decode
    s, effects = _release(d, s, room, decode)
    return s, (Send(decode, Drained(room)), *effects)


def _release(d: Decisions, s: PrefillState, room: Room, decode: WorkerRef) -> Step:
    """Source pages go back once decode needs them no more; the full ones that were computed stay, cached."""
    pool = s.pool.drained(room, decode)
    if not d.may_release(pool.lease_of(room)):
        return s, ()
    request = s.requests[room]
    worth_keeping = s.config.prefix_cache and not request.failed
    computed = request.admitted.token_ids[: request.computed] if worth_keeping else ()
    pool = pool.release(room, computed, d.cache_key, d.same_content)
    return admit_waiting(d, _forget(replace(s, pool=pool), room))


def _reaped(d: Decisions, s: PrefillState, worker: WorkerRef) -> Step:
    """The decode process is gone: stop writing for it. Writes in flight still need their source until they land.

    Writes in doubt are over: what could still arrive has no target any more.
    """
    s = replace(s, members=s.members.gone(worker))
    effects: Effects = ()
    for room in s.waiting:
        if s.requests[room].decode == worker:
            s = _forget(replace(s, waiting=tuple(r for r in s.waiting if r != room)), room)
    for room in sorted(room for room, request in s.requests.items() if request.decode == worker):
        request = s.requests[room]
        more: Effects = ()
        if request.phase is Phase.COMPUTING:
            s, more = _stop(d, s, room)
        elif not request.in_flight:
            s, more = _release(d, s, room, worker)
        effects += more
    return s, effects


def _put(s: PrefillState, room: Room, request: Request) -> PrefillState:
    return replace(s, requests=s.requests.set(room, request))


def _forget(s: PrefillState, room: Room) -> PrefillState:
    return replace(s, requests=s.requests.delete(room), members=s.members.end(room))


# --- the table ----------------------------------------------------------------------------------------------------

Rule = Callable[..., Step] | str
_NOTHING_HELD = "the room holds nothing here"
_OVER = "the room is over"
_TWICE = "came twice"
_EARLY = "nothing was computed yet"

TABLE: Mapping[Phase, Mapping[type, Rule]] = {
    Phase.NEW: {
        Start: start_arrives,
        Abort: tombstone,
        Ack: _NOTHING_HELD,
        ChunkComputed: _NOTHING_HELD,
        Landed: _NOTHING_HELD,
        WriteFailed: _NOTHING_HELD,
        ComputeFailed: _NOTHING_HELD,
        Timer: _NOTHING_HELD,
    },
    Phase.WAITING: {
        Start: _TWICE,
        Abort: abort_waiting,
        Ack: _EARLY,
        ChunkComputed: _EARLY,
        Landed: _EARLY,
        WriteFailed: _EARLY,
        ComputeFailed: _EARLY,
        Timer: _NOTHING_HELD,
    },
    Phase.COMPUTING: {
        Start: _TWICE,
        Abort: abort_computing,
        Ack: "no receipt was sent",
        ChunkComputed: chunk_computed,
        Landed: landed,
        WriteFailed: write_failed,
        ComputeFailed: compute_failed,
        Timer: "no receipt was sent",
    },
    Phase.SENT: {
        Start: _TWICE,
        Abort: abort_sent,
        Ack: acknowledged,
        ChunkComputed: _TWICE,
        Landed: _TWICE,
        WriteFailed: "everything has landed",
        ComputeFailed: "everything was computed",
        Timer: resend_timer,
    },
    Phase.DRAINING: {
        Start: _TWICE,
        Abort: _TWICE,
        Ack: "no receipt was sent",
        ChunkComputed: "aborted: its writes are not launched",
        Landed: landed_draining,
        WriteFailed: write_failed_draining,
        ComputeFailed: "aborted already",
        Timer: "no receipt was sent",
    },
    Phase.OVER: {
        Start: start_is_late,
        Abort: drained_already,
        Ack: _OVER,
        ChunkComputed: _OVER,
        Landed: _OVER,
        WriteFailed: _OVER,
        ComputeFailed: _OVER,
        Timer: _OVER,
    },
}
