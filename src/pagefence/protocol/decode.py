"""The decode leg: lease everything at once, check what arrived, generate, and free only what nobody can reach.

`TABLE` is the whole machine: what each message does in each phase of a room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pagefence.pool.slots import NoFreeSlot
from pagefence.protocol import errors
from pagefence.protocol.decisions import Decisions, rule_in
from pagefence.protocol.decode_state import DecodeState, Phase, Request
from pagefence.protocol.effects import Dropped, Effects, Run, Send, SetTimer, Stop, Verify, Zero
from pagefence.protocol.handoff import Mismatch
from pagefence.protocol.messages import (
    Abort,
    Ack,
    Committed,
    ComputeFailed,
    Drained,
    Envelope,
    ErrorInfo,
    Failed,
    Finished,
    FrameBroken,
    Generated,
    Offer,
    PagesDigested,
    PeerMessage,
    PeerUp,
    Reaped,
    Receipt,
    Recycle,
    Rejected,
    Reservation,
    Room,
    Timer,
    Tokens,
    WorkerRef,
)

RoomMessage = (
    Offer | Abort | Receipt | Rejected | Drained | PagesDigested | Generated | ComputeFailed | FrameBroken | Timer
)  # fmt: skip
Input = Envelope | PagesDigested | Generated | ComputeFailed | FrameBroken | Timer
Step = tuple[DecodeState, Effects]


@dataclass(frozen=True, slots=True)
class Machine:
    """The decode machine, bound to its decisions."""

    decisions: Decisions = field(default_factory=Decisions)

    def step(self, state: DecodeState, message: Input) -> Step:
        """One message in, the next state and what to do out. Pure."""
        if not isinstance(message, Envelope):
            return self._room(state, message, state.members.me)
        stale = state.members.refuses(message)
        if stale:
            return state, (Dropped(type(message.body).__name__, stale),)
        return self._peer(state, message.body, message.sender)

    def _peer(self, state: DecodeState, body: PeerMessage, sender: WorkerRef) -> Step:
        if isinstance(body, PeerUp):
            return replace(state, members=state.members.up(body.worker)), ()
        if isinstance(body, Reaped):
            return _reaped(self.decisions, state, body.worker)
        if isinstance(body, Offer | Abort):
            state = replace(state, members=state.members.raise_floor(body.floor))
        if isinstance(body, Offer | Abort | Receipt | Rejected | Drained):
            return self._room(state, body, sender)
        return state, (Dropped(type(body).__name__, "decode does not take this message"),)

    def _room(self, state: DecodeState, message: RoomMessage, sender: WorkerRef) -> Step:
        request = state.requests.get(message.room)
        said_by_prefill = isinstance(message, Receipt | Rejected | Drained)
        if request and said_by_prefill and sender != request.offer.prefill:
            return state, (Dropped(type(message).__name__, f"{sender} is not this room's prefill"),)
        phase = state.phase(message.room)
        rule: Rule = rule_in(self.decisions.cells, TABLE, "decode", phase, type(message))
        if isinstance(rule, str):
            return state, (Dropped(type(message).__name__, rule),)
        return rule(self.decisions, state, message)


# --- arrival ------------------------------------------------------------------------------------------------------


def offer_arrives(d: Decisions, s: DecodeState, m: Offer) -> Step:
    """admit or reject; lease prompt and generation pages at once, or wait"""
    admitted = d.admit_offer(m, s.pool)
    if isinstance(admitted, ErrorInfo):
        return _reject(s, m.room, admitted)
    counts = s.pool.counts()
    if counts.quarantined > counts.total * s.config.quarantine_share:
        return _reject(s, m.room, errors.unavailable("too many pages are in quarantine", "quarantine"))
    if not s.members.is_alive(m.prefill):
        return _reject(s, m.room, errors.unavailable(f"prefill worker {m.prefill} is gone", "worker_lost"))
    if len(s.waiting) >= s.config.max_waiting:
        return _reject(s, m.room, errors.overloaded(f"{len(s.waiting)} requests are waiting for pages"))
    s = _put(s, m.room, Request(m, admitted))
    return admit_waiting(replace(s, waiting=(*s.waiting, m.room)))


def admit_waiting(s: DecodeState) -> Step:
    """Lease for the rooms at the head of the queue, in order, while pages and rows last."""
    effects: Effects = ()
    while s.waiting:
        room = s.waiting[0]
        request = s.requests[room]
        if not s.pool.fits(request.admitted.tokens):
            break
        try:
            slots, (slot,) = s.slots.reserve()
        except NoFreeSlot:
            break
        offer = request.offer
        pool, lease = s.pool.lease(request.admitted, frozenset({offer.prefill}))
        reservation = Reservation(
            room=room,
            prefill=offer.prefill,
            decode=s.members.me,
            prompt_tokens=offer.prompt_tokens,
            page_size=pool.page_size,
            layers=s.config.layers,
            pages=lease.pages[: pool.pages_for(offer.prompt_tokens)],
        )
        request = replace(request, phase=Phase.RESERVED, slot=slot, reservation=reservation)
        s = _put(replace(s, pool=pool, slots=slots, waiting=s.waiting[1:]), room, request)
        effects += (
            Zero(lease.pages),
            Send(s.members.router, reservation),
            SetTimer(room, "hand-off", s.config.handoff_s),
        )
    return s, effects


def _reject(s: DecodeState, room: Room, error: ErrorInfo) -> Step:
    s = replace(s, members=s.members.end(room))
    return s, (Send(s.members.router, Rejected(room, error)),)


# --- hand-off -----------------------------------------------------------------------------------------------------


def receipt_arrives(d: Decisions, s: DecodeState, m: Receipt) -> Step:
    """compare the words; equal -> digest the bytes, else refuse"""
    request = s.requests[m.room]
    assert request.reservation is not None
    mismatch = d.check_receipt(request.reservation, m, s.config.mac_key)
    if mismatch:
        return _refuse_handoff(d, s, m.room, mismatch)
    s = _put(s, m.room, replace(request, phase=Phase.VERIFYING, receipt=m))
    return s, (Verify(m.room, request.reservation.pages),)


def pages_digested(d: Decisions, s: DecodeState, m: PagesDigested) -> Step:
    """compare the bytes; equal -> commit and run, else refuse"""
    request = s.requests[m.room]
    assert request.receipt is not None
    mismatch = d.check_digests(request.receipt, m.digests)
    if mismatch:
        return _refuse_handoff(d, s, m.room, mismatch)
    return _commit(s, m.room, request, request.receipt)


def _commit(s: DecodeState, room: Room, request: Request, receipt: Receipt) -> Step:
    """The checked receipt proves that prefill's writes have landed, so prefill is no holder any more."""
    assert request.slot is not None
    assert request.reservation is not None
    offer = request.offer
    pool = s.pool.drained(room, offer.prefill).fill(room, offer.prompt_tokens)
    s = replace(s, pool=pool, slots=s.slots.fill(request.slot, room))
    s = _put(s, room, replace(request, phase=Phase.DECODING))
    run = Run(
        room=room,
        slot=request.slot,
        pages=pool.lease_of(room).pages,
        prompt_pages=len(request.reservation.pages),
        prompt_tokens=offer.prompt_tokens,
        max_new_tokens=offer.max_new_tokens,
        first_token=receipt.first_token,
        first_logprobs=receipt.first_logprobs,
        sampling=offer.sampling,
    )
    return s, (Send(offer.prefill, Ack(room)), Send(s.members.router, Committed(room, receipt.cached)), run)


def _refuse_handoff(d: Decisions, s: DecodeState, room: Room, mismatch: Mismatch) -> Step:
    message = f"The hand-off check (I4) refused what prefill delivered. {mismatch}."
    return _fail(d, s, room, errors.contained("handoff_refused", message, "I4", "handoff-check"))


def acknowledge(_: Decisions, s: DecodeState, m: Receipt) -> Step:
    """acknowledge again: the first Ack was lost or is on its way"""
    return s, (Send(m.prefill, Ack(m.room)),)


# --- generation ---------------------------------------------------------------------------------------------------


def generated(d: Decisions, s: DecodeState, m: Generated) -> Step:
    """pass the tokens on; at the end release pages and row"""
    request = s.requests[m.room]
    router = s.members.router
    total = request.emitted + len(m.token_ids)
    if total > request.offer.max_new_tokens:
        return _fail(d, s, m.room, errors.internal("more tokens were generated than were asked for"))
    effects: Effects = ()
    if m.token_ids:
        effects = (Send(router, Tokens(m.room, request.emitted, m.token_ids, m.logprobs)),)
    if m.finish is None:
        # The newest token's own KV is written by the next step, hence one less.
        pool = s.pool.fill(m.room, request.offer.prompt_tokens + max(total - 1, 0))
        return _put(replace(s, pool=pool), m.room, replace(request, emitted=total)), effects
    done = Finished(m.room, m.finish, request.offer.prompt_tokens, total)
    s, more = _leave(d, s, m.room)
    return s, (*effects, Send(router, done), *more)


def compute_failed(d: Decisions, s: DecodeState, m: ComputeFailed) -> Step:
    """tell the router; release pages and row, for its own row alone could not go on"""
    return _fail(d, s, m.room, errors.internal(m.message))


def frame_broken(d: Decisions, s: DecodeState, m: FrameBroken) -> Step:
    """do not read the page: fail the request, quarantine until every possible writer is proven drained"""
    request = s.requests[m.room]
    # A writer that was reaped before can reach nothing, and nobody will report it reaped again.
    living = frozenset(s.members.peers.values())
    suspects = living if m.foreign else living & {request.offer.prefill}
    pool = s.pool.hold(m.room, suspects)
    s = _put(replace(s, pool=pool), m.room, replace(request, distrusted=m.foreign))
    message = (
        f"The page frames (I1) do not name this request: page {m.page.index} (position {m.position}, generation "
        f"{m.page.generation}) holds {m.found}."
    )
    return _fail(d, s, m.room, errors.contained("frame_mismatch", message, "I1", "page-frames"))


# --- the ways out -------------------------------------------------------------------------------------------------


def abort_waiting(_: Decisions, s: DecodeState, m: Abort | Rejected | Drained) -> Step:
    """leave the queue; nothing is held"""
    return _forget(replace(s, waiting=tuple(room for room in s.waiting if room != m.room)), m.room), ()


def tombstone(_: Decisions, s: DecodeState, m: Abort) -> Step:
    """an abort that overtook its offer: remember it"""
    return replace(s, members=s.members.end(m.room)), ()


def abort(d: Decisions, s: DecodeState, m: Abort) -> Step:
    """stop; pages that prefill could still write into go to quarantine"""
    return _leave(d, s, m.room)


def prefill_is_drained(d: Decisions, s: DecodeState, m: Rejected | Drained) -> Step:
    """prefill's own word that no write of this room can land any more: release"""
    request = s.requests[m.room]
    if request.distrusted:
        return s, (Dropped(type(m).__name__, "a foreign write was seen; only a reaped writer is proof now"),)
    pool = s.pool.drained(m.room, request.offer.prefill)
    return _leave(d, replace(s, pool=pool), m.room)


def handoff_timer(d: Decisions, s: DecodeState, m: Timer) -> Step:
    """no receipt in time: fail the request, quarantine its pages"""
    if m.kind != "hand-off":
        return s, ()
    return _fail(d, s, m.room, errors.timed_out("prefill did not deliver in time"))


def drain_timer(_: Decisions, s: DecodeState, m: Timer) -> Step:
    """remind prefill once, then ask for its recycling; never release"""
    if m.kind != "drain":
        return s, ()
    request = s.requests[m.room]
    again = SetTimer(m.room, "drain", s.config.drain_s)
    if not request.reminded:
        return _put(s, m.room, replace(request, reminded=True)), (_abort_to_prefill(s, request), again)
    silent = sorted(holder for holder in s.pool.lease_of(m.room).holders if isinstance(holder, WorkerRef))
    recycle = (Send(s.members.router, Recycle(w, "owes a drain and is silent")) for w in silent)
    return s, (*recycle, again)


def remind(_: Decisions, s: DecodeState, m: Receipt) -> Step:
    """the receipt was refused or came too late: ask for the drain again"""
    return s, (_abort_to_prefill(s, s.requests[m.room]),)


def _fail(d: Decisions, s: DecodeState, room: Room, error: ErrorInfo) -> Step:
    s, effects = _leave(d, s, room)
    return s, (Send(s.members.router, Failed(room, error)), *effects)


def _leave(d: Decisions, s: DecodeState, room: Room) -> Step:
    """The room's one way out of its pages: release them, or quarantine them and ask prefill to drain."""
    request = s.requests[room]
    effects: Effects = (Stop(room),) if request.phase is Phase.DECODING else ()
    if request.slot is not None:
        s = replace(s, slots=s.slots.release(request.slot))
    request = replace(request, slot=None)
    lease = s.pool.lease_of(room)
    if d.may_release(lease):
        pool = s.pool
        for holder in lease.holders:
            pool = pool.drained(room, holder)
        s, admitted = admit_waiting(_forget(replace(s, pool=pool.release(room)), room))
        return s, (*effects, *admitted)
    if request.phase is Phase.QUARANTINED:
        return _put(s, room, request), effects
    s = _put(replace(s, pool=s.pool.quarantine(room)), room, replace(request, phase=Phase.QUARANTINED))
    # The row is free even while the pages are not, so somebody may fit now.
    s, admitted = admit_waiting(s)
    timer = SetTimer(room, "drain", s.config.drain_s)
    return s, (*effects, _abort_to_prefill(s, request), timer, *admitted)


def _reaped(d: Decisions, s: DecodeState, worker: WorkerRef) -> Step:
    """A reaped process reaches nothing: it holds no page any more, and rooms it was to compute have failed."""
    s = replace(s, members=s.members.gone(worker))
    lost = errors.unavailable(f"prefill worker {worker} died", "worker_lost")
    effects: Effects = ()
    # The queue first: releasing pages below must not admit a room whose prefill is gone.
    for room in s.waiting:
        if s.requests[room].offer.prefill == worker:
            s = _forget(replace(s, waiting=tuple(r for r in s.waiting if r != room)), room)
            effects += (Send(s.members.router, Failed(room, lost)),)
    held = [room for room, request in s.requests.items() if request.phase is not Phase.WAITING]
    for room in sorted(held):
        if worker not in s.pool.lease_of(room).holders:
            continue
        s = replace(s, pool=s.pool.drained(room, worker))
        s, more = _leave(d, s, room) if s.phase(room) is Phase.QUARANTINED else _fail(d, s, room, lost)
        effects += more
    return s, effects


def _abort_to_prefill(s: DecodeState, request: Request) -> Send:
    prefill = request.offer.prefill
    return Send(prefill, Abort(request.offer.room, s.members.floor, prefill, s.members.me))


def _put(s: DecodeState, room: Room, request: Request) -> DecodeState:
    return replace(s, requests=s.requests.set(room, request))


def _forget(s: DecodeState, room: Room) -> DecodeState:
    return replace(s, requests=s.requests.delete(room), members=s.members.end(room))


# --- the table ----------------------------------------------------------------------------------------------------

Rule = Callable[..., Step] | str
_NOTHING_HELD = "the room holds nothing here"
_OVER = "the room is over"
_TWICE = "came twice"
_LATE = "the request has left the batch"
_EARLY = "nothing was committed yet"

TABLE: Mapping[Phase, Mapping[type, Rule]] = {
    Phase.NEW: {
        Offer: offer_arrives,
        Abort: tombstone,
        Receipt: "no such reservation",
        Rejected: _NOTHING_HELD,
        Drained: _NOTHING_HELD,
        PagesDigested: _NOTHING_HELD,
        Generated: _NOTHING_HELD,
        ComputeFailed: _NOTHING_HELD,
        FrameBroken: _NOTHING_HELD,
        Timer: _NOTHING_HELD,
    },
    Phase.WAITING: {
        Offer: _TWICE,
        Abort: abort_waiting,
        Receipt: "no such reservation",
        Rejected: abort_waiting,
        Drained: abort_waiting,
        PagesDigested: _EARLY,
        Generated: _EARLY,
        ComputeFailed: _EARLY,
        FrameBroken: _EARLY,
        Timer: _NOTHING_HELD,
    },
    Phase.RESERVED: {
        Offer: _TWICE,
        Abort: abort,
        Receipt: receipt_arrives,
        Rejected: prefill_is_drained,
        Drained: prefill_is_drained,
        PagesDigested: _EARLY,
        Generated: _EARLY,
        ComputeFailed: _EARLY,
        FrameBroken: _EARLY,
        Timer: handoff_timer,
    },
    Phase.VERIFYING: {
        Offer: _TWICE,
        Abort: abort,
        Receipt: _TWICE,
        Rejected: prefill_is_drained,
        Drained: prefill_is_drained,
        PagesDigested: pages_digested,
        Generated: _EARLY,
        ComputeFailed: _EARLY,
        FrameBroken: frame_broken,
        Timer: handoff_timer,
    },
    Phase.DECODING: {
        Offer: _TWICE,
        Abort: abort,
        Receipt: acknowledge,
        Rejected: "the hand-off was committed",
        Drained: "the hand-off was committed",
        PagesDigested: _TWICE,
        Generated: generated,
        ComputeFailed: compute_failed,
        FrameBroken: frame_broken,
        Timer: "the hand-off was in time",
    },
    Phase.QUARANTINED: {
        Offer: _TWICE,
        Abort: _TWICE,
        Receipt: remind,
        Rejected: prefill_is_drained,
        Drained: prefill_is_drained,
        PagesDigested: "the hand-off was refused or aborted",
        Generated: _LATE,
        ComputeFailed: _LATE,
        FrameBroken: _LATE,
        Timer: drain_timer,
    },
    Phase.OVER: {
        Offer: _OVER,
        Abort: _OVER,
        Receipt: acknowledge,
        Rejected: _OVER,
        Drained: _OVER,
        PagesDigested: _OVER,
        Generated: _LATE,
        ComputeFailed: _LATE,
        FrameBroken: _LATE,
        Timer: _OVER,
    },
}
