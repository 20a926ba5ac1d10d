"""The decode machine by itself: whom it hears, what it leases, in which order, and what it commits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagefence.pool.slots import SlotState
from pagefence.protocol import decode, errors
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeState, Phase
from pagefence.protocol.effects import Dropped, Run, Send, SetTimer, Stop, Verify, Zero
from pagefence.protocol.messages import (
    Ack,
    Committed,
    Drained,
    Envelope,
    Failed,
    Generated,
    Logprob,
    Offer,
    PagesDigested,
    PeerMessage,
    Rejected,
    Reservation,
    Timer,
    Tokens,
    WorkerRef,
)

from .decode_alone import ME, P1, P2, ROOM, ROOMS, ROUTER, Alone, abort, the_error

LIKELY = (Logprob(-0.5, ((40, -0.5), (7, -1.5))),)

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
