"""The decode machine by itself: when it lets pages and rows go, and whom it waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagefence.pool.slots import SlotState
from pagefence.protocol import errors
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import Phase
from pagefence.protocol.effects import Send, SetTimer, Stop
from pagefence.protocol.messages import (
    Drained,
    Failed,
    PeerMessage,
    Reaped,
    Recycle,
    Rejected,
    Room,
    Timer,
    WorkerRef,
)

from .decode_alone import P1, P2, ROOM, ROOMS, ROUTER, Alone, abort, frame_broken

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


def test_many_silent_holders_are_named_in_order() -> None:
    """Enough of them that the order of a hash is not theirs by chance."""
    alone = Alone()
    alone.quarantined()
    others = [WorkerRef(f"q{number}", 1) for number in range(8)]
    alone.state = replace(alone.state, pool=alone.state.pool.hold(ROOM, frozenset(others)))
    alone.tell(Timer(ROOM, "drain"))
    alone.tell(Timer(ROOM, "drain"))
    assert [body.worker for body in alone.to_router() if isinstance(body, Recycle)] == [P1, *others]


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


def test_the_death_of_prefill_fails_many_rooms_in_order() -> None:
    alone = Alone(pages=24, rows=8)
    rooms = [Room(7, counter, f"n{counter}") for counter in range(8)]
    for room in reversed(rooms):
        alone.offered(room)
    alone.hears(ROUTER, Reaped(P1))
    assert [body.room for body in alone.to_router() if isinstance(body, Failed)] == rooms


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
