"""The checks bite: a state with one thing wrong is refused under the rule that it breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pagefence.protocol import errors, prefill, router
from pagefence.protocol.decode_state import Phase
from pagefence.protocol.effects import Begin, Effect, Emit, End, Refuse
from pagefence.protocol.invariants import (
    Outcomes,
    Violation,
    check_decode,
    check_prefill,
    check_rest,
    check_router,
)
from pagefence.protocol.messages import Room, WorkerRef

from .stage import Stage

STRANGER = Room(7, 99, "stranger")


def breaks(rule: str, check: Any, *state: Any) -> None:
    with pytest.raises(Violation) as caught:
        check(*state)
    assert caught.value.rule_id == rule, caught.value


# --- decode -------------------------------------------------------------------------------------------------------


def test_a_page_that_is_lost_breaks_conservation() -> None:
    s = Stage().d.state
    breaks("I6", check_decode, replace(s, pool=replace(s.pool, free=s.pool.free[1:])))


def test_a_lease_without_a_room_and_a_room_without_a_lease_break_rejection_is_terminal() -> None:
    stage = Stage()
    room = stage.reserved()
    s = stage.d.state
    breaks("I3", check_decode, replace(s, pool=s.pool.drained(room, stage.p.ref).release(room)))
    request = s.requests[room]
    gone = replace(s, requests=s.requests.delete(room), slots=s.slots.release(request.slot))  # type: ignore[arg-type]
    breaks("I3", check_decode, gone)


def test_a_room_that_waits_must_be_in_the_queue_and_hold_nothing() -> None:
    stage = Stage()
    room = stage.reserved()
    s = stage.d.state
    waiting = replace(s.requests[room], phase=Phase.WAITING)
    breaks("I3", check_decode, replace(s, requests=s.requests.set(room, waiting)))
    breaks("I3", check_decode, replace(s, requests=s.requests.set(room, waiting), waiting=(room,)))


def test_a_row_may_not_be_valid_before_the_commit() -> None:
    stage = Stage()
    room = stage.reserved()
    s = stage.d.state
    slot = s.requests[room].slot
    assert slot is not None
    breaks("I4", check_decode, replace(s, slots=s.slots.fill(slot, room)))


def test_a_decoding_room_must_have_its_own_valid_row() -> None:
    stage = Stage()
    room = stage.decoding()
    s = stage.d.state
    request = s.requests[room]
    assert request.slot is not None
    slots, (other,) = s.slots.release(request.slot).reserve()
    breaks("I1", check_decode, replace(s, slots=slots))
    moved = s.requests.set(room, replace(request, slot=other))
    breaks("I1", check_decode, replace(s, slots=slots.fill(other, STRANGER), requests=moved))


def test_a_reserved_lease_without_its_prefill_among_the_holders_breaks_no_foreign_write() -> None:
    stage = Stage()
    room = stage.reserved()
    s = stage.d.state
    breaks("I2", check_decode, replace(s, pool=s.pool.drained(room, stage.p.ref)))


def test_a_quarantine_that_waits_for_a_reaped_worker_would_never_end() -> None:
    stage = Stage()
    room = stage.reserved()
    stage.fire("hand-off", room)
    s = stage.d.state
    breaks("I2", check_decode, replace(s, members=s.members.gone(stage.p.ref)))
    breaks("I6", check_decode, replace(s, pool=s.pool.drained(room, stage.p.ref)))


def test_a_reservation_of_other_pages_than_the_leased_ones_breaks_ownership() -> None:
    stage = Stage()
    room = stage.reserved()
    s = stage.d.state
    request = s.requests[room]
    free = s.pool.free[0]
    assert request.reservation is not None
    pages = tuple(msgspec.structs.replace(page, index=free) for page in request.reservation.pages)
    wrong = replace(request, reservation=msgspec.structs.replace(request.reservation, pages=pages))
    breaks("I1", check_decode, replace(s, requests=s.requests.set(room, wrong)))


def test_a_room_that_is_live_may_have_no_tombstone() -> None:
    stage = Stage()
    room = stage.computing()
    breaks("I5", check_decode, replace(stage.d.state, members=stage.d.state.members.end(room)))
    breaks("I5", check_prefill, replace(stage.p.state, members=stage.p.state.members.end(room)))


# --- prefill ------------------------------------------------------------------------------------------------------


def test_a_receipt_may_not_be_out_while_writes_are_in_flight() -> None:
    stage = Stage()
    room = stage.sent()
    s = stage.p.state
    in_flight = replace(s.requests[room], landed=0)
    breaks("I2", check_prefill, replace(s, requests=s.requests.set(room, in_flight)))


def test_more_may_not_land_than_was_launched() -> None:
    stage = Stage()
    room = stage.computing()
    s = stage.p.state
    wrong = replace(s.requests[room], landed=9)
    breaks("I6", check_prefill, replace(s, requests=s.requests.set(room, wrong)))


def test_a_prompt_that_is_over_holds_no_source_pages() -> None:
    stage = Stage()
    room = stage.computing()
    s = stage.p.state
    breaks("I3", check_prefill, replace(s, requests=s.requests.delete(room)))
    waiting = replace(s.requests[room], phase=prefill.Phase.WAITING)
    breaks("I3", check_prefill, replace(s, requests=s.requests.set(room, waiting)))


# --- router -------------------------------------------------------------------------------------------------------


def test_tickets_and_rooms_are_one_to_one() -> None:
    stage = Stage()
    room = stage.submit()
    s = stage.router
    breaks("I5", check_router, replace(s, rooms=s.rooms.delete(0)))
    breaks("I5", check_router, replace(s, rooms=s.rooms.set(1, room)))
    breaks("I5", check_router, replace(s, requests=s.requests.set(STRANGER, s.requests[room])))


def test_a_room_was_minted_by_this_router() -> None:
    stage = Stage()
    room = stage.submit()
    breaks("I9", check_router, replace(stage.router, me=WorkerRef("router", 8)))
    breaks("I9", check_router, replace(stage.router, counter=room.counter))


def test_no_token_counts_before_the_commit_and_none_beyond_what_was_asked() -> None:
    stage = Stage()
    room = stage.submit(max_new=2)
    request = stage.router.requests[room]
    early = replace(request, emitted=1)
    breaks("I3", check_router, replace(stage.router, requests=stage.router.requests.set(room, early)))
    many = replace(request, phase=router.Phase.COMMITTED, emitted=3)
    breaks("I10", check_router, replace(stage.router, requests=stage.router.requests.set(room, many)))


def test_a_room_may_not_wait_for_a_reaped_worker() -> None:
    stage = Stage()
    stage.submit()
    breaks("I5", check_router, replace(stage.router, workers=stage.router.workers.delete("p")))


# --- outcomes and rest --------------------------------------------------------------------------------------------

ROOM = Room(7, 0, "n")
END, BEGIN, TOKEN = End(0, "stop", 8, 1), Begin(0, ROOM), Emit(0, (1,))
REFUSE = Refuse(0, errors.internal("no"))


@pytest.mark.parametrize(
    ("rule", "effects"),
    [
        ("I5", (BEGIN, TOKEN, END, END)),
        ("I5", (REFUSE, REFUSE)),
        ("I5", (BEGIN, TOKEN, END, REFUSE)),
        ("I5", (BEGIN, BEGIN)),
        ("I5", (REFUSE, BEGIN)),
        ("I3", (TOKEN,)),
        ("I10", (REFUSE, TOKEN)),
        ("I4", (END,)),
        ("I6", (BEGIN, END)),
    ],
)
def test_one_outcome_and_nothing_before_begin_or_after_the_end(rule: str, effects: tuple[Effect, ...]) -> None:
    breaks(rule, Outcomes().submitted(0).saw, effects)


def test_a_good_stream_and_a_refused_one_pass() -> None:
    outcomes = Outcomes()
    outcomes = outcomes.submitted(0)
    outcomes = outcomes.saw((BEGIN, TOKEN, END))
    outcomes = outcomes.submitted(1)
    outcomes = outcomes.saw((replace(REFUSE, ticket=1),))
    assert dict(outcomes.ended) == {0: END, 1: replace(REFUSE, ticket=1)}


def test_nothing_is_sent_to_a_client_that_hung_up_and_a_ticket_is_used_once() -> None:
    outcomes = Outcomes()
    outcomes = outcomes.submitted(0)
    outcomes = outcomes.saw((BEGIN,))
    outcomes = outcomes.gone(0)
    breaks("I10", outcomes.saw, (TOKEN,))
    breaks("I9", outcomes.submitted, 0)


def test_rest_means_that_nothing_is_held_anywhere() -> None:
    stage = Stage()
    room = stage.computing()
    breaks("I5", check_rest, stage.router, [stage.p.state], [stage.d.state])
    stage.hang_up()
    breaks("I6", check_rest, stage.router, [stage.p.state], [])
    breaks("I6", check_rest, stage.router, [], [stage.d.state])
    stage.flush()
    stage.land(room)
    stage.at_rest()
    waiting = Outcomes().submitted(1)
    breaks("I5", check_rest, stage.router, [], [], waiting)
