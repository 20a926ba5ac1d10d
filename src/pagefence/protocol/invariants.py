"""The rules, each stated once, and the checks that a state must pass after every step.

A check is pure and looks at states alone: the simulator, the explorer and the engine's self-test call the same ones.
What no single state shows (bytes that attention reads, writes that land late) is checked by the driver.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from immutables import Map

from pagefence.pool.pages import ConservationBroken, IsolationBroken, Lease, PagePool
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
        "rest; computed and cached tokens on prefill are the prompt tokens on decode."),
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


def _require(truth: bool, rule_id: str, message: str, *values: object) -> None:
    """Raise Violation with `values` in the braces of `message`; they are rendered only then, for checks run often."""
    if not truth:
        raise Violation(rule_id, message.format(*(_shown(value) for value in values)))


def _shown(value: object) -> object:
    if isinstance(value, set | list | Map):
        return ", ".join(sorted(map(str, value))) or "none"
    return value


# --- what both legs share -----------------------------------------------------------------------------------------


def _check_pool(pool: PagePool) -> None:
    try:
        pool.check()
    except ConservationBroken as broken:
        raise Violation("I6", str(broken)) from broken
    except IsolationBroken as broken:
        raise Violation("I7", str(broken)) from broken


def _check_holding(pool: PagePool, holding: Iterable[Room]) -> None:
    """A rejected, ended or waiting room holds nothing; a room in any other phase holds its one lease."""
    owners, rooms = set(pool.leases), set[Hashable](holding)
    _require(owners == rooms, "I3", "leases of {} too many, of {} missing", owners - rooms, rooms - owners)


def _check_waiting(waiting: tuple[Room, ...], in_phase: set[Room]) -> None:
    _require(len(set(waiting)) == len(waiting), "I5", "a room waits twice")
    _require(set(waiting) == in_phase, "I3", "queue {}, rooms in phase waiting {}", waiting, in_phase)


def _check_alive(members: Membership, rooms: Iterable[Room]) -> None:
    ended = [room for room in rooms if room.counter in members.over]
    _require(not ended, "I5", "{}: live and over at once", ended)


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
    _require(taken == len(rows), "I6", "{} rows taken, {} owned", taken, len(rows))
    for room, request in s.requests.items():
        _require(request.offer.room == room, "I9", "{} is filed with the offer of {}", room, request.offer.room)
        _check_row(s, room, request)
        if request.phase is not phases.WAITING:
            _check_lease(s, room, request, s.pool.lease_of(room))


def _check_row(s: DecodeState, room: Room, request: decode_state.Request) -> None:
    """A row is VALID exactly while its room is DECODING; a room that left, or has not arrived, has none."""
    phases = decode_state.Phase
    has_row = request.phase in (phases.RESERVED, phases.VERIFYING, phases.DECODING)
    _require((request.slot is not None) == has_row, "I4", "{} is {}, row {}", room, request.phase, request.slot)
    if request.slot is None:
        return
    row = s.slots.slots[request.slot.index]
    _require(row.generation == request.slot.generation, "I1", "{} holds a row of another tenancy", room)
    valid = row.state is SlotState.VALID
    _require(
        valid == (request.phase is phases.DECODING), "I4", "{} is {}, its row {}", room, request.phase, row.state.value
    )
    _require(not valid or row.value == room, "I1", "the row of {} names {}", room, row.value)


def _check_lease(s: DecodeState, room: Room, request: decode_state.Request, lease: Lease) -> None:
    phases, offer, reservation = decode_state.Phase, request.offer, request.reservation
    _require(lease.isolation_key == offer.isolation_key, "I7", "{}: lease of another isolation key", room)
    _require(lease.shared == 0, "I1", "{}: decode shares no page, {}", room, lease)
    _require(lease.quarantined == (request.phase is phases.QUARANTINED), "I6", "{}: {}, {}", room, request.phase, lease)
    _require(reservation is not None, "I4", "{} holds pages and has no reservation", room)
    assert reservation is not None
    prompt = lease.pages[: s.pool.pages_for(offer.prompt_tokens)]
    _require(reservation.pages == prompt, "I1", "{}: reserved {}, leased {}", room, reservation.pages, prompt)
    _require(reservation.prompt_tokens == offer.prompt_tokens, "I4", "{}: reserved for another prompt length", room)
    if request.phase in (phases.RESERVED, phases.VERIFYING):
        _require(offer.prefill in lease.holders, "I2", "{}: prefill may write and is no holder", room)
    if request.phase is phases.QUARANTINED:
        dead = [h for h in lease.holders if isinstance(h, WorkerRef) and h in s.members.reaped]
        _require(bool(lease.holders), "I6", "{}: quarantined and nobody left to wait for", room)
        _require(not dead, "I2", "{}: waits for {}, reaped long ago", room, dead)
    if request.phase is phases.DECODING:
        receipt = request.receipt
        whole = receipt is not None and receipt.tokens == offer.prompt_tokens
        _require(whole, "I4", "{} decodes; its receipt {}", room, receipt)
        filled = offer.prompt_tokens + max(request.emitted - 1, 0)
        _require(lease.filled == filled, "I1", "{}: fill mark {}, {} tokens written", room, lease.filled, filled)


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
        _require(start.room == start.reservation.room == room, "I9", "{} is filed with another room's start", room)
        marks = (request.landed, request.launched, request.computed, request.admitted.tokens)
        _require(marks == tuple(sorted(marks)), "I6", "{}: landed, launched, computed, admitted = {}", room, marks)
        _require((request.receipt is not None) == (request.phase is phases.SENT), "I4", "{}: {}", room, request.phase)
        _check_doubt(s, room, request)
        if request.phase is phases.SENT:
            _require(request.landed == request.launched, "I2", "{}: receipt sent while writes are in flight", room)
            _check_receipt(room, request)
        if request.phase is not phases.WAITING:
            _check_source(s, room, request, s.pool.lease_of(room))


def _check_doubt(s: PrefillState, room: Room, request: prefill.Request) -> None:
    """After a failed write nothing is proven by landings any more, and a room waits for decode while that lives."""
    if not request.in_doubt:
        return
    marks = (request.landed, request.in_doubt, request.launched)
    follows = request.landed < request.in_doubt <= request.launched
    _require(follows, "I2", "{}: landed, in doubt, launched = {}", room, marks)
    draining = request.phase is prefill.Phase.DRAINING
    _require(draining, "I2", "{} is {}, and a write of it is in doubt", room, request.phase)
    waits = request.in_flight or request.decode not in s.members.reaped
    _require(waits, "I6", "{}: waits for {}, reaped long ago", room, request.decode)


def _check_receipt(room: Room, request: prefill.Request) -> None:
    """Computed + cached = tokens, and decode is told so."""
    receipt, computed = request.receipt, request.computed - request.cached
    assert receipt is not None
    adds_up = receipt.cached == request.cached and computed + receipt.cached == receipt.tokens
    _require(adds_up, "I6", "{}: {} computed, {} cached, {}", room, computed, request.cached, receipt)


def _check_source(s: PrefillState, room: Room, request: prefill.Request, lease: Lease) -> None:
    """The source pages: its own tenant's, filled as far as computed, and shared ones hold this very prompt's pages."""
    start, size = request.start, s.pool.page_size
    _require(lease.isolation_key == start.isolation_key, "I7", "{}: lease of another isolation key", room)
    _require(lease.filled == request.computed, "I1", "{}: filled {}, computed {}", room, lease.filled, request.computed)
    _require(request.cached == lease.shared * size, "I6", "{}: {} cached, {}", room, request.cached, lease)
    _require(
        request.cached < request.admitted.tokens, "I6", "{}: the whole prompt is said to be cached, nothing left", room
    )
    if not lease.shared:
        return
    cached = {page.page: page for page in s.pool.cache.pages.values()}
    before = None
    for position, ref in enumerate(lease.pages[: lease.shared]):
        page = cached[ref]  # the pool's check was here before
        _require(page.isolation_key == start.isolation_key, "I7", "{} shares page {} of another tenant", room, ref)
        tokens = start.token_ids[position * size : (position + 1) * size]
        is_its_own = (page.position, page.tokens, page.parent) == (position, tokens, before)
        _require(is_its_own, "I1", "{} shares page {} at position {}, which holds other text", room, ref, position)
        before = ref


# --- router -------------------------------------------------------------------------------------------------------


def check_router(s: RouterState) -> None:
    """Raise Violation unless tickets and rooms are one to one and every room still has the legs that it needs."""
    tickets = {request.submit.ticket: room for room, request in s.requests.items()}
    _require(len(tickets) == len(s.requests), "I5", "one ticket has two rooms")
    _require(dict(s.rooms) == tickets, "I5", "rooms by ticket {}, requests {}", dict(s.rooms), tickets)
    counters = {room.counter for room in s.requests}
    _require(len(counters) == len(s.requests), "I9", "two rooms share a counter")
    living = {up.worker for up in s.workers.values()}
    for room, request in s.requests.items():
        _require(room.epoch == s.me.epoch and room.counter < s.counter, "I9", "{} was not minted here", room)
        committed = request.phase is router.Phase.COMMITTED
        _require(committed or request.emitted == 0, "I3", "{}: tokens before the commit", room)
        _require(request.emitted <= request.submit.max_new_tokens, "I10", "{}: more tokens than asked for", room)
        needed = {request.decode} if committed else {request.decode, request.prefill}
        _require(needed <= living, "I5", "{} waits for {}, reaped", room, needed - living)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What clients saw, recorded from the router's effects: one outcome each, nothing before Begin or after the end.

    A client that hung up ends there: nothing may be sent to it any more. Immutable: every record gives the next one.
    """

    begun: frozenset[int] = frozenset()
    open: frozenset[int] = frozenset()
    ended: Map[int, End | Refuse | None] = Map()
    emitted: Map[int, tuple[int, ...]] = Map()

    def submitted(self, ticket: int) -> Outcomes:
        """A client asked. Raises Violation when the ticket was used before (I9)."""
        _require(ticket not in self.open and ticket not in self.ended, "I9", "ticket {} is used twice", ticket)
        return replace(self, open=self.open | {ticket}, emitted=self.emitted.set(ticket, ()))

    def gone(self, ticket: int) -> Outcomes:
        """The client hung up; without an outcome before, that is the end of it."""
        return self._end(ticket, None) if ticket in self.open else self

    def saw(self, effects: Effects) -> Outcomes:
        """Record a step of the router. Raises Violation."""
        record = self
        for effect in effects:
            if isinstance(effect, Begin | Emit | End | Refuse):
                record = record._saw(effect)
        return record

    def _saw(self, effect: Begin | Emit | End | Refuse) -> Outcomes:
        ticket = effect.ticket
        alive = ticket in self.open
        if isinstance(effect, Begin):
            _require(alive, "I5", "ticket {} begins after its outcome", ticket)
            _require(ticket not in self.begun, "I5", "ticket {} begins twice", ticket)
            return replace(self, begun=self.begun | {ticket})
        if isinstance(effect, Emit):
            _require(alive, "I10", "tokens for ticket {} after its end", ticket)
            _require(ticket in self.begun, "I3", "tokens for ticket {} before the commit", ticket)
            return replace(self, emitted=self.emitted.set(ticket, self.emitted[ticket] + effect.token_ids))
        _require(alive, "I5", "a second outcome for ticket {}: {}", ticket, effect)
        if isinstance(effect, End):
            _require(ticket in self.begun, "I4", "ticket {} ends well and never began", ticket)
            count = len(self.emitted[ticket])
            _require(count == effect.completion_tokens, "I6", "ticket {}: {} tokens sent, {}", ticket, count, effect)
        return self._end(ticket, effect)

    def _end(self, ticket: int, outcome: End | Refuse | None) -> Outcomes:
        return replace(self, open=self.open - {ticket}, ended=self.ended.set(ticket, outcome))


# --- at rest ------------------------------------------------------------------------------------------------------


def check_rest(
    router_state: RouterState,
    prefills: Iterable[PrefillState],
    decodes: Iterable[DecodeState],
    outcomes: Outcomes | None = None,
) -> None:
    """Raise Violation unless nothing is held anywhere and every client has its outcome. For a fleet at rest."""
    _require(not router_state.requests, "I5", "the router still has {}", router_state.requests)
    _require(outcomes is None or not outcomes.open, "I5", "no outcome for {}", outcomes and sorted(outcomes.open))
    workers: list[PrefillState | DecodeState] = [*prefills, *decodes]
    for s in workers:
        me, counts = s.members.me, s.pool.counts()
        _require(not s.requests and not s.waiting, "I6", "{} still has {}", me, s.requests)
        _require(counts.leased == counts.quarantined == 0, "I6", "{}: {}", me, counts)
        if isinstance(s, DecodeState):
            held = s.slots.count(SlotState.RESERVED) + s.slots.count(SlotState.VALID)
            _require(held == 0, "I6", "{}: {} rows held", me, held)
