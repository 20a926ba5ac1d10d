"""The checks of the router's state and of what clients saw, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pagefence.protocol import errors, router
from pagefence.protocol.effects import Begin, Emit, End, Refuse, Send
from pagefence.protocol.invariants import RULES, Outcomes, Violation, check_rest, check_router
from pagefence.protocol.messages import Ack, Room, WorkerRef
from pagefence.protocol.router import RouterState

from .scenes import ROUTER
from .stage import Stage
from .test_invariants_workers import says

ROOM = Room(7, 0, "n0")


def with_request(s: RouterState, room: Room = ROOM, **fields: Any) -> RouterState:
    return replace(s, requests=s.requests.set(room, replace(s.requests[room], **fields)))


@pytest.mark.parametrize("phase", ROUTER)
def test_every_phase_of_the_router_is_sound(phase: str) -> None:
    check_router(ROUTER[phase]()[0].router)


def test_a_violation_names_the_rule() -> None:
    violation = Violation("I2", "what happened")
    assert (violation.rule_id, str(violation)) == ("I2", "I2 no foreign write: what happened")
    assert [rule.name for rule in RULES.values()][-1] == "streams"


def test_one_ticket_has_one_room() -> None:
    stage, room = ROUTER["offered"]()
    s = stage.router
    other = Room(7, 1, "n1")
    twice = replace(s, counter=9, requests=s.requests.set(other, s.requests[room]))
    assert "one ticket has two rooms" in says(check_router, twice)


def test_the_rooms_by_ticket_are_those_of_the_requests() -> None:
    s = ROUTER["offered"]()[0].router
    assert says(check_router, replace(s, rooms=s.rooms.set(0, Room(7, 0, "other")))).startswith("I5")


def test_no_two_rooms_share_a_counter() -> None:
    stage = Stage()
    first, second = stage.submit(ticket=0), stage.submit(ticket=1)
    s = stage.router
    twin = Room(first.epoch, first.counter, "twin")
    requests = s.requests.delete(second).set(twin, s.requests[second])
    wrong = replace(s, requests=requests, rooms=s.rooms.set(1, twin))
    assert "I9 identity: two rooms share a counter" in says(check_router, wrong)


@pytest.mark.parametrize("wrong", ["another epoch", "a counter that was not given out yet"])
def test_a_room_was_minted_here(wrong: str) -> None:
    s = ROUTER["offered"]()[0].router
    s = replace(s, counter=0) if wrong.startswith("a counter") else replace(s, me=WorkerRef("router", 8))
    assert "I9 identity: 7-0-n0 was not minted here" in says(check_router, s)


@pytest.mark.parametrize("phase", ["offered", "started"])
def test_no_token_before_the_commit(phase: str) -> None:
    s = ROUTER[phase]()[0].router
    assert says(check_router, with_request(s, emitted=1)).startswith("I3")


def test_as_many_tokens_as_were_asked_for_and_no_more() -> None:
    s = ROUTER["committed"]()[0].router
    most = s.requests[ROOM].submit.max_new_tokens
    check_router(with_request(s, emitted=most))
    assert says(check_router, with_request(s, emitted=most + 1)).startswith("I10")


@pytest.mark.parametrize("phase", ["offered", "started"])
@pytest.mark.parametrize("leg", ["p", "d"])
def test_before_the_commit_a_room_needs_both_legs(phase: str, leg: str) -> None:
    s = ROUTER[phase]()[0].router
    assert says(check_router, replace(s, workers=s.workers.delete(leg))).startswith("I5")


def test_after_the_commit_a_room_needs_decode_alone() -> None:
    s = ROUTER["committed"]()[0].router
    check_router(replace(s, workers=s.workers.delete("p")))
    assert says(check_router, replace(s, workers=s.workers.delete("d"))).startswith("I5")
    assert s.requests[ROOM].phase is router.Phase.COMMITTED


# --- what clients saw ---------------------------------------------------------------------------------------------


def begun() -> Outcomes:
    return Outcomes().submitted(0).saw((Begin(0, ROOM),))


def test_what_is_not_for_clients_is_not_recorded() -> None:
    assert begun().saw((Send(WorkerRef("p", 1), Ack(ROOM)),)) == begun()


def test_a_stream_is_recorded_in_order_and_ends_with_its_count() -> None:
    stream = begun().saw((Emit(0, (1, 2)), Emit(0, (3,))))
    assert (stream.emitted[0], set(stream.open), set(stream.begun)) == ((1, 2, 3), {0}, {0})
    end = End(0, "stop", 8, 3)
    ended = stream.saw((end,))
    assert (dict(ended.ended), set(ended.open)) == ({0: end}, set())


@pytest.mark.parametrize("count", [0, 2])
def test_an_end_with_another_count_breaks_conservation(count: int) -> None:
    stream = begun().saw((Emit(0, (1,)),))
    assert says(stream.saw, (End(0, "stop", 8, count),)).startswith("I6")


def test_a_refusal_may_come_before_the_begin_or_in_the_middle() -> None:
    refuse = Refuse(0, errors.internal("no"))
    for outcomes in (Outcomes().submitted(0), begun()):
        assert dict(outcomes.saw((refuse,)).ended) == {0: refuse}


def test_who_hung_up_has_no_outcome_and_nothing_more_to_get() -> None:
    gone = begun().gone(0)
    assert (dict(gone.ended), set(gone.open)) == ({0: None}, set())
    assert says(gone.saw, (Emit(0, (1,)),)).startswith("I10")
    assert says(gone.saw, (End(0, "stop", 8, 0),)).startswith("I5")


def test_hanging_up_after_the_outcome_or_without_a_ticket_changes_nothing() -> None:
    end = End(0, "stop", 8, 0)
    ended = begun().saw((end,))
    assert dict(ended.gone(0).gone(1).ended) == {0: end}


def test_one_ticket_among_others_ends_alone() -> None:
    both = begun().submitted(1).saw((Begin(1, ROOM), Emit(1, (5,))))
    assert set(both.begun) == {0, 1}
    assert set(both.gone(0).open) == {1}


def test_a_ticket_is_used_once_while_it_is_open_and_after() -> None:
    assert says(begun().submitted, 0).startswith("I9")
    assert says(begun().gone(0).submitted, 0).startswith("I9")


def test_nothing_is_at_rest_while_a_client_waits() -> None:
    stage, _ = ROUTER["over"]()
    check_rest(stage.router, [], [], Outcomes())
    assert says(check_rest, stage.router, [], [], begun()).startswith("I5")
    assert says(check_rest, ROUTER["offered"]()[0].router, [], []).startswith("I5")
