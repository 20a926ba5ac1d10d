"""The router by itself: whom it knows, whom it introduces, and whom it picks."""

from __future__ import annotations

import pytest

from pagefence.protocol import router
from pagefence.protocol.admission import Node
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Refuse, Restart, Send
from pagefence.protocol.messages import (
    ClientGone,
    PeerUp,
    Reaped,
    Recycle,
    WorkerGone,
    WorkerRef,
)
from pagefence.protocol.router import RouterState

from .router_alone import D1, D2, ME, P1, P2, SIZE, Alone, ask, up

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
