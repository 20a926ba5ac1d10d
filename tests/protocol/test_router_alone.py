"""The router by itself: what it says to whom in each phase of a room, whom it hears, and what it counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagefence.protocol import errors, router
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Begin, Dropped, Emit, End, Refuse, Send, SetTimer
from pagefence.protocol.messages import (
    Abort,
    Ack,
    ClientGone,
    Committed,
    Envelope,
    ErrorInfo,
    Failed,
    Finished,
    LastOrders,
    Logprob,
    Offer,
    PeerMessage,
    Recycle,
    Rejected,
    Room,
    Start,
    Submit,
    Timer,
    Tokens,
    WorkerGone,
    WorkerRef,
)
from pagefence.protocol.router import RouterState

from .router_alone import D1, D2, ME, P1, ROOM, Alone, ask, reservation, up

# --- a room's way -------------------------------------------------------------------------------------------------


def test_a_submission_is_offered_to_decode_with_a_room_of_its_own_and_a_deadline() -> None:
    alone = Alone(P1, D1, deadline_s=9.0)
    offer = Offer(ROOM, 0, P1, "tenant0", 8, 2, b"hot")
    assert alone.tell(ask(0)) == (Send(D1, offer), SetTimer(ROOM, "deadline", 9.0))
    assert alone.offered(1) == Room(7, 1, "n1")


def test_every_message_carries_the_floor_below_which_all_is_over() -> None:
    alone = Alone(P1, D1)
    for ticket in range(3):
        alone.offered(ticket)
    assert alone.state.floor == 0
    alone.tell(ClientGone(0))
    assert alone.state.floor == 1
    alone.tell(ask(3))
    (offer,) = alone.to(D1)
    assert isinstance(offer, Offer)
    assert offer.floor == 1
    for ticket in (1, 2, 3):
        alone.tell(ClientGone(ticket))
    assert alone.state.floor == 4


def test_as_many_are_in_flight_as_was_allowed() -> None:
    alone = Alone(P1, D1, max_in_flight=2)
    alone.offered(0)
    alone.offered(1)
    (refusal,) = alone.tell(ask(2))
    assert isinstance(refusal, Refuse)
    assert (refusal.ticket, refusal.error.status) == (2, 429)
    assert 2 not in alone.state.rooms


def test_a_fleet_that_is_not_ready_says_the_first_reason_to_the_client_that_asked() -> None:
    alone = Alone(P1)
    (refusal,) = alone.tell(ask(5))
    assert isinstance(refusal, Refuse)
    assert (refusal.ticket, refusal.error.code) == (5, "not_ready")
    assert refusal.error.message == "The fleet is not ready: no decode worker is alive"


def test_after_last_orders_nothing_new_is_taken_and_what_is_open_goes_on_to_its_end() -> None:
    alone = Alone(P1, D1)
    room = alone.committed()
    assert router.why_not_ready(Decisions(), alone.state) == ()
    assert alone.tell(LastOrders()) == ()
    assert router.why_not_ready(Decisions(), alone.state) == ("draining",)
    (refusal,) = alone.tell(ask(1))
    assert isinstance(refusal, Refuse)
    assert (refusal.ticket, refusal.error.status, refusal.error.code) == (1, 503, "not_ready")
    assert refusal.error.message == "The fleet is not ready: draining"
    assert refusal.error.retry_after_s
    assert alone.hears(D1, Tokens(room, 0, (5,))) == (Emit(0, (5,)),)
    assert alone.hears(D1, Finished(room, "length", 8, 1)) == (End(0, "length", 8, 1),)


def test_last_orders_outlast_every_reason_not_to_be_ready_and_every_worker_that_comes_back() -> None:
    alone = Alone(P1)
    alone.tell(LastOrders())
    alone.tell(up(D1))
    assert router.why_not_ready(Decisions(), alone.state) == ("draining",)


def test_a_reservation_starts_prefill_with_all_that_the_client_asked() -> None:
    alone = Alone(P1, D1)
    room = alone.offered()
    words = reservation(room, alone.state.requests[room])
    start = Start(room, 0, "tenant0", tuple(range(8)), words, b"hot")
    assert alone.hears(D1, words) == (Send(P1, start),)
    assert alone.state.phase(room) is router.Phase.STARTED


def test_the_commit_begins_the_answer_and_says_what_was_cached() -> None:
    alone = Alone(P1, D1)
    room = alone.started()
    assert alone.hears(D1, Committed(room, 4)) == (Begin(0, room, 4),)
    assert alone.state.phase(room) is router.Phase.COMMITTED


def test_tokens_pass_in_order_once_and_the_end_adds_up() -> None:
    alone = Alone(P1, D1)
    room = alone.committed()
    assert alone.hears(D1, Tokens(room, 0, (5,))) == (Emit(0, (5,)),)
    for again in (Tokens(room, 0, (5,)), Tokens(room, 0, ())):
        assert isinstance(alone.hears(D1, again)[0], Dropped)
    assert alone.hears(D1, Tokens(room, 1, (6, 7))) == (Emit(0, (6, 7)),)
    assert alone.hears(D1, Finished(room, "stop", 8, 3)) == (End(0, "stop", 8, 3),)
    assert alone.state.phase(room) is router.Phase.OVER
    assert not alone.state.rooms


def test_log_probabilities_go_to_the_client_with_their_tokens() -> None:
    alone = Alone(P1, D1)
    room = alone.committed()
    assert alone.hears(D1, Tokens(room, 0, (5,), (Logprob(-1.5),))) == (Emit(0, (5,), (Logprob(-1.5),)),)


@pytest.mark.parametrize(("index", "count"), [(2, 1), (0, 2)])
def test_a_gap_or_an_overlap_ends_the_stream_with_an_error(index: int, count: int) -> None:
    alone = Alone(P1, D1)
    room = alone.committed()
    alone.hears(D1, Tokens(room, 0, (5,)))
    refusal, *aborts = alone.hears(D1, Tokens(room, index, tuple(range(count))))
    assert isinstance(refusal, Refuse)
    assert (refusal.ticket, refusal.error.status) == (0, 500)
    assert refusal.error.message == f"token 1 was due, token {index} came"
    assert len(aborts) == 2


@pytest.mark.parametrize(("prompt", "completion"), [(7, 1), (9, 1), (8, 0), (8, 2)])
def test_an_end_that_does_not_add_up_is_an_error_for_the_client(prompt: int, completion: int) -> None:
    alone = Alone(P1, D1)
    room = alone.committed()
    alone.hears(D1, Tokens(room, 0, (5,)))
    refusal, *_ = alone.hears(D1, Finished(room, "stop", prompt, completion))
    assert isinstance(refusal, Refuse)
    assert (refusal.ticket, refusal.error.status) == (0, 500)
    counted = f"decode counted {prompt} prompt and {completion} new tokens, the router 8 and 1"
    assert counted in refusal.error.message


# --- the ways out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["offered", "started", "committed"])
def test_every_way_out_forgets_the_room_and_aborts_both_legs(phase: str) -> None:
    for leave in ("gone", "failed", "deadline"):
        alone = Alone(P1, D1)
        room = getattr(alone, phase)()
        if leave == "gone":
            alone.tell(ClientGone(0))
        elif leave == "failed":
            alone.hears(D1, Failed(room, errors.internal("no")))
        else:
            alone.tell(Timer(room, "deadline"))
        abort = Abort(room, 0, P1, D1)
        assert [e for e in alone.effects if isinstance(e, Send)] == [Send(D1, abort), Send(P1, abort)]
        refused = [effect for effect in alone.effects if isinstance(effect, Refuse)]
        assert len(refused) == (leave != "gone")
        assert not alone.state.requests
        assert not alone.state.rooms


def test_only_the_leg_that_lives_is_told_to_stop() -> None:
    alone = Alone(P1, D1)
    room = alone.started()
    alone.tell(WorkerGone(P1))
    aborts = [(e.to, e.body) for e in alone.effects if isinstance(e, Send) and isinstance(e.body, Abort)]
    assert [to for to, _ in aborts] == [D1]
    assert alone.state.phase(room) is router.Phase.OVER


def test_a_client_that_nobody_knows_hangs_up_without_a_trace() -> None:
    alone = Alone(P1, D1)
    alone.offered(0)
    before = alone.state
    assert alone.tell(ClientGone(9)) == ()
    assert alone.state is before


def test_the_deadline_says_how_long_it_was_and_other_timers_are_not_the_routers() -> None:
    alone = Alone(P1, D1, deadline_s=9.0)
    room = alone.offered()
    assert alone.tell(Timer(room, "drain")) == ()
    assert room in alone.state.requests
    refusal, *_ = alone.tell(Timer(room, "deadline"))
    assert isinstance(refusal, Refuse)
    assert (refusal.error.status, refusal.error.message) == (504, "no complete answer within 9 s")


@pytest.mark.parametrize("leg", [P1, D1])
def test_a_rejection_blames_the_parameter_that_the_client_used(leg: WorkerRef) -> None:
    alone = Alone(P1, D1)
    room = alone.started()
    refusal, *_ = alone.hears(leg, Rejected(room, errors.invalid("too long", "prompt")))
    assert refusal == Refuse(0, errors.invalid("too long", "messages"))


def test_a_rejection_that_blames_no_parameter_still_blames_none() -> None:
    alone = Alone(P1, D1)
    room = alone.started()
    error = ErrorInfo(503, "quarantine", "later", "server_error")
    refusal, *_ = alone.hears(D1, Rejected(room, error))
    assert refusal == Refuse(0, error)


# --- who is heard -------------------------------------------------------------------------------------------------


def test_the_dead_strangers_and_messages_for_an_earlier_router_are_not_heard() -> None:
    alone = Alone(P1, D1)
    room = alone.started()
    before = alone.state
    for sender, receiver in ((WorkerRef("d1", 0), ME), (D2, ME), (D1, WorkerRef("router", 6))):
        for body in (Committed(room), Recycle(P1, "silent")):
            alone.tell(Envelope(sender, receiver, body))
            assert isinstance(alone.effects[0], Dropped)
    assert alone.state is before


@pytest.mark.parametrize("body", [Committed(ROOM), Tokens(ROOM, 0, (1,)), Finished(ROOM, "stop", 8, 0)])
def test_prefill_may_refuse_and_fail_and_nothing_else(body: PeerMessage) -> None:
    for phase in ("started", "committed"):
        alone = Alone(P1, D1)
        getattr(alone, phase)()
        before = alone.state
        (dropped,) = alone.hears(P1, body)
        assert isinstance(dropped, Dropped)
        assert alone.state is before
    assert isinstance(alone.hears(P1, Failed(ROOM, errors.internal("no")))[0], Refuse)


def test_what_is_not_for_a_router_is_dropped() -> None:
    alone = Alone(P1, D1)
    room = alone.started()
    before = alone.state
    assert isinstance(alone.hears(D1, Ack(room))[0], Dropped)
    assert alone.state is before


def test_a_cell_of_the_table_can_be_replaced_by_phase_or_for_any() -> None:
    def any_submit(_: Decisions, s: RouterState, __: Submit) -> router.Step:
        return replace(s, counter=99), ()

    def early(s: RouterState, _: Committed) -> router.Step:
        return replace(s, counter=50), ()

    alone = Alone(P1, D1, decisions=Decisions(cells={("router", "*", Submit): any_submit}))
    alone.tell(ask())
    assert alone.state.counter == 99
    alone = Alone(P1, D1, decisions=Decisions(cells={("router", "offered", Committed): early}))
    alone.hears(D1, Committed(alone.offered()))
    assert alone.state.counter == 50
