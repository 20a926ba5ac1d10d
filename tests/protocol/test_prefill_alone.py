"""The prefill machine by itself: what it admits, in which order it speaks, and what its receipt proves."""

from __future__ import annotations

import msgspec
import pytest

from pagefence.pool.admitted import Admitted
from pagefence.protocol import errors, prefill
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Compute, Dropped, Send, SetTimer, StopCompute, WriteChunk, Zero
from pagefence.protocol.handoff import seal
from pagefence.protocol.messages import (
    Ack,
    ChunkComputed,
    ComputeFailed,
    Drained,
    Envelope,
    Failed,
    Landed,
    Reaped,
    Receipt,
    Rejected,
    Timer,
    WorkerRef,
)
from pagefence.protocol.prefill import Phase, PrefillState

from .prefill_alone import D1, D2, KEY, LIKELY, ME, ROOM, ROOMS, ROUTER, Alone, abort, prompt, start

# --- arrival ------------------------------------------------------------------------------------------------------


def test_a_start_that_fits_is_leased_at_once_zeroed_and_enqueued_with_all_that_was_asked() -> None:
    alone = Alone()
    alone.computing(tokens=6)
    lease = alone.state.pool.lease_of(ROOM)
    assert (len(lease.pages), set(lease.holders), lease.isolation_key) == (2, {D1}, "tenant")
    admitted = Admitted(ROOM, "tenant", 6, prompt(ROOM, 6))
    compute = Compute(admitted, lease.pages, start().reservation, b"hot")
    assert alone.effects == (Zero(lease.pages), compute)


@pytest.mark.parametrize("gone", [WorkerRef("d1", 2), WorkerRef("d3", 1)])
def test_a_start_for_a_decode_that_does_not_live_here_is_rejected(gone: WorkerRef) -> None:
    alone = Alone()
    alone.hears(ROUTER, start(decode=gone))
    first, second = alone.effects
    assert isinstance(first, Send)
    assert isinstance(first.body, Rejected)
    assert second == Send(gone, first.body)
    assert (first.body.error.status, first.body.error.code) == (503, "worker_lost")
    assert alone.state.phase(ROOM) is Phase.OVER


def test_a_reservation_that_names_another_writer_is_rejected() -> None:
    alone = Alone()
    words = msgspec.structs.replace(start().reservation, prefill=WorkerRef("p", 2))
    alone.hears(ROUTER, msgspec.structs.replace(start(), reservation=words))
    assert alone.rejection().code == "worker_lost"
    assert alone.counts() == (6, 0)


def test_what_the_whole_pool_could_not_hold_is_rejected_to_both_legs_and_over() -> None:
    alone = Alone(pages=2)
    alone.computing(tokens=9)
    assert alone.rejection().code == "context_length_exceeded"
    assert alone.state.phase(ROOM) is Phase.OVER
    assert alone.counts() == (2, 0)


def test_as_many_wait_as_was_allowed() -> None:
    alone = Alone(pages=2, max_waiting=1)
    for room in ROOMS[:3]:
        alone.computing(room, tokens=8)
    assert alone.rejection().status == 429
    assert alone.waiting() == [ROOMS[1]]


def test_what_does_not_fit_yet_waits_its_turn_and_a_smaller_one_does_not_overtake() -> None:
    alone = Alone(pages=3)
    alone.computing(ROOMS[0], tokens=8)
    alone.computing(ROOMS[1], tokens=8)
    alone.computing(ROOMS[2], tokens=4)
    assert (alone.waiting(), alone.effects) == ([ROOMS[1], ROOMS[2]], ())
    alone.hears(ROUTER, abort(ROOMS[0]))
    begun = [effect.admitted.owner for effect in alone.effects if isinstance(effect, Compute)]
    assert begun == [ROOMS[1], ROOMS[2]]
    assert alone.waiting() == []


def test_of_a_room_that_waits_nothing_is_cached_and_nothing_computed() -> None:
    alone = Alone(pages=2)
    alone.computing(ROOMS[0], tokens=8)
    alone.computing(ROOMS[1], tokens=8)
    waits = alone.state.requests[ROOMS[1]]
    assert (waits.phase, waits.cached, waits.computed, waits.launched, waits.landed) == ("waiting", 0, 0, 0, 0)


# --- compute, write, prove ----------------------------------------------------------------------------------------


def test_every_chunk_is_written_once_from_where_the_last_one_ended() -> None:
    alone = Alone()
    alone.computing(tokens=6)
    assert alone.tell(ChunkComputed(ROOM, 4)) == (WriteChunk(ROOM, 0, 4),)
    assert alone.state.pool.lease_of(ROOM).filled == 4
    assert alone.tell(ChunkComputed(ROOM, 6, 40)) == (WriteChunk(ROOM, 4, 6),)


@pytest.mark.parametrize("computed", [3, 4, 7])
def test_a_chunk_that_adds_nothing_or_too_much_is_dropped(computed: int) -> None:
    alone = Alone()
    alone.computing(tokens=6)
    alone.tell(ChunkComputed(ROOM, 4))
    before = alone.state
    (dropped,) = alone.tell(ChunkComputed(ROOM, computed))
    assert isinstance(dropped, Dropped)
    assert dropped.what == "ChunkComputed"
    assert alone.state is before


def test_the_receipt_goes_out_with_the_last_landing_sealed_and_says_all_that_was_written() -> None:
    alone = Alone()
    alone.in_flight(tokens=6)
    assert alone.tell(Landed(ROOM, 4, (b"one",))) == ()
    pages = start().reservation.pages
    words = Receipt(ROOM, ME, D1, tokens=6, layers=2, pages=pages, digests=(b"one", b"two"), first_token=40)
    sent = (Send(D1, seal(KEY, words)), SetTimer(ROOM, "resend", 5.0))
    assert alone.tell(Landed(ROOM, 6, (b"two",))) == sent
    assert alone.state.phase(ROOM) is Phase.SENT
    assert alone.tell(Timer(ROOM, "resend")) == sent
    assert alone.tell(Timer(ROOM, "drain")) == ()


def test_the_receipt_names_only_pages_that_were_written_also_when_a_faulty_admission_shortens_the_prompt() -> None:
    alone = Alone(decisions=Decisions(admit_prompt=lambda m, _: Admitted(m.room, "tenant", 4, m.token_ids[:4])))
    alone.computing(tokens=6)
    alone.tell(ChunkComputed(ROOM, 4, 40))
    receipt, _ = alone.tell(Landed(ROOM, 4, (b"one",)))
    assert isinstance(receipt, Send)
    assert isinstance(receipt.body, Receipt)
    assert receipt.body.pages == start(tokens=6).reservation.pages[:1]


def test_the_receipt_carries_the_first_tokens_log_probability_under_its_seal() -> None:
    alone = Alone()
    alone.computing(tokens=6)
    alone.tell(ChunkComputed(ROOM, 6, 40, LIKELY))
    sent, _ = alone.tell(Landed(ROOM, 6, (b"one", b"two")))
    assert isinstance(sent, Send)
    assert isinstance(sent.body, Receipt)
    assert sent.body.first_logprobs == LIKELY
    assert sent.body == seal(KEY, sent.body)


@pytest.mark.parametrize("scene", ["computing", "waiting", "draining"])
def test_a_timer_finds_nothing_to_say_again_where_no_receipt_was_sent(scene: str) -> None:
    alone = Alone(pages=2)
    if scene == "waiting":
        alone.computing(ROOMS[1], tokens=8)
    alone.draining() if scene == "draining" else alone.computing()
    assert alone.state.phase(ROOM) == scene
    (dropped,) = alone.tell(Timer(ROOM, "resend"))
    assert isinstance(dropped, Dropped)


def test_what_has_landed_before_the_first_token_is_known_proves_nothing_yet() -> None:
    alone = Alone()
    alone.computing(tokens=6)
    alone.tell(ChunkComputed(ROOM, 6, None))
    assert alone.tell(Landed(ROOM, 6, (b"one", b"two"))) == ()
    assert alone.state.phase(ROOM) is Phase.COMPUTING


def test_an_acknowledged_receipt_frees_the_source_and_the_next_prompt_begins() -> None:
    alone = Alone(pages=2)
    alone.sent(ROOMS[0], tokens=8)
    alone.computing(ROOMS[1], tokens=8)
    assert alone.counts() == (0, 2)
    zero, compute = alone.hears(D1, Ack(ROOMS[0]))
    assert isinstance(zero, Zero)
    assert isinstance(compute, Compute)
    assert compute.admitted.owner == ROOMS[1]
    assert alone.state.phase(ROOMS[0]) is Phase.OVER


def test_source_pages_are_kept_while_the_decision_to_release_is_no() -> None:
    alone = Alone(decisions=Decisions(may_release=lambda lease: False))
    alone.sent()
    assert alone.hears(D1, Ack(ROOM)) == ()
    assert (alone.state.phase(ROOM), alone.counts()) == ("sent", (4, 2))


# --- the ways out -------------------------------------------------------------------------------------------------


def test_an_abort_that_comes_first_is_drained_leaves_a_tombstone_and_raises_the_floor() -> None:
    alone = Alone()
    assert alone.hears(ROUTER, abort(ROOMS[3], floor=2)) == (Send(D1, Drained(ROOMS[3])),)
    assert [alone.state.phase(room).value for room in ROOMS[:5]] == ["over", "over", "new", "over", "new"]
    assert alone.hears(ROUTER, start(ROOMS[3], floor=2)) == (Send(D1, Drained(ROOMS[3])),)
    assert alone.hears(ROUTER, abort(ROOMS[3], floor=2)) == (Send(D1, Drained(ROOMS[3])),)
    alone.hears(ROUTER, start(ROOMS[4], floor=4))
    assert alone.state.members.floor == 4


def test_an_abort_takes_a_room_out_of_the_queue_and_leaves_the_others_in_order() -> None:
    alone = Alone(pages=2)
    for room in ROOMS[:4]:
        alone.computing(room, tokens=8)
    assert alone.hears(ROUTER, abort(ROOMS[2])) == (Send(D1, Drained(ROOMS[2])),)
    assert alone.waiting() == [ROOMS[1], ROOMS[3]]
    assert alone.state.phase(ROOMS[2]) is Phase.OVER


def test_an_abort_with_nothing_in_flight_stops_and_is_drained_at_once() -> None:
    alone = Alone()
    alone.computing()
    assert alone.hears(ROUTER, abort()) == (StopCompute(ROOM), Send(D1, Drained(ROOM)))
    assert alone.counts() == (6, 0)


def test_an_abort_with_writes_in_flight_is_drained_when_the_last_has_landed() -> None:
    alone = Alone()
    alone.in_flight(tokens=6)
    assert alone.hears(ROUTER, abort()) == (StopCompute(ROOM),)
    assert alone.tell(Landed(ROOM, 4, (b"one",))) == ()
    assert alone.counts() == (4, 2)
    assert alone.tell(Landed(ROOM, 6, (b"two",))) == (Send(D1, Drained(ROOM)),)
    assert alone.counts() == (6, 0)
    assert alone.state.phase(ROOM) is Phase.OVER


def test_what_lands_while_draining_is_counted() -> None:
    alone = Alone()
    alone.draining()
    alone.tell(Landed(ROOM, 4, (b"one",)))
    assert alone.state.requests[ROOM].landed == 4


def test_an_abort_after_the_receipt_is_drained_at_once_and_the_next_prompt_begins() -> None:
    alone = Alone(pages=2)
    alone.sent(ROOMS[0], tokens=8)
    alone.computing(ROOMS[1], tokens=8)
    drained, zero, compute = alone.hears(ROUTER, abort(ROOMS[0]))
    assert drained == Send(D1, Drained(ROOMS[0]))
    assert isinstance(zero, Zero)
    assert isinstance(compute, Compute)


@pytest.mark.parametrize("in_flight", [False, True])
def test_what_cannot_be_computed_is_told_to_the_router_first_then_stopped_and_drained(in_flight: bool) -> None:
    alone = Alone()
    alone.computing()
    if in_flight:
        alone.tell(ChunkComputed(ROOM, 4))
    failed = Send(ROUTER, Failed(ROOM, errors.internal("no luck")))
    drained = () if in_flight else (Send(D1, Drained(ROOM)),)
    assert alone.tell(ComputeFailed(ROOM, "no luck")) == (failed, StopCompute(ROOM), *drained)
    assert alone.state.phase(ROOM) is (Phase.DRAINING if in_flight else Phase.OVER)


# --- the dead -----------------------------------------------------------------------------------------------------


def test_the_death_of_decode_stops_what_was_for_it_in_order_and_nothing_else() -> None:
    alone = Alone(pages=9, max_waiting=9)
    alone.in_flight(ROOMS[0], tokens=8, decode=D1)
    alone.computing(ROOMS[1], tokens=8, decode=D2)
    alone.sent(ROOMS[2], tokens=8, decode=D1)
    alone.computing(ROOMS[3], tokens=8, decode=D1)
    alone.computing(ROOMS[4], tokens=24, decode=D1)
    alone.computing(ROOMS[5], tokens=12, decode=D2)
    assert alone.waiting() == [ROOMS[4], ROOMS[5]]
    alone.hears(ROUTER, Reaped(D1))
    stopped = [effect.room for effect in alone.effects if isinstance(effect, StopCompute)]
    assert stopped == [ROOMS[0], ROOMS[3]]
    phases = [alone.state.phase(room).value for room in ROOMS]
    assert phases == ["draining", "computing", "over", "over", "over", "computing"]
    assert alone.waiting() == []


def test_for_the_dead_nothing_is_begun() -> None:
    alone = Alone()
    assert alone.hears(ROUTER, Reaped(D1)) == ()
    alone.computing(decode=D1)
    assert alone.rejection().code == "worker_lost"
    alone.computing(ROOMS[1], decode=D2)
    assert alone.state.phase(ROOMS[1]) is Phase.COMPUTING


def test_writes_in_flight_to_the_dead_keep_their_source_until_they_land() -> None:
    alone = Alone()
    alone.in_flight(tokens=6)
    assert alone.hears(ROUTER, Reaped(D1)) == (StopCompute(ROOM),)
    assert alone.counts() == (4, 2)
    alone.tell(Landed(ROOM, 6, (b"one", b"two")))
    assert alone.counts() == (6, 0)


def test_what_was_draining_already_drains_on() -> None:
    alone = Alone()
    alone.draining()
    assert alone.hears(ROUTER, Reaped(D1)) == ()
    assert alone.counts() == (4, 2)


# --- who is heard -------------------------------------------------------------------------------------------------


def test_an_older_incarnation_and_a_message_for_one_are_dropped() -> None:
    alone = Alone()
    alone.sent()
    before = alone.state
    for sender, receiver in ((WorkerRef("d1", 0), ME), (D1, WorkerRef("p", 0))):
        (dropped,) = alone.tell(Envelope(sender, receiver, Ack(ROOM)))
        assert isinstance(dropped, Dropped)
    assert alone.state is before


def test_a_cell_of_the_table_can_be_replaced() -> None:
    def eager(_: Decisions, s: PrefillState, m: Ack) -> prefill.Step:
        return s, (StopCompute(m.room),)

    alone = Alone(decisions=Decisions(cells={("prefill", "computing", Ack): eager}))
    alone.computing()
    assert alone.hears(D1, Ack(ROOM)) == (StopCompute(ROOM),)
