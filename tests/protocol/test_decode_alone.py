"""The decode machine by itself: what it leases, in which order, what it says, and when it lets go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pagefence.pool.pages import PagePool
from pagefence.pool.slots import SlotPool, SlotState
from pagefence.protocol import decode, errors
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeConfig, DecodeState, Phase
from pagefence.protocol.effects import Dropped, Effects, Run, Send, SetTimer, Stop, Verify, Zero
from pagefence.protocol.handoff import seal
from pagefence.protocol.invariants import check_decode
from pagefence.protocol.membership import Membership
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
    Logprob,
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

ROUTER, ME = WorkerRef("router", 7), WorkerRef("d", 1)
P1, P2 = WorkerRef("p1", 1), WorkerRef("p2", 1)
KEY = b"key"
LIKELY = (Logprob(-0.5, ((40, -0.5), (7, -1.5))),)
ROOMS = [Room(7, counter, f"n{counter}") for counter in range(6)]
ROOM = ROOMS[0]


class Alone:
    """The machine and its state, checked after every step; `effects` are those of the last step."""

    def __init__(self, pages: int = 12, rows: int = 3, decisions: Decisions | None = None, **config: Any) -> None:
        limits = {"handoff_s": 30.0, "drain_s": 3.0, **config}
        self.machine = decode.Machine(decisions or Decisions())
        pool, slots = PagePool.of(pages, 4), SlotPool[Room].of(rows)
        self.state = DecodeState(Membership(ME, ROUTER), DecodeConfig(2, KEY, **limits), pool, slots)
        self.effects: Effects = ()
        for worker in (P1, P2):
            self.hears(ROUTER, PeerUp(worker, "prefill", "there"))

    def tell(self, message: decode.Input) -> Effects:
        self.state, self.effects = self.machine.step(self.state, message)
        check_decode(self.state)
        return self.effects

    def hears(self, sender: WorkerRef, body: PeerMessage) -> Effects:
        return self.tell(Envelope(sender, ME, body))

    def offered(self, room: Room = ROOM, prompt: int = 6, max_new: int = 3, prefill: WorkerRef = P1) -> Room:
        """Reserved, when there is room."""
        self.hears(ROUTER, Offer(room, 0, prefill, "tenant", prompt, max_new, b"hot"))
        return room

    def receipt(self, room: Room, **changes: Any) -> Receipt:
        request = self.state.requests[room]
        assert request.reservation is not None
        r = request.reservation
        digests = tuple(bytes([i]) * 8 for i in range(len(r.pages)))
        words = {"tokens": r.prompt_tokens, "layers": r.layers, "pages": r.pages, "digests": digests, "first_token": 40}
        return seal(KEY, Receipt(room, r.prefill, ME, **{**words, **changes}))

    def verifying(self, room: Room = ROOM, **ask: Any) -> Room:
        self.offered(room, **ask)
        self.hears(self.state.requests[room].offer.prefill, self.receipt(room))
        return room

    def decoding(self, room: Room = ROOM, **ask: Any) -> Room:
        self.verifying(room, **ask)
        receipt = self.state.requests[room].receipt
        assert receipt is not None
        self.tell(PagesDigested(room, receipt.digests))
        return room

    def quarantined(self, room: Room = ROOM, **ask: Any) -> Room:
        self.offered(room, **ask)
        self.hears(ROUTER, Abort(room, 0, self.state.requests[room].offer.prefill, ME))
        return room

    def to_router(self) -> list[PeerMessage]:
        """What the last step says to the router."""
        return [effect.body for effect in self.effects if isinstance(effect, Send) and effect.to == ROUTER]

    def waiting(self) -> list[Room]:
        """The queue."""
        return list(self.state.waiting)

    def counts(self) -> tuple[int, int, int]:
        """Pages free, leased, quarantined."""
        counts = self.state.pool.counts()
        return counts.free, counts.leased, counts.quarantined


def abort(room: Room, prefill: WorkerRef = P1, floor: int = 0) -> Abort:
    return Abort(room, floor, prefill, ME)


def the_error(effects: Effects, kind: type[Rejected] | type[Failed]) -> ErrorInfo:
    """The one error that goes to the router."""
    (body,) = (e.body for e in effects if isinstance(e, Send) and e.to == ROUTER and isinstance(e.body, kind))
    return body.error


# --- arrival ------------------------------------------------------------------------------------------------------


def test_an_offer_that_fits_is_reserved_at_once_zeroed_first_and_timed() -> None:
    alone = Alone()
    alone.offered(prompt=6, max_new=3)
    lease = alone.state.pool.lease_of(ROOM)
    assert len(lease.pages) == 3, "six prompt tokens and three new ones on pages of four"
    assert lease.holders == {P1}
    assert lease.isolation_key == "tenant"
    words = Reservation(ROOM, P1, ME, 6, 4, 2, lease.pages[:2])
    assert alone.effects == (Zero(lease.pages), Send(ROUTER, words), SetTimer(ROOM, "hand-off", 30.0))
    assert alone.state.slots.count(SlotState.RESERVED) == 1


def test_what_does_not_fit_yet_waits_its_turn_and_a_smaller_one_does_not_overtake() -> None:
    alone = Alone(pages=6)
    alone.offered(ROOMS[0], prompt=12, max_new=4)
    alone.offered(ROOMS[1], prompt=12, max_new=4)
    alone.offered(ROOMS[2], prompt=1, max_new=1)
    assert alone.waiting() == [ROOMS[1], ROOMS[2]]
    assert alone.effects == ()
    alone.hears(P1, Drained(ROOMS[0]))
    reserved = [body.room for body in alone.to_router() if isinstance(body, Reservation)]
    assert reserved == [ROOMS[1], ROOMS[2]]
    assert alone.waiting() == []


def test_rows_run_out_before_pages_do() -> None:
    alone = Alone(rows=1)
    alone.offered(ROOMS[0])
    alone.offered(ROOMS[1])
    assert alone.waiting() == [ROOMS[1]]
    assert alone.counts() == (9, 3, 0)
    # The row comes free with the quarantine, though the pages do not.
    alone.hears(ROUTER, abort(ROOMS[0]))
    assert [body.room for body in alone.to_router() if isinstance(body, Reservation)] == [ROOMS[1]]
    assert alone.waiting() == []
    assert alone.counts() == (6, 3, 3)


def test_as_many_wait_as_was_allowed() -> None:
    alone = Alone(pages=3, max_waiting=1)
    alone.offered(ROOMS[0])
    alone.offered(ROOMS[1])
    alone.offered(ROOMS[2])
    assert the_error(alone.effects, Rejected).status == 429
    assert alone.state.phase(ROOMS[2]) is Phase.OVER
    assert alone.waiting() == [ROOMS[1]]


def test_what_the_whole_pool_could_not_hold_is_rejected_and_over() -> None:
    alone = Alone(pages=2)
    alone.offered(prompt=6, max_new=3)
    assert the_error(alone.effects, Rejected).code == "context_length_exceeded"
    assert len(alone.effects) == 1
    assert alone.state.phase(ROOM) is Phase.OVER
    assert alone.counts() == (2, 0, 0)


def test_an_offer_with_a_prefill_that_is_gone_is_rejected() -> None:
    alone = Alone()
    alone.offered(prefill=WorkerRef("p1", 2))
    error = the_error(alone.effects, Rejected)
    assert (error.status, error.code) == (503, "worker_lost")


@pytest.mark.parametrize(("share", "taken"), [(0.25, True), (0.24, False)])
def test_offers_are_taken_until_more_than_the_share_is_in_quarantine(share: float, taken: bool) -> None:
    alone = Alone(pages=12, quarantine_share=share)
    alone.quarantined(ROOMS[0])
    assert alone.counts() == (9, 0, 3)
    alone.offered(ROOMS[1])
    assert (alone.state.phase(ROOMS[1]) is Phase.RESERVED) == taken
    if not taken:
        error = the_error(alone.effects, Rejected)
        assert (error.status, error.code) == (503, "quarantine")


# --- hand-off -----------------------------------------------------------------------------------------------------


def test_a_receipt_that_agrees_has_the_reserved_pages_verified() -> None:
    alone = Alone()
    alone.verifying()
    assert alone.effects == (Verify(ROOM, alone.state.pool.lease_of(ROOM).pages[:2]),)
    assert alone.state.phase(ROOM) is Phase.VERIFYING


def test_bytes_that_agree_are_acknowledged_committed_and_run_with_all_that_was_asked() -> None:
    alone = Alone()
    alone.decoding(prompt=6, max_new=3)
    lease, slot = alone.state.pool.lease_of(ROOM), alone.state.requests[ROOM].slot
    assert slot is not None
    run = Run(ROOM, slot, lease.pages, 2, 6, 3, 40, b"hot")
    assert alone.effects == (Send(P1, Ack(ROOM)), Send(ROUTER, Committed(ROOM)), run)
    assert (lease.filled, lease.holders) == (6, frozenset())
    assert alone.state.slots.get(slot) == ROOM


def test_log_probabilities_pass_from_the_receipt_to_the_row_and_from_the_row_to_the_router() -> None:
    alone = Alone()
    alone.offered()
    receipt = alone.receipt(ROOM, first_logprobs=LIKELY)
    alone.hears(P1, receipt)
    alone.tell(PagesDigested(ROOM, receipt.digests))
    assert [e.first_logprobs for e in alone.effects if isinstance(e, Run)] == [LIKELY]
    told = alone.tell(Generated(ROOM, (40,), None, LIKELY))
    assert told == (Send(ROUTER, Tokens(ROOM, 0, (40,), LIKELY)),)


def test_the_commit_passes_on_what_came_from_a_cache() -> None:
    alone = Alone()
    alone.offered()
    receipt = alone.receipt(ROOM, cached=4)
    alone.hears(P1, receipt)
    alone.tell(PagesDigested(ROOM, receipt.digests))
    assert Send(ROUTER, Committed(ROOM, 4)) in alone.effects


@pytest.mark.parametrize("what", ["words", "bytes"])
def test_a_hand_off_that_differs_fails_the_room_stops_prefill_and_quarantines(what: str) -> None:
    alone = Alone()
    if what == "words":
        alone.offered()
        alone.hears(P1, alone.receipt(ROOM, tokens=5))
    else:
        alone.verifying()
        alone.tell(PagesDigested(ROOM, (b"other", b"bytes")))
    failed, *rest = alone.effects
    assert isinstance(failed, Send)
    error = the_error(alone.effects, Failed)
    assert (error.code, error.rule, error.guard) == ("handoff_refused", "I4", "handoff-check")
    assert error.message.startswith("The hand-off check (I4) refused what prefill delivered. ")
    assert rest == [Send(P1, abort(ROOM)), SetTimer(ROOM, "drain", 3.0)]
    assert alone.counts() == (9, 0, 3)
    assert alone.state.slots.count(SlotState.FREE) == 3


def test_a_receipt_that_comes_again_is_acknowledged_again() -> None:
    alone = Alone()
    alone.offered()
    receipt = alone.receipt(ROOM)
    alone.hears(P1, receipt)
    alone.tell(PagesDigested(ROOM, receipt.digests))
    assert alone.hears(P1, receipt) == (Send(P1, Ack(ROOM)),)
    alone.tell(Generated(ROOM, (1, 2, 3), "length"))
    assert alone.hears(P1, receipt) == (Send(P1, Ack(ROOM)),)


def test_only_the_hand_off_timer_ends_a_hand_off() -> None:
    for scene in ("offered", "verifying"):
        alone = Alone()
        getattr(alone, scene)()
        assert alone.tell(Timer(ROOM, "drain")) == ()
        assert alone.counts() == (9, 3, 0)
        alone.tell(Timer(ROOM, "hand-off"))
        assert the_error(alone.effects, Failed).status == 504
        assert alone.counts() == (9, 0, 3)


# --- generation ---------------------------------------------------------------------------------------------------


def test_tokens_are_numbered_and_the_fill_mark_follows_one_behind() -> None:
    alone = Alone()
    alone.decoding(prompt=6, max_new=5)
    assert alone.tell(Generated(ROOM, (40,))) == (Send(ROUTER, Tokens(ROOM, 0, (40,))),)
    assert alone.state.pool.lease_of(ROOM).filled == 6
    assert alone.tell(Generated(ROOM, (41, 42))) == (Send(ROUTER, Tokens(ROOM, 1, (41, 42))),)
    assert alone.state.pool.lease_of(ROOM).filled == 8
    assert alone.tell(Generated(ROOM, ())) == ()
    assert alone.state.requests[ROOM].emitted == 3


@pytest.mark.parametrize("last", [(42,), ()])
def test_the_last_tokens_come_before_the_end_and_pages_and_row_are_free(last: tuple[int, ...]) -> None:
    alone = Alone()
    alone.decoding(prompt=6, max_new=3)
    alone.tell(Generated(ROOM, (40, 41)))
    said = [Send(ROUTER, Tokens(ROOM, 2, last))] if last else []
    done = Finished(ROOM, "stop", 6, 2 + len(last))
    assert alone.tell(Generated(ROOM, last, "stop")) == (*said, Send(ROUTER, done), Stop(ROOM))
    assert alone.counts() == (12, 0, 0)
    assert alone.state.slots.count(SlotState.FREE) == 3
    assert alone.state.phase(ROOM) is Phase.OVER


@pytest.mark.parametrize(("count", "too_many"), [(3, False), (4, True)])
def test_no_more_tokens_leave_than_were_asked_for(count: int, too_many: bool) -> None:
    alone = Alone()
    alone.decoding(prompt=6, max_new=3)
    alone.tell(Generated(ROOM, tuple(range(count)), None))
    assert (alone.state.phase(ROOM) is Phase.OVER) == too_many
    if too_many:
        assert the_error(alone.effects, Failed).status == 500
        assert not [e for e in alone.effects if isinstance(e, Send) and isinstance(e.body, Tokens)]


def test_a_row_that_cannot_go_on_leaves_the_batch_and_frees_its_pages() -> None:
    alone = Alone()
    alone.decoding()
    failed = Failed(ROOM, errors.internal("not finite"))
    assert alone.tell(ComputeFailed(ROOM, "not finite")) == (Send(ROUTER, failed), Stop(ROOM))
    assert alone.counts() == (12, 0, 0)


# --- frames -------------------------------------------------------------------------------------------------------


def frame_broken(alone: Alone, foreign: bool) -> Effects:
    page = alone.state.pool.lease_of(ROOM).pages[1]
    return alone.tell(FrameBroken(ROOM, page, 1, "somebody", foreign))


def test_a_broken_frame_names_the_page_and_what_lies_there() -> None:
    alone = Alone()
    alone.decoding()
    page = alone.state.pool.lease_of(ROOM).pages[1]
    error = the_error(frame_broken(alone, foreign=False), Failed)
    assert (error.code, error.rule, error.guard) == ("frame_mismatch", "I1", "page-frames")
    assert f"page {page.index} (position 1, generation {page.generation}) holds somebody." in error.message


@pytest.mark.parametrize(("foreign", "suspects"), [(False, {P1}), (True, {P1, P2})])
def test_a_foreign_frame_suspects_every_writer_and_a_blank_one_its_own(foreign: bool, suspects: set[WorkerRef]) -> None:
    alone = Alone()
    alone.decoding()
    frame_broken(alone, foreign)
    assert alone.state.phase(ROOM) is Phase.QUARANTINED
    assert alone.state.pool.lease_of(ROOM).holders == suspects
    assert alone.state.requests[ROOM].distrusted == foreign


def test_a_room_whose_frames_are_broken_is_failed_and_stopped_before_prefill_is_asked_to_drain() -> None:
    alone = Alone()
    alone.decoding()
    failed, *rest = frame_broken(alone, foreign=False)
    assert isinstance(failed, Send)
    assert rest == [Stop(ROOM), Send(P1, abort(ROOM)), SetTimer(ROOM, "drain", 3.0)]


def test_a_suspect_among_many_is_cleared_by_its_death_alone() -> None:
    alone = Alone()
    alone.decoding()
    frame_broken(alone, foreign=True)
    assert isinstance(alone.hears(P1, Drained(ROOM))[0], Dropped)
    alone.hears(ROUTER, Reaped(P1))
    assert alone.state.pool.lease_of(ROOM).holders == {P2}
    assert alone.effects == (), "it stays where it is, and nobody is told twice"
    alone.hears(ROUTER, Reaped(P2))
    assert alone.counts() == (12, 0, 0)


# --- the ways out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["abort", "rejected", "drained"])
def test_a_room_that_waits_leaves_the_queue_and_the_others_stay_in_order(leave: str) -> None:
    alone = Alone(pages=3)
    for room in ROOMS[:4]:
        alone.offered(room)
    word: dict[str, PeerMessage] = {
        "abort": abort(ROOMS[2]),
        "rejected": Rejected(ROOMS[2], errors.internal("")),
        "drained": Drained(ROOMS[2]),
    }
    assert alone.hears(ROUTER if leave == "abort" else P1, word[leave]) == ()
    assert alone.waiting() == [ROOMS[1], ROOMS[3]]
    assert alone.state.phase(ROOMS[2]) is Phase.OVER


def test_an_abort_that_comes_first_leaves_a_tombstone_and_raises_the_floor() -> None:
    alone = Alone()
    assert alone.hears(ROUTER, abort(ROOMS[3], floor=2)) == ()
    assert [alone.state.phase(room) for room in ROOMS[:5]] == ["over", "over", "new", "over", "new"]


@pytest.mark.parametrize("scene", ["offered", "verifying"])
def test_an_abort_before_the_commit_quarantines_frees_the_row_and_asks_for_the_drain(scene: str) -> None:
    alone = Alone()
    getattr(alone, scene)()
    assert alone.hears(ROUTER, abort(ROOM)) == (Send(P1, abort(ROOM)), SetTimer(ROOM, "drain", 3.0))
    assert alone.counts() == (9, 0, 3)
    assert alone.state.slots.count(SlotState.FREE) == 3
    assert alone.hears(P1, Drained(ROOM)) == ()
    assert alone.counts() == (12, 0, 0)
    assert alone.state.phase(ROOM) is Phase.OVER


def test_when_the_decision_to_release_is_always_yes_nobody_is_waited_for() -> None:
    alone = Alone(decisions=Decisions(may_release=lambda lease: True))
    alone.offered()
    assert alone.hears(ROUTER, abort(ROOM)) == ()
    assert alone.counts() == (12, 0, 0)
    assert alone.state.phase(ROOM) is Phase.OVER


def test_an_abort_while_decoding_leaves_the_batch_and_waits_for_nobody() -> None:
    alone = Alone()
    alone.decoding()
    assert alone.hears(ROUTER, abort(ROOM)) == (Stop(ROOM),)
    assert alone.counts() == (12, 0, 0)


@pytest.mark.parametrize("scene", ["offered", "verifying", "quarantined"])
@pytest.mark.parametrize("word", [Drained(ROOM), Rejected(ROOM, errors.internal(""))])
def test_prefills_word_frees_pages_and_row(scene: str, word: PeerMessage) -> None:
    alone = Alone()
    getattr(alone, scene)()
    assert alone.hears(P1, word) == ()
    assert alone.counts() == (12, 0, 0)
    assert alone.state.slots.count(SlotState.FREE) == 3


def test_the_drain_timer_reminds_once_then_asks_for_the_recycling_of_all_who_are_silent_in_order() -> None:
    alone = Alone()
    alone.decoding()
    frame_broken(alone, foreign=True)
    again = SetTimer(ROOM, "drain", 3.0)
    assert alone.tell(Timer(ROOM, "resend")) == ()
    assert alone.tell(Timer(ROOM, "drain")) == (Send(P1, abort(ROOM)), again)
    recycle = tuple(Send(ROUTER, Recycle(worker, "owes a drain and is silent")) for worker in (P1, P2))
    for _ in range(2):
        assert alone.tell(Timer(ROOM, "drain")) == (*recycle, again)


def test_a_holder_that_is_no_process_cannot_be_recycled() -> None:
    alone = Alone()
    alone.quarantined()
    alone.state = replace(alone.state, pool=alone.state.pool.hold(ROOM, frozenset({"a reader in this process"})))
    alone.tell(Timer(ROOM, "drain"))
    alone.tell(Timer(ROOM, "drain"))
    assert [body.worker for body in alone.to_router() if isinstance(body, Recycle)] == [P1]


def test_a_receipt_that_comes_too_late_is_answered_with_another_request_to_drain() -> None:
    alone = Alone()
    alone.offered()
    receipt = alone.receipt(ROOM)
    alone.hears(ROUTER, abort(ROOM, floor=0))
    assert alone.hears(P1, receipt) == (Send(P1, abort(ROOM)),)
    assert alone.counts() == (9, 0, 3)


# --- the dead -----------------------------------------------------------------------------------------------------


def test_the_death_of_prefill_fails_its_rooms_in_order_and_no_others() -> None:
    alone = Alone(pages=9)
    alone.offered(ROOMS[0], prefill=P1)
    alone.offered(ROOMS[1], prefill=P2)
    alone.offered(ROOMS[2], prefill=P1)
    alone.offered(ROOMS[3], prefill=P1)
    alone.offered(ROOMS[4], prefill=P2)
    assert alone.waiting() == [ROOMS[3], ROOMS[4]]
    alone.hears(ROUTER, Reaped(P1))
    lost = [body for body in alone.to_router() if isinstance(body, Failed)]
    assert [body.room for body in lost] == [ROOMS[3], ROOMS[0], ROOMS[2]]
    assert {(body.error.status, body.error.code) for body in lost} == {(503, "worker_lost")}
    assert [alone.state.phase(room).value for room in ROOMS[:5]] == ["over", "reserved", "over", "over", "reserved"]


def test_the_death_of_a_prefill_without_rooms_here_leaves_those_that_wait_where_they_are() -> None:
    alone = Alone(pages=3)
    alone.offered(ROOMS[0], prefill=P1)
    alone.offered(ROOMS[1], prefill=P1)
    assert alone.hears(ROUTER, Reaped(P2)) == ()
    assert alone.waiting() == [ROOMS[1]]


def test_the_death_of_prefill_does_not_touch_what_was_committed_or_is_in_quarantine_for_another() -> None:
    alone = Alone()
    alone.decoding(ROOMS[0], prefill=P1)
    alone.quarantined(ROOMS[1], prefill=P2)
    alone.quarantined(ROOMS[2], prefill=P1)
    assert alone.hears(ROUTER, Reaped(P1)) == ()
    assert [alone.state.phase(room).value for room in ROOMS[:3]] == ["decoding", "quarantined", "over"]


# --- who is heard -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["receipt", "rejected", "drained"])
def test_only_the_rooms_own_prefill_is_heard_about_it(kind: str) -> None:
    alone = Alone()
    alone.offered(prefill=P1)
    words: dict[str, PeerMessage] = {
        "receipt": alone.receipt(ROOM),
        "rejected": Rejected(ROOM, errors.internal("")),
        "drained": Drained(ROOM),
    }
    before = alone.state
    (dropped,) = alone.hears(P2, words[kind])
    assert isinstance(dropped, Dropped)
    assert alone.state is before


def test_an_older_incarnation_is_dropped_before_anything_is_looked_at() -> None:
    alone = Alone()
    alone.offered()
    before = alone.state
    for sender, receiver in ((WorkerRef("p1", 0), ME), (P1, WorkerRef("d", 0))):
        (dropped,) = alone.tell(Envelope(sender, receiver, Drained(ROOM)))
        assert isinstance(dropped, Dropped)
        assert dropped.what == "Drained"
    assert alone.state is before


def test_offer_and_abort_carry_the_floor() -> None:
    alone = Alone()
    alone.hears(ROUTER, Offer(ROOMS[3], 2, P1, "tenant", 4, 1))
    assert alone.state.members.floor == 2
    alone.hears(ROUTER, abort(ROOMS[4], floor=3))
    assert alone.state.members.floor == 3
    alone.hears(ROUTER, abort(ROOMS[3], floor=3))
    (asked, _) = alone.effects
    assert asked == Send(P1, abort(ROOMS[3], floor=3))


def test_a_cell_of_the_table_can_be_replaced() -> None:
    def generous(_: Decisions, s: DecodeState, __: Drained) -> decode.Step:
        return replace(s, waiting=()), (Stop(ROOM),)

    alone = Alone(decisions=Decisions(cells={("decode", "decoding", Drained): generous}))
    alone.decoding()
    assert alone.hears(P1, Drained(ROOM)) == (Stop(ROOM),)
