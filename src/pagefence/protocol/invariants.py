"""The rules, each stated once, and the checks that a state must pass after every step.

A check is pure and looks at states alone: the simulator, the explorer and the engine's self-test call the same ones.
What no single state shows (bytes that attention reads, writes that land late) is checked by the driver.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from pagefence.pool.pages import ConservationBroken, Lease, PagePool
from pagefence.pool.slots import SlotState
from pagefence.protocol import decode_state, prefill, router
from pagefence.protocol.decode_state import DecodeState
from pagefence.protocol.effects import Begin, Effects, Emit, End, Refuse
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import Room, WorkerRef
from pagefence.protocol.prefill import PrefillState
from pagefence.protocol.router import RouterState


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the house, known everywhere by its id."""

    id: str
    name: str
    statement: str


_RULES = (
    Rule("I1", "ownership",
        "Attention reads a slot only if it was written for this request in the page's present tenancy, or "
        "belongs to a prefix page shared under the same isolation key and content."),
    Rule("I2", "no foreign write",
        "No write lands in a page let to somebody else: a page is let again only after every possible writer "
        "is proven drained, never because time has passed."),
    Rule("I3", "rejection is terminal",
        "A rejected request holds, moves and generates nothing; both legs learn of it and its client gets the "
        "original error, once, before any byte of a body."),
    Rule("I4", "exact hand-off",
        "Decode starts only when what arrived equals what was reserved; anything else is refused, and its "
        "pages stay in quarantine until they are drained."),
    Rule("I5", "one outcome",
        "Every request ends in exactly one outcome, written once, in one place."),
    Rule("I6", "conservation",
        "Pages are free, leased, cached, quarantined or retired and add up to the pool, with none leased at "
        "rest; prompt tokens on both legs are equal."),
    Rule("I7", "isolation key",
        "KV is shared only inside one isolation key, through every tier."),
    Rule("I8", "capacity",
        "A fleet is ready only when the pool of every running worker covers the context with headroom, or a "
        "lower limit is declared and enforced."),
    Rule("I9", "identity",
        "The server mints every room and request id and uses it once; a client names no worker."),
    Rule("I10", "streams",
        "Tokens of a request reach its own client and no other, in order, also under cancellation."),
)  # fmt: skip
RULES: dict[str, Rule] = {rule.id: rule for rule in _RULES}


class Violation(Exception):
    """A rule is broken."""

    def __init__(self, rule_id: str, message: str) -> None:
        super().__init__(f"{rule_id} {RULES[rule_id].name}: {message}")
        self.rule_id = rule_id


def _require(truth: bool, rule_id: str, message: str) -> None:
    if not truth:
        raise Violation(rule_id, message)


# --- what both legs share -----------------------------------------------------------------------------------------


def _check_pool(pool: PagePool) -> None:
    try:
        pool.check()
    except ConservationBroken as broken:
        raise Violation("I6", str(broken)) from broken


def _check_holding(pool: PagePool, holding: Iterable[Room]) -> None:
    """A rejected, ended or waiting room holds nothing; a room in any other phase holds its one lease."""
    owners, rooms = set(pool.leases), set[Hashable](holding)
    _require(owners == rooms, "I3", f"leases of {_names(owners - rooms)} too many, of {_names(rooms - owners)} missing")


def _check_waiting(waiting: tuple[Room, ...], in_phase: set[Room]) -> None:
    _require(len(set(waiting)) == len(waiting), "I5", "a room waits twice")
    _require(set(waiting) == in_phase, "I3", f"queue {_names(waiting)}, rooms in phase waiting {_names(in_phase)}")


def _check_alive(members: Membership, rooms: Iterable[Room]) -> None:
    ended = [room for room in rooms if room.counter in members.over]
    _require(not ended, "I5", f"{_names(ended)}: live and over at once")


def _names(rooms: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, rooms))) or "none"


# --- decode -------------------------------------------------------------------------------------------------------


def check_decode(s: DecodeState) -> None:
    """Raise Violation unless rooms, leases, rows and tombstones of a decode worker agree."""
    _check_pool(s.pool)
    s.slots.check()
    phases = decode_state.Phase
    waiting = {room for room, request in s.requests.items() if request.phase is phases.WAITING}
    _check_waiting(s.waiting, waiting)
    _check_holding(s.pool, (room for room in s.requests if room not in waiting))
    _check_alive(s.members, s.requests)
    rows = [request.slot for request in s.requests.values() if request.slot is not None]
    _require(len(set(rows)) == len(rows), "I1", "two rooms share a row of the batch")
    taken = s.slots.count(SlotState.RESERVED) + s.slots.count(SlotState.VALID)
    _require(taken == len(rows), "I6", f"{taken} rows taken, {len(rows)} owned")
    for room, request in s.requests.items():
        _require(request.offer.room == room, "I9", f"{room} is filed with the offer of {request.offer.room}")
        _check_row(s, room, request)
        if request.phase is not phases.WAITING:
            _check_lease(s, room, request, s.pool.lease_of(room))


def _check_row(s: DecodeState, room: Room, request: decode_state.Request) -> None:
    """A row is VALID exactly while its room is DECODING; a room that left, or has not arrived, has none."""
    phases = decode_state.Phase
    has_row = request.phase in (phases.RESERVED, phases.VERIFYING, phases.DECODING)
    _require((request.slot is not None) == has_row, "I4", f"{room} is {request.phase}, row {request.slot}")
    if request.slot is None:
        return
    row = s.slots.slots[request.slot.index]
    _require(row.generation == request.slot.generation, "I1", f"{room} holds a row of another tenancy")
    valid = row.state is SlotState.VALID
    _require(valid == (request.phase is phases.DECODING), "I4", f"{room} is {request.phase}, its row {row.state.value}")
    _require(not valid or row.value == room, "I1", f"the row of {room} names {row.value}")


def _check_lease(s: DecodeState, room: Room, request: decode_state.Request, lease: Lease) -> None:
    phases, offer, reservation = decode_state.Phase, request.offer, request.reservation
    _require(lease.isolation_key == offer.isolation_key, "I7", f"{room}: lease of another isolation key")
    _require(lease.quarantined == (request.phase is phases.QUARANTINED), "I6", f"{room}: {request.phase}, {lease}")
    _require(reservation is not None, "I4", f"{room} holds pages and has no reservation")
    assert reservation is not None
    prompt = lease.pages[: s.pool.pages_for(offer.prompt_tokens)]
    _require(reservation.pages == prompt, "I1", f"{room}: reserved {reservation.pages}, leased {prompt}")
    _require(reservation.prompt_tokens == offer.prompt_tokens, "I4", f"{room}: reserved for another prompt length")
    if request.phase in (phases.RESERVED, phases.VERIFYING):
        _require(offer.prefill in lease.holders, "I2", f"{room}: prefill may write and is no holder")
    if request.phase is phases.QUARANTINED:
        dead = [h for h in lease.holders if isinstance(h, WorkerRef) and not s.members.is_alive(h)]
        _require(bool(lease.holders), "I6", f"{room}: quarantined and nobody left to wait for")
        _require(not dead, "I2", f"{room}: waits for {_names(dead)}, reaped long ago")
    if request.phase is phases.DECODING:
        receipt = request.receipt
        _require(receipt is not None and receipt.tokens == offer.prompt_tokens, "I6", f"{room}: tokens do not add up")
        filled = offer.prompt_tokens + max(request.emitted - 1, 0)
        _require(lease.filled == filled, "I1", f"{room}: fill mark {lease.filled}, {filled} tokens written")


# --- prefill ------------------------------------------------------------------------------------------------------


def check_prefill(s: PrefillState) -> None:
    """Raise Violation unless rooms, leases and tombstones of a prefill worker agree."""
    _check_pool(s.pool)
    phases = prefill.Phase
    waiting = {room for room, request in s.requests.items() if request.phase is phases.WAITING}
    _check_waiting(s.waiting, waiting)
    _check_holding(s.pool, (room for room in s.requests if room not in waiting))
    _check_alive(s.members, s.requests)
    for room, request in s.requests.items():
        start = request.start
        _require(start.room == start.reservation.room == room, "I9", f"{room} is filed with another room's start")
        marks = (request.landed, request.launched, request.computed, request.admitted.tokens)
        _require(marks == tuple(sorted(marks)), "I6", f"{room}: landed, launched, computed, admitted = {marks}")
        _require((request.receipt is not None) == (request.phase is phases.SENT), "I4", f"{room}: {request.phase}")
        if request.phase is phases.SENT:
            _require(request.landed == request.launched, "I2", f"{room}: receipt sent while writes are in flight")


# --- router -------------------------------------------------------------------------------------------------------


def check_router(s: RouterState) -> None:
    """Raise Violation unless tickets and rooms are one to one and every room still has the legs that it needs."""
    tickets = {request.submit.ticket: room for room, request in s.requests.items()}
    _require(len(tickets) == len(s.requests), "I5", "one ticket has two rooms")
    _require(dict(s.rooms) == tickets, "I5", f"rooms by ticket {dict(s.rooms)}, requests {tickets}")
    counters = {room.counter for room in s.requests}
    _require(len(counters) == len(s.requests), "I9", "two rooms share a counter")
    living = {up.worker for up in s.workers.values()}
    for room, request in s.requests.items():
        _require(room.epoch == s.me.epoch and room.counter < s.counter, "I9", f"{room} was not minted here")
        committed = request.phase is router.Phase.COMMITTED
        _require(committed or request.emitted == 0, "I3", f"{room}: tokens before the commit")
        _require(request.emitted <= request.submit.max_new_tokens, "I10", f"{room}: more tokens than asked for")
        needed = {request.decode} if committed else {request.decode, request.prefill}
        _require(needed <= living, "I5", f"{room} waits for {_names(needed - living)}, reaped")


@dataclass(slots=True)
class Outcomes:
    """What clients saw, recorded from the router's effects: one outcome each, nothing before Begin or after the end.

    A client that hung up ends there: nothing may be sent to it any more.
    """

    begun: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    ended: dict[int, End | Refuse | None] = field(default_factory=dict)
    emitted: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def submitted(self, ticket: int) -> None:
        """A client asked. Raises Violation when the ticket was used before (I9)."""
        _require(ticket not in self.open and ticket not in self.ended, "I9", f"ticket {ticket} is used twice")
        self.open.add(ticket)
        self.emitted[ticket] = ()

    def gone(self, ticket: int) -> None:
        """The client hung up; without an outcome before, that is the end of it."""
        if ticket in self.open:
            self._end(ticket, None)

    def saw(self, effects: Effects) -> None:
        """Record a step of the router. Raises Violation."""
        for effect in effects:
            if isinstance(effect, Begin | Emit | End | Refuse):
                self._saw(effect)

    def _saw(self, effect: Begin | Emit | End | Refuse) -> None:
        ticket = effect.ticket
        alive = ticket in self.open
        if isinstance(effect, Begin):
            _require(alive, "I5", f"ticket {ticket} begins after its outcome")
            _require(ticket not in self.begun, "I5", f"ticket {ticket} begins twice")
            self.begun.add(ticket)
        elif isinstance(effect, Emit):
            _require(alive, "I10", f"tokens for ticket {ticket} after its end")
            _require(ticket in self.begun, "I3", f"tokens for ticket {ticket} before the commit")
            self.emitted[ticket] += effect.token_ids
        else:
            _require(alive, "I5", f"a second outcome for ticket {ticket}: {effect}")
            if isinstance(effect, End):
                _require(ticket in self.begun, "I4", f"ticket {ticket} ends well and never began")
                count = len(self.emitted[ticket])
                _require(count == effect.completion_tokens, "I6", f"ticket {ticket}: {count} tokens sent, {effect}")
            self._end(ticket, effect)

    def _end(self, ticket: int, outcome: End | Refuse | None) -> None:
        self.open.discard(ticket)
        self.ended[ticket] = outcome


# --- at rest ------------------------------------------------------------------------------------------------------


def check_rest(
    router_state: RouterState,
    prefills: Iterable[PrefillState],
    decodes: Iterable[DecodeState],
    outcomes: Outcomes | None = None,
) -> None:
    """Raise Violation unless nothing is held anywhere and every client has its outcome. For a fleet at rest."""
    _require(not router_state.requests, "I5", f"the router still has {_names(router_state.requests)}")
    _require(outcomes is None or not outcomes.open, "I5", f"no outcome for {outcomes and sorted(outcomes.open)}")
    workers: list[PrefillState | DecodeState] = [*prefills, *decodes]
    for s in workers:
        me, counts = s.members.me, s.pool.counts()
        _require(not s.requests and not s.waiting, "I6", f"{me} still has {_names(s.requests)}")
        _require(counts.leased == counts.quarantined == 0, "I6", f"{me}: {counts}")
        if isinstance(s, DecodeState):
            held = s.slots.count(SlotState.RESERVED) + s.slots.count(SlotState.VALID)
            _require(held == 0, "I6", f"{me}: {held} rows held")
