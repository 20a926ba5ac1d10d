"""The router by itself: whom it picks, whom it introduces, what it says to whom, and what it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pagefence.pool.pages import PageRef
from pagefence.protocol import errors, router
from pagefence.protocol.admission import Node
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Begin, Dropped, Effects, Emit, End, Refuse, Restart, Send, SetTimer
from pagefence.protocol.messages import (
    Abort,
    Ack,
    Capacity,
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
    PeerUp,
    Reaped,
    Recycle,
    Rejected,
    Reservation,
    Role,
    Room,
    Start,
    Submit,
    Timer,
    Tokens,
    WorkerGone,
    WorkerRef,
    WorkerUp,
)
from pagefence.protocol.router import RouterConfig, RouterState

ME = WorkerRef("router", 7)
P1, P2, D1, D2 = (WorkerRef(name, 1) for name in ("p1", "p2", "d1", "d2"))
SIZE = Capacity(40, 4, 3)
ROOM = Room(7, 0, "n0")


def up(worker: WorkerRef, pool: int = 40) -> WorkerUp:
    role: Role = "prefill" if worker.name.startswith("p") else "decode"
    return WorkerUp(worker, role, Capacity(pool, 4, 3), f"at {worker.name}")


def ask(ticket: int = 0, prompt: int = 8, new: int = 2) -> Submit:
    return Submit(ticket, f"n{ticket}", f"tenant{ticket}", tuple(range(prompt)), new, b"hot", "messages")


class Alone:
    """The machine and its state; `effects` are those of the last step."""

    def __init__(self, *workers: WorkerRef | WorkerUp, decisions: Decisions | None = None, **config: Any) -> None:
        self.machine = router.Machine(decisions or Decisions())
        self.state = RouterState(ME, RouterConfig(24, **config))
        self.effects: Effects = ()
        for worker in workers:
            self.tell(up(worker) if isinstance(worker, WorkerRef) else worker)

    def tell(self, message: router.Input) -> Effects:
        self.state, self.effects = self.machine.step(self.state, message)
        return self.effects

    def hears(self, sender: WorkerRef, body: PeerMessage) -> Effects:
        return self.tell(Envelope(sender, ME, body))

    def to(self, worker: WorkerRef) -> list[PeerMessage]:
        """What the last step sends to a worker."""
        return [effect.body for effect in self.effects if isinstance(effect, Send) and effect.to == worker]

    def offered(self, ticket: int = 0, prompt: int = 8, new: int = 2) -> Room:
        self.tell(ask(ticket, prompt, new))
        return self.state.rooms[ticket]

    def started(self, ticket: int = 0, prompt: int = 8, new: int = 2) -> Room:
        room = self.offered(ticket, prompt, new)
        request = self.state.requests[room]
        self.hears(request.decode, reservation(room, request))
        return room

    def committed(self, ticket: int = 0, prompt: int = 8, new: int = 2) -> Room:
        room = self.started(ticket, prompt, new)
        self.hears(self.state.requests[room].decode, Committed(room))
        return room


def reservation(room: Room, request: router.Request) -> Reservation:
    return Reservation(room, request.prefill, request.decode, 8, 4, 2, (PageRef(0, 1), PageRef(1, 1)))


# --- workers ------------------------------------------------------------------------------------------------------


def test_a_newcomer_and_every_worker_of_the_other_role_are_introduced_to_each_other() -> None:
    alone = Alone(P1, P2, D1)
    alone.tell(up(D2))
    for prefill in (P1, P2):
        assert alone.to(prefill) == [PeerUp(D2, "decode", "at d2")]
    assert alone.to(D2) == [PeerUp(P1, "prefill", "at p1"), PeerUp(P2, "prefill", "at p2")]
    assert alone.to(D1) == []


def test_a_death_is_told_to_everybody_who_lives() -> None:
    alone = Alone(P1, P2, D1)
    alone.tell(WorkerGone(P1))
    assert alone.effects == (Send(D1, Reaped(P1)), Send(P2, Reaped(P1)))
    assert set(alone.state.workers) == {"p2", "d1"}


def test_news_goes_out_in_the_order_of_the_names_so_that_a_run_can_be_repeated() -> None:
    prefills = [WorkerRef(f"p{i}", 1) for i in range(9)]
    alone = Alone(*reversed(prefills))
    told = [*prefills, *(D1 for _ in prefills)]
    assert [effect.to for effect in alone.tell(up(D1)) if isinstance(effect, Send)] == told
    assert [effect.to for effect in alone.tell(WorkerGone(D1)) if isinstance(effect, Send)] == prefills


def test_the_death_of_an_older_incarnation_leaves_its_successor_in_its_place() -> None:
    alone = Alone(WorkerRef("p1", 2), D1)
    alone.tell(WorkerGone(P1))
    assert set(alone.state.workers) == {"p1", "d1"}
    assert alone.to(D1) == [Reaped(P1)]


@pytest.mark.parametrize(("dead", "phase", "lost"), [
    (P1, "offered", True), (P1, "started", True), (P1, "committed", False),
    (D1, "offered", True), (D1, "started", True), (D1, "committed", True),
    (P2, "offered", False), (D2, "committed", False),
])  # fmt: skip
def test_a_room_is_lost_with_a_worker_that_it_still_needs(dead: WorkerRef, phase: str, lost: bool) -> None:
    alone = Alone(P1, D1)
    room = getattr(alone, phase)()
    alone.tell(up(P2))
    alone.tell(up(D2))
    alone.tell(WorkerGone(dead))
    refusals = [effect for effect in alone.effects if isinstance(effect, Refuse)]
    assert [(r.ticket, r.error.status, r.error.code) for r in refusals] == ([(0, 503, "worker_lost")] if lost else [])
    assert (room in alone.state.requests) != lost


def test_rooms_that_are_lost_together_end_in_the_order_in_which_they_came() -> None:
    alone = Alone(P1, D1)
    for ticket in range(12):
        alone.offered(ticket)
    alone.tell(WorkerGone(D1))
    assert [effect.ticket for effect in alone.effects if isinstance(effect, Refuse)] == list(range(12))
    assert not alone.state.requests
    assert not alone.state.rooms


def test_a_recycling_is_asked_for_while_the_worker_lives() -> None:
    alone = Alone(P1, D1)
    assert alone.hears(D1, Recycle(P1, "silent")) == (Restart(P1, "silent"),)
    assert alone.hears(D1, Recycle(P2, "silent")) == ()
    assert alone.hears(D1, Recycle(WorkerRef("p1", 0), "silent")) == ()


def test_the_fleet_is_judged_by_the_workers_that_live_in_the_order_of_their_names() -> None:
    alone = Alone(P2, D1, P1, limit=20, headroom=1.5)
    topology = alone.state.topology
    assert topology.nodes == (Node("d1", "decode", SIZE), Node("p1", "prefill", SIZE), Node("p2", "prefill", SIZE))
    assert (topology.context, topology.headroom, topology.limit) == (24, 1.5, 20)


def test_one_small_pool_among_many_makes_the_fleet_not_ready_until_its_worker_is_gone() -> None:
    small = WorkerRef("p2", 1)
    alone = Alone(P1, up(small, 10), D1, D2)
    (reason,) = router.why_not_ready(Decisions(), alone.state)
    assert reason.startswith("p2 (prefill): pool of 10 tokens is smaller than 24 x headroom 1.25")
    alone.tell(WorkerGone(small))
    assert router.why_not_ready(Decisions(), alone.state) == ()


# --- picking ------------------------------------------------------------------------------------------------------


def picks(alone: Alone, count: int) -> list[tuple[str, str]]:
    """(prefill, decode) of as many new rooms."""
    rooms = [alone.offered(ticket) for ticket in range(100, 100 + count)]
    return [(alone.state.requests[room].prefill.name, alone.state.requests[room].decode.name) for room in rooms]


def test_rooms_go_round_by_load_and_ties_by_name() -> None:
    assert picks(Alone(P2, P1, D2, D1), 4) == [("p1", "d1"), ("p2", "d2"), ("p1", "d1"), ("p2", "d2")]


def test_who_has_less_to_do_is_picked_whatever_its_name() -> None:
    alone = Alone(P1, D1)
    alone.offered(0)
    alone.offered(1)
    for worker in (P2, D2):
        alone.tell(up(worker))
    assert picks(alone, 3) == [("p2", "d2"), ("p2", "d2"), ("p1", "d1")]


def test_a_successor_does_not_inherit_the_load_of_the_dead() -> None:
    alone = Alone(P1, P2, D1)
    alone.offered(0)
    alone.tell(up(WorkerRef("p1", 2)))
    assert picks(alone, 1) == [("p1", "d1")]
    assert alone.state.requests[alone.state.rooms[100]].prefill == WorkerRef("p1", 2)


def test_tokens_count_and_not_requests() -> None:
    alone = Alone(P1, P2, D1, D2)
    alone.offered(0, prompt=16, new=8)
    assert picks(alone, 3) == [("p2", "d2"), ("p2", "d2"), ("p1", "d2")]


def test_decode_is_picked_by_what_it_has_promised_to_generate_too() -> None:
    alone = Alone(P1, D1, D2)
    alone.offered(0, prompt=2, new=12)
    assert [decode for _, decode in picks(alone, 3)] == ["d2", "d2", "d1"]


def test_prefill_owes_nothing_for_a_prompt_that_was_handed_off() -> None:
    alone = Alone(P1, P2, D1, D2)
    for reached, then in ((alone.offered, "p2"), (alone.committed, "p1")):
        alone.state = RouterState(ME, alone.state.config, alone.state.workers)
        reached(0)
        assert picks(alone, 1) == [(then, "d2")]


def test_a_worker_whose_pool_has_no_room_left_is_picked_last() -> None:
    alone = Alone(up(P1, 30), up(P2, 60), up(D1, 36), up(D2, 60))
    alone.offered(0, prompt=20, new=1)
    alone.offered(1, prompt=22, new=1)
    assert picks(alone, 1) == [("p1", "d1")], "the fewest tokens, while there is room"
    alone.tell(ClientGone(100))
    alone.tell(ask(2, prompt=14, new=2))
    request = alone.state.requests[alone.state.rooms[2]]
    assert (request.prefill, request.decode) == (P2, D2)


def test_a_tenant_stays_where_its_prefixes_are_only_if_prefill_keeps_any() -> None:
    for keeps, prefills in ((True, {"p1", "p2"}), (False, {"p1"})):
        alone = Alone(P1, P2, D1, prefix_cache=keeps)
        homes = dict[int, str]()
        for ticket in (*range(8), *range(8)):
            room = alone.offered(ticket)
            here = alone.state.requests[room].prefill.name
            assert homes.setdefault(ticket, here) == here
            alone.tell(ClientGone(ticket))
        assert set(homes.values()) == prefills


@pytest.mark.parametrize("alive", [P1, D1])
def test_without_both_roles_nothing_is_taken_even_if_readiness_does_not_mind(alive: WorkerRef) -> None:
    alone = Alone(alive, decisions=Decisions(not_ready=lambda _: (), router_limit=lambda *_: None))
    (refusal,) = alone.tell(ask())
    assert isinstance(refusal, Refuse)
    assert (refusal.ticket, refusal.error.status, refusal.error.code) == (0, 503, "not_ready")


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
